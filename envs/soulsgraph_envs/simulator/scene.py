"""What a picture of a fight shows: raw values, and what the boss and the player are doing, in words and areas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, pi
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.scenario import Arena, BossData, HitWindow, Move, PlayerAction, Scenario
from soulsgraph_envs.core.state import RAW_SIZE, Raw
from soulsgraph_envs.simulator.layout import (
    FRAME_S,
    FRAMES_PER_S,
    NO_MOVE,
    FightData,
    PlayerPose,
    Stance,
    frames,
    load_row,
)
from soulsgraph_envs.simulator.player import invulnerable

Floats = npt.NDArray[np.float64]
#: A part of an animation: its first and last moment, as shares of its length.
Part = tuple[float, float]
#: The shares of full HP between which a fighter's bar is drawn.
Window = tuple[float, float]
#: The bars of both where a fight does not say between what HP it is fought.
WHOLE: tuple[Window, Window] = ((0.0, 1.0), (0.0, 1.0))
#: A place in the arena, in metres.
Place = tuple[float, float]

#: How long a change of HP stays in the picture.
CHANGE_S = 1.0

_STANCES = {
    Stance.STAND: "waits",
    Stance.APPROACH: "approaches",
    Stance.BACK_OFF: "backs off",
    Stance.TURN: "turns round",
    Stance.PARRIED: "parried: open",
    Stance.THROWN: "is struck down",
    Stance.TRANSITION: "changes phase",
}
_POSES = {
    PlayerPose.IDLE: "stands",
    PlayerPose.RUN: "runs",
    PlayerPose.ROLL: "rolls",
    PlayerPose.BACKSTEP: "steps back",
    PlayerPose.LIGHT_1: "light attack",
    PlayerPose.LIGHT_2: "second attack",
    PlayerPose.LIGHT_3: "third attack",
    PlayerPose.ROLLING_ATTACK: "rolling attack",
    PlayerPose.ESTUS: "drinks",
    PlayerPose.ESTUS_EMPTY: "has no flask left",
    PlayerPose.STAGGER: "staggers",
    PlayerPose.KNOCKDOWN: "is knocked down",
    PlayerPose.HEAVY_1_START: "heavy attack",
    PlayerPose.HEAVY_1: "heavy attack",
    PlayerPose.HEAVY_2_START: "second heavy",
    PlayerPose.HEAVY_2: "second heavy",
    PlayerPose.WEAPON_ART: "weapon art",
    PlayerPose.PARRY: "parries",
    PlayerPose.RIPOSTE: "riposte",
    PlayerPose.JUMP: "jumps",
}

#: What a picture shows of the player's animations beside their names.
_KINDS = {
    _POSES[pose]: kind
    for kind, poses in {
        "strikes": (
            *(PlayerPose.LIGHT_1, PlayerPose.LIGHT_2, PlayerPose.LIGHT_3, PlayerPose.ROLLING_ATTACK),
            *(PlayerPose.HEAVY_1, PlayerPose.HEAVY_2, PlayerPose.WEAPON_ART, PlayerPose.RIPOSTE),
        ),
        "drinks": (PlayerPose.ESTUS,),
        "rolls": (PlayerPose.ROLL,),
    }.items()
    for pose in poses
}


@dataclass(frozen=True)
class Activity:
    """What one fighter does: in words, how far it is (0 to 1), and the parts of it that matter.

    `parts` are the boss's hit windows, or the player's invulnerable frames; `moment_s` is when a blow lands or a
    flask heals, as a share, or -1.
    """

    name: str
    progress: float
    parts: tuple[Part, ...] = ()
    moment: float = -1.0

    @property
    def kind(self) -> str:
        """Whether the player `strikes`, `drinks` or `rolls`; empty for all else."""
        return _KINDS.get(self.name, "")


class Area(NamedTuple):
    """Where a blow strikes: now (`winding_up` is 1), or after its wind-up, of which that share has passed."""

    window: HitWindow
    winding_up: float
    open: bool


class Change(NamedTuple):
    """The last change of a fighter's HP in points, below 0 for a blow, and its age in seconds."""

    points: float
    age_s: float

    @property
    def recent(self) -> bool:
        """Whether it is still to be shown."""
        return self.points != 0.0 and self.age_s < CHANGE_S


NO_CHANGE = Change(0.0, inf)


class Goal(NamedTuple):
    """A place to walk to, in the arena's coordinates, and what it is."""

    x: float
    y: float
    name: str


