"""The combat loop: lanes of one fight under the decision clocks of a set of skills, their actions composed by Eq. 1.

What decides is a `Controller`; `Exploration` is the one that draws actions over those of others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.compiling import cached
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.game import ActiveLanes, Game, LaneIndices, SavableGame
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.seeds import Seeds, derive_seeds, uniforms
from soulsgraph_envs.core.state import MADE_OF, STATE_SIZE, Column, Controls, Raw, StateRows, fill_state
from soulsgraph_envs.skills.skill import Decisions, Skill

#: (lanes, skills) int64: an action index, or -1 for a skill that has not decided yet.
Actions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Doubles = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint32]

#: The control bits held and pressed (skills, most actions), the ticks of a step with a flask and without (skills, most
#: actions, 2), how many actions each skill has (skills,), and its precedence_over as control bits (skills,).
ActionTables = tuple[Bits, Bits, Integers, Integers, Bits]


def pack_actions(skills: Sequence[Skill]) -> ActionTables:
    """Pack the action sets of `skills`, in their order, as arrays by skill and action."""
    counts = np.array([len(skill.actions) for skill in skills], np.int64)
    shape = (len(skills), counts.max())
    holds, presses, ticks = np.zeros(shape, np.uint32), np.zeros(shape, np.uint32), np.ones((*shape, 2), np.int64)
    for row, (skill, count) in enumerate(zip(skills, counts, strict=True)):
        holds[row, :count] = [action.holds for action in skill.actions]
        presses[row, :count] = [action.presses for action in skill.actions]
        ticks[row, :count] = skill.step_ticks
    return holds, presses, ticks, counts, np.array([skill.precedence_over for skill in skills], np.uint32)


@cached()
def merge_controls(latest: Actions, fresh: Flags, tables: ActionTables, out: Controls) -> None:
    """Merge the latest actions (lanes, skills) into `out` (lanes,); `fresh` marks actions decided this tick.

    A skill that sends any control takes its `precedence_over` from every other skill. Where two would take each
    other's, the later one does: what is taken is worked out from the last skill to the first.
    """
    holds, presses, _, _, precedence_over = tables
    for lane in range(latest.shape[0]):
        bits, taken = np.uint32(0), np.uint32(0)
        for skill in range(latest.shape[1] - 1, -1, -1):
            action = latest[lane, skill]
            if action >= 0:
                sent = holds[skill, action]
                if fresh[lane, skill]:
                    sent |= presses[skill, action]
                sent &= ~taken
                if sent:
                    bits = (bits & ~precedence_over[skill]) | sent
                    taken |= precedence_over[skill]
        out[lane] = bits


_CLOCK_STREAM = 1
_SAVED = ("rows", "due", "latest", "decisions", "ticks", "_remaining", "_before")
_ENDS = frozenset((*MADE_OF[Column.PLAYER_HP], *MADE_OF[Column.BOSS_HP]))


@runtime_checkable
class Controller(Protocol):
    """Decides for some or all skills of every lane: networks, random, scripted."""

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Note that an episode begins in `lanes` (n,), each with its seed (n,)."""

    def act(self, combat: Combat, actions: Actions) -> None:
        """Write an action wherever `combat.due` (lanes, skills) holds for a skill it plays."""


