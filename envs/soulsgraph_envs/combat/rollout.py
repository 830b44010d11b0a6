"""One rollout: a controller plays the lanes of a combat; the result is columns of decisions and episodes.

Everything that steps a combat uses it: training samples, evaluations, learning curves, scripted references and
the environments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.combat.loop import Actions, Combat, Controller
from soulsgraph_envs.core.compiling import cached
from soulsgraph_envs.core.errors import EpisodeLostError, GameError
from soulsgraph_envs.core.game import LaneIndices
from soulsgraph_envs.core.seeds import Seeds, derive_seeds
from soulsgraph_envs.core.state import STATE_SIZE, Column, StateRows
from soulsgraph_envs.skills.skill import Decisions

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
#: How a fight ended; one that is not seen to its end is "cut".
Outcome = Literal["won", "died", "time over", "cut"]
Table = TypeVar("Table", bound=Any)


def outcome_of(died: bool, won: bool, truncated: bool = True) -> Outcome:
    """Return how a fight ended by its last tick; one that nothing ended is "cut"."""
    if died or won:
        return "died" if died else "won"
    return "time over" if truncated else "cut"


def in_order(table: Table, by: Integers) -> Table:
    """Return a dataclass of columns with its rows in the order of `by` (n,); equal ones keep theirs."""
    order = np.argsort(by, kind="stable")
    columns = {name: column[order] for name, column in vars(table).items() if isinstance(column, np.ndarray)}
    sorted_table: Table = replace(table, **columns)
    return sorted_table


@dataclass(frozen=True)
class DecisionColumns:
    """Every decision of the episodes' skill, in order of episode and time, one row each.

    `episodes` numbers the episode, `rows` (m, 25) is the State at the decision's start, `ticks` what it occupies
    if no end cuts it.
    """

    episodes: Integers
    rows: StateRows
    actions: Integers
    rewards: Doubles
    ticks: Integers

    @classmethod
    def join(cls, parts: Sequence[DecisionColumns]) -> DecisionColumns:
        """Join parts, ordered by episode and within an episode by part."""
        whole = cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))
        return in_order(whole, whole.episodes)

    def without(self, episodes: Integers) -> DecisionColumns:
        """Return the columns without the decisions of some `episodes` (n,)."""
        kept = ~np.isin(self.episodes, episodes)
        return DecisionColumns(*(column[kept] for column in vars(self).values()))


@dataclass(frozen=True)
class Episodes:
    """Finished episodes of one skill; every field has one row an episode.

    `lengths` counts decisions of the skill, `seconds` game time; `rows` (n, 25) is the State at the end, `terms`
    (n, terms) sums each reward term.
    """

    lanes: Integers
    lengths: Integers
    seconds: Doubles
    won: Flags
    died: Flags
    rows: StateRows
    terms: Floats
    decisions: DecisionColumns | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def returns(self) -> Floats:
        """Undiscounted returns, (n,)."""
        returns: Floats = self.terms.sum(axis=1)
        return returns

    @property
    def cut(self) -> Flags:
        """Whether the horizon ended an episode, (n,)."""
        return ~(self.won | self.died)

    @property
    def taken(self) -> DecisionColumns:
        """The decisions of episodes that were played with `keep_decisions`."""
        assert self.decisions is not None, "these episodes were played without keep_decisions"
        return self.decisions

    @property
    def win_rate(self) -> float:
        """The share of episodes won."""
        return float(self.won.mean())

    @property
    def boss_hp(self) -> Floats:
        """The boss's HP at the end as a share of the first phase's, (n,)."""
        return self.rows[:, Column.BOSS_HP]

    @property
    def player_hp(self) -> Floats:
        """The player's HP at the end as a share of its maximum, (n,)."""
        return self.rows[:, Column.PLAYER_HP]

    @classmethod
    def join(cls, parts: Sequence[Episodes]) -> Episodes:
        """Join episodes in their order, without their decisions."""
        names = [field.name for field in fields(cls) if field.name != "decisions"]
        columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return cls(**columns)


#: An episode that a real-time game loses is played again, but not more often than this.
MOST_REPLAYS = 5
#: Fights of one lane that may end, one after another, before a skill decides in any.
MOST_STARTS = 200

_RETRY_STREAM = 2
_MOST_LOGGED = 1_024

