"""The front door: commands by what people do, the version, and names that are nearly right."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from soulsgraph.cli import main
from soulsgraph.cli.front import _EXAMPLES, COMMANDS, GROUPS, command_lines, help_text, load
from soulsgraph_envs.core.extras import installed_version
from soulsgraph_envs.core.machine import usable_processors


def _printed(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["soulsgraph", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code, capsys.readouterr().out


@pytest.mark.parametrize("words", [("--help",), ("-h",)])
def test_the_help_has_every_command_in_one_group_and_examples(monkeypatch, capsys, words):
    code, shown = _printed(monkeypatch, capsys, *words)
    assert code == 0
    assert sum(len(commands) for commands in GROUPS.values()) == len(COMMANDS)
    for group, commands in GROUPS.items():
        part = shown.split(f"\n{group}:\n")[1].split("\n\n")[0]
        assert [line.split()[0] for line in part.splitlines() if line[2] != " "] == list(commands)
    assert all(f"  soulsgraph {words}\n" in shown for words, _ in _EXAMPLES)


@pytest.mark.parametrize("width", [40, 60, 110])
def test_the_help_fits_its_width(width):
    commands = help_text(width).partition("\n\nExamples:\n")[0]
    assert max(map(len, commands.splitlines())) <= width


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_shows_the_first_line_of_the_commands_docstring(name):
    function, _ = load(name)
    assert COMMANDS[name] == function.__doc__.splitlines()[0]


def test_no_command_at_all_is_an_error_that_shows_the_help(monkeypatch, capsys):
    code, shown = _printed(monkeypatch, capsys)
    assert code == 2
    assert shown.startswith("usage: soulsgraph COMMAND")


def test_the_version_is_the_distributions(monkeypatch, capsys):
    code, shown = _printed(monkeypatch, capsys, "--version")
    assert (code, shown) == (0, f"soulsgraph {installed_version()}\n")


@pytest.mark.parametrize(
    ("words", "message", "meant"),
    [
        ("evaluat runs/first", "unknown command: expected one of", "'evaluate'"),
        ("serve-sifon", "unknown command", "'serve-siphon'"),
        ("zoo lst", "unknown action of zoo: expected one of list, show, copy, verify, compare, build", "'list'"),
        ("fleet tokn pc-1", "unknown action of fleet", "'token'"),
        ("watch iudex-phase1-bst-0", "unknown agent of the zoo", "'iudex-phase1-best-0'"),
        ("evaluate iudex-phase1-best-0 --scenario vrdt", "unknown scenario", "'vordt'"),
        ("curriculum --preset bst --run never", "unknown preset", "'best'"),
        ("train dogde --run never", "unknown skill", "'dodge'"),
        ("evaluate iudex-phase1-best-0 --randomize dogde", "unknown skill", "'dodge'"),
    ],
)
def test_a_name_that_is_nearly_right_is_suggested(refuse, words, message, meant):
    found = refuse(*shlex.split(words))
    assert message in found
    assert f"Did you mean {meant}?" in found


def test_an_option_before_the_command_is_refused(refuse):
    assert "expected a command first, found '--json'" in refuse("--json", "zoo", "list")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("evaluate --episods 3 runs/first", "--episods: did you mean --episodes?"),
        ("evaluate runs/first --episods=3", "--episods: did you mean --episodes?"),
        ("zoo list --markdwn", "--markdwn: did you mean --markdown?"),
        ("bench trian", "trian: did you mean train?"),
        ("standin --at arna", "arna: did you mean arena?"),
    ],
)
def test_an_option_or_a_choice_that_is_nearly_right_is_suggested(monkeypatch, capsys, words, meant):
    monkeypatch.setattr("sys.argv", ["soulsgraph", *shlex.split(words)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == meant


@pytest.mark.parametrize("words", command_lines(), ids=" ".join)
def test_what_stands_for_a_value_says_what_it_is(monkeypatch, capsys, words):
    monkeypatch.setenv("COLUMNS", "200")
    _, shown = _printed(monkeypatch, capsys, *words, "--help")
    usage = [line.split("  ")[0] for line in shown.splitlines() if line.startswith(("│ --", "│ [", "│ <"))]
    assert not [line for line in usage if re.search(r"\b(STR|INT|FLOAT|None|PATH)\b(?!\.)", line)]
    assert "(default: None)" not in shown
    assert "(default: '')" not in shown


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_that_completes_words_has_commands_options_and_choices(monkeypatch, tmp_path, shell):
    path = tmp_path / "new" / "folder" / "script"
    monkeypatch.setattr("sys.argv", ["soulsgraph", "--tyro-write-completion", shell, str(path)])
    with pytest.raises(SystemExit):
        main()
    script = path.read_text(encoding="utf-8")
    assert all(word in script for word in (*COMMANDS, "--scenario", "commands", "certificates"))


def test_a_script_that_cannot_be_written_is_refused_in_one_line(refuse, tmp_path):
    option = "--tyro-write-completion"
    for words in ((), ("bash",), ("powershell", tmp_path / "script"), ("bash", tmp_path), ("bash", "a", "b")):
        assert "expected bash or zsh and a file to write, found" in refuse(option, *words)
    (tmp_path / "file").touch()
    assert "expected a place to write to" in refuse(option, "bash", tmp_path / "file" / "script")


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_a_command_and_an_option(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["soulsgraph", "--tyro-write-completion", "bash", str(tmp_path / "script")])
    with pytest.raises(SystemExit):
        main()
    function = '"$(complete -p soulsgraph | sed "s/.*-F \\([^ ]*\\) .*/\\1/")"'
    ask = f"COMP_WORDS=({{}}); COMP_CWORD={{}}; {function}; echo ${{{{COMPREPLY[@]}}}}"
    lines = [f"source {tmp_path}/script", ask.format("soulsgraph eva", 1), ask.format("soulsgraph evaluate --sce", 2)]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines() == ["evaluate", "--scenario"]


#: Runs every command up to its own code, with libraries that compute on two threads, and prints how many are left.
_THREADS = """
import json, os, sys
import numpy, scipy.linalg, torch
import soulsgraph.cli as cli
from soulsgraph_envs.core.machine import _loaded_openblas

def threads(set_to=None):
    counts = {}
    for number, library in enumerate(_loaded_openblas()):
        for name in ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads"):
            if hasattr(library, name.format("get")):
                if set_to is not None:
                    getattr(library, name.format("set"))(set_to)
                counts[f"blas {number}"] = getattr(library, name.format("get"))()
    if set_to is not None:
        torch.set_num_threads(set_to)
    return counts | {"torch": torch.get_num_threads(), "later": os.environ.get("OMP_NUM_THREADS")}

class App:
    def cli(self, **options):
        print(json.dumps([sys.argv[1], threads()]))

cli.make_app = lambda words: App()
print(json.dumps(["before", threads(2)]))
for command in cli.COMMANDS:
    sys.argv[1:] = [command]
    threads(2)
    cli.main()
"""


@pytest.mark.slow
def test_every_command_computes_on_one_thread(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-P", "-c", _THREADS]
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    (_, before), *found = map(json.loads, ran.stdout.splitlines())
    assert before.pop("later") is None
    assert set(before) >= {"blas 0", "torch"}
    assert set(before.values()) == {2} or usable_processors() == 1
    assert [command for command, _ in found] == list(COMMANDS)
    assert {command: counts for command, counts in found if {int(count) for count in counts.values()} != {1}} == {}
