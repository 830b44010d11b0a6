"""What needs an extra that is not installed says so in one line, with the command to type, and begins nothing."""

import subprocess
import sys
from importlib import import_module

import pytest

from soulsgraph.cli.commands import COMMANDS
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.extras import EXTRAS, check_extra, missing_module, pip_install

#: What the core has not; Windows, on a game PC, lacks the last three.
ABSENT = (*EXTRAS["train"], "fcntl", "termios", "resource")
#: The commands of a game PC, the process of a game, and what both open.
PLAYING = (
    *("soulsgraph.cli", "soulsgraph.cli.games", "soulsgraph.cli.host"),
    "soulsgraph_clusters.fleet.actor.host",
    "soulsgraph_clusters.fleet.actor.host",
    "soulsgraph_clusters.fleet.actor.spool",
    *("soulsgraph_envs.games.doctor", "soulsgraph_envs.games.live_game"),
    *("soulsgraph_envs.games.memory_link", "soulsgraph_envs.games.siphon_link"),
)
#: The modules of every command, and what those of the core import when they are called.
CORE = (
    *(f"soulsgraph.{call.partition(':')[0]}" for call in COMMANDS.values()),
    *("soulsgraph", "soulsgraph_envs", "soulsgraph.runs.evaluate", "soulsgraph.zoo", "soulsgraph.watch.playing"),
    *("soulsgraph.watch.watching", "soulsgraph.runs.lineage"),
)
_WITHOUT = """
import sys
from importlib import import_module
absent, modules = {absent}, {modules}
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
for name in absent:
    sys.modules.pop(name, None)
for name in modules:
    import_module(name)
print(sorted(set(absent) & set(sys.modules)))
"""


@pytest.mark.parametrize(("absent", "modules"), [(ABSENT, PLAYING), (EXTRAS["train"], CORE)], ids=["game pc", "core"])
def test_what_plays_imports_nothing_that_an_extra_brings(absent, modules):
    code = _WITHOUT.format(absent=(*absent,), modules=(*modules,))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_a_missing_module_is_refused_by_the_smallest_extra_that_brings_it(monkeypatch):
    check_extra("nothing", "train")
    assert missing_module("evaluate", "ray.rllib") is None
    assert missing_module("evaluate", "no_such_module") is None
    monkeypatch.setattr("soulsgraph_envs.core.extras.find_spec", lambda module: None)
    assert str(missing_module("evaluate", "pyarrow.parquet")).endswith("pip install 'soulsgraph[data]'.")
    with pytest.raises(SoulsGraphError, match="pyarrow"):
        check_extra("table", "data")
    assert pip_install("siphon") == "pip install 'soulsgraph[siphon]'"


@pytest.mark.parametrize(
    ("line", "what", "extra"),
    [
        ("train --run new", "train", "train"),
        ("evaluate iudex-phase1-best-0 --fleet fleet.toml", "evaluate --fleet", "train"),
        ("data record oracle --out new", "data record", "data"),
        ("data export iudex-phase1-best-0 --onnx --out new", "data export", "onnx"),
        ("data export fights --minari dodge --out new", "data export", "minari"),
    ],
)
def test_a_command_without_its_extra_is_refused_before_anything_is_begun(
    refuse, monkeypatch, tmp_path, line, what, extra
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("soulsgraph_envs.core.extras.find_spec", lambda module: None)
    refused = refuse(*line.split())
    assert refused.startswith(f"error: {what}: ")
    assert f"'soulsgraph[{extra}]'" in refused
    assert not [*tmp_path.iterdir()]


def test_a_module_that_is_missing_where_nothing_asked_for_it_is_one_line_too(refuse, monkeypatch):
    def fails(*_, **__):
        import_module("pyarrow.parquet")

    monkeypatch.setattr("soulsgraph_envs.core.extras.find_spec", lambda module: None)
    monkeypatch.setattr("soulsgraph.cli.agents.agent_names", fails)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "zoo: expected pyarrow" in refuse("zoo")
