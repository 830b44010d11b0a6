"""Collect transitions of the modules that learn from many lanes, the other skills frozen beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any

import numpy as np

from soulsgraph_envs.combat.loop import Actions, Combat, Doubles, Exploration
from soulsgraph_envs.combat.rollout import MOST_STARTS, Episodes, Flags, Floats, Integers, Rollout, SkillLog, unplayable
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.game import LaneIndices
from soulsgraph_envs.core.seeds import Seeds, derive_seeds
from soulsgraph_envs.core.state import StateRows
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks, Weights

#: A sampler that takes the place of a lost one numbers its lanes' episodes from here on, times its own number: more
#: than a lane ever plays.
_MOST_EPISODES = 1 << 24


@dataclass(frozen=True)
class Transitions:
    """Finished decisions played by one module, (n,) or (n, size) each; observations are raw.

    `next_observations` are the last observations of an episode where it ended. `terminated` marks deaths
    and wins only: a horizon bootstraps. `ticks` are the control ticks of a decision. Decisions of the
    same lane and episode follow each other; lanes are numbered over all runners.
    """

    observations: Floats
    next_observations: Floats
    actions: Integers
    rewards: Floats
    terminated: Flags
    ticks: Integers
    lanes: Integers
    episodes: Integers

    def __len__(self) -> int:
        return len(self.actions)

    def first(self, count: int) -> Transitions:
        """Return the first `count` transitions."""
        if count >= len(self):
            return self
        return Transitions(*(getattr(self, field.name)[:count] for field in fields(self)))

    @classmethod
    def join(cls, parts: Sequence[Transitions]) -> Transitions:
        """Join one or more parts in their order."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


@dataclass(frozen=True)
class Moments:
    """When transitions of one module were played in a real-time game, (n,) each.

    `versions` are those of the weights that decided, `ticks` the control ticks with which decisions ended, counted
    since the game was opened. A decision that the end of its fight cut short may seem older by what it lacks.
    """

    versions: Integers
    ticks: Integers

    def after(self, ticks: int) -> Moments:
        """Return the same moments, counted on after some ticks."""
        return Moments(self.versions, self.ticks + ticks)

    @classmethod
    def join(cls, parts: Sequence[Moments]) -> Moments:
        """Join one or more parts in their order."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


@dataclass(frozen=True)
class Chunk:
    """What one call of an env runner's `sample` collected: transitions by module, and ended episodes by skill.

    `lane_ticks` counts the control ticks it took, summed over the lanes; `notes` are a real-time
    game's problems, `failure` why it cannot be opened. Without either there is at least one transition.
    `moments` are those of the transitions by module, of a real-time game.
    """

    transitions: Mapping[str, Transitions]
    episodes: Mapping[str, Episodes]
    lane_ticks: int
    notes: tuple[str, ...] = ()
    failure: str = ""
    moments: Mapping[str, Moments] = field(default_factory=dict)

    def env_steps(self) -> int:
        """Count the steps, under the name by which RLlib asks: decisions of all modules."""
        return sum(len(transitions) for transitions in self.transitions.values())

    @classmethod
    def join(cls, parts: Sequence[Chunk], notes: tuple[str, ...] = (), failure: str = "") -> Chunk:
        """Put chunks one after another, none included."""
        return cls(
            _joined(Transitions, [part.transitions for part in parts]),
            _joined(Episodes, [part.episodes for part in parts]),
            sum(part.lane_ticks for part in parts),
            notes,
            failure,
            _joined(Moments, [part.moments for part in parts]),
        )


def _joined(columns: Any, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join what parts hold of each name; `columns` is its class."""
    return {name: columns.join([part[name] for part in parts if name in part]) for name in dict.fromkeys(chain(*parts))}


