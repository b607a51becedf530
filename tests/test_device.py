"""The GPUs and capabilities that ship, how they are named, and device files of one's own."""

import itertools
import os
import re
import subprocess
import sys

import pytest

from gemmsim.device import (
    DATA,
    Capability,
    Device,
    capabilities,
    capability,
    device,
    devices,
    load_device,
)
from gemmsim.device.limits import LARGEST_FILE_BYTES
from gemmsim.errors import InputError

NUMBERS = ("sms", "clock_hz", "dram_bytes_per_s", "l2_bytes", "dram_bytes", "published_fp32_flop_per_s")

OWN = """
capability = "8.6"
sms = 28
clock_hz = 1.777e9
dram_bytes_per_s = 360e9
l2_bytes = 2359296
"""


# What ships.


def test_the_gpus_that_ship():
    assert " ".join(devices()) == (
        "a10 a100-40gb-pcie a100-40gb-sxm a100-80gb-sxm a30 a40 b200 h100-nvl h100-pcie h100-sxm h200 l4 l40 l40s"
        " rtx-2070 rtx-2080 rtx-2080-ti rtx-3060 rtx-3060-laptop rtx-3070 rtx-3080 rtx-3080-laptop rtx-3090"
        " rtx-4070 rtx-4080 rtx-4090 rtx-4090-laptop rtx-5070-ti rtx-5080 rtx-5090 rtx-6000-ada rtx-a4000 rtx-a6000"
        " t4 titan-rtx v100-pcie v100-sxm2"
    )


@pytest.mark.parametrize("name", devices())
def test_shipped_device_is_whole(name):
    gpu = device(name)
    assert gpu.name == name == (DATA / "devices" / f"{name}.toml").stem
    given = {key for key in (*NUMBERS, "measured_l2_bytes_per_s") if getattr(gpu, key) is not None}
    assert given >= set(NUMBERS)
    assert set(gpu.sources) == given | {"capability"}
    assert all(len(source) > 10 for source in gpu.sources.values())
    assert gpu.l2_bytes_per_s_source.startswith("inherited: ") == gpu.l2_is_inherited
    assert gpu.dram_bytes_per_s < gpu.l2_bytes_per_s < 20e12


@pytest.mark.parametrize("name", devices())
def test_published_peak_is_the_computed_one(name):
    gpu = device(name)
    published = gpu.published_fp32_flop_per_s
    assert gpu.fp32_flop_per_s == 2 * gpu.sms * gpu.fp32_lanes_per_sm * gpu.clock_hz
    if "published_fp32_flop_per_s" in gpu.notes:
        assert name == "b200"  # 80 TFLOP/s need more than its boost clock
    else:
        assert published == pytest.approx(gpu.fp32_flop_per_s, rel=0.01)


CORES = {
    "a10": 9216, "a100-40gb-pcie": 6912, "a100-40gb-sxm": 6912, "a100-80gb-sxm": 6912, "a30": 3584, "a40": 10_752,
    "h100-nvl": 16_896, "h100-pcie": 14_592, "h100-sxm": 16_896, "h200": 16_896,
    "l4": 7424, "l40": 18_176, "l40s": 18_176,
    "rtx-2070": 2304, "rtx-2080": 2944, "rtx-2080-ti": 4352,
    "rtx-3060": 3584, "rtx-3060-laptop": 3840, "rtx-3070": 5888, "rtx-3080": 8704, "rtx-3080-laptop": 6144,
    "rtx-3090": 10_496, "rtx-4070": 5888, "rtx-4080": 9728, "rtx-4090": 16_384, "rtx-4090-laptop": 9728,
    "rtx-5070-ti": 8960, "rtx-5080": 10_752, "rtx-5090": 21_760,
    "rtx-6000-ada": 18_176, "rtx-a4000": 6144, "rtx-a6000": 10_752,
    "t4": 2560, "titan-rtx": 4608, "v100-pcie": 5120, "v100-sxm2": 5120,
}  # fmt: skip
"""CUDA cores as NVIDIA's product pages give them: a count that no device file holds. None is given for the B200."""


