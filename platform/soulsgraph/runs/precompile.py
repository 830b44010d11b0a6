"""Compile what fights and training call before they do: once for a processor, in two processes, with a bar.

Compiled code is kept where `soulsgraph_envs.core.compiling` finds a place, and whatever is missing there is compiled
when it is called: this only saves the wait, and processes that would all compile the same.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numba
import numpy as np
from rich.console import Console
from rich.progress import track

import soulsgraph_envs
import soulsgraph_policies
from soulsgraph.results.tables import OutputConsole
from soulsgraph.runs.worker_process import WorkerLostError, WorkerProcess
from soulsgraph_envs.core.compiling import cache_folder, cache_remark, processor_kind
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import STATE_SIZE
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import SKILL_NAMES, make_skill
from soulsgraph_policies.agents import inference
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.sampler import Transitions

#: What is in a source that numba compiles.
_COMPILED = re.compile(rb"njit|core\.compiling")
_SCENARIO, _LANES, _TICKS = "iudex-phase1", 2, 60


def precompile(console: Console) -> None:
    """Compile what is not yet compiled for this processor, and show it.

    An interruption ends it; whatever is missing is compiled when it is called.
    """
    if numba.config.DISABLE_JIT:
        return
    stamp, key = _stamp(), _key()
    if _holds(stamp, key):
        return
    _print_remark(console)
    if stamp is None:
        return
    console.print("compiling fights and training for this processor, once: ten seconds to a minute", soft_wrap=True)
    count = sum(map(len, _PARTS))
    with suppress(WorkerLostError, OSError):
        for _ in track(_compiled(), "compiling", count, console=console):
            pass
        stamp.write_text(key)


def precompile_playing(console: Console) -> None:
    """Compile what playing calls, and nothing that learns; where training is compiled, that is already there.

    A game's process that compiled it itself would keep the compiler's memory.
    """
    if numba.config.DISABLE_JIT:
        return
    whole, key = _stamp(), _key()
    stamp = None if whole is None else whole.with_name(f"{whole.name}-playing")
    if _holds(whole, key) or _holds(stamp, key):
        return
    _print_remark(console)
    if stamp is None:
        return
    console.print("compiling fights for this processor, once: ten seconds to a minute", soft_wrap=True)
    # Plain processes: a `WorkerProcess` needs what a game PC does not have.
    call = f"from {__name__} import {{0}}; {{0}}()"
    commands = [[sys.executable, "-P", "-c", call.format(part.__name__)] for part in _PLAYING]
    processes = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for command in commands]
    try:
        ends = [process.wait() for process in processes]
    finally:
        for process in processes:
            process.kill()
    if not any(ends):
        with suppress(OSError):
            stamp.write_text(key)


def load_playing() -> None:
    """Load the compiled code that playing calls; where it is not compiled yet, others do that."""
    if not numba.config.DISABLE_JIT and _holds(_stamp(), _key()):
        for part in _PLAYING:
            part()


def _print_remark(console: Console) -> None:
    if remark := cache_remark():
        console.print(remark, soft_wrap=True)


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
    found = hashlib.sha256(f"{numba.__version__} {processor_kind()}".encode())
    for package in (soulsgraph_envs, soulsgraph_policies):
        for source in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            # An editor's lock may be a link to nothing.
            if source.is_file() and _COMPILED.search(source.read_bytes()):
                # By these numba tells whether a file has changed.
                found.update(f"{source} {source.stat().st_mtime_ns} {source.stat().st_size}".encode())
    return found.hexdigest()


def _compiled() -> Iterator[None]:
    """Yield whenever a call has compiled what it needs."""
    with ExitStack() as stack:
        waiting: list[WorkerProcess] = []
        for part in _PARTS:
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
    """Play randomly: the simulator and the control loop."""
    skills = tuple(make_skill(name) for name in SKILL_NAMES)
    agent = Agent(load_scenario(_SCENARIO), skills, replaced=dict.fromkeys(SKILL_NAMES, "random"))
    agent.rollout(make_game(_LANES)).play(np.arange(_LANES, dtype=np.uint64), most_ticks=_TICKS)


def _play() -> None:
    """Observe, and evaluate a network for a skill of several lanes, its inputs and Q-values too."""
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
    networks.inputs(0, rows)


def _learn() -> None:
    """Store transitions, sample some of them, and take updates."""
    # Imported here: it takes a second, which playing need not wait for.
    from torch import nn

    from soulsgraph_policies.learning.replay import RecentDecisions, ReplayBuffer
    from soulsgraph_policies.learning.update_kernel import CpuUpdater, FlatMemory

    inputs, hidden, actions, count = 4, 8, 2, 16
    numbers = DQNHyperparameters(budget=count, buffer_size=count, batch_size=count, hidden_sizes=(hidden, hidden))
    observations, values = np.zeros((count, inputs), np.float32), np.zeros(count, np.float32)
    whole = np.zeros(count, np.int64)
    transitions = Transitions(observations, observations, whole, values, whole > 0, whole, whole, whole)
    normalizer, replay = inference.RunningNormalizer(inputs), ReplayBuffer(numbers, inputs)
    normalizer.update(observations)
    replay.add(transitions)
    batch = replay.sample(count, np.random.default_rng(0), normalizer)
    recent = RecentDecisions(replace(numbers, num_steps=count, update_epochs=1), nn.Linear(inputs, actions))
    recent.add(transitions)
    recent.sample(count, np.random.default_rng(0), normalizer)
    parameters = hidden * (inputs + 1) + hidden * (hidden + 1) + actions * (hidden + 1)
    memory = FlatMemory(*(np.zeros(parameters, np.float32) for _ in range(4)))
    CpuUpdater(memory, (inputs, hidden, hidden, actions), numbers).update(batch, 0)


#: What each of the processes calls, one after another; they take about as long.
_PARTS = ((_fight,), (_learn, _play))
_PLAYING = (_fight, _play)

if __name__ == "__main__":
    precompile(OutputConsole())
