"""The boss's moves as they were seen: each performance of one, frame by frame, and the blows in it dated to a frame.

A frame is the simulator's, 1/60 s, and counts as its clock does: after frame f of a move its clock says f + 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from soulsgraph.calibrate.rows import Doubles, FightRows, Flags, Integers
from soulsgraph_envs.core.scenario import PlayerData
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.simulator.layout import FRAMES_PER_S

#: What a player is caught in that costs more HP: striking, drinking, a parry that failed.
_OPEN = (
    "light_1",
    "light_2",
    "light_3",
    "rolling_attack",
    "estus",
    "estus_empty",
    "heavy_1_start",
    "heavy_1",
    "heavy_2_start",
    "heavy_2",
    "weapon_art",
    "parry",
)
_PRESSES = Control.LIGHT_ATTACK | Control.HEAVY_ATTACK | Control.USE_ITEM | Control.WEAPON_ART | Control.PARRY
#: Rows before a blow in which no press may begin what would make it a counter-hit.
_ROWS_BEFORE = 4
#: Rows beside a performance whose places are joined to its own.
_BESIDE = 3


@dataclass(frozen=True)
class Spell:
    """Rows in which one animation of the boss plays once: first to last, and its start by the game's clock.

    `length_s` is what the game says; `ended` whether the rows go on until it is over, in the next row or before.
    """

    fight: int
    number: int
    first: int
    last: int
    start_s: float
    length_s: float
    ended: bool


@dataclass(frozen=True)
class Blow:
    """One blow on the player: the fight and row that show it, how long before that row it came, and what it did.

    `damage` is NaN where HP says nothing: unknown, 0 left, a flask in the same tick. `counter` is whether the player
    may have been open to a counter-hit.
    """

    fight: int
    row: int
    ago_s: float
    damage: float
    counter: bool
    knockdown: bool


def spells(fight: FightRows, number: int = 0) -> Iterator[Spell]:
    """Yield the boss's animations of a fight, the `number`th, in their order.

    Where an animation's own clock runs back the same one has begun again, as a stance does in its loop.
    """
    played, clock = fight.raw[:, Raw.BOSS_ANIMATION_TIME_S], fight.clock_s
    breaks = np.flatnonzero((np.diff(fight.boss) != 0) | (np.diff(played) < 0)) + 1
    for first, behind in zip([0, *breaks], [*breaks, len(fight)], strict=True):
        last, length = behind - 1, float(fight.raw[first, Raw.BOSS_ANIMATION_LENGTH_S])
        start = float(clock[first] - played[first])
        ended = behind < len(fight) and clock[behind] - clock[last] >= length - played[last] - 1.5 / FRAMES_PER_S
        yield Spell(number, int(fight.boss[first]), int(first), int(last), start, length, bool(ended))


def blows(fight: FightRows, player: PlayerData, number: int = 0) -> Iterator[Blow]:
    """Yield the blows on the player that make them stagger or fall, dated by the clock of that animation."""
    animations = player.animations
    hurt = {animations.stagger.id: False, animations.knockdown.id: True}
    opens = np.array([getattr(animations, name).id for name in _OPEN if getattr(animations, name) is not None])
    animation = fight.raw[:, Raw.PLAYER_ANIMATION].astype(np.int64)
    played, clock = fight.raw[:, Raw.PLAYER_ANIMATION_TIME_S], fight.clock_s
    presses = fight.pressed(_PRESSES)
    flasks = fight.raw[:, Raw.FLASKS]
    for row in range(1, len(fight)):
        if int(animation[row]) not in hurt:
            continue
        elapsed = clock[row] - clock[row - 1]
        again = animation[row] != animation[row - 1] or played[row] < played[row - 1]
        if not again:
            continue
        # The frame that struck sets the animation's clock to 0, and has advanced the boss's by then.
        ago = float(played[row]) + 1.0 / FRAMES_PER_S
        before = max(row - _ROWS_BEFORE, 0)
        counter = bool(np.isin(animation[row - 1], opens) or presses[before:row].any())
        known = fight.hp[row] > 0.0 and flasks[row] == flasks[row - 1] and elapsed < 1.0
        damage = float(fight.raw[row - 1, Raw.PLAYER_HP] - fight.hp[row]) if known else np.nan
        yield Blow(number, row, ago, damage, counter, hurt[int(animation[row])])


@dataclass(frozen=True)
class MoveData:
    """Every performance of one move, frame by frame: (performances, frames) arrays, the frame of a blow's check.

    `dx`, `dy` lead from the boss to the player; `heading` is the boss's, unwrapped; `seen` is False in frames that
    nobody saw, `open` there and where nothing could strike the player. Blows are `hits` (n, 2) of performance and
    frame, with their own arrays (n,).
    """

    number: int
    length_s: float
    spells: Sequence[Spell]
    boss_x: Doubles
    boss_y: Doubles
    dx: Doubles
    dy: Doubles
    heading: Doubles
    seen: Flags
    open: Flags
    hits: Integers
    damage: Doubles
    counter: Flags
    knockdown: Flags

    @property
    def frames(self) -> int:
        """Frames of the move."""
        return int(self.dx.shape[1])

    def geometry(self, offset_m: float) -> tuple[Doubles, Doubles]:
        """Return distance and angle of the player from a point ahead of the boss, (performances, frames) each."""
        dx = self.dx + np.sin(self.heading) * offset_m
        dy = self.dy + np.cos(self.heading) * offset_m
        return np.hypot(dx, dy), np.abs(wrapped_angles(np.arctan2(-dx, -dy) - self.heading))


def wrapped_angles(angles: Doubles) -> Doubles:
    """Wrap angles into [-pi, pi]."""
    wrapped: Doubles = (angles + np.pi) % (2.0 * np.pi) - np.pi
    return wrapped


@dataclass(frozen=True)
class MoveCourse:
    """When the boss turns and goes in a move, as far as it is known: seconds since it began.

    Between two readings it did neither before nor after, which places it to a centimetre.
    """

    turns_until_s: float | None = None
    goes_s: tuple[float, float] | None = None


def move_data(
    fights: Sequence[FightRows],
    player: PlayerData,
    stances: Collection[int],
    courses: Mapping[int, MoveCourse] | None = None,
) -> dict[int, MoveData]:
    """Return what was seen of every animation but the stances, by its number."""
    courses = courses or {}
    found: dict[int, list[Spell]] = {}
    struck: dict[tuple[int, int], list[tuple[int, Blow]]] = {}
    for at, fight in enumerate(fights):
        own = list(spells(fight, at))
        for spell in own:
            if spell.number not in stances:
                found.setdefault(spell.number, []).append(spell)
        for blow in blows(fight, player, at):
            spell, frame = _place_of(blow, own, fight)
            struck.setdefault((at, spell.first), []).append((frame, blow))
    return {
        number: _data_of(number, seen, fights, player, struck, courses.get(number, MoveCourse()))
        for number, seen in sorted(found.items())
    }


def _place_of(blow: Blow, own: Sequence[Spell], fight: FightRows) -> tuple[Spell, int]:
    """Return the animation in which a blow came, and the frame: that of the row that shows it, or the one before.

    Both animations' clocks are of the same reading, so that a late one does not matter.
    """
    place = int(np.searchsorted([spell.first for spell in own], blow.row, side="right")) - 1
    spell = own[place]
    since = float(fight.raw[blow.row, Raw.BOSS_ANIMATION_TIME_S]) - blow.ago_s
    if since < -0.5 / FRAMES_PER_S and place > 0:
        spell = own[place - 1]
        step = float(fight.clock_s[blow.row] - fight.clock_s[spell.last])
        since = float(fight.raw[spell.last, Raw.BOSS_ANIMATION_TIME_S]) + step - blow.ago_s
    return spell, max(round(since * FRAMES_PER_S), 0)


def _data_of(
    number: int,
    seen: Sequence[Spell],
    fights: Sequence[FightRows],
    player: PlayerData,
    struck: dict[tuple[int, int], list[tuple[int, Blow]]],
    course: MoveCourse,
) -> MoveData:
    length_s = float(np.median([spell.length_s for spell in seen]))
    frames = max(round(length_s * FRAMES_PER_S), 1)
    tracks = [_track(spell, fights[spell.fight], player, frames, course) for spell in seen]
    hits = [
        (at, min(frame, frames - 1), blow)
        for at, spell in enumerate(seen)
        for frame, blow in struck.get((spell.fight, spell.first), ())
    ]
    x, y, dx, dy, heading, visible, free = (np.stack(values) for values in zip(*tracks, strict=True))
    return MoveData(
        number, length_s, seen, x, y, dx, dy, heading, visible, visible & free,
        hits=np.array([(at, frame) for at, frame, _ in hits], np.int64).reshape(-1, 2),
        damage=np.array([blow.damage for *_, blow in hits]),
        counter=np.array([blow.counter for *_, blow in hits], np.bool_),
        knockdown=np.array([blow.knockdown for *_, blow in hits], np.bool_),
    )  # fmt: skip


def _track(
    spell: Spell, fight: FightRows, player: PlayerData, frames: int, course: MoveCourse
) -> tuple[Doubles, Doubles, Doubles, Doubles, Doubles, Flags, Flags]:
    """Return one performance frame by frame: the boss, the way to the player, heading, what is seen and open."""
    first, last = max(spell.first - _BESIDE, 0), min(spell.last + _BESIDE, len(fight) - 1)
    rows = slice(first, last + 1)
    raw, clock = fight.raw[rows], fight.clock_s[rows]
    local = _local_clock(spell, raw, clock, first)
    moments = (np.arange(frames) + 1.0) / FRAMES_PER_S
    boss = [_stepped(moments, local, raw[:, column], course.goes_s) for column in (Raw.BOSS_X, Raw.BOSS_Y)]
    own = _player_places(local, raw, player)
    places = [np.interp(moments, own[:, 0], own[:, column]) for column in (1, 2)]
    turns = None if course.turns_until_s is None else (-np.inf, course.turns_until_s)
    heading = _stepped(moments, local, np.unwrap(raw[:, Raw.BOSS_ANGLE]), turns)
    until = spell.length_s if spell.ended else local[spell.last - first]
    seen = moments <= min(until, local[-1]) + 1e-6
    dx, dy = places[0] - boss[0], places[1] - boss[1]
    return boss[0], boss[1], dx, dy, heading, seen, ~_shielded(moments, local, raw, player)


def _stepped(moments: Doubles, local: Doubles, values: Doubles, changes_s: tuple[float, float] | None) -> Doubles:
    """Interpolate what changes only between two moments of a move."""
    if changes_s is None:
        changes_s = (-np.inf, np.inf)
    begin, end = changes_s
    knots, places = list(local), list(values)
    at = int(np.searchsorted(local, begin))
    if 0 < at < len(local) and local[at - 1] > 0.0:
        knots.append(begin)
        places.append(values[at - 1])
    at = int(np.searchsorted(local, end))
    if 0 < at < len(local):
        knots.append(end)
        places.append(values[at])
    order = np.argsort(knots, kind="stable")
    between: Doubles = np.interp(moments, np.array(knots)[order], np.array(places)[order])
    return between


def _player_places(local: Doubles, raw: Doubles, player: PlayerData) -> Doubles:
    """Return moments and places of the player, (n, 3): those of the rows, and where each blow met them.

    A blow pushes the player straight away from the boss, from its own frame on. A roll begins between two rows.
    """
    names, hurt = player.animations, player.hurt
    knots = np.column_stack([local, raw[:, Raw.PLAYER_X], raw[:, Raw.PLAYER_Y]])
    animation, played = raw[:, Raw.PLAYER_ANIMATION].astype(np.int64), raw[:, Raw.PLAYER_ANIMATION_TIME_S]
    met = []
    for row in range(1, len(local)):
        begun = local[row] - played[row]
        rolls = animation[row] in (names.roll.id, names.backstep.id) and begun > local[row - 1]
        goes_on = row + 1 < len(local) and animation[row + 1] == animation[row] and played[row + 1] > played[row]
        # Late readings may have one clock.
        if rolls and goes_on and local[row + 1] > local[row]:
            speed = (knots[row + 1, 1:] - knots[row, 1:]) / (local[row + 1] - local[row])
            met.append([begun, *(knots[row, 1:] - speed * played[row])])
        struck = animation[row] in (names.stagger.id, names.knockdown.id)
        if not struck or local[row] - played[row] <= local[row - 1] or not 0.0 < played[row] < hurt.push_s:
            continue
        way = raw[row, [Raw.PLAYER_X, Raw.PLAYER_Y]] - raw[row, [Raw.BOSS_X, Raw.BOSS_Y]]
        pushed = hurt.push_m_s[int(animation[row] == names.knockdown.id)] * played[row]
        place = knots[row, 1:] - way / max(float(np.hypot(*way)), 1e-9) * pushed
        met.append([local[row] - played[row], *place])
    return np.array(sorted([*knots.tolist(), *met])) if met else knots


def _local_clock(spell: Spell, raw: Doubles, clock: Doubles, first: int) -> Doubles:
    """Return the time of rows since the animation began: its own clock while it plays, the game's beside it."""
    begins, ends = spell.first - first, spell.last - first
    local: Doubles = clock - clock[begins] + raw[begins, Raw.BOSS_ANIMATION_TIME_S]
    local[begins : ends + 1] = raw[begins : ends + 1, Raw.BOSS_ANIMATION_TIME_S]
    local[ends + 1 :] = local[ends] + clock[ends + 1 :] - clock[ends]
    return local


def _shielded(moments: Doubles, local: Doubles, raw: Doubles, player: PlayerData) -> Flags:
    """Return at which moments (frames,) nothing can strike the player: early in a roll, or after a blow."""
    animation = raw[:, Raw.PLAYER_ANIMATION].astype(np.int64)
    played = raw[:, Raw.PLAYER_ANIMATION_TIME_S]
    after = np.minimum(np.searchsorted(local, moments - 1e-6), len(local) - 1)
    # What the row behind a moment shows may have begun later: then the row before says what played.
    since = played[after] - (local[after] - moments)
    begun = since > 0.5 / FRAMES_PER_S
    before = np.maximum(after - 1, 0)
    now = np.where(begun, animation[after], animation[before])
    since = np.where(begun, since, played[before] + moments - local[before])
    roll, hurt, names = player.roll.invulnerable_s, player.hurt.invulnerable_s, player.animations
    half = 0.5 / FRAMES_PER_S
    shielded: Flags = (
        ((now == names.roll.id) & (since <= roll + half))
        | ((now == names.stagger.id) & (since < hurt[0] - half))
        | ((now == names.knockdown.id) & (since < hurt[1] - half))
    )
    return shielded
