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
LOST = re.compile(
    r"camera: ([\d,]+) steps that were played since its last checkpoint went with the process that ended; "
    r"it goes on at ([\d,]+)"
)


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
    return [child for child in children if "local_game" in " ".join(command_of(child.pid))]


def _checkpoints(folder):
    return sorted((folder.run / "checkpoints" / "camera").glob("step-*"))


def test_a_killed_driver_leaves_no_game_and_the_run_says_what_that_cost(folder):
    first = _train(folder)
    until(lambda: _checkpoints(folder) or not first.running, "a checkpoint")
    assert first.running, first.logs()

    def both_play():
        code, text = folder.call("fleet", "status", folder.run, "--once")
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
    saved, played = int(_checkpoints(folder)[-1].name[5:]), read_status(folder.run / "games").decisions["here/played"]
    second = _train(folder)
    until(lambda: LOST.search(second.logs()) or not second.running, "a count")
    lost, at = LOST.search(second.logs()).groups()
    # A round takes all that it learns from before the budget's end.
    assert int(lost.replace(",", "")) == played - saved > 0
    assert int(at.replace(",", "")) == saved
    os.kill(second.pid, signal.SIGINT)
    assert second.wait() == 130, second.logs()
    assert read_status(folder.run / "games").decisions["here/lost"] == played - saved
    assert not (folder.run / "journal").exists()


def test_an_interrupted_stage_ends_its_games_and_goes_on_within_seconds_of_play(folder):
    first = _train(folder)
    until(lambda: _checkpoints(folder) or not first.running, "a checkpoint")
    games = _games(first)
    os.kill(first.pid, signal.SIGINT)
    assert first.wait() == 130, first.logs()
    assert "stopped in stage camera after" in first.logs()
    assert all(map(over, games))
    saved = int(_checkpoints(folder)[-1].name[5:])
    second = _train(folder)
    until(lambda: read_status(folder.run / "games").decisions.get("here/learned", 0) > saved, "further steps")
    os.kill(second.pid, signal.SIGINT)
    assert second.wait() == 130, second.logs()
