"""What a reading of a game means: the 25 raw values; whether it can be a moment of the fight, and shows our keys."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import dist, hypot, isfinite, nan
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.config import Between, Triple, Where, load, load_data, shipped_names
from soulsgraph_envs.core.errors import MOST_DOUBTFUL_TICKS, EpisodeLostError, GameError
from soulsgraph_envs.core.scenario import (
    Animation,
    BossData,
    PhaseChange,
    PlayerData,
    Scenario,
    load_boss,
    load_player,
    load_scenario,
)
from soulsgraph_envs.core.state import RAW_SIZE, Control, Raw, wrap_angle
from soulsgraph_envs.games.link import Reading, same_moment

Row = npt.NDArray[np.float64]

_LOG = logging.getLogger(__name__)
#: A boss's animation whose name holds one of these is what the attack register says (SoulsGym's rule):
#: a blow that lands overwrites the name for a while, but not the register.
_ATTACK_MARKS = ("Attack", "SABlend", "Part")


_ALIASES = Where(Path(__file__).parents[1] / "data" / "animation_aliases.toml")


@dataclass(frozen=True)
class _Aliases:
    """By character: the game's names, and the keys of the data's animations that they stand for."""

    player: dict[str, str]
    boss: dict[str, str]


@cache
def _aliases() -> _Aliases:
    return load(_Aliases, _ALIASES)


class AnimationTable:
    """One character's animations in one phase; `unknown` counts what the data do not name."""

    def __init__(self, who: str, animations: Mapping[str, Animation]) -> None:
        self.unknown: Counter[str] = Counter()
        self._who, self._animations, self._idle = who, animations, animations["idle"]
        self._ids = {name: animations[role].id for name, role in vars(_aliases())[who].items() if role in animations}
        self._ids |= {animation.name: animation.id for animation in animations.values()}
        self._numbers = {animation.raw_id: animation.id for animation in animations.values() if animation.raw_id >= 0}

    def translate(self, reading: Reading) -> int:
        """Return the skills' id of the animation in a reading; idle, counted and reported once, for an unknown one."""
        key = self.key(reading)
        if (found := self._find(key)) is not None:
            return found
        self.unknown[str(key)] += 1
        if self.unknown[str(key)] == 1:
            _LOG.warning("the %s's animation %s is not in the data: the skills see it as idle", self._who, key)
        return self._idle.id

    def key(self, reading: Reading) -> str | int:
        """Return the name of the animation in a reading, or the game's number if it has no name."""
        name = reading.get(f"{self._who}_animation")
        if name is None:
            return int(reading.get(f"{self._who}_animation_id", -1))
        return (_boss_name(reading) or self._idle.name) if self._who == "boss" else str(name)

    def recognises(self, reading: Reading) -> bool:
        """Return whether animations can be identified in readings like this one."""
        return isinstance(self.key(reading), str) or bool(self._numbers)

    def among(self, reading: Reading, roles: Collection[str]) -> bool:
        """Return whether a reading shows one of the animations of these keys of the data; False for an unknown one."""
        return self._find(self.key(reading)) in {self._animations[role].id for role in roles}

    def _find(self, key: str | int) -> int | None:
        return self._ids.get(key) if isinstance(key, str) else self._numbers.get(key)


def _boss_name(reading: Reading) -> str | None:
    """Return the name of the boss's animation, of an attack by its register; None where that has no number."""
    name = str(reading["boss_animation"])
    if "boss_attack_id" not in reading or not any(mark in name for mark in _ATTACK_MARKS):
        return name
    registers = (int(reading.get(field, -1)) for field in ("boss_attack_id", "boss_attack_id_fallback"))
    return next((f"Attack{number}" for number in registers if number >= 0), None)


def boss_animation_as_read(reading: Reading) -> str | None:
    """Return the boss's animation as the game names it, known to the data or not; its number where it has no name.

    It is None where the game says neither, or a blow that lands hides what is no attack.
    """
    if "boss_animation" not in reading:
        number = int(reading.get("boss_animation_id", -1))
        return str(number) if number >= 0 else None
    name = str(reading["boss_animation"])
    # An attack whose register has no number yet still has its name.
    return _boss_name(reading) or (name if name.startswith("Attack") else None)


def reading_of(said: str) -> Reading:
    """Return what `boss_animation_as_read` returned as a reading: a name, or a number where there are no names."""
    return {"boss_animation_id": int(said)} if said.lstrip("-").isdecimal() else {"boss_animation": said}


def player_table(player: PlayerData) -> AnimationTable:
    """Make the table of a player's data."""
    return AnimationTable("player", player.animations.known())


