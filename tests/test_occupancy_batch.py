"""Files of cases: whatever they hold, the rows before the first bad one are answered, and the bad one is named."""

from __future__ import annotations

import csv
import gzip
import io
import tracemalloc

import numpy as np
import pytest
import slow_occupancy
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmsim.device import capabilities, capability
from gemmsim.errors import InputError
from gemmsim.occupancy.batch import COLUMNS, amount, carveout_percent, occupancy_pieces

NAMES = ",".join(COLUMNS)
GOOD = "9.0,256,122,0,16384,default"
TWO = 2
"""Blocks of the good row."""


@pytest.fixture
def file(tmp_path):
    def write(content, name="cases.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def blocks(path, piece_rows=3):
    """(blocks of all rows before an error, the error if there is one)."""
    found = []
    try:
        for piece in occupancy_pieces(path, piece_rows):
            found += piece.occupancy.blocks_per_sm.tolist()
    except InputError as error:
        return found, str(error)
    return found, None


@pytest.mark.parametrize("count", range(8))
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
def test_every_row_is_answered_whatever_ends_lines(file, count, end):
    text = (end or "\n").join([NAMES, *[GOOD] * count]) + end
    assert blocks(file(text)) == ([TWO] * count, None)


@pytest.mark.parametrize(
    "row",
    [
        "sm_90,256,122,0,16384,default",
        "90,256,122,0,16384,100",
        '"9.0","256","122","0","16384","default"',
        " 9.0, 256 ,122 , 0,16384,  Default ",
        "9.0,+256,0122,0,16384,default",
        "9.0,256,122,8192,8192,default,more,cells",
    ],
)
def test_cells_as_people_write_them(file, row):
    assert blocks(file(f"{NAMES}\n{row}\n{GOOD}\n")) == ([TWO, TWO], None)


def test_columns_in_any_order_among_others(file):
    text = "name, Dynamic_SMEM ,carveout,cc,regs_per_thread,static_smem,threads_per_block,barriers\n"
    assert blocks(file(text + '"a, b",16384,default,9.0,122,0,256,1\nc,0,50,9.0,32,0,32,16\n')) == ([2, 4], None)


def test_blank_lines_and_a_byte_order_mark(file):
    content = b"\xef\xbb\xbf\n" + f"\n{NAMES}\n\n{GOOD}\n\n\n{GOOD}\n\n".encode()
    assert blocks(file(content)) == ([TWO, TWO], None)


def test_compressed_or_not_the_name_does_not_matter(file):
    text = f"{NAMES}\n{GOOD}\n"
    for name in ("cases.csv", "cases.csv.gz"):
        assert blocks(file(text, name)) == ([TWO], None)
        assert blocks(file(gzip.compress(text.encode(), mtime=0), name)) == ([TWO], None)


def test_a_block_that_cannot_launch_is_an_answer(file):
    rows = ["9.0,0,32,0,0,default", "9.0,2000,32,0,0,0", "9.0,32,300,0,0,1", GOOD]
    rows += [f"9.0,32,32,{large},0,default" for large in (2**31, 2**63 - 1, 2**63, 10**30)]
    for piece_rows in (1, 100):
        assert blocks(file("\n".join([NAMES, *rows])), piece_rows) == ([0, 0, 0, TWO, 0, 0, 0, 0], None)
    assert blocks(file(f"{NAMES},barriers\n{GOOD},17\n")) == ([0], None)


BAD_CELLS = {
    "2.0,256,122,0,0,default": "cc: compute capability '2.0' is not supported; supported: 5.0 to 12.1",
    ",256,122,0,0,default": "cc: compute capability '' is not supported",
    "9.0,-1,122,0,0,default": "threads_per_block '-1' is not a whole number of 0 or more; nearest: 0",
    "9.0,2.5,122,0,0,default": "threads_per_block '2.5' is not a whole number of 0 or more; nearest: 2",
    "9.0,256,many,0,0,default": "regs_per_thread 'many' is not a whole number of 0 or more",
    "9.0,256,1_0,0,0,default": "regs_per_thread '1_0' is not",
    "9.0,256,\u0663,0,0,default": "regs_per_thread '\u0663' is not",
    "9.0,256,122,,0,default": "static_smem '' is not a whole number of 0 or more",
    "9.0,256,122,0,nan,default": "dynamic_smem 'nan' is not a whole number of 0 or more",
    "9.0,256,122,0,1e3,default": "dynamic_smem '1e3' is not a whole number of 0 or more; nearest: 1000",
    "9.0,256,122,0,0,101": "carveout 101 is out of range; allowed: default, and 0 to 100; nearest: 100",
    "9.0,256,122,0,0,most": "carveout 'most' is not a whole number of 0 or more; allowed: default, and 0 to 100",
    "9.0,256,122,0,0,": "carveout '' is not",
    "9.0,256,122,0": "dynamic_smem is missing: the row has 4 cells",
    ",": "cc: compute capability ''",
    "9.0,256,\x00,0,0,default": "regs_per_thread '\\x00' is not",
}


@pytest.mark.parametrize("bad", BAD_CELLS)
@pytest.mark.parametrize("before", [0, 1, 2, 3, 7])
def test_a_bad_cell_is_named_and_the_rows_before_it_are_answered(file, bad, before):
    path = file("\n".join([NAMES, *[GOOD] * before, bad, GOOD, "9.0,worse,1,1,1,1"]))
    found, error = blocks(path)
    assert found == [TWO] * before
    assert error.startswith(f"{path}, row {before + 1} (line {before + 2}): {BAD_CELLS[bad]}")
    assert "\n" not in error


def test_the_line_is_that_of_the_file_though_cells_span_lines(file):
    path = file(f'{NAMES},note\n{GOOD},"two\nlines"\n\n{GOOD},"three\n\nlines"\n{GOOD},bad\n9.0,x\n{GOOD},"a\nb"\n')
    found, error = blocks(path, piece_rows=100)
    assert (found, error[len(str(path)) :]) == (
        [TWO] * 3, ", row 4 (line 9): threads_per_block 'x' is not a whole number of 0 or more",
    )  # fmt: skip
    assert path.read_text().split("\n")[8] == "9.0,x"


def test_bytes_that_are_not_text(file):
    good, bad = f"{NAMES},note\n{GOOD},\xff\n".encode("latin-1"), b"9.0,256,\xff,0,0,default\n"
    assert blocks(file(good)) == ([TWO], None)  # nobody looks at that column
    found, error = blocks(file(good + bad))
    assert found == [TWO]
    assert "row 2 (line 3): regs_per_thread '\\udcff' is not a whole number" in error


@pytest.mark.parametrize("name", COLUMNS)
def test_a_missing_column_is_named(file, name):
    others = [column for column in COLUMNS if column != name]
    found, error = blocks(file(",".join(others) + "\n1,2,3,4,5\n"))
    assert found == []
    assert f"row of names: column {name} is missing; needed: {NAMES}; there: '{others[0]}" in error


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty; needed: a first row with the columns cc, threads_per_block"),
        ("\n\n", "is empty"),
        (f"{GOOD}\n", "column cc is missing"),
        (NAMES.replace(",", ";") + "\n", "column cc is missing"),
        (f"{NAMES},cc\n", "column cc is there 2 times"),
        (NAMES.encode("utf-16"), "is text in UTF-16; allowed: UTF-8"),
        (b"\x1f\x8b\x08 and no more", "the file is damaged"),
        (gzip.compress(f"{NAMES}\n".encode(), mtime=0)[:9], "the file is damaged"),
    ],
)
def test_files_without_a_case_that_can_be_used(file, content, said):
    found, error = blocks(file(content))
    assert found == []
    assert said in error


