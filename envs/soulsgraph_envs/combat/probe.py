"""The probe: scripted play that covers what agents don't, so that a boss's data can be estimated from its recordings.

Trained agents keep to the few distances, sides and moments that pay. The probe draws them: where it waits for a blow,
whether it then stands, steps over an edge, circles or rolls, when and where to. It goes by a tick's readings alone, so
that it plays running games too, and it never strikes, so that fights last. Where it is known what earlier fights leave
open, it plays that more often: a `Focus` says what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import atan2, inf, pi, remainder
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from soulsgraph_envs.combat.loop import Combat, Doubles
from soulsgraph_envs.combat.scripted import (
    DODGE,
    DODGE_IDLE,
    DRINK,
    FIGHT_IDLE,
    MOVE_IDLE,
    AlignCamera,
    Choices,
    Script,
    TakeLock,
)
from soulsgraph_envs.core.game import LaneIndices
from soulsgraph_envs.core.scenario import BossData, Move, PlayerData, Scenario, load_boss, load_player
from soulsgraph_envs.core.seeds import Seeds, derive_seeds, uniforms
from soulsgraph_envs.core.state import Column, Raw
from soulsgraph_envs.skills import SKILL_NAMES, make_skill

_PROBE_STREAM = 31
#: The movement skill's actions by name, as "back_left".
_STEPS = {action.name: index for index, action in enumerate(make_skill("movement").actions)}
_FIRST_LANE = np.zeros(1, np.int64)
#: What is done about a move of the boss: stand; be about the edge of a blow, or cross it while the blow lasts; go round
#: the boss; stand aside, about an edge of the blow's arc; roll; or run away, as some moves come from afar alone.
Answer = Literal["stand", "edge", "cross", "circle", "aside", "roll", "flee"]
#: How often each is drawn, together 1.
_ANSWERS: dict[Answer, float] = {"cross": 0.24, "roll": 0.25, "circle": 0.19, "flee": 0.16, "edge": 0.14, "stand": 0.02}
#: How often of these it plays what is not known of a blow, if nothing of it is, and which answers show it.
_OPEN_SHARE = 2.0
_SHOWS: dict[str, dict[Answer, float]] = {
    "reach": {"cross": 0.5, "edge": 0.5},
    "arc": {"aside": 0.4},
    "end": {"cross": 0.6, "roll": 0.4},
    "blow": {"edge": 0.4, "stand": 0.6},
}
#: How much more often a blow of a move is chosen of which nothing is known than one of which all is.
_KNOWN_BLOW = 0.15
#: Of answers to a later blow of a move, how often it first rolls through the one before, and how long before that.
_EVADES, _EVADES_S = 0.7, (0.05, 0.3)
#: How much earlier than it has to it begins to walk in, where that shows when a blow ends.
_WALKS_IN_S = 0.1
#: How much farther than where an edge may be it goes, in metres and radians.
_BEYOND_M, _BEYOND_RAD = 0.15, 0.1
#: Where it then is, in shares of the reach that the data say: half of the time close to it, for the data are a guess.
_AT_EDGE, _ABOUT_EDGE, _INSIDE = (0.9, 1.2), (0.6, 1.6), (0.3, 0.9)
#: A crossing begins so far inside or outside, and up to so long before the blow begins and after it ends.
_CROSSES_M, _CROSSES_S = 0.5, 0.25
#: When it begins to circle, in seconds after the boss no longer turns after it; and how near, in metres beyond contact:
#: who is near gets round sooner.
_CIRCLES_S, _CIRCLES_M = (-1.2, 0.2), (0.0, 0.3)
#: When it begins to roll, in seconds after the blow begins, and how often a second roll follows.
_ROLLS_S, _AGAIN = (-0.55, 0.1), 0.4
#: Where it waits for a move, in metres beyond contact: mostly about where blows end, at times where leaps begin.
_NEAR_M, _FAR_M, _FAR_SHARE = (0.0, 3.5), (4.5, 9.0), 0.4
#: How often it goes round the boss once the last blow of a move is over: some moves are for who is behind.
_BEHIND = 0.4
#: How near a distance counts as kept, how often it goes round the boss meanwhile, and how long it waits in one way.
_KEPT_M, _ORBITS, _WAIT_S = 0.2, 0.5, (0.5, 2.5)
#: It drinks below this share of HP, between moves where the boss is far, or as far into a move.
_DRINK_BELOW, _DRINK_BEYOND_M, _DRINK_AFTER = 0.5, 3.0, 0.7


@dataclass(frozen=True)
class BlowDoubt:
    """What earlier fights leave open of a blow: where its reach, its half arc and the blow itself may end, low to high.

    `open` says how little is known of its "reach", "arc", "end", and of its "blow" (begin and damage): 0 for all, 1 for
    nothing.
    """

    reach_m: tuple[float, float]
    half_arc_rad: tuple[float, float]
    end_s: tuple[float, float]
    open: Mapping[str, float]

    @property
    def total(self) -> float:
        """How little is known of it in all."""
        return sum(self.open.values())

    def of_end(self, answer: Answer) -> float:
        """Return how much of an answer's purpose is to show when the blow ends, 0 to 1."""
        shows = {name: share * _SHOWS[name].get(answer, 0.0) for name, share in self.open.items()}
        return shows["end"] / max(sum(shows.values()), 1e-9)