def boss_table(boss: BossData, transition: PhaseChange | None = None) -> AnimationTable:
    """Make the table of one phase of a boss, with the animation that ends it if there is one."""
    animations = boss.animations.known()
    animations |= {move.title: Animation(move.id, move.name, move.raw_id) for move in boss.moves}
    if transition:
        animations["transition"] = transition.animation
    return AnimationTable("boss", animations)


class ScenarioAnimations:
    """The animations of a scenario: the player's, its drink's id, and the boss's by phase, with each phase's number."""

    def __init__(self, scenario: Scenario) -> None:
        player, phases = load_player(scenario.player), scenario.phases()
        self.player, self.drinking = player_table(player), player.animations.estus.id
        bosses = [load_boss(phase.boss) for phase in phases]
        self.numbers = [boss.phase for boss in bosses]
        self.phases = [boss_table(boss, phase.transition) for boss, phase in zip(bosses, phases, strict=True)]


def shows(reading: Reading, who: str, animation: Animation) -> bool:
    """Return whether a reading shows a character in an animation, by its name or else by its number."""
    name = reading.get(f"{who}_animation")
    return name == animation.name if name is not None else reading[f"{who}_animation_id"] == animation.raw_id


_ANIMATIONS = {Raw.PLAYER_ANIMATION: "player", Raw.BOSS_ANIMATION: "boss"}
#: The fields that are raw values as they stand, the angles wrapped.
RAW_FIELDS: Mapping[Raw, str] = {raw: raw.name.lower() for raw in Raw if raw not in (Raw.FLASKS, *_ANIMATIONS)} | {
    raw: f"player_{raw.name.lower()}" for raw in (Raw.STAMINA, Raw.STAMINA_MAX)
}


def supplied_raws(fields: frozenset[str]) -> frozenset[str]:
    """Return the raw values that can be made from a map's fields; flasks can be counted by the drinks."""
    named = {raw.name for raw, who in _ANIMATIONS.items() if {f"{who}_animation", f"{who}_animation_id"} & fields}
    named |= {raw.name for raw, name in RAW_FIELDS.items() if name in fields}
    return frozenset(named | {"FLASKS"} if {"flasks", "player_animation"} & fields else named)


class Flasks:
    """Count an episode's flasks: those beyond the scenario's number are not shown.

    If the game's number cannot be read, drinks are counted by the animation's id `drinking`.
    """

    def __init__(self, count: int, drinking: int, reading: Reading) -> None:
        self._left, self._drinking, self._drinks = count, drinking, False
        self._readable = isfinite(float(reading.get("flasks", nan)))
        self._surplus = int(reading["flasks"]) - count if self._readable else 0
        if self._surplus < 0:
            raise GameError(
                f"expected {count} flasks at the start, found {reading['flasks']:g}, and the map cannot write them: "
                "rest at a bonfire, or take a scenario with fewer."
            )

    def left(self, reading: Reading, animation: int) -> int:
        """Return the flasks left after a tick that showed the player in an animation."""
        if self._readable:
            return max(int(reading["flasks"]) - self._surplus, 0)
        if animation == self._drinking and not self._drinks:
            self._left = max(self._left - 1, 0)
        self._drinks = animation == self._drinking
        return self._left


def translate(reading: Reading, player: AnimationTable, boss: AnimationTable, flasks: Flasks) -> Row:
    """Return the raw values (25,) of a reading, 0 for what is not supplied."""
    row = np.zeros(RAW_SIZE)
    for raw, name in RAW_FIELDS.items():
        row[raw] = reading.get(name, 0.0)
    for angle in (Raw.PLAYER_ANGLE, Raw.BOSS_ANGLE):
        row[angle] = wrap_angle(float(row[angle]))
    for level in (Raw.PLAYER_HP, Raw.BOSS_HP):
        # Death is disabled: a fighter with a single point left counts as dead.
        row[level] = row[level] if row[level] > 1.0 else 0.0
    for at, table in ((Raw.PLAYER_ANIMATION, player), (Raw.BOSS_ANIMATION, boss)):
        if reading.keys() & {f"{_ANIMATIONS[at]}_animation", f"{_ANIMATIONS[at]}_animation_id"}:
            row[at] = table.translate(reading)
        # Time and length of an animation follow its id.
        row[at + 1] = min(max(row[at + 1], 0.0), row[at + 2])
    row[Raw.FLASKS] = flasks.left(reading, int(row[Raw.PLAYER_ANIMATION]))
    return row


_COORDINATE = Between(-1e6, 1e6)
#: A disc's edge is where the simulator's fighters stop, not where the game's ground does.
_MARGIN_M = 5.0