@dataclass(frozen=True)
class FinishedEpisode:
    """An episode as `on_episode_end` receives it: of one skill, in one lane; its steps are the skill's decisions."""

    skill: str
    lane: int
    length: int
    seconds: float
    won: bool
    died: bool
    #: The sum of each reward term, (terms,).
    terms: Floats
    #: The State at the end, (25,).
    row: StateRows

    def __len__(self) -> int:
        return self.length

    def get_return(self) -> float:
        """Return the undiscounted sum of rewards."""
        return float(self.terms.sum())


def finished_episodes(skill: str, episodes: Episodes) -> Iterator[FinishedEpisode]:
    """Yield a skill's episodes one by one."""
    columns = (episodes.lanes, episodes.lengths, episodes.seconds, episodes.won, episodes.died)
    for values in zip(*(column.tolist() for column in columns), episodes.terms, episodes.rows, strict=True):
        yield FinishedEpisode(skill, *values)


@dataclass(frozen=True)
class SampledModule:
    """A module whose decisions are collected: the skills it plays, and for how many decisions.

    `epsilon` maps decisions of the module so far to the share of random actions.
    """

    module: str
    skills: tuple[str, ...]
    epsilon: Callable[[int], float]
    budget: float = math.inf


class _RunningDraw:
    """Draw for all skills and lanes of a module from one generator, which goes on from episode to episode."""

    def __init__(self, entropy: Sequence[int]) -> None:
        self.random = np.random.default_rng(entropy)

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Go on drawing: episodes in `lanes` (n,) with seeds (n,) begin."""

    def __call__(self, skill: int, lanes: LaneIndices, share: float) -> tuple[Flags, Doubles]:
        """Return whether each of `lanes` (n,) explores, and numbers to choose by, (n,)."""
        explores, choices = self.random.random((2, len(lanes)))
        return explores < share, choices


class _ModuleCollector:
    """One module that is sampled: its exploration, and transitions as they come, a log a skill."""

    def __init__(
        self, sampled: SampledModule, logs: Sequence[SkillLog], entropy: Sequence[int], first_lane: int
    ) -> None:
        self.sampled, self.logs, self._first_lane = sampled, logs, first_lane
        self.decisions, self.finished = 0, False
        self._entropy = entropy
        self.begin_streams(0)
        combat = logs[0].combat
        #: Decisions logged since `reserve` that are not returned yet.
        self.count = 0
        #: The most decisions that can end with one tick.
        self.most_a_tick = len(logs) * combat.lanes
        self._observe = [log.skill.observation.bind(combat.scenario) for log in logs]
        #: Transitions made since `reserve`.
        self.parts: list[Transitions] = []

    def begin_streams(self, incarnation: int) -> None:
        """Draw from the first number of an incarnation's stream on; that of 0 is the plain one."""
        # A zero behind four words would be another stream.
        self.draw = _RunningDraw([*self._entropy, *([incarnation] if incarnation else [])])
        skills = {log.combat.position(log.skill.name): log.skill for log in self.logs}
        self.exploration = Exploration(skills, self._epsilon, self.draw)

    def _epsilon(self) -> float:
        return self.sampled.epsilon(self.decisions)

    def receive(self, decisions: int) -> None:
        """Set the count of what the learner received; at its budget the module plays greedily."""
        self.decisions, self.finished = decisions, decisions >= self.sampled.budget

    def reserve(self, decisions: int) -> None:
        """Begin to collect at most this number of decisions."""
        self.parts, self.count = [], 0
        for log in self.logs:
            log.reserve(max(decisions, log.combat.lanes))

    def log(self) -> int:
        """Log what ended with the last tick; return how many decisions those are."""
        over = 0
        for log in self.logs:
            over += log.log()
        if over:
            self.count += over
            self.decisions += over
        return over

    def collect(self, episodes: Integers) -> None:
        """Make transitions of what is logged, in lanes that play `episodes` (lanes,)."""
        for index, log in enumerate(self.logs):
            if log.logged:
                self.parts.append(self._transitions(index, episodes))

    def _transitions(self, index: int, episodes: Integers) -> Transitions:
        """Reward the decisions of one skill; each skill has lanes of its own, for each follows itself only."""
        log, observe = self.logs[index], self._observe[index]
        finished = log.collect()
        log.skill.expect_finite(finished.terms)
        lanes, decisions = finished.lanes, finished.decisions
        return Transitions(
            observations=observe(decisions.before),
            next_observations=observe(decisions.after),
            actions=decisions.actions.copy(),
            rewards=finished.rewards,
            terminated=finished.terminated.copy(),
            ticks=log.skill.ticks(decisions),
            lanes=(lanes + self._first_lane) * len(self.logs) + index,
            episodes=episodes[lanes],
        )