@dataclass(frozen=True)
class Focus:
    """What a probe plays more often: the boss as earlier fights show it, and what they leave open.

    `doubts` are those of each move's blows by its id, `keeps_m` the shares of distances to wait at, together 1,
    `orbits` is how often it waits in contact instead, going round the boss quicker than that turns, and `behind` how
    often it goes round it once a move's last blow is over.
    """

    boss: BossData
    doubts: Mapping[int, Sequence[BlowDoubt]]
    keeps_m: Mapping[float, float]
    orbits: float
    behind: float
    #: The number of those fights.
    fights: int


class _Blow(NamedTuple):
    """What the data guess of a blow: when it begins and ends, how far it reaches, and the leap or lunge that brings it.

    Times are shares of the move; from `flies` on the boss leaps, until `tracks` it turns after the player, and a lunge
    goes `lunge_m` between two times. `before` is when the blow before it begins, below 0 without one.
    """

    first: float
    last: float
    reach_m: float
    flies: float
    tracks: float
    lunges: tuple[float, float]
    lunge_m: float
    before: float = -1.0
    answers: Mapping[Answer, float] = _ANSWERS
    doubt: BlowDoubt | None = None

    @property
    def weight(self) -> float:
        """How often it is the one that a move is answered for, beside others."""
        return 1.0 if self.doubt is None else _KNOWN_BLOW + self.doubt.total

    def left_m(self, share: float) -> float:
        """Return how far the lunge still goes after a share of the move."""
        begins, ends = self.lunges
        return self.lunge_m * min(max(ends - share, 0.0) / max(ends - begins, 1e-3), 1.0)


_NO_BLOW = _Blow(0.0, 0.0, 0.0, 0.0, 0.0, (0.0, 0.0), 0.0)


def _blows(bosses: Sequence[BossData], focus: Focus | None) -> dict[int, tuple[_Blow, ...]]:
    """Return the blows of every move by the id that the skills see."""
    doubts = {} if focus is None else focus.doubts
    return {
        move.id: tuple(_blow(boss, move, place, doubts.get(move.id, ())) for place in range(len(move.windows)))
        for boss in bosses
        for move in boss.moves
    }


def _blow(boss: BossData, move: Move, place: int, doubts: Sequence[BlowDoubt]) -> _Blow:
    window, earlier_s = move.windows[place], move.windows[place - 1].time_s[0] if place else -move.length_s
    moments_s = (*window.time_s, window.time_s[0] - move.leap_s, move.tracks_s, *move.lunge_s, earlier_s)
    first, last, flies, tracks, begins, ends, before = (moment_s / move.length_s for moment_s in moments_s)
    ends = min(ends, last)
    lunge_m = move.lunge_m_s * boss.time_factor * max(ends - begins, 0.0) * move.length_s
    blow = _Blow(first, last, window.reach_m, flies, tracks, (begins, ends), lunge_m, before)
    return blow._replace(doubt=doubts[place], answers=_answers(doubts[place])) if place < len(doubts) else blow


def _answers(doubt: BlowDoubt) -> dict[Answer, float]:
    """Return how often each answer is drawn, together 1, where some would show what is not known."""
    often: dict[Answer, float] = {"aside": 0.0, **_ANSWERS}
    for name, share in doubt.open.items():
        for answer, shows in _SHOWS[name].items():
            often[answer] += _OPEN_SHARE * share * shows
    total = sum(often.values())
    return {answer: share / total for answer, share in often.items()}


