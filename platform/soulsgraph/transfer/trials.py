"""Play one skill in its own task, the skills upstream of it trained, and keep every decision it takes.

A stand-in (uniform chance, or idling) can take the place of any skill. The own task of the last skill
of the graph is the whole fight, so win rates come from the same trials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.combat import Combat, Controller, Horizon
from soulsgraph_envs.composition import Actions
from soulsgraph_envs.errors import UnknownNameError
from soulsgraph_envs.game import LaneIndices
from soulsgraph_envs.games import make_game
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.skill_task import practice_ground
from soulsgraph_envs.skills import Skill
from soulsgraph_envs.state import StateRows
from soulsgraph_envs.streams import Seeds, derive_seeds, uniforms
from soulsgraph_policies.controllers import Agent, IdleController, NetworkController, RandomController
from soulsgraph_policies.inference import FrozenNetwork, FusedNetworks

Doubles = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
#: Decisions that ended with one tick: lanes, State rows at their start, rewards, ticks, actions, whether explored.
_Finished = tuple[Integers, StateRows, Doubles, Integers, Integers, Flags]
_EXPLORATION_STREAM = 21

#: Who takes a trained skill's place: uniform chance with the skill's own step durations, or nobody.
StandIn = Literal["random", "idle"]
STAND_INS: tuple[StandIn, ...] = ("random", "idle")


@dataclass(frozen=True)
class Trial:
    """A scenario, the skills in it (the judged one last), their networks, and who stands in for whom.

    The judged skill explores in a share of its decisions: it then acts uniformly at random.

    Raises:
        UnknownNameError: if a skill has neither network nor stand-in, or one stands in for nobody.
    """

    scenario: Scenario
    skills: tuple[Skill, ...]
    networks: Mapping[str, FrozenNetwork]
    stand_ins: Mapping[str, StandIn] = field(default_factory=dict)
    exploration: float = 0.0

    def __post_init__(self) -> None:
        names = [skill.name for skill in self.skills]
        for name in self.stand_ins:
            if name not in names:
                raise UnknownNameError("skill to replace", name, names)
        for name in names:
            if name not in self.networks and name not in self.stand_ins:
                raise UnknownNameError("network", name, self.networks)

    def controller(self, lanes: int) -> Controller:
        """Make the agent for so many lanes."""
        names = [skill.name for skill in self.skills]
        trained = [name for name in names if name not in self.stand_ins]
        parts: list[Controller] = []
        if trained:
            plays = [trained.index(name) if name in trained else -1 for name in names]
            parts.append(NetworkController(FusedNetworks([self.networks[name] for name in trained], plays)))
        for name, stand_in in self.stand_ins.items():
            position = names.index(name)
            skill = self.skills[position]
            idle = stand_in == "idle"
            parts.append(IdleController(skill, position) if idle else RandomController(skill, position, lanes))
        return Agent(parts)


class Exploration:
    """Let one skill act uniformly at random in a share of its decisions; add it behind who else plays the skill.

    `explored` (lanes,) says whether each lane's latest decision was drawn.
    """

    def __init__(self, skill: Skill, position: int, lanes: int, share: float) -> None:
        self._position, self._choices, self._share = position, len(skill.actions), share
        self._streams = np.zeros(lanes, np.uint64)
        self.explored = np.zeros(lanes, np.bool_)

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Begin the lanes' streams anew."""
        self._streams[lanes] = derive_seeds(seeds, _EXPLORATION_STREAM, self._position)

    def act(self, combat: Combat, actions: Actions) -> None:
        """Draw whether to explore wherever the skill is due, and an action where it does."""
        if self._share == 0.0:
            return
        due = np.flatnonzero(combat.due[:, self._position])
        whether, which = uniforms(self._streams, due), uniforms(self._streams, due)
        self.explored[due] = whether < self._share
        drawn = self.explored[due]
        actions[due[drawn], self._position] = (which[drawn] * self._choices).astype(np.int64)


@dataclass(frozen=True)
class Played:
    """Episodes of a trial in the order of their seeds, and the judged skill's decisions in order of time.

    Per episode (n,): undiscounted `returns`, `lengths` in decisions, `won`, `cut` by the horizon, and the
    State rows at the end (n, 25). Per decision (m,): its episode, the State row it was taken in, its
    reward, the control ticks it occupies, its action, whether that was drawn by exploration.
    """

    returns: Doubles
    lengths: Integers
    won: Flags
    cut: Flags
    last_rows: StateRows
    episodes: Integers
    rows: StateRows
    rewards: Doubles
    ticks: Integers
    actions: Integers
    explored: Flags


def play_trial(trial: Trial, seeds: Seeds) -> Played:
    """Play one episode a seed (n,), each in a lane of its own."""
    lanes, judged = len(seeds), trial.skills[-1]
    every, position = np.arange(lanes), len(trial.skills) - 1
    combat = Combat(make_game(lanes=lanes), trial.skills, trial.scenario, Horizon(judged.name, judged.horizon))
    exploration = Exploration(judged, position, lanes, trial.exploration)
    controller: Controller = Agent([trial.controller(lanes), exploration])
    actions = np.zeros((lanes, len(trial.skills)), np.int64)
    combat.begin(every, seeds)
    controller.begin(every, seeds)
    won, cut, last_rows = np.zeros(lanes, np.bool_), np.zeros(lanes, np.bool_), np.zeros_like(combat.rows)
    decisions: list[_Finished] = []
    active = np.ones(lanes, np.bool_)
    while active.any():
        combat.due[~active] = False
        controller.act(combat, actions)
        combat.step(actions, None if active.all() else active)
        over = np.flatnonzero(active & combat.completed[:, position])
        if over.size:
            finished = combat.finished(position, over)
            rewards = judged.reward.evaluate(finished).sum(axis=1, dtype=np.float64)
            taken = (finished.actions, exploration.explored[over])
            decisions.append((over, finished.before.copy(), rewards, judged.ticks(finished), *taken))
        ended = active & combat.ended
        won[ended], cut[ended], last_rows[ended] = combat.won[ended], combat.truncated[ended], combat.rows[ended]
        active &= ~ended
    return _played(won, cut, last_rows, decisions)


def _played(won: Flags, cut: Flags, last_rows: StateRows, decisions: list[_Finished]) -> Played:
    episodes, rows, rewards, ticks, actions, explored = (np.concatenate(part) for part in zip(*decisions, strict=True))
    by_episode = np.argsort(episodes, kind="stable")
    return Played(
        returns=np.bincount(episodes, rewards, len(won)).astype(np.float64),
        lengths=np.bincount(episodes, minlength=len(won)),
        won=won,
        cut=cut,
        last_rows=last_rows,
        episodes=episodes[by_episode],
        rows=rows[by_episode],
        rewards=rewards[by_episode],
        ticks=ticks[by_episode],
        actions=actions[by_episode],
        explored=explored[by_episode],
    )


def own_task(trial: Trial) -> Trial:
    """Give the trial on the ground that its last skill trained on: the skill's start, HP refilled where it was."""
    ground = practice_ground(trial.scenario, trial.skills[-1])
    return replace(trial, scenario=ground)