@pytest.mark.parametrize("name", sorted(set(devices()) - {"b200"}))
def test_sms_and_lanes_make_the_cores_that_nvidia_names(name):
    assert device(name).sms * device(name).fp32_lanes_per_sm == CORES[name]


@pytest.mark.parametrize("name", devices())
def test_every_title_finds_its_device(name):
    assert device(device(name).title).name == name


def test_the_h200():
    gpu = device()
    assert gpu.name == "h200"
    assert (gpu.capability.name, gpu.capability.sm, gpu.sms) == ("9.0", "sm_90", 132)
    assert (gpu.clock_hz, gpu.l2_bytes, gpu.dram_bytes_per_s) == (1.98e9, 62_914_560, 4.8e12)
    assert gpu.capability.shared_bytes_per_block_optin == 232_448
    assert gpu.fp32_flop_per_s == pytest.approx(66.9e12, rel=1e-3)  # 2 x 132 x 128 x 1.98 GHz
    assert gpu.schedulers_per_sm == 4
    assert gpu.l2_bytes_per_s == 9.7e12
    assert gpu.l2_bytes_per_clock == pytest.approx(9.7e12 / 1.98e9)


def test_inherited_l2_scales_with_sms_and_clock():
    lender, heir = device("h200"), device("h100-sxm")
    assert heir.l2_is_inherited
    assert heir.l2_bytes_per_s == pytest.approx(lender.l2_bytes_per_s)  # the same SMs and clock
    # 9700 GB/s / 132 SMs / 1980 MHz
    assert "inherited: 37.1 bytes per clock and SM of the H200 (compute capability 9.0)" in heir.l2_bytes_per_s_source
    laptop = device("rtx-3060-laptop")  # an A40 has 84 SMs and reads 2430 GB/s at 1740 MHz
    assert laptop.l2_bytes_per_s == pytest.approx(2430e9 / 84 / 1740e6 * 30 * 1425e6)


def test_devices_are_cached_and_hashable():
    assert device("h200") is device("H200")
    assert len({device(name) for name in devices()}) == len(devices())


# Capabilities.


def test_capabilities_that_ship():
    assert " ".join(capabilities()) == (
        "5.0 5.2 5.3 6.0 6.1 6.2 7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0 10.0 10.3 11.0 12.0 12.1"
    )
    for name in capabilities():
        row = capability(name)
        assert row.name == name
        assert "CUDA" in row.source
        assert row.l2_reference.source.startswith("https://")
        assert row.max_warps_per_sm * 32 == row.max_threads_per_sm
        assert row.barriers_limit_blocks == (float(row.name) >= 9)
    with pytest.raises(InputError):
        capability("common")


@pytest.mark.parametrize(
    ("written", "name", "sm"),
    [
        ("9.0", "9.0", "sm_90"),
        ("sm_90", "9.0", "sm_90"),
        ("SM_90a", "9.0", "sm_90"),
        ("90", "9.0", "sm_90"),
        ("120", "12.0", "sm_120"),  # the last digit is the minor one: never sm_12
        ("sm_120", "12.0", "sm_120"),
        ("12.0", "12.0", "sm_120"),
        (" compute_103 ", "10.3", "sm_103"),
        (8.6, "8.6", "sm_86"),
        (12.0, "12.0", "sm_120"),
    ],
)
def test_capability_as_written(written, name, sm):
    assert (capability(written).name, capability(written).sm) == (name, sm)


@pytest.mark.parametrize(
    "written", ["2.0", "3.5", "sm_12", "12", "8.8", "13.0", "9", "nine", "", None, "9.0.0", "9" * 9999]
)
def test_capability_not_supported(written):
    with pytest.raises(InputError, match=r"is not supported; supported: 5\.0 to 12\.1 \(5\.0, .*12\.1\)") as caught:
        capability(written)
    assert len(str(caught.value)) < 300