class Draw(Protocol):
    """The random numbers of an `Exploration`."""

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Note that an episode begins in `lanes` (n,), each with its seed (n,)."""

    def __call__(self, skill: int, lanes: LaneIndices, share: float) -> tuple[Flags, Doubles]:
        """Return whether each of `lanes` (n,) explores, a share of them, and numbers in [0, 1) to choose by, (n,)."""


class SeededDraw:
    """Draw from a stream for each skill and lane that begins with the fight's seed: played again, it draws the same.

    `stream` tells these streams from others of the fight. A `frugal` one draws a number to choose by only where a
    decision explores.
    """

    def __init__(self, skills: int, lanes: int, stream: int, frugal: bool = False) -> None:
        self._streams, self._stream, self._frugal = np.zeros((skills, lanes), np.uint64), stream, frugal

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Begin every skill's streams in `lanes` (n,) anew, from seeds (n,)."""
        for skill, streams in enumerate(self._streams):
            streams[lanes] = derive_seeds(seeds, self._stream, skill)

    def __call__(self, skill: int, lanes: LaneIndices, share: float) -> tuple[Flags, Doubles]:
        """Return whether each of `lanes` (n,) explores, and numbers to choose by, (n,)."""
        streams = self._streams[skill]
        explores = uniforms(streams, lanes) < share
        choices = np.zeros(len(lanes))
        chosen = explores if self._frugal else np.ones(len(lanes), np.bool_)
        choices[chosen] = uniforms(streams, lanes[chosen])
        return explores, choices


