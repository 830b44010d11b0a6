"""Games of this machine by the commands: a driver that is killed, one that is interrupted, and what each costs."""

import os
import re
import signal

import psutil
import pytest

from fakes.clusters import command_of, over
from fakes.fleet_in_folder import FleetInFolder
from fakes.waiting import until
from soulsgraph_clusters.fleet.gateway.status import read_status

pytestmark = pytest.mark.slow

#: Slow enough that a stage is still trained when a busy machine comes to break it.
GAMES = '[[games]]\ndriver = "simulator"\nspeed = 3.0\nlanes = 4\n' * 2


@pytest.fixture
def folder(tmp_path):
    """A folder with a file of two games, whose programs end with it."""
    folder = FleetInFolder(tmp_path, {"here": GAMES})
    yield folder
    folder.close()


def _train(folder):
    words = ("--run", folder.run, "--games", folder.folder / "here.toml", "--scale", 1.0, "--preset", "best")
    return folder.start("train", "train", "camera", *words)


def _games(training):
    """Return the processes of the games."""
    children = psutil.Process(training.pid).children(recursive=True)
    # Of the others one may end meanwhile.
    return [child for child in children if "actor.process" in " ".join(command_of(child.pid))]


def _saved(folder):
    """Return the steps of the checkpoints, the newest last."""
    return sorted(int(path.name[5:]) for path in (folder.run / "checkpoints").glob("camera-*/step-*"))


def _decisions(folder):
    return read_status(folder.run / "journal").decisions


def test_a_driver_that_is_killed_or_interrupted_leaves_no_game_and_goes_on(folder):
    first = _train(folder)
    until(lambda: _saved(folder) or not first.running, "a checkpoint")

    def both_play():
        code, text = folder.call("fleet", "status", folder.run)
        assert code == 0, text
        return re.search(r"here/1 +playing", text) and re.search(r"here/2 +playing", text)

    # One game may play to the checkpoint before the other is open.
    until(lambda: both_play() or not first.running, "play of both")
    assert first.running, first.logs()
    games = _games(first)
    assert len(games) == 2
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    until(lambda: all(map(over, games)), "an end of the games, whose learner is gone")
    saved, came = _saved(folder)[-1], _decisions(folder)["here/journaled"]

    second = _train(folder)
    until(lambda: _decisions(folder)["here/journaled"] > came or not second.running, "further steps")
    games = _games(second)
    os.kill(second.pid, signal.SIGINT)
    assert second.wait() == 130, second.logs()
    assert all(map(over, games))
    assert _saved(folder)[-1] > saved