@dataclass(frozen=True)
class Scene:
    """One moment of a fight as it is drawn: raw values (25,), sizes, names, and what both are doing.

    `hp_windows` are the shares of full HP, of the player and of the boss, at which one has lost and with which it
    begins; `banner` is a word across the picture, `hint` a line below it; `goal` is where an arrow leads; `ways` are
    where both were before, in metres, the oldest place first.
    """

    raw: Floats
    arena: Arena
    radii_m: tuple[float, float]
    boss_name: str
    phase: int
    boss: Activity
    player: Activity
    areas: tuple[Area, ...] = ()
    until_hit_s: float = inf
    invulnerable: bool = False
    view_rad: float = 0.55
    lock_range_m: float = 15.0
    player_change: Change = NO_CHANGE
    boss_change: Change = NO_CHANGE
    build_up: float = 0.0
    status: str = ""
    hp_windows: tuple[Window, Window] = WHOLE
    banner: str = ""
    hint: str = ""
    goal: Goal | None = None
    ways: tuple[tuple[Place, ...], tuple[Place, ...]] = ((), ())


def scene_of(fight: Any, row: FightData, player: Any, raw: Floats) -> Scene:
    """Return the scene of a lane's record in the simulator, with its data and raw values (25,).

    `player` is the record of the player's numbers.
    """
    boss, camera = row.boss, row.player.camera
    move = None if fight.move == NO_MOVE else boss.moves[fight.move]
    areas = () if move is None else tuple(_areas(move, boss, int(fight.move_frame)))
    return Scene(
        raw=raw.copy(),
        arena=row.scenario.arena,
        radii_m=(row.player.body.radius_m, boss.radius_m),
        boss_name=boss.name,
        phase=boss.phase,
        boss=_boss_doing(fight, row, move, raw),
        player=_player_doing(fight, row, raw),
        areas=areas,
        until_hit_s=_until_hit_s(move, boss, int(fight.move_frame)),
        # Called as plain Python: one lane needs no compiled code.
        invulnerable=bool(getattr(invulnerable, "py_func", invulnerable)(fight, player)),
        view_rad=camera.lock_view_rad,
        lock_range_m=camera.lock_range_m,
        player_change=Change(float(fight.player_change), int(fight.player_change_frames) * FRAME_S),
        boss_change=Change(float(fight.boss_change), int(fight.boss_change_frames) * FRAME_S),
        build_up=min(float(fight.build_up) / boss.status.threshold, 1.0),
        status="" if boss.status.name == "none" else boss.status.name,
        hp_windows=hp_windows(row.scenario),
        banner=banner_of(raw, row.scenario),
    )


#: Raw values that pictures between two ticks go over evenly; angles take the shorter way round.
_EVEN = [
    *(Raw.PLAYER_X, Raw.PLAYER_Y, Raw.PLAYER_Z, Raw.BOSS_X, Raw.BOSS_Y, Raw.BOSS_Z),
    *(Raw.CAMERA_X, Raw.CAMERA_Y, Raw.CAMERA_Z, Raw.PLAYER_HP, Raw.STAMINA, Raw.BOSS_HP),
]
_ANGLES = [Raw.PLAYER_ANGLE, Raw.BOSS_ANGLE]


def between(first: Scene, second: Scene, share: float, tick_s: float) -> Scene:
    """Return the scene at a share (0 to below 1) of the way from one tick to the next, `tick_s` later."""
    passed_s, raw = share * tick_s, first.raw.copy()
    raw[_EVEN] += share * (second.raw - first.raw)[_EVEN]
    raw[_ANGLES] += share * (((second.raw - first.raw)[_ANGLES] + pi) % (2.0 * pi) - pi)
    until_hit_s = max(first.until_hit_s - passed_s, 0.0)
    return replace(
        first,
        raw=raw,
        boss=_activity_between(first.boss, second.boss, share),
        player=_activity_between(first.player, second.player, share),
        areas=tuple(_area_between(area, first.until_hit_s, until_hit_s) for area in first.areas),
        until_hit_s=until_hit_s,
        invulnerable=(first if share < 0.5 else second).invulnerable,
        player_change=_change_between(first.player_change, second.player_change, passed_s, tick_s),
        boss_change=_change_between(first.boss_change, second.boss_change, passed_s, tick_s),
        build_up=first.build_up + share * (second.build_up - first.build_up),
    )


def _activity_between(first: Activity, second: Activity, share: float) -> Activity:
    goes_on = first.name == second.name and second.progress > first.progress
    return replace(first, progress=first.progress + share * (second.progress - first.progress)) if goes_on else first


def _area_between(area: Area, before_s: float, until_hit_s: float) -> Area:
    if area.open or not 0.0 < before_s < inf:
        return area
    wound_up = 1.0 - (1.0 - area.winding_up) * until_hit_s / before_s
    return area._replace(winding_up=wound_up, open=until_hit_s == 0.0)