_Option = TypeVar("_Option")


def _option(options: Mapping[_Option, float], place: float) -> _Option:
    """Return the option at a place from 0 to 1 of their shares, which are together 1."""
    for option, share in options.items():
        chosen = option
        if (place := place - share) < 0.0:
            break
    return chosen


@dataclass
class _Fight:
    """What the probe does in one lane, drawn from the fight's seed: how it waits, and how it answers a move."""

    stream: Seeds
    contact_m: float
    player: PlayerData
    focus: Focus | None = None
    #: Metres to keep from the boss between moves, the way round it, and until when.
    keeps_m: float = 0.0
    way: str = ""
    waits_until_s: float = -1.0
    #: The move under way, -1 for none, its time and length, when its last blow is over, and what is done about it.
    move: int = -1
    time_s: float = 0.0
    length_s: float = 1.0
    over_s: float = 1.0
    answer: Answer = "stand"
    #: The blow that it is about, and the metres to keep from the boss before it; from when on it crosses, circles or
    #: rolls, and which way.
    blow: _Blow = _NO_BLOW
    aim_m: float = 0.0
    begins_s: float = 0.0
    step: str = ""
    #: Whether it goes round the boss once its last blow is over.
    behind: bool = False
    #: When it rolls through the blow before, and how far from straight ahead of the boss it goes and is.
    evades_s: float = inf
    aside_rad: float = 0.0
    angle_rad: float = 0.0

    def draw(self, low: float = 0.0, high: float = 1.0) -> float:
        """Draw a number from low to high."""
        return low + (high - low) * float(uniforms(self.stream, _FIRST_LANE)[0])

    @property
    def begun(self) -> bool:
        """Whether the moment to cross, circle or roll has come."""
        return self.move >= 0 and self.time_s >= self.begins_s

    @property
    def rolls(self) -> bool:
        """Whether it rolls in this tick, if it can."""
        return self.move >= 0 and (self.time_s >= self.evades_s or (self.answer == "roll" and self.begun))

    def follow(self, raw: Doubles, blows: Sequence[_Blow], now_s: float) -> None:
        """Draw anew what is done where a move begins, or where a wait is over.

        `raw` (25,) is what is read, `blows` are those of the move under way, none between moves.
        """
        number, time_s = int(raw[Raw.BOSS_ANIMATION]) if blows else -1, float(raw[Raw.BOSS_ANIMATION_TIME_S])
        self.angle_rad = _angle_rad(raw)
        begins = bool(blows) and (number != self.move or time_s < self.time_s)
        self.move, self.time_s, self.length_s = number, time_s, float(raw[Raw.BOSS_ANIMATION_LENGTH_S])
        if begins:
            self.over_s = self.length_s * max(blow.last for blow in blows) + _CROSSES_S
            total = sum(blow.weight for blow in blows)
            shares = {place: blow.weight / total for place, blow in enumerate(blows)}
            self._answer(blows[_option(shares, self.draw())], now_s)
        if now_s >= self.waits_until_s:
            self._wait(now_s)

    def rolled(self) -> None:
        """Draw whether another roll follows in the same move."""
        if self.time_s >= self.evades_s:
            self.evades_s = inf
            return
        again = self.draw() < _AGAIN
        self.begins_s = self.draw(self.time_s, self.length_s) if again else self.length_s + 1.0
        self.step = self._direction()

    def walks(self, distance_m: float) -> str:
        """Return which way to walk at a distance from the boss; "idle" for none."""
        if self.move < 0:
            return self._keep(distance_m, self.keeps_m, self.way)
        if self.time_s > self.over_s:
            return self._keep(distance_m, *((self.contact_m, self.way) if self.behind else (self.keeps_m, "")))
        if self.answer == "stand":
            return "idle"
        if self.begun and self.answer == "aside":
            return self.way if self.angle_rad < self.aside_rad else "idle"
        if self.begun and self.answer != "circle":
            return self.step
        lunges_m = self.blow.left_m(self.time_s / max(self.length_s, 1e-3))
        return self._keep(distance_m, self.aim_m + lunges_m, self.way if self.begun else "")

    def _keep(self, distance_m: float, aim_m: float, way: str) -> str:
        away = distance_m - max(aim_m, self.contact_m)
        along = "forward" if away > _KEPT_M else "back" if away < -_KEPT_M else ""
        return "_".join(filter(None, (along, way))) or "idle"

    def _answer(self, blow: _Blow, now_s: float) -> None:
        self.blow = blow
        self.answer, way = _option(blow.answers, self.draw()), self.way
        if self.focus is not None:
            self._wait(now_s + self.length_s)
            self.answer = "flee" if self.keeps_m > self.contact_m + _FAR_M[0] else self.answer
        first_s, last_s = blow.first * self.length_s, blow.last * self.length_s
        self.aim_m, self.begins_s = self._aim_m(blow), self.length_s + 1.0
        self.way, self.step = self._side(), self._direction()
        self.behind = self.answer != "flee" and self.draw() < (_BEHIND if self.focus is None else self.focus.behind)
        self.evades_s = inf
        if blow.doubt is not None and blow.before >= 0.0 and self.draw() < _EVADES:
            self.evades_s = blow.before * self.length_s - self.draw(*_EVADES_S)
        if self.answer == "flee":
            far_m = self.contact_m + self.draw(*_FAR_M)
            self.aim_m = self.keeps_m = far_m if self.focus is None else max(far_m, self.keeps_m)
            self.waits_until_s = now_s + self.length_s + self.draw(*_WAIT_S)
        elif self.answer == "circle":
            self.aim_m = self.contact_m + self.draw(*_CIRCLES_M)
            self.begins_s = min(blow.tracks * self.length_s, first_s) + self.draw(*_CIRCLES_S)
        elif self.answer == "aside" and blow.doubt is not None:
            low, high = blow.doubt.half_arc_rad
            self.aside_rad = self.draw(low - _BEYOND_RAD, high + _BEYOND_RAD)
            # Where it waits in contact it is aside by then: it goes on, since the boss turns after it in most moves.
            self.aim_m, self.begins_s = self.contact_m, 0.0
            self.way = way or self.way
        elif (
            blow.doubt is not None and self.answer in ("roll", "cross") and self.draw() < blow.doubt.of_end(self.answer)
        ):
            self._meet_end(blow.doubt)
        elif self.answer == "roll":
            self.begins_s = first_s + self.draw(*_ROLLS_S)
        elif self.answer == "cross":
            self.step = "back" if self.draw() < 0.5 else "forward"
            self.aim_m += _CROSSES_M if self.step == "forward" else -_CROSSES_M
            self.begins_s = self.draw(blow.flies * self.length_s - _CROSSES_S, last_s + _CROSSES_S)

    def _meet_end(self, doubt: BlowDoubt) -> None:
        """Walk in, or end a roll's protection, about the moment at which a blow may end."""
        moment_s = self.draw(*doubt.end_s)
        if self.answer == "roll":
            self.begins_s, self.step = moment_s - self.player.roll.invulnerable_s, self._side()
            return
        self.aim_m, self.step = doubt.reach_m[1] + _CROSSES_M, "forward"
        self.begins_s = moment_s - _WALKS_IN_S - (self.aim_m - doubt.reach_m[0]) / self.player.run.speed_m_s

    def _aim_m(self, blow: _Blow) -> float:
        """Draw the distance to be at before a blow: inside, or about where it ends."""
        about = _INSIDE if self.answer == "roll" else _AT_EDGE if self.draw() < 0.5 else _ABOUT_EDGE
        if blow.doubt is None or self.answer == "roll":
            return blow.reach_m * self.draw(*about)
        low, high = blow.doubt.reach_m
        return self.draw(low - _BEYOND_M, high + _BEYOND_M)

    def _wait(self, now_s: float) -> None:
        """Draw how it waits between moves from a moment on."""
        if self.focus is None:
            self.keeps_m = self.contact_m + self.draw(*(_FAR_M if self.draw() < _FAR_SHARE else _NEAR_M))
            self.way = self._side() if self.draw() < _ORBITS else ""
        elif self.draw() < self.focus.orbits:
            self.keeps_m, self.way = self.contact_m, self._side()
        else:
            self.keeps_m, self.way = _option(self.focus.keeps_m, self.draw()), ""
        self.waits_until_s = now_s + self.draw(*_WAIT_S)

    def _side(self) -> str:
        return "left" if self.draw() < 0.5 else "right"

    def _direction(self) -> str:
        return ("forward", "back", "left", "right")[int(4.0 * self.draw())]