def test_a_file_of_names_alone_has_no_cases(file):
    (piece,) = occupancy_pieces(file(f"{NAMES}\n"))
    assert (piece.header, piece.rows, piece.occupancy.blocks_per_sm.size) == (list(COLUMNS), [], 0)


def test_files_that_are_not_there(tmp_path):
    assert blocks(tmp_path / "none.csv") == ([], f"cannot read {tmp_path / 'none.csv'}: No such file or directory")
    assert blocks(tmp_path)[1] == f"cannot read {tmp_path}: Is a directory"


def test_a_quote_that_never_ends(file):
    found, error = blocks(file(f'{NAMES},note\n{GOOD},\n{GOOD},"and so on\n{GOOD}\n'), piece_rows=100)
    assert found == [TWO]
    assert "after line" in error
    assert "the file is damaged (unexpected end of data)" in error


def test_what_was_compressed_and_cut_off_is_answered_as_far_as_it_goes(file):
    rows = 20_000
    content = gzip.compress(f"{NAMES}\n".encode() + f"{GOOD}\n".encode() * rows, compresslevel=0)
    found, error = blocks(file(content[: len(content) // 2]), piece_rows=1000)
    assert 0.4 * rows < len(found) < 0.5 * rows
    assert set(found) == {TWO}
    assert f"after line {len(found) + 1}: the file is damaged (Compressed file ended" in error
    broken = bytearray(content)
    broken[-6] ^= 1  # the checksum
    found, error = blocks(file(bytes(broken)), piece_rows=1000)
    assert len(found) == rows
    assert "damaged (CRC check failed" in error


cells = st.tuples(
    st.sampled_from(capabilities()),
    st.integers(0, 1100),
    st.integers(0, 300),
    st.integers(0, 60_000),
    st.integers(0, 240_000),
    st.none() | st.integers(0, 100),
    st.integers(0, 20),
)


@settings(max_examples=50)
@given(st.lists(cells, max_size=12), st.integers(1, 5), st.booleans())
def test_rows_in_pieces_of_any_size_are_the_cases_one_by_one(tmp_path_factory, cases, piece_rows, spaced):
    text = io.StringIO()
    write = csv.writer(text)
    write.writerow([*COLUMNS, "barriers"])
    for case in cases:
        shown = ["default" if cell is None else cell for cell in case]
        write.writerow([f"{cell} " for cell in shown] if spaced else shown)
    path = tmp_path_factory.mktemp("cases") / "cases.csv"
    path.write_text(text.getvalue())
    expected = [slow_occupancy.blocks_per_sm(capability(cc), *block) for cc, *block in cases]
    at = 0
    for piece in occupancy_pieces(path, piece_rows):
        assert len(piece.rows) <= piece_rows
        for row in range(len(piece.rows)):
            limiters = [name for name, limiting in piece.occupancy.limiters.items() if limiting[row]]
            assert (piece.occupancy.blocks_per_sm[row], limiters) == expected[at]
            at += 1
    assert at == len(cases)


def test_memory_does_not_grow_with_the_file(file):
    def peak(rows):
        path = file(f"{NAMES}\n" + f"{GOOD}\n" * rows)
        for _ in occupancy_pieces(path):
            pass  # what is kept for ever is there now
        tracemalloc.start()
        total = sum(len(piece.rows) for piece in occupancy_pieces(path))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert total == rows
        return most

    assert peak(24_000) < 1.1 * peak(12_000)


@pytest.mark.parametrize(("text", "number"), [("0", 0), (" 17 ", 17), ("+5", 5), ("007", 7), ("9" * 30, 10**30 - 1)])
def test_amounts(text, number):
    assert amount(text, "threads") == number


@pytest.mark.parametrize("text", ["", " ", "-0", "-5", "1.5", "1e3", "1_0", "0x10", "inf", "nan", "\u0664", "9" * 101])
def test_what_is_no_amount(text):
    with pytest.raises(InputError, match=r"^threads .* is not a whole number of 0 or more"):
        amount(text, "threads")


def test_carveouts():
    assert [carveout_percent(text, "carveout") for text in ("default", " DEFAULT ", "0", "100")] == [None, None, 0, 100]
    with pytest.raises(InputError, match="carveout 101 is out of range; allowed: default, and 0 to 100; nearest: 100"):
        carveout_percent("101", "carveout")


def test_numbers_of_rows_that_programs_wrote_take_the_quick_way(file, monkeypatch):
    monkeypatch.setattr("gemmsim.occupancy.batch._number", lambda *_: pytest.fail("cell by cell"))
    assert blocks(file(f"{NAMES}\n{GOOD}\n7.5,64,32,0,{2**31},50\n"))[0] == [TWO, 0]
    assert np.array_equal(blocks(file(f"{NAMES},barriers\n{GOOD},1\n"))[0], [TWO])