@dataclass(frozen=True)
class Entrance:
    """The fog gate: where to stand and look when interacting with it, and where the player comes out."""

    outside_m: Triple[Annotated[float, _COORDINATE]]
    outside_angle_rad: Annotated[float, Between(-3.2, 3.2)]
    camera: Triple[Annotated[float, Between(-1.0, 1.0)]]
    inside_m: Triple[Annotated[float, _COORDINATE]]


@dataclass(frozen=True)
class LiveArena:
    """One boss's arena in the game's coordinates, z up; `reload` is written before the world is reloaded."""

    name: str
    #: Beginnings of the names of the boss data that fight here.
    bosses: tuple[str, ...]
    #: The boss's character name in the game.
    character: str
    low_m: Triple[Annotated[float, _COORDINATE]]
    high_m: Triple[Annotated[float, _COORDINATE]]
    floor_m: tuple[Triple[float], ...] = ()
    entrance: Entrance | None = None
    #: The scenario of the boss's whole fight, which knows its change of phase; empty if it has none.
    whole_fight: str = ""
    reload: dict[str, float] = field(default_factory=dict)

    @cached_property
    def transition(self) -> PhaseChange | None:
        """The boss's change of phase."""
        return load_scenario(self.whole_fight).transition if self.whole_fight else None

    def holds(self, x: float, y: float, z: float) -> bool:
        """Return whether a place lies within the arena's bounds."""
        return all(low <= value <= high for low, value, high in zip(self.low_m, (x, y, z), self.high_m, strict=True))

    def floor(self, x: float, y: float) -> float:
        """Return the height of the known floor point nearest to a place, metres."""
        return min(self.floor_m, key=lambda point: hypot(point[0] - x, point[1] - y))[2]


def arena_of(scenario: Scenario, boss: str) -> LiveArena:
    """Return the arena in which a boss, by the name in its data, is fought.

    It is the scenario's own disc if the boss has no file, or if the file's arena is another place.
    """
    (x, y), z = scenario.arena.centre_m, scenario.arena.height_m
    for name in shipped_names("arena"):
        arena = load_data("arena", LiveArena, name)
        if boss.startswith(arena.bosses) and arena.holds(x, y, z):
            return arena
    reach = scenario.arena.radius_m + _MARGIN_M
    low, high = (x - reach, y - reach, z - _MARGIN_M), (x + reach, y + reach, z + _MARGIN_M)
    return LiveArena(f"the disc of {boss}", (boss,), "", low, high, floor_m=((x, y, z),))


_LEVELS = (("player_hp", "player_hp_max"), ("player_stamina", "player_stamina_max"), ("boss_hp", "boss_hp_max"))
#: How far from 1 the length of the camera's direction may be.
_UNIT_TOLERANCE = 0.05
#: How fast a fighter can move, in metres a second of the game's time.
_FASTEST_M_S = {"player": 15.0, "boss": 40.0}
#: A step that a teleport of the game itself may take, such as being set upright beside a wall.
_SLACK_M = 1.0
#: The fight went on unobserved for longer than this.
_GAP_S = 1.0


def position(reading: Reading, who: str) -> tuple[float, float, float]:
    """Return the place of the player or the boss, metres; of the camera, its direction."""
    x, y, z = (float(reading[f"{who}_{axis}"]) for axis in "xyz")
    return x, y, z


def _blank_fields(reading: Reading) -> frozenset[str]:
    """Return the numbers that cannot be read: an address map may have unverified fields."""
    return frozenset(name for name, value in reading.items() if not isinstance(value, str) and not isfinite(value))


class Plausibility:
    """Check an episode's readings tick by tick, by themselves and against the tick before."""

    def __init__(self, arena: LiveArena, first: Reading) -> None:
        self._arena, self._last, self._blank = arena, first, _blank_fields(first)
        if lacking := sorted(self._blank.intersection(RAW_FIELDS.values())):
            raise EpisodeLostError(f"{', '.join(lacking)} cannot be read")
        self._check_values(first)

    def check(self, reading: Reading, elapsed_s: float) -> None:
        """Accept or refuse a tick's reading, `elapsed_s` of game time after the one before.

        Raises:
            EpisodeLostError: with the reason, and how many ticks before it are in doubt.
        """
        if same_moment(reading, self._last):
            raise EpisodeLostError("the game's values no longer change", doubtful_ticks=1)
        if elapsed_s > _GAP_S:
            raise EpisodeLostError(f"the control loop stood still for {elapsed_s:.1f} s of the fight")
        self._check_values(reading)
        for who, most_m_s in _FASTEST_M_S.items():
            moved_m = dist(position(reading, who), position(self._last, who))
            if moved_m > most_m_s * elapsed_s + _SLACK_M:
                raise EpisodeLostError(f"the {who} reads {moved_m:.1f} m away from {elapsed_s:.2f} s before")
        self._last = reading

    def _check_values(self, reading: Reading) -> None:
        """Check one reading by itself, but for the fields that were unreadable from the start.

        Raises:
            EpisodeLostError: for a NaN, a level above its maximum, a camera without a direction, or a
                place outside the arena.
        """
        for name in sorted(_blank_fields(reading) - self._blank):
            raise EpisodeLostError(f"{name} reads {reading[name]}, which is no number")
        for name, maximum in _LEVELS:
            if name in reading and maximum in reading and not float(reading[name]) <= float(reading[maximum]) > 0.0:
                raise EpisodeLostError(f"{name} reads {reading[name]} of at most {reading[maximum]}")
        if "camera_x" in reading and abs(hypot(*position(reading, "camera")) - 1.0) > _UNIT_TOLERANCE:
            raise EpisodeLostError("the camera reads a direction that is no unit vector")
        for who in _FASTEST_M_S:
            place = position(reading, who)
            if not self._arena.holds(*place):
                shown = ", ".join(f"{value:.1f}" for value in place)
                raise EpisodeLostError(f"the {who} reads at ({shown}), outside {self._arena.name}")


