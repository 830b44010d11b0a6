"""Learning curves as in Figures 2 and 3: every checkpoint evaluated over a few episodes while training goes on.

Training drops the trained skill's weights as small files about every 1,000 decisions; a process beside it
plays many of them in one batch of lanes, each lane with its own weights, while training goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save

from soulsgraph.results.statistics import mean_interval
from soulsgraph.runs.evaluate import evaluation_seeds, play_variants
from soulsgraph.runs.worker_process import WorkerLostError, WorkerProcess
from soulsgraph_envs.core.errors import SoulsGraphError, reading
from soulsgraph_envs.core.files import whole_file
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import FrozenNetwork, Weights
from soulsgraph_policies.agents.library import WEIGHTS, TensorError, read_tensors

#: Decisions between two checkpoints, and episodes each is played for (Figures 2 and 3).
CHECKPOINT_INTERVAL = 1_000
EPISODES = 5
#: The same evaluation episodes for every checkpoint of every run.
CURVE_SEED = 1_000_003

_BATCH = 20
#: Means over episodes by the names that a run's curves have for them, and the columns they are of.
_MEANS = {"return": "returns", "length": "lengths", "seconds": "seconds", "win_rate": "won"}
#: Stands between a skill's name and that of a weight, for skills that learn beside the last one.
_BESIDE = "/"
_PREFIX = "step-"


class CurvePoint(NamedTuple):
    """One checkpoint on its learning curve: metrics by the names that a run's curves have for them.

    `low` and `high` are the ends of the 95 % t interval of the mean return over episodes.
    """

    step: int
    metrics: dict[str, float]


#: Weights of some steps.
Checkpoints = Sequence[tuple[int, Weights]]


def evaluate_checkpoints(agent: Agent, clip: float, checkpoints: Checkpoints) -> list[CurvePoint]:
    """Play every checkpoint (step, weights) greedily, all in one batch of lanes.

    The weights are those of the agent's last skill and of any that learned beside it (`checkpoint_weights`); `clip`
    bounds what their networks see.
    """
    learned = [weights_by_skill(agent.skills[-1].name, weights) for _, weights in checkpoints]
    agent = with_variants(agent, clip, learned)
    played = play_variants(agent, evaluation_seeds(CURVE_SEED, EPISODES), len(checkpoints))
    points = []
    for index, (step, _) in enumerate(checkpoints):
        rows = slice(index * EPISODES, (index + 1) * EPISODES)
        low, high = mean_interval(played.returns[rows])
        means = {name: float(getattr(played, column)[rows].mean()) for name, column in _MEANS.items()}
        points.append(CurvePoint(step, {"return": means["return"], "low": low, "high": high, **means}))
    return points


def with_variants(agent: Agent, clip: float, learned: Sequence[Mapping[str, Weights]]) -> Agent:
    """Return the agent in several variants, each with weights of its own of the skills that learned."""
    networks = {
        skill.name: [FrozenNetwork.of(skill, agent.scenario, weights[skill.name], clip) for weights in learned]
        for skill in agent.skills
        if skill.name in learned[0]
    }
    return agent.playing(networks)


def checkpoint_weights(weights: Mapping[str, Weights]) -> Weights:
    """Return the weights of all skills that learn, the last one's under their own names."""
    *beside, last = weights
    named = {f"{skill}{_BESIDE}{name}": values for skill in beside for name, values in weights[skill].items()}
    return {**weights[last], **named}


def weights_by_skill(last: str, weights: Weights) -> dict[str, Weights]:
    """Return a checkpoint's weights (`checkpoint_weights`) by the skill that they are of; `last` learned last."""
    found: dict[str, Weights] = {}
    for name, values in weights.items():
        skill, _, plain = name.rpartition(_BESIDE)
        found.setdefault(skill or last, {})[plain] = values
    return found


class CurveEvaluator:
    """Keep a stage's checkpoints on disk and evaluate them, by a `worker` while training goes on.

    A stage that is itself one of many tasks evaluates them in its own process, as the other cores are busy.
    Pass the steps whose points are known to `take_up`: a resumed stage evaluates only the others.
    """

    def __init__(self, folder: Path, agent: Agent, clip: float, worker: WorkerProcess | None = None) -> None:
        self._folder, self._agent, self._clip, self._worker = folder, agent, clip, worker
        self._waiting: list[tuple[int, Weights]] = []
        if worker is not None:
            worker.forget()
        #: Batches that the worker has not answered yet.
        self._running: list[Checkpoints] = []
        self._ready: list[CurvePoint] = []

    def take_up(self, known: set[int], reached: int) -> None:
        """Continue from a stage's checkpoints on disk: delete those beyond `reached`, evaluate those not yet `known`.

        Raises:
            SoulsGraphError: if one is damaged.
        """
        for step, path in checkpoint_files(self._folder).items():
            if step > reached:
                path.unlink()
            elif step not in known:
                self._waiting.append((step, load_checkpoint(path)))

    def add(self, step: int, weights: Weights) -> None:
        """Keep a checkpoint, and evaluate it once a batch is full and the one before is done.

        Raises:
            WriteError: if the folder cannot be written.
        """
        kept = {name: np.array(values) for name, values in weights.items()}
        save_checkpoint(self._folder, step, kept)
        self._waiting.append((step, kept))
        if self._worker is not None:
            self._worker.start()
        if len(self._waiting) >= _BATCH and not self._running:
            self._submit()

    def collect(self) -> list[CurvePoint]:
        """Return the points that are ready, without waiting."""
        if self._worker is not None and self._running and self._worker.answered:
            self._receive(self._worker)
        points, self._ready = self._ready, []
        return points

    def finish(self) -> list[CurvePoint]:
        """Wait for every outstanding point and return them."""
        if self._waiting:
            self._submit()
        while self._worker is not None and self._running:
            self._receive(self._worker)
        return self.collect()

    def _submit(self) -> None:
        checkpoints, self._waiting = self._waiting, []
        if self._worker is None:
            self._ready += evaluate_checkpoints(self._agent, self._clip, checkpoints)
        else:
            self._worker.submit(evaluate_checkpoints, self._agent, self._clip, checkpoints)
            self._running.append(checkpoints)

    def _receive(self, worker: WorkerProcess) -> None:
        try:
            self._ready += worker.result()
            del self._running[0]
        except WorkerLostError:
            for checkpoints in self._running:
                self._ready += evaluate_checkpoints(self._agent, self._clip, checkpoints)
            self._running = []


def checkpoint_files(folder: Path) -> dict[int, Path]:
    """Return the files of a stage's checkpoints by their step, in order; none where the folder is missing."""
    return {int(path.stem.removeprefix(_PREFIX)): path for path in sorted(folder.glob(f"{_PREFIX}*.safetensors"))}


def save_checkpoint(folder: Path, step: int, weights: Weights) -> None:
    """Write the checkpoint of a step.

    Raises:
        WriteError: if the folder cannot be written.
    """
    with whole_file(folder / f"{_PREFIX}{step:09d}.safetensors") as temporary:
        temporary.write_bytes(save(dict(weights)))


def load_checkpoint(path: Path) -> Weights:
    """Read one checkpoint.

    Raises:
        SoulsGraphError: if it is damaged or cannot be read.
    """
    try:
        with reading(path):
            weights: Weights = read_tensors(path.read_bytes(), WEIGHTS)
    except (FileNotFoundError, TensorError) as error:
        raise SoulsGraphError(
            f"{path}: expected the weights of a checkpoint, found: {error}; remove it: its point leaves the curve."
        ) from error
    return weights