class Exploration:
    """Replace a share of some skills' decisions by uniform random ones, after their controllers have acted.

    `skills` are those that explore, `epsilon` returns the share, and `on_explored` is called where a skill is due,
    with its position, its lanes (n,) and whether each explores (n,).
    """

    def __init__(
        self,
        skills: Mapping[int, Skill],
        epsilon: Callable[[], float],
        draw: Draw,
        on_explored: Callable[[int, LaneIndices, Flags], None] | None = None,
    ) -> None:
        self._actions = [(position, len(skill.actions)) for position, skill in skills.items()]
        self._epsilon, self._draw, self._on_explored = epsilon, draw, on_explored

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Note that an episode begins in `lanes` (n,), each with its seed (n,)."""
        self._draw.begin(lanes, seeds)

    def act(self, combat: Combat, actions: Actions) -> None:
        """Write drawn actions over a share of those of the skills that are due."""
        for skill, count in self._actions:
            lanes = combat.due[:, skill].nonzero()[0]
            if not lanes.size:
                continue
            explores, choices = self._draw(skill, lanes, self._epsilon())
            if explores.any():
                actions[lanes[explores], skill] = choices[explores] * count
            if self._on_explored is not None:
                self._on_explored(skill, lanes, explores)


@dataclass(frozen=True)
class Horizon:
    """An episode is truncated after `decisions` finished decisions of `skill`."""

    skill: str
    decisions: int


@cached()
def _decide(
    actions: Actions,
    clocks: tuple[Actions, Actions],
    due: Flags,
    tables: ActionTables,
    states: tuple[StateRows, StateRows],
    controls: Controls,
) -> int:
    """Start the decisions that are due and return -1; for an invalid action return its index and start none."""
    latest, remaining = clocks
    _, _, ticks, counts, _ = tables
    rows, before = states
    for lane in range(due.shape[0]):
        for skill in range(due.shape[1]):
            if due[lane, skill] and not 0 <= actions[lane, skill] < counts[skill]:
                return int(lane * due.shape[1] + skill)
    for lane in range(due.shape[0]):
        empty = int(rows[lane, Column.FLASKS] < 1.0)
        for skill in range(due.shape[1]):
            if due[lane, skill]:
                action = actions[lane, skill]
                latest[lane, skill] = action
                remaining[lane, skill] = ticks[skill, action, empty]
                # By element: numba takes seconds to compile the message of a slice assignment's failure.
                for column in range(rows.shape[1]):
                    before[skill, lane, column] = rows[lane, column]
    merge_controls(latest, due, tables, controls)
    return -1


@cached()
def _finish(
    rows: StateRows,
    clocks: tuple[Actions, Actions],
    counts: tuple[Actions, Integers],
    active: Flags,
    flags: tuple[Flags, Flags],
    marks: tuple[Flags, Flags, Flags, Flags],
    limits: tuple[int, int, float, float],
) -> None:
    """Count the tick, close finished decisions, and mark the lanes whose episode ended."""
    latest, remaining = clocks
    decisions, ticks = counts
    completed, due = flags
    horizon_skill, horizon, death, win = limits
    died, won, terminated, truncated = marks
    for lane in range(rows.shape[0]):
        moved = active[lane]
        ticks[lane] += moved
        died[lane] = moved and rows[lane, Column.PLAYER_HP] < death
        won[lane] = moved and not died[lane] and rows[lane, Column.BOSS_HP] < win
        terminated[lane] = died[lane] or won[lane]
        for skill in range(latest.shape[1]):
            remaining[lane, skill] -= moved
            due[lane, skill] = remaining[lane, skill] == 0
            closes = due[lane, skill] or terminated[lane]
            completed[lane, skill] = moved and latest[lane, skill] >= 0 and closes
            decisions[lane, skill] += completed[lane, skill]
        truncated[lane] = moved and not terminated[lane] and decisions[lane, horizon_skill] >= horizon
        if truncated[lane]:
            for skill in range(latest.shape[1]):
                if latest[lane, skill] >= 0 and not completed[lane, skill]:
                    completed[lane, skill] = True
                    decisions[lane, skill] += 1


def _check_supplied(game: Game, skills: Sequence[Skill], scenario: Scenario) -> None:
    """Refuse skills, or ends of an episode, that need values which the game does not supply."""
    ends: frozenset[Raw] = frozenset() if scenario.refill else _ENDS
    needs = {skill.name: skill.needs for skill in skills} | {"the end of the fight": ends}
    missing = {
        name: ", ".join(sorted(raw.name for raw in raws if raw.name not in game.capabilities.supplies))
        for name, raws in needs.items()
    }
    told = "; ".join(f"{name} needs {raws}" for name, raws in missing.items() if raws)
    if told:
        raise GameError(f"expected a game that supplies what the skills need, found one without: {told}.")


class Combat:
    """Advance every lane of a game one control tick at a time, composing the skills' actions.

    After `step`: `completed` (lanes, skills) marks the decisions that ended with this tick (cut
    ones included), `terminated`, `truncated`, `died` and `won` (lanes,) how episodes ended, and
    `rows` (lanes, 25) the State. Ended lanes wait for `begin`; the caller must not step them.
    A real-time game may break off a tick with `EpisodeLostError`: then call `begin`.

    Raises:
        UnknownNameError: if the horizon's skill takes no part.
        GameError: if the game does not supply what a skill needs.
    """

    def __init__(self, game: Game, skills: Sequence[Skill], scenario: Scenario, horizon: Horizon) -> None:
        _check_supplied(game, skills, scenario)
        self.game, self.skills, self.scenario, self.horizon = game, tuple(skills), scenario, horizon
        self.lanes = game.lanes
        self._tables = pack_actions(skills)
        mortal = (float(np.float32(scenario.death_hp_ratio)), float(np.float32(scenario.boss_hp_ratios[1])))
        thresholds = (-1.0, -1.0) if scenario.refill else mortal
        self._limits = (self.position(horizon.skill), horizon.decisions, *thresholds)
        lanes, count = self.lanes, len(skills)
        self.rows: StateRows = np.zeros((lanes, STATE_SIZE), np.float32)
        self.due: Flags = np.zeros((lanes, count), np.bool_)
        self.completed: Flags = np.zeros((lanes, count), np.bool_)
        self.latest: Actions = np.full((lanes, count), -1, np.int64)
        self.decisions: Actions = np.zeros((lanes, count), np.int64)
        self.ticks: Integers = np.zeros(lanes, np.int64)
        self.died, self.won, self.terminated, self.truncated = (np.zeros(lanes, np.bool_) for _ in range(4))
        self._marks = (self.died, self.won, self.terminated, self.truncated)
        self._remaining: Actions = np.zeros((lanes, count), np.int64)
        self._before: StateRows = np.zeros((count, lanes, STATE_SIZE), np.float32)
        self._controls = np.zeros(lanes, np.uint32)
        self._everyone = np.ones(lanes, np.bool_)
        self._clocks = (self.latest, self._remaining)

    def position(self, skill: str) -> int:
        """Return the skill's index among the combat's skills."""
        return [one.name for one in self.skills].index(skill)

    @property
    def ended(self) -> Flags:
        """Whether each lane's episode ended with the last tick, (lanes,)."""
        return self.terminated | self.truncated

    @property
    def controls(self) -> Controls:
        """The controls of the last tick, (lanes,); always the same array."""
        return self._controls

    @property
    def seconds(self) -> npt.NDArray[np.float64]:
        """Game time of each lane's episode so far, (lanes,)."""
        return np.asarray(self.ticks * self.game.tick_s, np.float64)

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Begin new episodes in `lanes` (n,) from `seeds` (n,), each skill at a random phase of its clock."""
        assert lanes.shape == seeds.shape == (len(lanes),), (lanes.shape, seeds.shape)
        self.raw = self.game.reset(lanes, self.scenario, seeds)
        fill_state(self.raw, self.rows)
        streams = derive_seeds(seeds, _CLOCK_STREAM)
        every = np.arange(len(lanes))
        for index, skill in enumerate(self.skills):
            self._remaining[lanes, index] = (uniforms(streams, every) * skill.longest_ticks).astype(np.int64)
        self.latest[lanes] = -1
        self.decisions[lanes] = 0
        self.ticks[lanes] = 0
        self.completed[lanes] = False
        for mark in self._marks:
            mark[lanes] = False
        self.due[lanes] = self._remaining[lanes] == 0

    def step(self, actions: Actions, active: ActiveLanes | None = None) -> None:
        """Advance one tick; `actions` (lanes, skills) is read where `due` holds.

        Lanes that are not `active` (lanes,) stand still, clocks included.

        Raises:
            ActionError: for an action that a skill does not have; nothing has moved then.
        """
        assert actions.shape == self.due.shape, actions.shape
        moving = self._everyone if active is None else active
        fresh = self.due if active is None else self.due & active[:, None]
        wrong = _decide(actions, self._clocks, fresh, self._tables, (self.rows, self._before), self._controls)
        if wrong >= 0:
            lane, skill = divmod(wrong, len(self.skills))
            raise self.skills[skill].refused(f"{actions[lane, skill]} of environment {lane}")
        self.raw = self.game.step(self._controls, active)
        # A call of its own: numba's cache would not notice a change of what it had compiled into another file.
        fill_state(self.raw, self.rows)
        counts, flags = (self.decisions, self.ticks), (self.completed, self.due)
        _finish(self.rows, self._clocks, counts, moving, flags, self._marks, self._limits)

    def starts(self, skill: int) -> StateRows:
        """Return the State rows at which one skill's latest decisions began, (lanes, 25); always the same array."""
        starts: StateRows = self._before[skill]
        return starts

    def finished(self, skill: int, lanes: LaneIndices) -> Decisions:
        """Return the decisions of one skill that ended with the last tick in `lanes` (n,)."""
        before, after, actions = self._before[skill, lanes], self.rows[lanes], self.latest[lanes, skill]
        return Decisions(before, after, actions, died=self.died[lanes], won=self.won[lanes])

    def get_state(self) -> dict[str, Any]:
        """Return everything that the next tick depends on, as arrays; the game's state included."""
        saved = {name.strip("_"): getattr(self, name).copy() for name in _SAVED}
        return {"game": self._savable_game().get_state(), **saved}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state` of an equal combat."""
        self._savable_game().set_state(state["game"])
        for name in _SAVED:
            getattr(self, name)[...] = state[name.strip("_")]

    def _savable_game(self) -> SavableGame:
        if isinstance(self.game, SavableGame):
            return self.game
        raise GameError("expected a game whose state can be saved, found a real-time driver: begin new episodes.")
