"""Trainings under supervision: real ones, killed and interrupted while they run."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from fakes.clusters import Program
from fakes.runs import of_stage
from fakes.waiting import until

SOULSGRAPH = str(Path(sys.executable).with_name("soulsgraph"))


class Supervised:
    """A training under supervision, and the process that trains now."""

    def __init__(self, folder, *words, environment=os.environ):
        self.run = folder / "run"
        command = [SOULSGRAPH, "supervise", *words, "--run", str(self.run)]
        name = f"supervise-{len(list(folder.glob('*.log')))}"
        self._program = Program(name, command, {**environment, "OMP_NUM_THREADS": "1"}, folder)

    @property
    def logs(self):
        return self._program.logs()

    @property
    def running(self):
        """Whether the supervisor runs."""
        return self._program.running

    @property
    def training(self):
        """The process that trains; None between two of them."""
        return self._child("-m")

    def _child(self, word):
        if not self.running:
            raise AssertionError(self.logs)
        for child in psutil.Process(self._program.pid).children():
            with suppress(psutil.NoSuchProcess):
                if child.status() != psutil.STATUS_ZOMBIE and word in " ".join(child.cmdline()):
                    return child
        return None

    def started(self):
        return until(lambda: self.training, "a process that trains")

    def trains(self, beyond=0):
        """Wait until it has taken steps beyond a number."""
        until(lambda: self.training and _newest(of_stage(self.run / "curves", "camera")) > beyond, "further steps")

    def checkpoint(self):
        """Return the steps of the newest checkpoint, 0 without any."""
        return _newest(of_stage(self.run / "checkpoints", "camera"))

    def logged(self, words, times=1):
        """Wait until the supervisor has printed words this often."""
        until(lambda: self.logs.count(words) >= times or not self._program.running, f"{words!r} in its log")
        assert self.logs.count(words) >= times, self.logs

    def kill_training(self):
        """Kill the training, and wait until that was noticed."""
        restarts = self.logs.count("it restarts in")
        self.started().kill()
        until(lambda: self.logs.count("it restarts in") > restarts or not self._program.running, "the next start")

    def kill_supervisor(self):
        """Kill the supervisor alone; return the training that it leaves behind, if it is its own."""
        left = self.training
        psutil.Process(self._program.pid).kill()
        self.wait()
        return left

    def interrupt(self):
        os.kill(self._program.pid, signal.SIGINT)

    def wait(self):
        return self._program.wait()

    def close(self):
        self._program.kill()


@pytest.fixture
def supervise(tmp_path):
    """Start trainings under supervision; whatever still runs is killed at the end."""
    started = []

    def start(*words, **settings):
        started.append(Supervised(tmp_path, *words, **settings))
        return started[-1]

    yield start
    for one in started:
        one.close()


def _newest(folder):
    return max((int(path.stem.removeprefix("step-")) for path in folder.glob("step-*")), default=0)
