"""A learner of your own for one skill: what is asked of it, and the loop in which it learns.

The skill fights as in any stage, everything upstream frozen. What it leads to are layers of a plain network, which the
library keeps like any other skill's. The loop has the methods of `SkillDQN` that training a stage calls.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import getsource, isclass, isfunction
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from ray.rllib.algorithms.dqn.dqn_learner import QF_LOSS_KEY, QF_MEAN_KEY
from ray.rllib.utils.metrics import LEARNER_RESULTS

from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.rollout import Episodes, Rollout
from soulsgraph_envs.core.config import digest_of
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_envs.core.meaning import meaning
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.seeds import EpisodeSeeds, derive_seeds
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.agents.agent import NetworkController
from soulsgraph_policies.agents.inference import (
    DEVIATION,
    MEAN,
    FrozenNetwork,
    FusedNetworks,
    RunningNormalizer,
    Weights,
    layer_names,
    layer_names_at,
)
from soulsgraph_policies.learning.checkpoint import read_training_state, write_training_state
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.sampler import Transitions

Floats = npt.NDArray[np.float32]
#: Weight (outputs, inputs) and bias (outputs,) of each layer, first to last; a ReLU stands between two of them.
Layers = Sequence[tuple[npt.ArrayLike, npt.ArrayLike]]
#: Of what a learner calls the figures that it reports, what training calls them.
_METRICS = {"loss": QF_LOSS_KEY, "q": QF_MEAN_KEY}
_STREAM = 3
_DIGITS = 8
_PLAIN = (int, float, str, tuple)


@dataclass(frozen=True)
class LearnerTask:
    """What a learner is made for: the skill's observed values and actions by name, and for how long it learns.

    `numbers` are the hyperparameters of the run's plan, which a learner may use or not; `seed` is for everything random
    in it. `layers` are those of the version that it continues, None for a new one.
    """

    skill: str
    observed: tuple[str, ...]
    actions: tuple[str, ...]
    lanes: int
    seed: int
    numbers: DQNHyperparameters
    layers: Layers | None = None

    @property
    def budget(self) -> int:
        """Decisions to learn from in all."""
        return self.numbers.budget


class SkillLearner(Protocol):
    """What a learner of your own offers.

    Observations are normalised by running statistics, which the library keeps with the layers, and clipped. A learner
    with `get_state` and `set_state`, of nested arrays and plain values, goes on from a checkpoint; any other begins its
    stage anew when that was interrupted.
    """

    def act(self, observations: Floats) -> npt.NDArray[np.integer[Any]]:
        """Return an action for each of the observations (lanes, size), (lanes,): it explores as it sees fit."""
        ...

    def receive(self, transitions: Transitions) -> None:
        """Take the decisions that ended, in the order of their lanes."""
        ...

    def learn(self) -> Mapping[str, float]:
        """Learn from what was received, called after each `receive`; return figures to show: loss, q, or none."""
        ...

    def layers(self) -> Layers:
        """Return the network that plays, of the task's `numbers.fcnet_hiddens`: its greatest output is the action."""
        ...


#: Makes a learner; a class whose objects are made of a task.
LearnerFactory = Callable[[LearnerTask], SkillLearner]


def learner_name(factory: LearnerFactory) -> str:
    """Return the name by which a run keeps a learner, MODULE:CLASS#DIGITS, the digits of what its code does.

    Numbers and texts that the code takes from its class, or from a function around it, count as its code.

    Raises:
        SoulsGraphError: for a class that makes no learner, or if its source cannot be read.
    """
    whole = all(callable(getattr(factory, name, None)) for name in ("act", "receive", "learn", "layers"))
    if not hasattr(factory, "__qualname__") or (isinstance(factory, type) and not whole):
        raise SoulsGraphError(
            f"learner: expected a class with act, receive, learn and layers, or a function that makes one, found "
            f"{shown(factory)}; correct it."
        )
    name = f"{factory.__module__}:{factory.__qualname__}"
    owners = [one for one in factory.__mro__ if one.__module__ == factory.__module__] if isclass(factory) else []
    members = [one for owner in owners for one in vars(owner).items()] or [("", factory)]
    does: list[Any] = []
    for member, value in members:
        if isfunction(code := getattr(value, "__func__", getattr(value, "fget", value))):
            try:
                does.append([member, meaning(dedent(getsource(code)).encode())])
            except (OSError, SyntaxError) as error:
                remedy = "define it in a file or in a notebook's cell"
                raise SoulsGraphError(f"learner {name}: expected its source, found {error}; {remedy}.") from error
            does += [cell.cell_contents for cell in code.__closure__ or () if isinstance(cell.cell_contents, _PLAIN)]
        elif not member.startswith("__") and isinstance(value, _PLAIN):
            does.append([member, value])
    return f"{name}#{digest_of(does)[:_DIGITS]}"


