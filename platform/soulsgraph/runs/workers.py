"""Processes of this machine that work beside a command: one that plays while training goes on, and those that compile.

They need neither Ray nor torch, but for the one that compiles the updates. What fights and training call is compiled
before they call it: once for a processor, in two processes, with a bar. Compiled code is kept where
`soulsgraph_envs.core.compiling` finds a place, and whatever is missing there is compiled when it is called: this only
saves the wait, and processes that would all compile the same.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import chain, pairwise
from multiprocessing import Pipe, connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

import cloudpickle
import numba
import numpy as np
from rich.console import Console
from rich.progress import track

import soulsgraph_envs
import soulsgraph_policies
from soulsgraph.results.tables import OutputConsole
from soulsgraph_envs.core.compiling import cache_folder, cache_remark, processor_kind
from soulsgraph_envs.core.machine import APART
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import STATE_SIZE
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import SKILL_NAMES, make_skill
from soulsgraph_policies.agents import inference
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.projects import carried_by_value
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.sampler import Transitions

_SERVE = "from soulsgraph.runs.workers import serve; import soulsgraph.runs.evaluate; serve({})"


class WorkerLostError(Exception):
    """The process ended before it answered."""


class WorkerProcess:
    """Call functions in a process of its own, one after another; it ends on leaving."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        #: Calls without an answer so far.
        self._open = 0

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, prepare: Callable[[], object] | None = None) -> None:
        """Start the process if it does not run: it takes seconds to load, which a first call need not wait for.

        It begins with a call of `prepare`, whose outcome nobody asks for.
        """
        if self._connection is not None:
            return
        self._connection, theirs = Pipe()
        with theirs, suppress(OSError):  # Where there is no memory for it, `result` says that it is lost.
            number = theirs.fileno()
            # -P: what lies in the present folder is none of our modules.
            command = [sys.executable, "-P", "-c", _SERVE.format(number)]
            # An interrupt from the keyboard is for the process that trains.
            apart: dict[str, Any] = {"stdin": subprocess.DEVNULL, **APART, **_inherited(number)}
            self._process = subprocess.Popen(command, **apart)
        with suppress(OSError):
            self._connection.send_bytes(cloudpickle.dumps(prepare))

    def submit(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function of a module; `result` returns the answers in this order."""
        self.start()
        assert self._connection is not None
        self._open += 1
        # It may have died: so says `result`. Skills hold functions made at run time, which plain pickle refuses.
        with suppress(OSError), carried_by_value(cloudpickle):
            self._connection.send_bytes(cloudpickle.dumps((function, arguments)))

    @property
    def answered(self) -> bool:
        """Whether `result` returns at once."""
        return self._open > 0 and self._connection is not None and self._connection.poll()

    def result(self) -> Any:
        """Wait for the next answer and return it, or raise what the function raised.

        Raises:
            WorkerLostError: if the process ended; what was submitted is lost, and the next call starts another.
        """
        assert self._connection is not None, "`submit` comes before `result`"
        try:
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self.close()
            raise WorkerLostError from error
        self._open -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    def forget(self) -> None:
        """End the process if it owes answers: whoever asked is gone."""
        if self._open:
            self.close()

    def close(self) -> None:
        """End the process, whatever it does."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._connection, self._process, self._open = None, None, 0


def _inherited(number: int) -> dict[str, Any]:
    """Return the arguments of `subprocess.Popen` by which a process inherits an end of a pipe, and no other."""
    if sys.platform != "win32":
        return {"pass_fds": [number]}
    os.set_handle_inheritable(number, True)
    return {"startupinfo": subprocess.STARTUPINFO(lpAttributeList={"handle_list": [number]})}


def serve(number: int) -> None:
    """Answer calls until the other process ends or hangs up; `number` is its end of the pipe."""
    # Windows has a class of its own.
    kind: type[Connection] = getattr(connection, "PipeConnection", Connection)
    with kind(number) as caller, suppress(EOFError, OSError):
        if (prepare := pickle.loads(caller.recv_bytes())) is not None:
            _answer(prepare, ())
        while True:
            function, arguments = pickle.loads(caller.recv_bytes())
            caller.send(_answer(function, arguments))


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        return error


#: What is in a source that numba compiles.
_COMPILED = re.compile(rb"njit|core\.compiling")
_SCENARIO, _LANES, _TICKS = "iudex-phase1", 2, 60
#: Calls that compile what they need: those of each process.
_Parts: TypeAlias = tuple[tuple[Callable[[], None], ...], ...]


def precompile(console: Console, training: bool = True) -> None:
    """Compile what training calls, or only what playing does, in two processes, unless it is, and show it.

    An interruption ends it; whatever is missing is compiled when it is called. Where training is compiled, playing is,
    too. A game's process that compiled it itself would keep the compiler's memory.
    """
    if numba.config.DISABLE_JIT:
        return
    whole, key = _stamp(), _key()
    stamp = whole if training or whole is None else whole.with_name(f"{whole.name}-playing")
    if _holds(whole, key) or _holds(stamp, key):
        return
    if remark := cache_remark():
        console.print(remark)
    if stamp is None:
        return
    what, usually = ("fights and training", "15 to 30 s") if training else ("fights", "10 to 20 s")
    console.print(f"compiling {what} for this processor, once: {usually} on two idle cores")
    parts = _PARTS if training else _PLAYING
    with suppress(WorkerLostError, OSError):
        # In a notebook rich draws a bar only by a package that few have.
        total, hidden = sum(map(len, parts)), console.is_jupyter
        for _ in track(_compiled(parts), "compiling", total, console=console, disable=hidden):
            pass
        stamp.write_text(key)


def load_playing() -> None:
    """Load the compiled code that playing calls; where it is not compiled yet, others do that."""
    if not numba.config.DISABLE_JIT and _holds(_stamp(), _key()):
        for call in chain(*_PLAYING):
            call()


def _holds(stamp: Path | None, key: str) -> bool:
    with suppress(OSError):
        return stamp is not None and stamp.read_text() == key
    return False


def _stamp() -> Path | None:
    """Return the file that says what is compiled for this kind of processor; None where nothing can be kept."""
    folder = cache_folder()
    return None if folder is None else folder / "soulsgraph-compiled"


def _key() -> str:
    """Return what compiled code depends on: the processor, numba, and the sources that numba compiles."""
    digest = hashlib.sha256(f"{numba.__version__} {processor_kind()}".encode())
    for package in (soulsgraph_envs, soulsgraph_policies):
        for source in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            # An editor's lock may be a link to nothing.
            if source.is_file() and _COMPILED.search(source.read_bytes()):
                # By these numba tells whether a file has changed.
                digest.update(f"{source} {source.stat().st_mtime_ns} {source.stat().st_size}".encode())
    return digest.hexdigest()


def _compiled(parts: _Parts) -> Iterator[None]:
    """Yield whenever a call has compiled what it needs."""
    with ExitStack() as stack:
        waiting: list[WorkerProcess] = []
        for part in parts:
            worker = stack.enter_context(WorkerProcess())
            for call in part:
                worker.submit(call)
                waiting.append(worker)
        while waiting:
            answered = [worker for worker in dict.fromkeys(waiting) if worker.answered]
            for worker in answered:
                worker.result()
                waiting.remove(worker)
                yield
            if not answered:
                time.sleep(0.02)


def _fight() -> None:
    """Play at random in the simulator."""
    skills = tuple(make_skill(name) for name in SKILL_NAMES)
    agent = Agent(load_scenario(_SCENARIO), skills, replaced=dict.fromkeys(SKILL_NAMES, "random"))
    agent.rollout(make_game(_LANES)).play(np.arange(_LANES, dtype=np.uint64), most_ticks=_TICKS)


def _play() -> None:
    """Observe, and evaluate a network for a skill of several lanes, its Q-values too."""
    skill = make_skill("camera")
    sizes = (skill.observation.size, 2, 2, len(skill.actions))
    weights: inference.Weights = {inference.MEAN: np.zeros(sizes[0]), inference.DEVIATION: np.ones(sizes[0])}
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        names = inference.layer_names_at(index)
        weights |= {names[0]: np.zeros((outputs, inputs), np.float32), names[1]: np.zeros(outputs, np.float32)}
    network = inference.FrozenNetwork.of(skill, load_scenario(_SCENARIO), weights, clip=5.0)
    rows, actions = np.zeros((_LANES, STATE_SIZE), np.float32), np.zeros((_LANES, 1), np.int64)
    network.observation(rows)
    networks = inference.FusedNetworks([network])
    networks.act(rows, np.ones((_LANES, 1), np.bool_), actions)
    networks.q_values(0, rows)


def _learn() -> None:
    """Store transitions, sample some of them, and take updates."""
    # Imported here: it takes a moment, which playing need not wait for.
    from soulsgraph_policies.learning.replay import ReplayBuffer
    from soulsgraph_policies.learning.update_kernel import CpuUpdater, FlatMemory

    inputs, hidden, actions, count = 4, 8, 2, 16
    numbers = DQNHyperparameters(count, count, train_batch_size_per_learner=count, fcnet_hiddens=(hidden, hidden))
    observations, values = np.zeros((count, inputs), np.float32), np.zeros(count, np.float32)
    whole = np.zeros(count, np.int64)
    transitions = Transitions(observations, observations, whole, values, whole > 0, whole, whole, whole)
    normalizer, replay = inference.RunningNormalizer(inputs), ReplayBuffer(numbers, inputs)
    normalizer.update(observations)
    replay.add(transitions)
    batch = replay.sample(count, np.random.default_rng(0), normalizer)
    parameters = hidden * (inputs + 1) + hidden * (hidden + 1) + actions * (hidden + 1)
    memory = FlatMemory(*(np.zeros(parameters, np.float32) for _ in range(4)))
    CpuUpdater(memory, (inputs, hidden, hidden, actions), numbers).update(batch, 0)


#: What each of two processes calls, one after another; they take about as long.
_PARTS: _Parts = ((_fight,), (_learn, _play))
_PLAYING: _Parts = ((_fight,), (_play,))

if __name__ == "__main__":
    precompile(OutputConsole())