_STEPS = ((Control.FORWARD, Control.BACK), (Control.LEFT, Control.RIGHT))
_TURNS = ((Control.CAMERA_LEFT, Control.CAMERA_RIGHT),)
_TAPS = Control.ROLL | Control.LIGHT_ATTACK | Control.USE_ITEM
_FREE = ("idle", "run")
#: So many ticks without effect mean lost keys; one tap without is enough, but it has some ticks to take effect.
_MOST, _TAP_WEIGHT, _TAP_TICKS = 8, 8, 4


class KeyEffects:
    """Count, by kind, the controls sent without effect since the last one with an effect."""

    def __init__(self, player: AnimationTable, first: Reading) -> None:
        self._player, self._last = player, first
        self._ineffective = {"steps": 0, "stops": 0, "taps": 0, "camera": 0}
        #: By kind, the tick before the first without effect.
        self._before: dict[str, int] = {}
        self._tapped, self._tick, self._answered = 0, 0, 0

    @property
    def doubtful_ticks(self) -> int:
        """The largest number of latest ticks in which no key, or none of a kind, is known to have reached the game."""
        return min(self._tick - min([self._answered, *self._before.values()]), MOST_DOUBTFUL_TICKS)

    def check(self, reading: Reading, sent: Control) -> None:
        """Compare a tick's controls with the reading at its end.

        Raises:
            EpisodeLostError: if keys no longer reach the game; in doubt is what came after the last effect.
        """
        self._tick += 1
        if _net(sent, _STEPS):
            self._count("steps", 1, not self._player.among(reading, ("idle",)))
        elif not any(sent & (one | other) for one, other in _STEPS):
            self._count("stops", 1, not self._player.among(reading, ("run",)))
        if _net(sent, _TURNS) and reading.get("locked") == 0 and "camera_x" in reading:
            turned = any(reading[f"camera_{axis}"] != self._last[f"camera_{axis}"] for axis in "xyz")
            self._count("camera", 1, turned)
        self._follow_tap(reading, sent)
        self._last = reading
        if max(self._ineffective.values()) >= _MOST:
            raise EpisodeLostError("keys have no effect any more: they do not reach the game", self.doubtful_ticks)

    def _follow_tap(self, reading: Reading, sent: Control) -> None:
        """Expect a tap of a free player with stamina to bind them within some ticks."""
        free = self._player.among(self._last, _FREE)
        if self._tapped == 0 and sent & _TAPS and free and float(self._last.get("player_stamina", 1)) > 0:
            self._tapped = _TAP_TICKS
        if self._tapped == 0:
            return
        self._tapped -= 1
        if not self._player.among(reading, _FREE):
            self._tapped = 0
            self._count("taps", 0, True)
        elif self._tapped == 0:
            self._count("taps", _TAP_WEIGHT, False, _TAP_TICKS)

    def _count(self, kind: str, weight: int, effective: bool, ticks: int = 1) -> None:
        """Note whether what was sent within the latest ticks had an effect."""
        self._ineffective[kind] = 0 if effective else self._ineffective[kind] + weight
        if not effective:
            self._before.setdefault(kind, self._tick - ticks)
            return
        self._before.pop(kind, None)
        # A player who stands or does not run may well do so without any key.
        if kind in ("taps", "camera"):
            self._answered = self._tick


def _net(sent: Control, pairs: tuple[tuple[Control, Control], ...]) -> bool:
    """Return whether a direction is left when opposite ones cancel."""
    return any((one in sent) != (other in sent) for one, other in pairs)