class Sampler:
    """Roll out a combat's lanes without end, exploring in the modules that learn, and return their transitions.

    `receive` tells it the decisions that the learner has received; in between it counts on by itself. Lanes are
    numbered from `first_lane` on.
    """

    def __init__(self, combat: Combat, seed: int, modules: Sequence[SampledModule], first_lane: int = 0) -> None:
        self._combat, self._seed = combat, seed
        self._networks: FusedNetworks | None = None
        self._rollout = Rollout(combat, self)
        names = [skill for sampled in modules for skill in sampled.skills]
        self._logs: dict[str, SkillLog] = {
            name: self._rollout if name == combat.horizon.skill else SkillLog(combat, name) for name in names
        }
        # Counted from the last one: numpy pads with zeros, so alone a module draws as it did before there were several.
        self._collecting = [
            _ModuleCollector(sampled, [self._logs[skill] for skill in sampled.skills], [seed, 1, place], first_lane)
            for sampled, place in zip(modules, reversed(range(len(modules))), strict=True)
        ]
        self._episodes = np.zeros(combat.lanes, np.int64)
        self._began = False
        self._failure: GameError | None = None

    def begin_streams(self, incarnation: int) -> None:
        """Draw, before anything is played, from an incarnation's streams, and number its episodes, and fights, on.

        What samples in place of a sampler that was lost has another number, greater than those before; 0 is the first.
        """
        assert not self._began, "streams are chosen before the first tick"
        self._episodes[:] = incarnation * _MOST_EPISODES
        for one in self._collecting:
            one.begin_streams(incarnation)

    @property
    def decisions(self) -> dict[str, int]:
        """Finished decisions of every module so far."""
        return {one.sampled.module: one.decisions for one in self._collecting}

    def receive(self, decisions: Mapping[str, int]) -> None:
        """Set the counts of what the learner has received; a module at its budget plays greedily from now on."""
        for one in self._collecting:
            one.receive(decisions.get(one.sampled.module, one.decisions))

    @property
    def ticks(self) -> int:
        """Control ticks stepped so far."""
        return self._rollout.ticks

    def set_networks(self, networks: Sequence[FrozenNetwork]) -> None:
        """Play skills by these networks from the next tick on; the first call needs all skills, later ones any.

        Raises:
            UnknownNameError: if a skill takes no part.
            SoulsGraphError: if a network is of other sizes than before.
        """
        if self._networks is None:
            self._networks = FusedNetworks(sorted(networks, key=lambda one: self._combat.position(one.skill)))
            return
        for network in networks:
            self._networks.replace(self._combat.position(network.skill), network)

    def load(self, skill: str, weights: Weights) -> None:
        """Play a skill by newer weights from the next tick on; `set_networks` comes before.

        Raises:
            SoulsGraphError: if a name or shape differs.
        """
        assert self._networks is not None, "set_networks comes before load"
        self._networks.load(self._combat.position(skill), weights)

    def weights(self, skill: str) -> Weights:
        """Return a copy of the weights that a skill is played by; empty before the first networks are set."""
        return {} if self._networks is None else self._networks.weights(self._combat.position(skill))

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Do nothing: networks have no state between decisions."""

    def act(self, combat: Combat, actions: Actions) -> None:
        """Write greedy actions, and drawn ones over a share of those of the skills that learn."""
        assert self._networks is not None, "set_networks comes before sample"
        self._networks.act(combat.rows, combat.due, actions)
        for one in self._collecting:
            if not one.finished:
                one.exploration.act(combat, actions)

    def sample(self, max_transitions: int) -> Chunk:
        """Step until another tick could bring a module more than `max_transitions`.

        Raises:
            GameError: if a real-time game could not be reset, or lost its episode; call `abandon_episodes` then. If
                fight after fight ends before anything that is collected decides.
        """
        if self._failure is not None:
            raise self._failure
        rollout, lanes = self._rollout, self._combat.lanes
        collecting = [one for one in self._collecting if not one.finished]
        before = rollout.ticks
        for one in collecting:
            one.reserve(max_transitions)
        if not self._began:
            self._begin(np.arange(lanes))
            self._began = True
        logged = not collecting
        full = logged or any(one.most_a_tick > max_transitions for one in collecting)
        without = 0
        while True:
            rollout.tick()
            for one in collecting:
                if one.log():
                    logged = True
                    full = full or one.count + one.most_a_tick > max_transitions
            ended = self._combat.ended.nonzero()[0]
            if ended.size:
                self._close(ended, collecting)
                without += 0 if logged else len(ended)
                if without >= MOST_STARTS * lanes:
                    raise unplayable(self._combat, ", ".join(self._logs), without)
                try:
                    self._begin(ended)
                except GameError as failure:
                    # What was gathered is returned first: the next call raises.
                    self._failure = failure
                    break
            if full and logged:
                break
        for one in collecting:
            one.collect(self._episodes)
        return self._chunk(collecting, (rollout.ticks - before) * lanes)

    def _close(self, ended: LaneIndices, collecting: Sequence[_ModuleCollector]) -> None:
        for one in collecting:
            one.collect(self._episodes)
            for log in one.logs:
                log.close(ended)

    def _chunk(self, collecting: Sequence[_ModuleCollector], lane_ticks: int) -> Chunk:
        transitions = {one.sampled.module: Transitions.join(one.parts) for one in collecting if one.parts}
        for one in collecting:
            one.count = 0
        episodes = {log.skill.name: log.episodes() for one in collecting for log in one.logs}
        return Chunk(transitions, episodes, lane_ticks)

    def abandon_episodes(self) -> int:
        """Forget the open episodes and what `sample` had gathered when a lost game broke it off; return its count."""
        for log in self._logs.values():
            log.forget()
        self._began, self._failure = False, None
        return sum(one.count for one in self._collecting)

    def _begin(self, lanes: LaneIndices) -> None:
        seeds = derive_seeds(self._seed, lanes, self._episodes[lanes])
        self._episodes[lanes] += 1
        for log in self._logs.values():
            log.sums[lanes] = 0.0
        self._rollout.begin(lanes, seeds)

    def get_state(self) -> dict[str, Any]:
        """Return everything the next transition depends on but the networks."""
        return {
            "combat": self._combat.get_state(),
            "random": {one.sampled.module: one.draw.random.bit_generator.state for one in self._collecting},
            "episodes": self._episodes.copy(),
            "sums": {name: log.sums.copy() for name, log in self._logs.items()},
            "began": self._began,
            "decisions": self.decisions,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state` of an equal sampler."""
        self._combat.set_state(state["combat"])
        for one in self._collecting:
            one.draw.random.bit_generator.state = state["random"][one.sampled.module]
        self._episodes[:] = state["episodes"]
        for name, log in self._logs.items():
            log.sums[:] = state["sums"][name]
        self._began = bool(state["began"])
        self.receive(state["decisions"])

    def close(self) -> None:
        """Close the game."""
        self._combat.game.close()
