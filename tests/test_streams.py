"""Streams that are closed, full, narrow or of few characters; keys pressed too early; other people's settings."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gemmsim import console, streams
from gemmsim.errors import LONGEST_LINE, report_line, short, visible, warn

ROOT = Path(__file__).resolve().parent.parent
PREDICT = ("predict", "512", "--kernel", "naive")
WRONG = ("predict", "0", "--kernel", "naive")

needs_shell = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")


def run(words: Sequence[str], redirected: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m gemmsim` with its streams redirected by a shell, the words being no part of its text."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-m", "gemmsim", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "", **environment},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("columns", ["0", "1"])
@needs_shell
def test_no_width_hides_the_answer(columns):
    done = run(PREDICT, COLUMNS=columns)
    assert (done.returncode, done.stderr) == (0, "")
    assert "bound by" in done.stdout


@needs_shell
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_closed_output_is_one_that_nobody_reads(more):
    done = run([*PREDICT, *more], ">&-")
    assert (done.returncode, done.stderr) == (streams.NOBODY_READS, "")
    assert run([*WRONG, *more], ">&-").returncode == 2


@needs_shell
def test_a_closed_standard_error_hands_nothing_to_the_output():
    done = run(WRONG, "2>&-")
    assert (done.returncode, done.stdout) == (2, "")
    done = run(("predict", "108500", "--kernel", "naive", "--json"), "2>&-")  # warns of its memory
    assert done.returncode == 0
    assert done.stdout.startswith("{")
    assert run(PREDICT, ">&- 2>&-").returncode == streams.NOBODY_READS


def test_without_standard_error_python_callers_get_no_warning_on_their_output(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", None)
    warn("lost")
    assert capsys.readouterr().out == ""


@needs_shell
@needs_full
def test_a_full_standard_error_changes_no_exit_status():
    done = run(WRONG, "2>/dev/full")
    assert (done.returncode, done.stdout) == (2, "")
    assert run(("predict", "108500", "--kernel", "naive"), "2>/dev/full").returncode == 0


@needs_shell
@needs_full
@pytest.mark.parametrize("words", [("--help",), ("--version",), ("predict", "--help")])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_help_that_cannot_be_written_is_no_success(words, unbuffered):
    done = run(words, ">/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 3
    assert done.stderr == "gemmsim: error: standard output: No space left on device\n"


def test_a_key_pressed_during_imports_is_one_line(tmp_path):
    # a module that the imports meet presses Ctrl-C
    (tmp_path / "numpy.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n")
    for start in (["-m", "gemmsim"], ["-c", "import sys; from gemmsim.__main__ import main; sys.exit(main())"]):
        done = subprocess.run(
            [sys.executable, *start, *PREDICT], capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "gemmsim: error: interrupted\n")


@needs_shell
def test_a_terminal_of_few_characters_gets_escapes(tmp_path):
    file = tmp_path / "uni.toml"
    file.write_text(
        'title = "GPU \u00fc \u2603"\ncapability = "9.0"\nsms = 10\nclock_hz = 1e9\ndram_bytes_per_s = 1e12\n'
        "l2_bytes = 4096\n",
        encoding="utf-8",
    )
    done = run(("devices", str(file)), PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "GPU \\xfc \\u2603" in done.stdout
    done = run(("predict", "512", "--kernel", "n\u00e4ive"), PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert "n\\xe4ive" in done.stderr


@needs_shell
@pytest.mark.parametrize("backend", ["nonsense", "module://matplotlib_inline.backend_inline"])
def test_pictures_need_no_backend(tmp_path, backend):
    done = run(("plot", "registers", "--thread", "2x2", "--out", str(tmp_path / "tile.svg")), MPLBACKEND=backend)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "tile.svg").is_file()


def test_the_report_needs_no_backend_either(gemmsim, monkeypatch):
    monkeypatch.setattr("gemmsim.report.write_report", lambda *_: [Path(os.environ["MPLBACKEND"])])
    monkeypatch.setenv("MPLBACKEND", "nonsense")
    assert gemmsim("report --out pages --json").document["files"] == ["agg"]


def test_what_steers_a_terminal_is_written_out(capsys):
    console.line("a\x1b[31m\ud800b\nsecond")
    console.table("t\x1b", ("x",), [("c\x07\x1b]0;d",)])
    shown = capsys.readouterr().out
    assert "a\\x1b[31m\\ud800b\nsecond\n" in shown
    assert "c\\x07\\x1b]0;d" in shown
    assert visible(shown) == shown


def test_messages_are_bounded():
    for value in ("x" * 10**5, ["x" * 99] * 99, {"a": {"b": ["x"] * 999}}, 10**9999, "\x1b" * 999):
        assert len(short(value)) <= 60
        assert short(value).isprintable()
    assert (short("h200"), short(3), short(None)) == ("'h200'", "3", "None")
    assert len(report_line("x" * 10**5)) == LONGEST_LINE
    assert report_line("two\nlines \x1b") == "two lines \\x1b"


class Watched(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_long_work_is_told_only_where_somebody_watches(monkeypatch):
    for stream, told in ((Watched(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        with console.working("comparing 2,000 records"):
            pass
        assert ("comparing" in stream.getvalue()) == told