def find_learner(name: str) -> LearnerFactory:
    """Return the learner of a name, of a module that this process has imported.

    Nothing is imported here: a run may be somebody else's, and its plan would choose what code runs.

    Raises:
        SoulsGraphError: if its module is not imported, or has no such learner.
    """
    module, _, path = name.partition("#")[0].partition(":")
    try:
        found: Any = sys.modules[module]
        for part in path.split("."):
            found = getattr(found, part)
    except (KeyError, AttributeError) as error:
        raise SoulsGraphError(
            f"learner {name}: expected one of a module that is imported, found none; continue with the run in Python, "
            "with the class as in the first call."
        ) from error
    factory: LearnerFactory = found
    if (now := learner_name(factory)) != name:
        raise SoulsGraphError(
            f"learner {name}: expected it as it was, found that its code changed ({now}); restore it."
        )
    return factory


class OwnTraining:
    """The training of one skill by a learner of your own, on lanes of the simulator.

    `networks` play upstream. `task` says what the learner is made for.

    Raises:
        SoulsGraphError: if the learner's layers do not fit the skill.
    """

    #: As `SkillDQN` has them: whether to save now, and how many remote runners play.
    checkpoint_due, live_runners = False, None

    def __init__(
        self,
        skills: Sequence[Skill],
        scenario: Scenario,
        networks: Mapping[str, FrozenNetwork],
        task: LearnerTask,
        factory: LearnerFactory,
    ) -> None:
        self.stop_requested: Callable[[], bool] = lambda: False
        self.task, self.scenario, self.skill = task, scenario, skills[-1]
        self.normalizer = RunningNormalizer(self.skill.observation.size, self.skill.observation.indicators)
        self.decisions, self._frozen = 0, [*networks]
        order = {name: index for index, name in enumerate(networks)}
        self._networks = FusedNetworks([*networks.values()], [order.get(skill.name, -1) for skill in skills])
        combat = Combat(make_game(task.lanes), tuple(skills), scenario, Horizon(self.skill.name, self.skill.horizon))
        self._rollout = Rollout(combat, *([NetworkController(self._networks)] if networks else []))
        self.learner = factory(task)
        self.weights(self.skill.name)
        self._begin()

    def _begin(self) -> None:
        """Begin fights in all lanes, others after a checkpoint than before it."""
        lanes, seed = np.arange(self.task.lanes), derive_seeds(self.task.seed, _STREAM, self.decisions)
        self._seeds, self._episodes = EpisodeSeeds(self.task.lanes), lanes * 0
        self._seeds.restart(int(seed[0] >> np.uint64(1)), np.random.default_rng(0))
        self._rollout.begin_deciding(lanes, self._seeds.next(lanes))

    @property
    def training(self) -> dict[str, OwnTraining]:
        """What learns, by skill: itself."""
        return {self.skill.name: self}

    @property
    def epsilon(self) -> float:
        """How much it explores, which only the learner knows: no number."""
        return math.nan

    @property
    def finished(self) -> bool:
        """Whether the whole budget was received."""
        return self.decisions >= self.task.budget

    def train(self) -> dict[str, Any]:
        """Play and learn to the next thousand of decisions, or the budget; return means of the learner's figures."""
        goal, figures = min((self.decisions // 1_000 + 1) * 1_000, self.task.budget), list[Mapping[str, float]]()
        while self.decisions < goal:
            figures.append(self._round())
        means = {
            key: float(np.mean([one[name] for one in figures if name in one]))
            for name, key in _METRICS.items()
            if any(name in one for one in figures)
        }
        return {LEARNER_RESULTS: {self.skill.name: means}}

    def _round(self) -> Mapping[str, float]:
        """Decide once in every lane, and learn from it."""
        rollout, raw = self._rollout, self._rollout.observations.copy()
        self.normalizer.update(raw)
        before = self._normalised(raw)
        actions = self.skill.checked(self.learner.act(before), self.task.lanes)
        finished = rollout.decide(actions)
        after = self._normalised(self.skill.observation(finished.decisions.after, self.scenario))
        ticks, ended = self.skill.ticks(finished.decisions), finished.terminated | finished.truncated
        columns = actions, finished.rewards, finished.terminated.copy(), ticks, finished.lanes.copy()
        transitions = Transitions(before, after, *columns, self._episodes.copy())
        self._next_episodes(np.flatnonzero(ended))
        received = transitions.first(self.task.budget - self.decisions)
        self.decisions += len(received)
        self.learner.receive(received)
        return self.learner.learn()

    def _next_episodes(self, lanes: npt.NDArray[np.int64]) -> None:
        if lanes.size:
            self._rollout.close(lanes)
            self._episodes[lanes] += 1
            self._rollout.begin_deciding(lanes, self._seeds.next(lanes))

    def _normalised(self, observations: Floats) -> Floats:
        clip = self.task.numbers.observation_clip
        values = (observations - self.normalizer.mean) / self.normalizer.deviation
        return np.clip(values, -clip, clip).astype(np.float32)

    def weights(self, skill: str) -> Weights:
        """Return a copy of the layers that play, and of the normaliser, by the library's names.

        Raises:
            SoulsGraphError: if they do not fit the skill.
        """
        sizes = (self.skill.observation.size, *self.task.numbers.fcnet_hiddens, len(self.skill.actions))
        expected = [(after, before) for before, after in pairwise(sizes)]
        layers = [(np.array(weight, np.float32), np.array(bias, np.float32)) for weight, bias in self.learner.layers()]
        shapes = [weight.shape for weight, _ in layers]
        if shapes != expected or [bias.shape for _, bias in layers] != [shape[:1] for shape in expected]:
            raise SoulsGraphError(
                f"learner of {skill}: expected layers of {', '.join(map(str, expected))} and their biases, found "
                f"{', '.join(map(str, shapes))}; make them by `task.observed`, `numbers.fcnet_hiddens` and `actions`."
            )
        found: Weights = {MEAN: self.normalizer.mean.copy(), DEVIATION: self.normalizer.deviation.copy()}
        for index, layer in enumerate(layers):
            found |= dict(zip(layer_names_at(index), layer, strict=True))
        return found

    def copies(self, skill: str) -> list[Weights]:
        """Return the weights by which a frozen skill plays."""
        return [self._networks.weights(self._frozen.index(skill))]

    def drain_episodes(self) -> dict[str, Episodes]:
        """Return the episodes that ended since the last call."""
        episodes = self._rollout.episodes()
        return {self.skill.name: episodes} if len(episodes) else {}

    def save_checkpoint(self, folder: str) -> None:
        """Write what to go on from; raises WriteError."""
        state = self.learner.get_state() if hasattr(self.learner, "get_state") else None
        frozen = {name: self.copies(name)[0] for name in self._frozen}
        own = {"decisions": self.decisions, "normalizer": self.normalizer.get_state(), "learner": state}
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_training_state(Path(folder), {"own": own, "frozen": frozen})

    def load_checkpoint(self, folder: str) -> None:
        """Go on from a checkpoint, in new fights; a learner that keeps no state begins anew.

        Raises:
            SoulsGraphError: if it is damaged.
        """
        own = read_training_state(Path(folder))["own"]
        if own["learner"] is None or not hasattr(self.learner, "set_state"):
            return
        self.learner.set_state(own["learner"])
        self.normalizer.set_state(own["normalizer"])
        self.decisions = int(own["decisions"])
        self._begin()

    def stop(self) -> None:
        """End; nothing has to be closed but the game."""
        self._rollout.combat.game.close()


def task_of(skill: Skill, lanes: int, seed: int, numbers: DQNHyperparameters, continued: Weights | None) -> LearnerTask:
    """Return the task of a skill's learner, which continues weights if there are any."""
    layers = None if continued is None else [(continued[one], continued[bias]) for one, bias in layer_names(continued)]
    actions = tuple(action.name for action in skill.actions)
    return LearnerTask(skill.name, skill.observation.names, actions, lanes, seed, numbers, layers)