def test_capability_refuses_nonsense():
    row = capability("8.0")
    values = {name: getattr(row, name) for name in Capability.__dataclass_fields__}
    with pytest.raises(InputError, match=r"carve-outs .* must ascend to the 167936 bytes"):
        Capability(**{**values, "carveouts_bytes": (0, 8192)})
    with pytest.raises(InputError, match="167936 bytes a block must lie from 49152 to 167936 - 1024"):
        Capability(**{**values, "shared_bytes_per_block_optin": 167_936})


# Names.


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("h200", "h200"),
        ("RTX 2080 Ti", "rtx-2080-ti"),
        ("rtx2080ti", "rtx-2080-ti"),
        ("A100_80GB-SXM", "a100-80gb-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "rtx-3060-laptop"),
        ("NVIDIA GeForce RTX 3060", "rtx-3060"),
        ("Tesla V100-PCIE-16GB", "v100-pcie"),
    ],
)
def test_name_as_written(written, name):
    assert device(written).name == name


def test_unknown_name():
    with pytest.raises(InputError, match="unknown device 'h20o'; nearest: h200"):
        device("h20o")


# Files of one's own.


def write(tmp_path, text, name="mine.toml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_own_file_may_be_short(tmp_path):
    gpu = load_device(write(tmp_path, OWN))
    assert (gpu.name, gpu.title, gpu.sms, gpu.dram_bytes, dict(gpu.sources)) == ("mine", "mine", 28, None, {})
    assert gpu.l2_is_inherited
    assert gpu == device(str(tmp_path / "mine.toml"))


def test_own_file_may_say_all(tmp_path):
    more = (
        'name = "my-gpu"\n'
        + OWN
        + '[measured_l2_bytes_per_s]\nvalue = 1_300e9\nsource = "my measurement"\nnote = "n"\n'
    )
    gpu = load_device(write(tmp_path, more))
    assert (gpu.name, gpu.l2_bytes_per_s, gpu.l2_bytes_per_s_source) == ("my-gpu", 1.3e12, "my measurement")
    assert not gpu.l2_is_inherited
    assert gpu.notes == {"measured_l2_bytes_per_s": "n"}


@pytest.mark.parametrize("without", ["capability", "sms", "clock_hz", "dram_bytes_per_s", "l2_bytes"])
def test_own_file_without_a_key(tmp_path, without):
    text = "\n".join(line for line in OWN.splitlines() if not line.startswith(without + " "))
    with pytest.raises(InputError, match=f"mine.toml: {without} is missing; needed: capability, sms, clock_hz"):
        load_device(write(tmp_path, text))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("sms = -28", "sms must not be -28; allowed: whole numbers from 1 to 4096"),
        ("sms = 0", "sms must not be 0"),
        ("sms = 27.5", "sms must not be 27.5"),
        ("sms = true", "sms must not be True"),
        ("sms = [28]", r"sms must not be \[28\]"),
        ("sms = 1" + "0" * 400, "sms must not be 1000"),
        ('sms = "' + "x" * 5000 + '"', "sms must not be 'xxx"),
        ("clock_hz = 1777", "clock_hz must not be 1777; allowed: numbers from 100000000 to 100000000000 Hz"),
        ("clock_hz = nan", "clock_hz must not be nan"),
        ("clock_hz = inf", "clock_hz must not be inf"),
        ("dram_bytes_per_s = 360", "dram_bytes_per_s must not be 360"),
        ("l2_bytes = 2.25", "l2_bytes must not be 2.25"),
        ("dram_bytes = 12", "dram_bytes must not be 12"),
        ("measured_l2_bytes_per_s = 1300", "measured_l2_bytes_per_s must not be 1300"),
        ('capability = "3.5"', "compute capability '3.5' is not supported"),
        ("capability = {}", "capability has no value"),
        ("name = 7", "name must be a text that is not empty, not 7"),
        ('title = " "', "title must be a text that is not empty"),
        ("sm = 28", "unknown key 'sm'; nearest: sms"),
        ("sms = {valu = 28, value = 28}", "unknown key 'sms.valu'; nearest: sms.value"),
        ('sms = {source = "a page"}', "sms has no value; needed: sms = "),
        ("sms = {value = 28, source = 3}", "sms.source must be a text that is not empty, not 3"),
        (
            "published_fp32_flop_per_s = 20e12",
            r"published_fp32_flop_per_s 2e\+13 is not within 3% of the 1.274e\+13 that 28 SMs of 128 lanes",
        ),
    ],
)
def test_own_file_with_a_bad_value(tmp_path, change, said):
    key = change.split(" ")[0]
    text = "\n".join(line for line in OWN.splitlines() if not line.startswith(key + " "))
    with pytest.raises(InputError, match=f"mine.toml: {said}") as caught:
        load_device(write(tmp_path, f"{text}\n{change}\n"))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_note_explains_a_peak(tmp_path):
    peak = '[published_fp32_flop_per_s]\nvalue = 20e12\nnote = "at a clock of its own"\n'
    assert load_device(write(tmp_path, OWN + peak)).published_fp32_flop_per_s == 20e12


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"sms = = 1", "is not readable as TOML: .*line 1"),
        (b"\xff\xfe\x00", "is not readable as TOML: .*utf-8"),
        (b"a = " + b"[" * 100_000, "is not readable as TOML"),
        (b"sms = 1" + b"0" * 9000, "is not readable as TOML"),
        (b"#" * (LARGEST_FILE_BYTES + 1), "is larger than 1000000 bytes"),
        (b"", "capability is missing"),
    ],
)
def test_not_a_device_file(tmp_path, content, said):
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"mine.toml:? {said}") as caught:
        load_device(path)
    assert "\n" not in str(caught.value)