def _angle_rad(raw: Doubles) -> float:
    """Return how far from straight ahead of the boss the player is, 0 to pi."""
    dx, dy = (float(raw[own] - raw[boss]) for own, boss in ((Raw.PLAYER_X, Raw.BOSS_X), (Raw.PLAYER_Y, Raw.BOSS_Y)))
    return abs(remainder(atan2(-dx, -dy) - float(raw[Raw.BOSS_ANGLE]), 2.0 * pi))


class Probe:
    """The probing player of a scenario: `scripts` are those of the five skills, by name, which share what it draws.

    With a `focus` it plays what that says is open, by the boss that it holds.
    """

    def __init__(self, scenario: Scenario, focus: Focus | None = None) -> None:
        bosses, player = [load_boss(phase.boss) for phase in scenario.phases()], load_player(scenario.player)
        self._contact_m = player.body.radius_m + bosses[0].radius_m
        #: In these animations a roll begins at once.
        self.free = (player.animations.idle.id, player.animations.run.id)
        self._player, self._focus = player, focus
        self._blows = _blows(bosses if focus is None else [focus.boss, *bosses[1:]], focus)
        self._fights: dict[int, _Fight] = {}
        own = (AlignCamera(), TakeLock(), _ProbeMovement(self), _ProbeDodge(self), _ProbeDrink(self))
        self.scripts: dict[str, Script] = dict(zip(SKILL_NAMES, own, strict=True))

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Begin fights in `lanes` (n,), each drawn from its seed (n,)."""
        streams = derive_seeds(seeds, _PROBE_STREAM)
        for lane, stream in zip(lanes.tolist(), streams, strict=True):
            self._fights[lane] = _Fight(np.array([stream], np.uint64), self._contact_m, self._player, self._focus)

    def fights(self, combat: Combat) -> list[_Fight]:
        """Return what is done in every lane."""
        return [self._fights[lane] for lane in range(combat.lanes)]

    def watch(self, combat: Combat) -> None:
        """Follow the boss in every lane, before anything is chosen in a tick."""
        for fight, raw, now_s in zip(self.fights(combat), combat.raw, combat.seconds.tolist(), strict=True):
            fight.follow(raw, self._blows.get(int(raw[Raw.BOSS_ANIMATION]), ()), now_s)


@dataclass
class _ProbeMovement(Script):
    """Keep the drawn distance, and step or circle where a move is answered so; the first to see a tick."""

    probe: Probe

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        self.probe.begin(lanes, seeds)

    def watch(self, combat: Combat) -> None:
        self.probe.watch(combat)

    def choose(self, combat: Combat) -> Choices:
        distances = combat.rows[:, Column.DISTANCE].tolist()
        walks = [fight.walks(distance) for fight, distance in zip(self.probe.fights(combat), distances, strict=True)]
        return np.array([_STEPS.get(walk, MOVE_IDLE) for walk in walks], np.int64)


@dataclass
class _ProbeDodge(Script):
    """Roll at the drawn moment, early or late, in the drawn direction."""

    probe: Probe

    def choose(self, combat: Combat) -> Choices:
        fights, free = self.probe.fights(combat), np.isin(combat.rows[:, Column.PLAYER_ANIMATION], self.probe.free)
        choices = np.where(free & [fight.rolls for fight in fights], DODGE, DODGE_IDLE)
        for lane in np.flatnonzero((choices == DODGE) & combat.due[:, combat.position("dodge")]).tolist():
            fights[lane].rolled()
        return choices


@dataclass
class _ProbeDrink(Script):
    """Drink where HP is low and the boss far, or its move nearly over; never strike."""

    probe: Probe

    def choose(self, combat: Combat) -> Choices:
        rows = combat.rows
        moving = np.array([fight.move >= 0 for fight in self.probe.fights(combat)])
        quiet = np.where(
            moving, rows[:, Column.BOSS_PROGRESS] > _DRINK_AFTER, rows[:, Column.DISTANCE] > _DRINK_BEYOND_M
        )
        drinks = quiet & (rows[:, Column.PLAYER_HP] < _DRINK_BELOW) & (rows[:, Column.FLASKS] >= 1.0)
        return np.where(drinks, DRINK, FIGHT_IDLE)
