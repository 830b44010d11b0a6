"""The boss's moves as they were seen: each performance of one, frame by frame, and the blows in it dated to a frame.

A frame is the simulator's, 1/60 s, and counts as its clock does: after frame f of a move its clock says f + 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from soulsgraph.calibrate.rows import FightRows, wrapped_angles
from soulsgraph_envs.combat.rollout import Doubles, Flags, Integers
from soulsgraph_envs.core.scenario import BossData, PlayerData
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.simulator.layout import FRAME_S, FRAMES_PER_S

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


class Spell(NamedTuple):
    """Rows in which one animation of the boss plays once: first to last, and its start by the game's clock.

    `length_s` is what the game says; `ended` whether the rows go on until it is over, in the next row or before.
    """

    number: int
    first: int
    last: int
    start_s: float
    length_s: float
    ended: bool


class Blow(NamedTuple):
    """One blow on the player: the row that shows it, how long before that row it came, and what it did.

    `damage` is NaN where HP says nothing: unknown, 0 left, a flask in the same tick. `counter` is whether the player
    may have been open to a counter-hit.
    """

    row: int
    ago_s: float
    damage: float
    counter: bool


def counters_of(boss: BossData) -> set[int]:
    """Return the moves that come for a player behind the boss alone: none where it also chooses that move."""
    return {move.id for move in boss.moves if move.title == boss.rear.counter and not move.weight}


def spells(fight: FightRows) -> Iterator[Spell]:
    """Yield the boss's animations of a fight in their order.

    Where an animation's own clock runs back the same one has begun again, as a stance does in its loop.
    """
    played, clock, lengths = fight.boss_s, fight.clock_s, fight.raw[:, Raw.BOSS_ANIMATION_LENGTH_S]
    breaks = np.flatnonzero((np.diff(fight.boss) != 0) | (np.diff(played) < 0)) + 1
    for first, behind in zip([0, *breaks.tolist()], [*breaks.tolist(), len(fight)], strict=True):
        last, length = behind - 1, float(lengths[first])
        ended = behind < len(fight) and clock[behind] - clock[last] >= length - played[last] - 1.5 / FRAMES_PER_S
        yield Spell(int(fight.boss[first]), first, last, float(clock[first] - played[first]), length, bool(ended))


def blows(fight: FightRows, player: PlayerData) -> Iterator[Blow]:
    """Yield the blows on the player that make them stagger or fall, dated by the clock of that animation."""
    names, animation, played, clock = player.animations, fight.player, fight.player_s, fight.clock_s
    opens = np.isin(animation, [one.id for name in _OPEN if (one := getattr(names, name)) is not None])
    presses, flasks, hp = fight.pressed(_PRESSES), fight.raw[:, Raw.FLASKS], fight.raw[:, Raw.PLAYER_HP]
    again = (np.diff(animation) != 0) | (np.diff(played) < 0)
    for row in np.flatnonzero(again & np.isin(animation[1:], (names.stagger.id, names.knockdown.id))) + 1:
        counter = bool(opens[row - 1] or presses[max(row - _ROWS_BEFORE, 0) : row].any())
        known = fight.hp[row] > 0.0 and flasks[row] == flasks[row - 1] and clock[row] - clock[row - 1] < 1.0
        damage = float(hp[row - 1] - fight.hp[row]) if known else np.nan
        # The frame that struck sets the animation's clock to 0, and has advanced the boss's by then.
        yield Blow(int(row), float(played[row]) + FRAME_S, damage, counter)


@dataclass(frozen=True)
class MoveData:
    """Every performance of one move, frame by frame: (performances, frames) arrays, the frame of a blow's check.

    `boss_m` is the boss's place, `way_m` leads from it to the player, (2, performances, frames); `heading` is the
    boss's, unwrapped; `seen` is False in frames that nobody saw, `open` there and where nothing could strike the
    player. Blows are `hits` (n, 2) of performance and frame, with their own arrays (n,).
    """

    length_s: float
    boss_m: Doubles
    way_m: Doubles
    heading: Doubles
    seen: Flags
    open: Flags
    hits: Integers
    damage: Doubles
    counter: Flags

    def __len__(self) -> int:
        """Count the performances."""
        return len(self.heading)

    @property
    def frames(self) -> int:
        """Frames of the move."""
        return int(self.heading.shape[1])

    def geometry(self, offset_m: float) -> tuple[Doubles, Doubles]:
        """Return distance and angle of the player from a point ahead of the boss, (performances, frames) each."""
        dx = self.way_m[0] + np.sin(self.heading) * offset_m
        dy = self.way_m[1] + np.cos(self.heading) * offset_m
        return np.hypot(dx, dy), np.abs(wrapped_angles(np.arctan2(-dx, -dy) - self.heading))


#: From when on a value changes in a move, and until when: where nothing is known, all the time.
_Span = tuple[float, float]
_ALWAYS = (-np.inf, np.inf)


class MoveCourse(NamedTuple):
    """When the boss turns and goes in a move, as far as it is known: seconds since it began.

    Between two readings it did neither before nor after, which places it to a centimetre.
    """

    turns_s: _Span = _ALWAYS
    goes_s: _Span = _ALWAYS


#: A performance, its fight, and the blows in it with their frames.
_Seen = tuple[FightRows, Spell, list[tuple[int, Blow]]]


def move_data(
    fights: Sequence[FightRows],
    player: PlayerData,
    stances: Collection[int],
    courses: Mapping[int, MoveCourse] | None = None,
) -> dict[int, MoveData]:
    """Return what was seen of every animation but the stances, by its number."""
    found: dict[int, list[_Seen]] = {}
    for fight in fights:
        own: list[_Seen] = [(fight, spell, []) for spell in spells(fight)]
        firsts = [spell.first for _, spell, _ in own]
        for blow in blows(fight, player):
            # The frame is that of the row that shows it, or of the one before: both animations' clocks are of the same
            # reading, so that a late one does not matter.
            place = int(np.searchsorted(firsts, blow.row, side="right")) - 1
            since = float(fight.boss_s[blow.row]) - blow.ago_s
            if since < -0.5 * FRAME_S and place > 0:
                place -= 1
                last = own[place][1].last
                since = float(fight.boss_s[last]) + float(fight.clock_s[blow.row] - fight.clock_s[last]) - blow.ago_s
            own[place][2].append((max(round(since * FRAMES_PER_S), 0), blow))
        for one in own:
            if one[1].number not in stances:
                found.setdefault(one[1].number, []).append(one)
    return {
        number: _data_of(found[number], player, (courses or {}).get(number, MoveCourse())) for number in sorted(found)
    }


def _data_of(seen: Sequence[_Seen], player: PlayerData, course: MoveCourse) -> MoveData:
    length_s = float(np.median([spell.length_s for _, spell, _ in seen]))
    frames = max(round(length_s * FRAMES_PER_S), 1)
    tracks = [_track(spell, fight, player, frames, course) for fight, spell, _ in seen]
    hits = [(at, min(frame, frames - 1), blow) for at, (*_, own) in enumerate(seen) for frame, blow in own]
    boss, way, heading, visible, free = (np.stack(values) for values in zip(*tracks, strict=True))
    return MoveData(
        length_s, np.moveaxis(boss, 1, 0), np.moveaxis(way, 1, 0), heading, visible, visible & free,
        hits=np.array([(at, frame) for at, frame, _ in hits], np.int64).reshape(-1, 2),
        damage=np.array([blow.damage for *_, blow in hits]),
        counter=np.array([blow.counter for *_, blow in hits], np.bool_),
    )  # fmt: skip


def _track(
    spell: Spell, fight: FightRows, player: PlayerData, frames: int, course: MoveCourse
) -> tuple[Doubles, Doubles, Doubles, Flags, Flags]:
    """Return one performance frame by frame: the boss, the way to the player, heading, what is seen and open."""
    beside = max(spell.first - _BESIDE, 0)
    rows = fight.where(slice(beside, spell.last + _BESIDE + 1))
    begins, ends, clock = spell.first - beside, spell.last - beside, rows.clock_s
    # The time since the animation began: its own clock while it plays, the game's beside it.
    local = clock - clock[begins] + rows.boss_s[begins]
    local[begins : ends + 1] = rows.boss_s[begins : ends + 1]
    local[ends + 1 :] = local[ends] + clock[ends + 1 :] - clock[ends]
    moments = (np.arange(frames) + 1.0) / FRAMES_PER_S
    boss = np.array([_stepped(moments, local, values, course.goes_s) for values in rows.boss_m.T])
    own = np.array(_player_places(local, rows, player))
    way = np.array([np.interp(moments, own[:, 0], own[:, column]) for column in (1, 2)]) - boss
    heading = _stepped(moments, local, np.unwrap(rows.raw[:, Raw.BOSS_ANGLE]), course.turns_s)
    until = spell.length_s if spell.ended else local[ends]
    seen = moments <= min(until, local[-1]) + 1e-6
    return boss, way, heading, seen, ~_shielded(moments, local, rows, player)


def _stepped(moments: Doubles, local: Doubles, values: Doubles, changes_s: _Span) -> Doubles:
    """Interpolate what changes only between two moments of a move."""
    knots = [*zip(local.tolist(), values.tolist(), strict=True)]
    begins, ends = (int(np.searchsorted(local, moment)) for moment in changes_s)
    if 0 < begins < len(local) and local[begins - 1] > 0.0:
        knots.append((changes_s[0], values[begins - 1]))
    if 0 < ends < len(local):
        knots.append((changes_s[1], values[ends]))
    knots.sort(key=lambda knot: knot[0])
    at, known = np.array(knots).T
    return np.asarray(np.interp(moments, at, known))


def _player_places(local: Doubles, rows: FightRows, player: PlayerData) -> list[list[float]]:
    """Return moments and places of the player, (n, 3): those of the rows, and where each blow met them.

    A blow pushes the player straight away from the boss, from its own frame on. A roll begins between two rows.
    """
    names, hurt, animation, played, places = player.animations, player.hurt, rows.player, rows.player_s, rows.player_m
    knots = np.column_stack([local, places]).tolist()
    for row in range(1, len(local)):
        begun, number = local[row] - played[row], animation[row]
        if begun <= local[row - 1]:
            continue
        if number in (names.roll.id, names.backstep.id):
            goes_on = row + 1 < len(local) and animation[row + 1] == number and played[row + 1] > played[row]
            # Late readings may have one clock.
            if goes_on and local[row + 1] > local[row]:
                speed = (places[row + 1] - places[row]) / (local[row + 1] - local[row])
                knots.append([begun, *(places[row] - speed * played[row])])
        elif number in (names.stagger.id, names.knockdown.id) and 0.0 < played[row] < hurt.push_s:
            way = places[row] - rows.boss_m[row]
            pushed = hurt.push_m_s[int(number == names.knockdown.id)] * played[row]
            knots.append([begun, *(places[row] - way / max(float(np.hypot(*way)), 1e-9) * pushed)])
    # Between rows alone the order is theirs, also where two are of one moment.
    return sorted(knots) if len(knots) > len(local) else knots


def _shielded(moments: Doubles, local: Doubles, rows: FightRows, player: PlayerData) -> Flags:
    """Return at which moments (frames,) nothing can strike the player: early in a roll, or after a blow."""
    animation, played, half = rows.player, rows.player_s, 0.5 * FRAME_S
    after = np.minimum(np.searchsorted(local, moments - 1e-6), len(local) - 1)
    # What the row behind a moment shows may have begun later: then the row before says what played.
    since = played[after] - (local[after] - moments)
    begun = since > half
    before = np.maximum(after - 1, 0)
    now = np.where(begun, animation[after], animation[before])
    since = np.where(begun, since, played[before] + moments - local[before])
    roll, hurt, names = player.roll.invulnerable_s, player.hurt.invulnerable_s, player.animations
    return np.asarray(
        ((now == names.roll.id) & (since <= roll + half))
        | ((now == names.stagger.id) & (since < hurt[0] - half))
        | ((now == names.knockdown.id) & (since < hurt[1] - half))
    )