def test_not_a_file(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml does not exist"):
        device(str(tmp_path / "none.toml"))
    with pytest.raises(InputError, match="is not a file"):
        load_device(tmp_path)
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match=r"pipe\.toml is not a file"):
        load_device(pipe)  # and does not wait for it


def test_a_path_will_do_and_what_is_no_name_will_not(tmp_path):
    path = write(tmp_path, OWN)
    assert device(path) == device(str(path)) == load_device(path)
    for odd in (None, 3, b"h200"):
        with pytest.raises(InputError, match="is neither a name nor a path; known: a10"):
            device(odd)


def test_a_mark_before_the_first_line_is_passed_over(tmp_path):
    path = write(tmp_path, "\ufeff" + OWN)
    assert device(path).sms == load_device(write(tmp_path, OWN)).sms


def test_a_number_out_of_range_names_the_nearest(tmp_path):
    with pytest.raises(InputError, match=r"sms must not be 0; .*; nearest: 1$"):
        load_device(write(tmp_path, re.sub("sms = .*", "sms = 0", OWN)))
    with pytest.raises(InputError, match=r"clock_hz must not be 1\.7; .* Hz; nearest: 100000000$"):
        load_device(write(tmp_path, re.sub("clock_hz = .*", "clock_hz = 1.7", OWN)))


def test_a_title_steers_no_terminal(tmp_path):
    assert device(write(tmp_path, OWN + 'title = "a\\u001b[31mb"\n')).title == "a\\x1b[31mb"


def test_device_refuses_nonsense_without_a_file():
    with pytest.raises(InputError, match="sms must not be 0"):
        Device("x", "x", capability("9.0"), sms=0, clock_hz=1e9, dram_bytes_per_s=1e12, l2_bytes=10**7)


def test_import_reads_nothing():
    heavy = ["tomllib", "pandas", "matplotlib", "rich", "pycuda"]
    code = f"import sys, gemmsim.device, gemmsim.occupancy; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_sources_differ_between_gpus():
    """A row copied and forgotten would share its page with another GPU."""
    pages = [device(name).sources["capability"] for name in devices()]
    assert all(one != other for one, other in itertools.combinations(pages, 2))