Ends = tuple[Flags, Flags, Flags, Flags]
Steps = tuple[tuple[Integers, Integers], tuple[StateRows, StateRows], Ends]

_logger = logging.getLogger("soulsgraph")


@cached()
def _append(skill: int, fight: tuple[Flags, Actions, StateRows, StateRows], ends: Ends, count: int, log: Steps) -> int:
    completed, latest, starts, rows = fight
    (lanes, actions), (before, after), marks = log
    for lane in range(rows.shape[0]):
        if completed[lane, skill]:
            lanes[count], actions[count] = lane, latest[lane, skill]
            for column in range(rows.shape[1]):
                before[count, column], after[count, column] = starts[lane, column], rows[lane, column]
            for i in range(len(marks)):
                marks[i][count] = ends[i][lane]
            count += 1
    return count


@cached()
def _add_rows(sums: Floats, lanes: LaneIndices, terms: Floats) -> None:
    for row in range(len(lanes)):
        for term in range(terms.shape[1]):
            sums[lanes[row], term] += terms[row, term]


@dataclass(frozen=True)
class FinishedDecisions:
    """Decisions that ended, with their reward terms (n, terms) and how they ended their episode, (n,) each."""

    lanes: Integers
    decisions: Decisions
    terms: Floats
    terminated: Flags
    truncated: Flags

    @property
    def rewards(self) -> Floats:
        """The sums of the terms, (n,)."""
        rewards: Floats = self.terms.sum(axis=1)
        return rewards


