"""Scripts for shells, put to the shells that this machine has."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess

import pytest

from gemmsim.commands import COMMANDS
from gemmsim.commands.completion import parser_of
from gemmsim.commands.completion_scripts import SHELLS, Option, Values, Verb, script, values_of, verb, verbs
from gemmsim.device import capabilities, devices
from gemmsim.kernels import KERNELS

ODD = 'it\'s \\ [50%%: half] $HOME `id` "quoted"'
"""A help text that a script must not run."""
ALL = verbs({name: (of.summary, parser_of(of)) for name, of in COMMANDS.items()})
BY_NAME = {of.name: of for of in ALL}


def shell(name, *arguments, text=None, **settings):
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"no {name} here")
    done = subprocess.run([program, *arguments], input=text, capture_output=True, text=True, timeout=60, **settings)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def bash(line, folder=None, made_of=ALL):
    """What real bash offers at the end of a command line; `=` parts words there."""
    words = [word for word in re.split(r"( |=)", line) if word.strip()] + ([""] if line.endswith((" ",)) else [])
    text = script("bash", made_of) + (
        f"COMP_WORDS=({' '.join(map(shlex.quote, words))}); COMP_CWORD={len(words) - 1}\n"
        "_gemmsim; printf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    return sorted(filter(None, shell("bash", "--noprofile", "--norc", text=text, cwd=folder).split("\n")))


def fish(line, folder=None):
    return sorted(
        offered.split("\t")[0]
        for offered in shell(
            "fish",
            "--no-config",
            "-c",
            f"source - ; complete -C {shlex.quote(line)}",
            text=script("fish", ALL),
            cwd=folder,
        ).splitlines()
    )


@pytest.fixture(params=[bash, fish], ids=["bash", "fish"])
def offered(request):
    return request.param


def test_commands(offered):
    found = offered("gemmsim ")
    assert set(COMMANDS) <= set(found)
    assert offered("gemmsim co") == sorted(name for name in COMMANDS if name.startswith("co"))


@pytest.mark.parametrize("command", COMMANDS)
def test_options_are_those_of_the_command(command):
    """An oracle that is not ours: what argparse itself prints as help."""
    known = set(re.findall(r"(?<![\w-])(--[a-z][\w-]*)", parser_of(COMMANDS[command]).format_usage()))
    assert set(bash(f"gemmsim {command} --")) == known | {"--help"}


def test_options_in_fish():
    assert set(fish("gemmsim predict 4096 --split")) == {"--split-k"}


def test_kernels_and_devices(offered):
    assert offered("gemmsim predict 4096 --kernel ") == sorted(KERNELS)
    assert offered("gemmsim predict 4096 --kernel dou") == ["double_buffer"]
    assert offered("gemmsim ladder --device rtx-50") == [name for name in devices() if name.startswith("rtx-50")]
    assert set(offered("gemmsim devices ")) >= set(devices())
    assert offered("gemmsim completion ") == sorted(SHELLS)


def test_compute_capabilities(offered):
    assert set(offered("gemmsim occupancy --cc ")) == set(capabilities())


def test_what_nobody_knows_is_left_alone(offered):
    assert offered("gemmsim predict 4096 --tile ") == []


def test_an_equals_sign_parts_words_in_bash():
    assert bash("gemmsim predict --kernel=") == sorted(KERNELS)
    assert bash("gemmsim predict --kernel=v") == ["vectorized"]


def test_files_and_folders(offered, tmp_path):
    (tmp_path / "my gpu.toml").touch()
    (tmp_path / "mine").mkdir()
    files = offered("gemmsim compare m", tmp_path)
    assert {name.rstrip("/").replace("\\", "") for name in files} == {"my gpu.toml", "mine"}
    assert {name.rstrip("/") for name in offered("gemmsim report --out m", tmp_path)} == {"mine"}
    assert "my gpu.toml" in {name.replace("\\", "") for name in offered("gemmsim predict --device m", tmp_path)}


def test_options_after_values():
    assert bash("gemmsim predict 4096 --kernel naive --js") == ["--json"]
    assert bash("gemmsim nonsense --js") == []


def test_bash_takes_the_whole_script():
    assert "complete -o filenames -F _gemmsim gemmsim" in shell(
        "bash", "--noprofile", "--norc", text=script("bash", ALL) + "complete -p gemmsim\n"
    )


@pytest.mark.parametrize("name", SHELLS)
def test_the_script_is_one_that_the_shell_reads(name, tmp_path):
    path = tmp_path / "completion"
    path.write_text(script(name, ALL))
    assert shell(name, "-n", str(path)) == ""


@pytest.mark.parametrize("name", SHELLS)
def test_help_texts_are_never_run(name, tmp_path):
    parser = argparse.ArgumentParser()
    parser.add_argument("--odd", metavar="X", help=ODD)
    path = tmp_path / "completion"
    path.write_text(script(name, [verb("odd", ODD, parser)]))
    assert shell(name, "-n", str(path)) == ""
    if name == "zsh":
        assert r"\[50%\: half\]" in path.read_text()


def test_zsh_has_every_option():
    text = script("zsh", ALL)
    for of in ALL:
        part = text.split(f"        {of.name}) _arguments")[1].split(";;")[0]
        for option in of.options:
            assert all(f"'*{name}[" in part for name in option.names)


def test_what_an_argument_may_be():
    def of(*names, **settings):
        return values_of(argparse.ArgumentParser().add_argument(*names, **settings))

    assert of("--kernel", metavar="K") == of("--kernel", metavar="K[,K]") == Values(tuple(KERNELS))
    assert of("--device", metavar="NAME|FILE.toml") == Values(devices(), files=True)
    assert of("--dtype", metavar="T") == Values(("fp32",))
    assert of("--threads", metavar="T") == Values()
    assert of("--out", metavar="DIR") == Values(folders=True)
    assert of("--out", metavar="RECORDS.jsonl") == of("--sass", metavar="FILE") == Values(files=True)
    assert of("shell", metavar="a|b") == of("--shell", choices=("a", "b")) == Values(("a", "b"))
    assert of("--problem", metavar="M|MxNxK") == Values()


def test_an_option_of_several_values():
    (why,) = (option for option in BY_NAME["explain"].options if "--why" in option.names)
    assert why == Option(("--why",), why.text, (Values(), Values()))
    assert "'*--why[" + why.text + "]: : : : '" in script("zsh", ALL)


def test_an_option_that_means_two_things():
    """Where commands disagree, each has its own line in bash."""
    first = Verb("one", "", (Option(("--out",), "", (Values(folders=True),)),), Values())
    second = Verb("two", "", (Option(("--out",), "", ()),), Values())
    third = Verb("three", "", (Option(("--out",), "", (Values(("x",)),)),), Values())
    assert bash("gemmsim three --out ", made_of=[first, second, third]) == ["x"]
    assert bash("gemmsim two --out ", made_of=[first, second, third]) == []
    assert "*/--out" not in script("bash", [first, second])
    assert "*/--out" in script("bash", [first])


def test_the_command(gemmsim, answer, refusal):
    for name in SHELLS:
        assert gemmsim(f"completion {name}").out == answer(f"completion {name}")["script"] == script(name, ALL)
    assert refusal("completion") == "the shell is missing; known: bash, zsh, fish"
    assert refusal("completion tcsh").startswith("unknown shell 'tcsh'; nearest:")


def test_completing_starts_no_python():
    for name in SHELLS:
        assert "python" not in script(name, ALL).lower()