def _change_between(first: Change, second: Change, passed_s: float, tick_s: float) -> Change:
    """Return the later change once it has happened; that is its age before the later tick."""
    since_s = second.age_s - (tick_s - passed_s)
    return second._replace(age_s=since_s) if since_s >= 0.0 else first._replace(age_s=first.age_s + passed_s)


class AnimationWords(NamedTuple):
    """What the player's and the boss's animations are in words, by the ids that the skills see."""

    player: Mapping[int, str]
    boss: Mapping[int, str]

    @classmethod
    def of(cls, scenario: Scenario) -> AnimationWords:
        """Return the words for a scenario's player and its boss in every phase."""
        player: dict[int, str] = {}
        boss: dict[int, str] = {}
        for row in map(load_row, scenario.phases()):
            for pose, action in enumerate(vars(row.player.animations).values()):
                if action is not None:
                    player.setdefault(action.id, _POSES[PlayerPose(pose)])
            for stance, animation in enumerate(row.stances):
                if animation is not None:
                    boss.setdefault(animation.id, _STANCES[Stance(stance)])
            for move in row.boss.moves:
                boss.setdefault(move.id, move.title)
        return cls(player, boss)


def _areas(move: Move, boss: BossData, frame: int) -> list[Area]:
    """Return the areas of a move's open windows, or else of the next one to come."""
    begun = 0
    for window in move.windows:
        first, last = (frames(moment_s * boss.time_factor) for moment_s in window.time_s)
        if frame < first:
            return [Area(window, (frame - begun) / max(first - begun, 1), False)]
        if frame < last:
            return [Area(window, 1.0, True)]
        begun = last
    return []


def _until_hit_s(move: Move | None, boss: BossData, frame: int) -> float:
    """Return the seconds until the next window opens; 0 while one is open, inf where none comes."""
    for window in () if move is None else move.windows:
        first, last = (frames(moment_s * boss.time_factor) for moment_s in window.time_s)
        if frame < last:
            return max(first - frame, 0) / FRAMES_PER_S
    return inf


def progress_of(raw: Floats, first: int) -> float:
    """Return how far an animation is, from 0 to 1; `first` is the place of its id among the raw values (25,)."""
    assert raw.shape == (RAW_SIZE,), raw.shape
    return float(min(raw[first + 1] / raw[first + 2], 1.0)) if raw[first + 2] > 0.0 else 0.0


def _boss_doing(fight: Any, row: FightData, move: Move | None, raw: Floats) -> Activity:
    progress = progress_of(raw, Raw.BOSS_ANIMATION)
    if move is None:
        return Activity(_STANCES[Stance(int(fight.stance))], progress)
    parts = ((window.time_s[0] / move.length_s, window.time_s[1] / move.length_s) for window in move.windows)
    return Activity(move.title, progress, tuple(parts))


def _player_doing(fight: Any, row: FightData, raw: Floats) -> Activity:
    pose, progress = PlayerPose(int(fight.animation)), progress_of(raw, Raw.PLAYER_ANIMATION)
    action: PlayerAction = list(vars(row.player.animations).values())[pose]
    parts = ((0.0, row.player.roll.invulnerable_s / action.length_s),) if pose == PlayerPose.ROLL else ()
    parts = ((0.0, 1.0),) if pose == PlayerPose.RIPOSTE else parts
    return Activity(_POSES[pose], progress, parts, action.hit_s / action.length_s if action.hit_s >= 0 else -1.0)


class Ends(Protocol):
    """How a fight ends, as a scenario says it; nobody wins or dies where HP is refilled."""

    @property
    def refill(self) -> bool:
        """Whether both get full HP after every tick."""

    @property
    def death_hp_ratio(self) -> float:
        """The share of full HP below which the player is dead."""

    @property
    def boss_hp(self) -> tuple[float, float]:
        """The boss's HP in points at the start, and that below which it is beaten."""

    @property
    def boss_hp_full(self) -> float:
        """The boss's full HP in points."""


def hp_windows(ends: Ends) -> tuple[Window, Window]:
    """Return the shares of full HP between which the player and the boss fight."""
    if ends.refill:
        return WHOLE
    begin, end = (points / ends.boss_hp_full for points in ends.boss_hp)
    return (ends.death_hp_ratio, 1.0), (end, begin) if begin > end else (0.0, 1.0)


def banner_of(raw: Floats, ends: Ends) -> str:
    """Return how a fight with raw values (25,) has ended, as a picture says it; empty while it has not."""
    assert raw.shape == (RAW_SIZE,), raw.shape
    if ends.refill:
        return ""
    if raw[Raw.PLAYER_HP] < ends.death_hp_ratio * raw[Raw.PLAYER_HP_MAX]:
        return "YOU DIED"
    return "VICTORY" if raw[Raw.BOSS_HP] < ends.boss_hp[1] else ""