class SkillLog:
    """Log the decisions of one skill of a combat, evaluate their rewards, and make rows of the skill's episodes."""

    def __init__(self, combat: Combat, skill: str) -> None:
        self.combat = combat
        self._index = combat.position(skill)
        self.skill = combat.skills[self._index]
        #: Sums of the reward terms of the open episodes, (lanes, terms).
        self.sums: Floats = np.zeros((combat.lanes, len(self.skill.reward.terms)), np.float32)
        self._look()
        self._closed: list[Episodes] = []
        #: Decisions that ended since the last `collect`.
        self.logged = 0
        self._allocate(max(_MOST_LOGGED, combat.lanes))

    def _look(self) -> None:
        combat = self.combat
        self._fight = (combat.completed, combat.latest, combat.starts(self._index), combat.rows)
        self._ends = (combat.died, combat.won, combat.terminated, combat.truncated)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy is made of; copied views would be of other memory than the copied combat's."""
        return {name: value for name, value in vars(self).items() if name not in ("_fight", "_ends")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._look()

    def _allocate(self, capacity: int) -> None:
        self._capacity = capacity
        lanes, actions = np.empty((2, capacity), np.int64)
        before, after = np.empty((2, capacity, STATE_SIZE), np.float32)
        died, won, terminated, truncated = np.empty((4, capacity), np.bool_)
        self._log: Steps = ((lanes, actions), (before, after), (died, won, terminated, truncated))

    def reserve(self, decisions: int) -> None:
        """Reserve room in an empty log for this number of decisions until the next `collect`."""
        if self._capacity < decisions:
            self._allocate(decisions)

    @property
    def due(self) -> Flags:
        """Whether the skill decides on the next tick, (lanes,)."""
        due: Flags = self.combat.due[:, self._index]
        return due

    @property
    def observations(self) -> Floats:
        """The skill's present observations, (lanes, size)."""
        return self.skill.observation(self.combat.rows, self.combat.scenario)

    def log(self) -> int:
        """Log the decisions that ended with the last tick; return how many those are. `reserve` made room."""
        before = self.logged
        self.logged = _append(self._index, self._fight, self._ends, before, self._log)
        return self.logged - before

    @property
    def log_is_full(self) -> bool:
        """Whether another tick may yield more decisions than the log has room for."""
        return self.logged + self.combat.lanes > self._capacity

    def collect(self) -> FinishedDecisions:
        """Return the logged decisions with rewards, also added to the open episodes; views until the next tick."""
        part, self.logged = slice(0, self.logged), 0
        (lanes, actions), (before, after), (died, won, terminated, truncated) = self._log
        decisions = Decisions(before[part], after[part], actions[part], died[part], won[part])
        terms = self.skill.reward.evaluate(decisions)
        _add_rows(self.sums, lanes[part], terms)
        return FinishedDecisions(lanes[part], decisions, terms, terminated[part], truncated[part])

    def forget(self) -> None:
        """Drop what was logged and summed up, after a lost game has broken the episodes off."""
        self.logged = 0
        self.sums[:] = 0.0

    def close(self, lanes: LaneIndices) -> None:
        """Add a row for each episode that ended in `lanes` (n,), after its decisions were collected."""
        combat = self.combat
        lengths, seconds, rows = combat.decisions[lanes, self._index], combat.seconds[lanes], combat.rows[lanes]
        won, died = combat.won[lanes], combat.died[lanes]
        self._closed.append(Episodes(lanes, lengths, seconds, won, died, rows, self.sums[lanes]))

    def episodes(self) -> Episodes:
        """Return the episodes closed since the last call."""
        if not self._closed:
            self.close(np.zeros(0, np.int64))
        closed, self._closed = self._closed, []
        return Episodes.join(closed)


class Rollout(SkillLog):
    """Let controllers play a combat, each its own skills; the skill of the combat's horizon is looked at.

    `advance` logs the decisions of that skill that end with a tick; `collect` evaluates their rewards, many at a
    time, and `close` makes rows of the episodes that ended. `play` does all of it for a list of seeds.
    """

    def __init__(self, combat: Combat, *controllers: Controller) -> None:
        super().__init__(combat, combat.horizon.skill)
        self._controllers = controllers
        #: What the controllers chose last, (lanes, skills).
        self.actions: Actions = np.zeros((combat.lanes, len(combat.skills)), np.int64)
        #: Control ticks so far, and episodes that a real-time game lost and that were played again.
        self.ticks = self.replays = 0
        #: Called after every control tick.
        self.after_tick: Callable[[], None] | None = None

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Begin episodes in `lanes` (n,) from `seeds` (n,); what a lane had summed up is forgotten."""
        self.sums[lanes] = 0.0
        self.combat.begin(lanes, seeds)
        for controller in self._controllers:
            controller.begin(lanes, seeds)

    def tick(self, active: Flags | None = None) -> None:
        """Choose and carry out the next tick's actions in the `active` lanes (lanes,), by default in all."""
        if active is not None and active.all():
            active = None
        if self._controllers and active is not None:
            self.combat.due[~active] = False
        for controller in self._controllers:
            controller.act(self.combat, self.actions)
        self.combat.step(self.actions, active)
        self.ticks += 1
        if self.after_tick is not None:
            self.after_tick()

    def advance(self, active: Flags | None = None) -> int:
        """Run a tick of the `active` (lanes,) and log the skill's decisions that ended with it; return their number."""
        assert not self.log_is_full, "collect what is logged, or reserve more"
        self.tick(active)
        return self.log()

    def begin_deciding(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Begin episodes in `lanes` (n,), ascending, and run each to the skill's first decision.

        Raises:
            GameError: if `MOST_STARTS` fights of a lane in a row end before it.
        """
        self.begin(lanes, seeds)
        retries = np.zeros(len(lanes), np.int64)
        while True:
            waiting = np.zeros(self.combat.lanes, np.bool_)
            waiting[lanes] = ~self.due[lanes]
            if not waiting.any():
                return
            self.tick(waiting)
            # An episode lost before the skill ever decided teaches it nothing: begin another.
            lost = np.flatnonzero(self.combat.ended & waiting)
            if lost.size:
                places = np.searchsorted(lanes, lost)
                retries[places] += 1
                if retries.max() >= MOST_STARTS:
                    raise unplayable(self.combat, self.skill.name, int(retries.max()))
                self.begin(lost, _retry_seeds(seeds[places], retries[places]))

    def decide(self, actions: Integers, chosen: Flags | None = None) -> FinishedDecisions:
        """Carry out one decision of the skill in the `chosen` lanes (lanes,), by default in all; return them in order.

        `actions` are (lanes,). A lane that is done stands still until all are: with more than one lane the game must be
        able to pause.

        Raises:
            ActionError: for an action that the skill does not have.
        """
        assert actions.shape == (self.combat.lanes,), actions.shape
        self.actions[:, self._index] = actions
        waiting = np.ones(self.combat.lanes, np.bool_) if chosen is None else chosen.copy()
        while waiting.any():
            self.advance(waiting)
            waiting &= ~self.combat.completed[:, self._index]
        finished = self.collect()
        return replace(in_order(finished, finished.lanes), decisions=in_order(finished.decisions, finished.lanes))

    def play(
        self,
        seeds: Seeds,
        on_finished: Callable[[int], None] | None = None,
        *,
        keep_decisions: bool = False,
        most_ticks: int | None = None,
    ) -> Episodes:
        """Play one episode per seed, (n,), and return them in seed order, for any number of lanes.

        `on_finished` is called with the number of episodes that ended since its last call. An episode that a
        real-time game breaks off is played again from its seed; an episode ends after `most_ticks`.

        Raises:
            EpisodeLostError: if a real-time game breaks off the same episode too often.
            GameError: if a real-time game cannot be reset.
        """
        assignment, losses = _Assignment(self.combat.lanes, seeds), 0
        kept: list[DecisionColumns] = []
        fresh = assignment.follow(np.arange(self.combat.lanes))
        while assignment.active.any():
            active = assignment.active
            try:
                if fresh.size:
                    self.begin(fresh, seeds[assignment.playing[fresh]])
                fresh = fresh[:0]
                self.advance(active)
            except EpisodeLostError as loss:
                losses += 1
                if losses > MOST_REPLAYS:
                    raise
                _logger.warning("episode lost, played again: %s", loss.reason)
                self.replays += 1
                self.forget()
                fresh = np.flatnonzero(active)
                kept = [part.without(assignment.playing[fresh]) for part in kept]
                continue
            over = self.combat.ended
            if most_ticks is not None:
                over = over | (self.combat.ticks >= most_ticks)
            ended = np.flatnonzero(active & over)
            if ended.size or self.log_is_full:
                finished = self.collect()
                if keep_decisions:
                    kept.append(self._columns(finished, assignment.playing))
            if ended.size:
                losses = 0
                self.close(ended)
                fresh = assignment.follow(ended)
                if on_finished:
                    on_finished(len(ended))
        episodes = assignment.sorted(self.episodes())
        return replace(episodes, decisions=DecisionColumns.join(kept)) if keep_decisions else episodes

    def _columns(self, finished: FinishedDecisions, playing: Integers) -> DecisionColumns:
        """Copy decisions that ended, in lanes that play the episodes `playing` (lanes,)."""
        rewards = finished.terms.sum(axis=1, dtype=np.float64)
        rows, actions = finished.decisions.before.copy(), finished.decisions.actions.copy()
        return DecisionColumns(playing[finished.lanes], rows, actions, rewards, self.skill.ticks(finished.decisions))


def _retry_seeds(seeds: Seeds, retries: Integers) -> Seeds:
    """Return the seeds (n,) of fights that are begun in place of lost ones, the first, second... time."""
    first = derive_seeds(seeds, _RETRY_STREAM)
    return np.where(retries == 1, first, derive_seeds(first, retries))


def unplayable(combat: Combat, skill: str, fights: int) -> GameError:
    """Return the error of fights that ended, one after another, before a skill decided."""
    return GameError(
        f"{combat.scenario.name}: expected fights in which {skill} decides, found {fights:,} in a row that ended "
        "before it did; let fights begin farther from the boss, or make the boss slower or weaker, in their files."
    )


class _Assignment:
    """The index of the episode that each lane plays, -1 for none, and the order in which the episodes ended."""

    def __init__(self, lanes: int, seeds: Seeds) -> None:
        self.playing: Integers = np.full(lanes, -1, np.int64)
        self._waiting = np.arange(len(seeds))
        self._ended: list[Integers] = []

    @property
    def active(self) -> Flags:
        return self.playing >= 0

    def follow(self, free: LaneIndices) -> LaneIndices:
        """Assign the next episodes to lanes that are `free` (n,), with none or one that ended; return those served."""
        self._ended.append(self.playing[free])
        following, self._waiting = np.split(self._waiting, [len(free)])
        self.playing[free] = -1
        self.playing[free[: len(following)]] = following
        return free[: len(following)]

    def sorted(self, episodes: Episodes) -> Episodes:
        """Return episodes, given in the order in which they ended, in the order of their seeds."""
        ended = np.concatenate(self._ended)
        return in_order(episodes, ended[ended >= 0])
