"""`gemmsim banks --kernel`: the shared accesses of a kernel, and what can be done about their conflicts."""

from __future__ import annotations

import pytest

from gemmsim.errors import MachineError

TEXTBOOK = "banks --kernel vectorized --tile 128x128x8 --thread 8x8"


def layout(entry):
    return entry["pad_a"], entry["pad_b"], entry["swizzle"]


def test_every_access(answer):
    found = answer(TEXTBOOK)
    assert [(each["name"], each["op"], each["width_bits"]) for each in found["accesses"]] == [
        ("store_a", "store", 32), ("load_a", "load", 128), ("store_b", "store", 128), ("load_b", "load", 128),
    ]  # fmt: skip
    keys = ("requests", "wavefronts", "ideal_wavefronts", "excess")
    assert [[each[key] for key in keys] for each in found["accesses"]] == [
        [32, 64, 32, 32], [128, 256, 256, 0], [8, 32, 32, 0], [128, 1024, 512, 512],
    ]  # fmt: skip
    assert [bool(each["reason"]) for each in found["accesses"]] == [True, False, False, True]
    assert (found["wavefronts"], found["ideal_wavefronts"], found["excess"]) == (1376, 832, 544)
    assert "fixes" not in found


def test_what_fix_finds(answer):
    found = answer(f"{TEXTBOOK} --fix")
    assert layout(found["baseline"]) == (0, 0, 0)
    assert [layout(each) for each in found["fixes"]] == [(0, 0, 16), (4, 0, 0)]
    best = found["fixes"][0]
    assert (best["wavefronts"], best["ideal_wavefronts"], best["excess"]) == (832, 832, 0)
    assert (best["stores"]["excess"], best["loads"]["excess"]) == (0, 0)
    assert (best["shared_bytes"], best["blocks_per_sm"], found["baseline"]["blocks_per_sm"]) == (8192, 2, 2)
    assert set(best["registers_per_thread"]) == {"value", "source"}
    assert (found["padding_clears"], found["swizzle_clears"], found["device"]) == (False, True, "h200")
    assert found["verdict"].startswith(
        "no padding up to 31 clears both the stores and the loads: the best leaves 512 of"
    )


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("--kernel vectorized --tile 128x128x8 --thread 8x4", "padding alone clears the stores and the loads"),
        ("--kernel shared", "no access has bank conflicts, so there is nothing to fix"),
        ("--kernel naive", "kernel naive has no shared memory"),
        ("--kernel register", "kernel register has no swizzle"),
        ("--kernel double_buffer --tile 128x48x8 --thread 8x4", "a swizzle needs block_m and block_n in multiples"),
        ("--kernel vectorized --tile 96x96x12 --thread 12x12", "nor does any swizzle, which leaves at least 516"),
    ],
)  # fmt: skip
def test_verdicts(answer, gemmsim, words, verdict):
    assert verdict in answer(f"banks {words} --fix")["verdict"]
    assert verdict in " ".join(gemmsim(f"banks {words} --fix").out.split())


def test_sizes_are_whole_vectors_unless_given(answer, gemmsim):
    assert answer(TEXTBOOK)["sizes"] == "at all sizes with n and k multiples of 4"
    assert answer("banks --kernel vectorized --vector 1")["sizes"] == "at all sizes"
    assert answer("banks --kernel async")["sizes"] == "at all sizes with n a multiple of 4"
    mixed = "at all sizes with n a multiple of 2 and k a multiple of 4"
    assert answer("banks --kernel warp_tiled --tile 64x64x8 --warp 32x16 --thread 8x2 --pad-b 2")["sizes"] == mixed
    ragged = answer(TEXTBOOK, "--problem", "129x131x133")
    assert ragged["problem"] == {"m": 129, "n": 131, "k": 133, "dtype": "fp32"}
    assert ragged["accesses"][0]["excess"] == 224
    assert answer(TEXTBOOK, "--problem", "4096")["accesses"] == answer(TEXTBOOK)["accesses"]
    assert "at m x n x k = 129 x 131 x 133 fp32" in gemmsim(TEXTBOOK, "--problem", "129X131x133").out


def test_tables_for_people(gemmsim):
    shown = gemmsim(f"{TEXTBOOK} --fix").out
    lines = shown.splitlines()
    assert lines[0] == "vectorized 128x128x8/8x8, at all sizes with n and k multiples of 4"
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines]
    assert ["load_b", "load", "128", "128", "1,024", "512", "512"] in rows
    assert ["all", "296", "1,376", "832", "544"] in rows
    first = next(row for row in rows if row[:1] == ["1"])
    assert first[1:7] == ["0", "0", "16", "832", "0", "0"]
    assert next(row for row in rows if row[:1] == ["now"])[4:7] == ["1,376", "32", "512"]
    assert "pad_a 4 clears it" in " ".join(shown.split())
    assert "--fix searches" in gemmsim(TEXTBOOK).out
    assert "--fix searches" not in gemmsim("banks --kernel shared").out


def test_the_device_decides_what_fits(answer, refusal):
    assert answer(f"{TEXTBOOK} --fix --device rtx-3090")["device"] == "rtx-3090"
    large = "banks --kernel shared --tile 32x32x1024"
    assert answer(large)["wavefronts"] > 0  # no device was asked about
    assert "allowed on h200: up to 232448 bytes" in refusal(f"{large} --fix")
    assert "allowed on rtx-3090: up to 101376 bytes" in refusal(f"{large} --device rtx-3090")


def test_registers_by_the_compiler(answer, gemmsim, monkeypatch, refusal):
    class Cubin:
        registers_per_thread, spill_bytes = 130, 0

    monkeypatch.setattr("gemmsim.gpu.compile.compile_kernel", lambda *_: Cubin())
    found = answer(f"{TEXTBOOK} --fix --compile")
    for each in (found["baseline"], *found["fixes"]):
        assert each["registers_per_thread"] == {"value": 130, "source": "compiler"}
        assert each["blocks_per_sm"] == 1  # 256 threads of 136 registers
    assert "estimate" not in gemmsim(f"{TEXTBOOK} --fix --compile").out
    Cubin.spill_bytes = 24
    warned = gemmsim(f"{TEXTBOOK} --fix --compile --json").err
    assert "pad_a 0, pad_b 0, swizzle 16: the compiler spills 24 bytes" in warned

    def missing(*_):
        raise MachineError("nvcc is not here")

    monkeypatch.setattr("gemmsim.gpu.compile.compile_kernel", missing)
    assert refusal(f"{TEXTBOOK} --fix --compile", status=3) == "nvcc is not here"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--kernel vectorised", "unknown kernel 'vectorised'; nearest: vectorized"),
        ("--kernel vectorized --problem 128x128", "--problem '128x128' is not of the form M or MxNxK"),
        ("--kernel vectorized --problem 0", "m 0 is out of range"),
        ("--kernel vectorized --problem -4", "--problem"),
        ("--kernel vectorized --compile", "--compile takes the registers of what --fix finds; give both"),
        ("--kernel vectorized --swizzle 6", "swizzle 6 is not 0 or a power of two that keeps 4-element accesses whole;"
         " allowed: 0, 4, 8, 16, nearest 4"),
        ("--kernel vectorized --tile 120x128x8 --swizzle 8", "allowed with swizzle 8: multiples of 32, nearest 128"),
        ("--kernel vectorized --device h2", "unknown device 'h2'"),
    ],
)  # fmt: skip
def test_bad_input(refusal, words, message):
    assert message in refusal(f"banks {words}")
