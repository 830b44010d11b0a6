"""Skills train and fight in real programs: stand-in games with windows, keys and memory of their own."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from fakes.keys import virtual_screen
from fakes.stand_in import StandInProcess
from fakes.waiting import PATIENCE_S, undisturbed
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.games.standin.launch import StandInOptions
from soulsgraph_envs.games.x11 import XTestDevice

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads another process's memory as Linux gives it"),
]

SOULSGRAPH = Path(sys.executable).with_name("soulsgraph")


@pytest.fixture(scope="module")
def two_games(tmp_path_factory):
    """Two stand-ins, each on a screen of its own, and the games file that names both."""
    folder = tmp_path_factory.mktemp("games")
    with ExitStack() as stack:
        files, displays = [], []
        for index in range(2):
            displays.append(stack.enter_context(virtual_screen()))
            files.append(folder / f"{index}.toml")
            # No faster than real time: on a busy machine a faster clock falters.
            options = StandInOptions(display=displays[-1], speed=1.0, seed=index, settings=files[-1])
            stack.enter_context(StandInProcess(options))
        both = folder / "games.toml"
        both.write_text("".join(file.read_text() for file in files))
        yield both, displays


def soulsgraph(*words):
    command = [str(SOULSGRAPH), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False)


def require_no_key_down(displays):
    for display in displays:
        device = XTestDevice(display)
        assert not device.down()
        device.close()


def test_a_stage_trains_in_two_games_at_once_and_leaves_no_key_down(tmp_path, two_games):
    games, displays = two_games
    run = tmp_path / "run"
    trained = soulsgraph("train", "camera", "--run", run, "--games", games, "--scale", "0.01", "--json")
    assert trained.returncode == 0, trained.stderr
    (card,) = json.loads(trained.stdout)["skills"]
    assert card["training"]["steps"] == card["training"]["budget"]
    rows = parquet.read_table(run / "results" / "training.parquet").to_pylist()
    assert rows[-1]["step"] == card["training"]["steps"]
    assert max(row["env_runners"] for row in rows) == 2
    require_no_key_down(displays)


def test_an_agent_of_the_zoo_fights_in_two_games_by_the_command_that_evaluates_it_anywhere(two_games):
    games, displays = two_games

    def evaluated():
        played = soulsgraph("evaluate", "iudex-phase1-best-0", "--games", games, "--episodes", "2", "--json")
        if played.returncode:
            raise SoulsGraphError(played.stderr)
        return json.loads(played.stdout)

    found = undisturbed(evaluated)
    assert found["episodes"] >= 2
    assert found["mean_seconds"] > 5.0
    assert len(found["games"]) == 2
    require_no_key_down(displays)
