"""Draw what a State shows as a small picture to learn from: from above, the player in the middle, the camera looks up.

84 x 84 pixels of 0.25 m: the floor in tiles of 2 m and the arena's edge; the boss, its nose, a ring around it under a
lock, and the area of the blow that is to come (the brighter the sooner) or falls now; the player and its nose, bright
while a roll is invulnerable. A boss out of sight is a small disc at the border. Above lie the boss's HP and how far
its animation is, below the player's HP, stamina, animation and flasks; a mark at the right is how steeply the camera
looks up or down. A picture depends on the State and the scenario alone, so that a real game's are drawn too.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import atan2, ceil, cos, floor, pi, sin, sqrt
from typing import Literal

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.compiling import cached, compiled
from soulsgraph_envs.core.scenario import Scenario, load_boss, load_player
from soulsgraph_envs.core.state import STATE_SIZE, Column, StateRows, wrap_angle
from soulsgraph_envs.render import palette

#: (height, width, channels), or (n, height, width, channels), uint8.
Pixels = npt.NDArray[np.uint8]
Shades = Literal["grey", "rgb"]
Doubles = npt.NDArray[np.float64]

#: Height and width of a picture, a pixel's length, and where the player stands (from the left, from the top).
SIZE, PIXEL_M, PLAYER_AT = 84, 0.25, (42.0, 50.0)
#: The part of the picture between the bars: the first row and the one behind the last.
FIELD = (6, 73)
_TILE_M, _EDGE_M, _MARGIN = 2.0, 0.5, 2.0
_BOSS_NOSE, _PLAYER_NOSE, _LEAST_RADIUS, _SMALL = 0.45, 0.6, 1.6, 1.6
_DARKEST = 0.15

# Rows of the table of colours; those of animations follow, from `_ANIMATIONS` on.
_ABYSS, _FLOOR, _TILE, _EDGE, _BOSS, _PLAYER, _SAFE, _NOSE, _LOCK, _WIND_UP, _STRIKE = range(11)
_HP, _STAMINA, _FLASK, _EMPTY, _PITCH, _ANIMATIONS = range(11, 17)
#: Darker than in pictures for people, so that the boss stands out in grey too.
_DARK_FLOOR, _DARK_TILE = (tuple(value // 2 for value in colour) for colour in (palette.FLOOR, palette.TILE))
_COLOURS = (
    *(palette.ABYSS, _DARK_FLOOR, _DARK_TILE, palette.EDGE, palette.BOSS, palette.PLAYER, palette.SAFE),
    *(palette.NOSE, palette.LOCK, palette.WIND_UP, palette.STRIKE, palette.HP, palette.STAMINA, palette.FLASK),
    *(palette.EMPTY, palette.TEXT),
)
#: How bright red, green and blue are, of ITU-R BT.601.
_LUMA = (0.299, 0.587, 0.114)
# What a hit window is made of, in the table of windows.
_BEGINS, _ENDS, _REACH, _HALF_ARC, _OFFSET = range(5)


@dataclass(frozen=True)
class PixelTables:
    """What a State does not say of a scenario's fight, as arrays.

    `colours` (rows, channels); `windows` (ids, most windows, 5): of the boss's move with that id the begin and the end
    of each hit window as shares of its length, reach (m), half its arc (rad) and how far ahead it is centred (m); the
    end is 0 where there is none; `invulnerable` (ids,) is the share of the player's animation; `fixed` (5,) is the
    arena's centre and radius and both bodies' radii (m).
    """

    colours: Pixels
    windows: Doubles
    invulnerable: Doubles
    fixed: Doubles

    @classmethod
    def of(cls, scenario: Scenario, shades: Shades) -> PixelTables:
        """Return the tables of a scenario; where two phases have a move of one id, the first one's is drawn.

        Raises:
            DataError: as `load_boss` and `load_player`.
        """
        bosses, player = [load_boss(phase.boss) for phase in scenario.phases()], load_player(scenario.player)
        moves = {move.id: move for boss in reversed(bosses) for move in boss.moves}
        windows = np.zeros((max(moves) + 1, max(len(move.windows) for move in moves.values()), 5))
        for id, move in moves.items():
            for number, window in enumerate(move.windows):
                begins, ends = (moment_s / move.length_s for moment_s in window.time_s)
                windows[id, number] = begins, ends, window.reach_m, window.half_arc_rad, window.offset_m
        roll = player.animations.roll
        invulnerable = np.zeros(roll.id + 1)
        invulnerable[roll.id] = player.roll.invulnerable_s / roll.length_s
        arena = scenario.arena
        fixed = np.array([*arena.centre_m, arena.radius_m, player.body.radius_m, bosses[0].radius_m])
        return cls(_colours(shades), windows, invulnerable, fixed)

    def draw(self, rows: StateRows) -> Pixels:
        """Return a picture of every State (n, 25), (n, 84, 84, channels)."""
        assert rows.shape[1:] == (STATE_SIZE,), rows.shape
        out = np.empty((len(rows), SIZE, SIZE, self.colours.shape[1]), np.uint8)
        _draw(rows, self.colours, self.windows, self.invulnerable, self.fixed, out)
        return out


def _colours(shades: Shades) -> Pixels:
    known = np.array([*_COLOURS, *(palette.animation_colour(id) for id in range(64))])
    return (known if shades == "rgb" else np.rint(known @ np.array(_LUMA))[:, None]).astype(np.uint8)


@cached()
def _draw(
    rows: StateRows, colours: Pixels, windows: Doubles, invulnerable: Doubles, fixed: Doubles, out: Pixels
) -> None:
    for lane in range(len(rows)):
        row, picture = rows[lane], out[lane]
        level = sqrt(row[Column.CAMERA_X] ** 2 + row[Column.CAMERA_Y] ** 2)
        ahead = (0.0, 1.0)
        if level > 0.0:
            ahead = (row[Column.CAMERA_X] / level, row[Column.CAMERA_Y] / level)
        _floor(picture, row, ahead, fixed, colours)
        x, y = _place(row[Column.BOSS_X] - row[Column.PLAYER_X], row[Column.BOSS_Y] - row[Column.PLAYER_Y], ahead)
        _area(picture, row, (x, y), ahead, windows, colours)
        _fighters(picture, row, (x, y), ahead, invulnerable, fixed, colours)
        _bars(picture, row, colours)


@compiled
def _place(dx: float, dy: float, ahead: tuple[float, float]) -> tuple[float, float]:
    """Return where a place lies in the picture, that far from the player in the arena's coordinates."""
    right, up = dx * ahead[1] - dy * ahead[0], dx * ahead[0] + dy * ahead[1]
    return PLAYER_AT[0] + right / PIXEL_M, PLAYER_AT[1] - up / PIXEL_M


@compiled
def _paint(picture: Pixels, y: int, x: int, colour: Pixels) -> None:
    for channel in range(len(colour)):
        picture[y, x, channel] = colour[channel]


@compiled
def _floor(picture: Pixels, row: StateRows, ahead: tuple[float, float], fixed: Doubles, colours: Pixels) -> None:
    inner, outer = fixed[2] ** 2, (fixed[2] + _EDGE_M) ** 2
    # Counted from the centre, and from far outside the arena on, so that all tiles have numbers above 0.
    from_x, from_y = row[Column.PLAYER_X] - fixed[0], row[Column.PLAYER_Y] - fixed[1]
    for y in range(SIZE):
        up = (PLAYER_AT[1] - y) * PIXEL_M
        for x in range(SIZE):
            right = (x - PLAYER_AT[0]) * PIXEL_M
            at_x = from_x + right * ahead[1] + up * ahead[0]
            at_y = from_y - right * ahead[0] + up * ahead[1]
            away = at_x * at_x + at_y * at_y
            colour = _ABYSS
            if away < inner:
                colour = _FLOOR + ((int(at_x / _TILE_M + 1024.0) + int(at_y / _TILE_M + 1024.0)) & 1)
            elif away < outer:
                colour = _EDGE
            for channel in range(colours.shape[1]):
                picture[y, x, channel] = colours[colour, channel]


@compiled
def _box(centre: float, radius: float, first: int, end: int) -> tuple[int, int]:
    return max(ceil(centre - radius), first), min(floor(centre + radius) + 1, end)


@compiled
def _disc(picture: Pixels, at: tuple[float, float], radius: float, hole: float, colour: Pixels) -> None:
    """Fill a disc around a hole."""
    left, right = _box(at[0], radius, 0, SIZE)
    top, bottom = _box(at[1], radius, FIELD[0], FIELD[1])
    for y in range(top, bottom):
        for x in range(left, right):
            away = (x - at[0]) ** 2 + (y - at[1]) ** 2
            if hole * hole <= away <= radius * radius:
                _paint(picture, y, x, colour)


@compiled
def _facing(heading: float, ahead: tuple[float, float]) -> tuple[float, float]:
    """Return a heading as a unit vector of the picture, (right, down)."""
    dx, dy = -sin(heading), -cos(heading)
    return dx * ahead[1] - dy * ahead[0], -(dx * ahead[0] + dy * ahead[1])


@compiled
def _area(
    picture: Pixels,
    row: StateRows,
    boss: tuple[float, float],
    ahead: tuple[float, float],
    windows: Doubles,
    colours: Pixels,
) -> None:
    """Draw the boss's next hit window of the move that it is in, or the one that is open."""
    id, progress = int(row[Column.BOSS_ANIMATION]), row[Column.BOSS_PROGRESS]
    if not 0 <= id < len(windows):
        return
    begun = 0.0
    for number in range(windows.shape[1]):
        window = windows[id, number]
        if progress < window[_ENDS]:
            facing = _facing(row[Column.BOSS_ANGLE], ahead)
            opened = progress >= window[_BEGINS]
            share = 0.6 if opened else _wind_up(progress, begun, window[_BEGINS])
            at = (boss[0] + facing[0] * window[_OFFSET] / PIXEL_M, boss[1] + facing[1] * window[_OFFSET] / PIXEL_M)
            size = (window[_REACH] / PIXEL_M, window[_HALF_ARC])
            _sector(picture, at, facing, size, share, colours[_STRIKE if opened else _WIND_UP])
            return
        begun = window[_ENDS]


@compiled
def _wind_up(progress: float, begun: float, begins: float) -> float:
    """Return how much of the colour of a blow to come is seen."""
    return _DARKEST + 0.35 * (progress - begun) / max(begins - begun, 1e-6)


@compiled
def _sector(
    picture: Pixels,
    at: tuple[float, float],
    facing: tuple[float, float],
    size: tuple[float, float],
    share: float,
    colour: Pixels,
) -> None:
    """Mix a share of a colour into a sector of (radius, half its arc)."""
    radius, half_arc = size
    middle = atan2(facing[1], facing[0])
    left, right = _box(at[0], radius, 0, SIZE)
    top, bottom = _box(at[1], radius, FIELD[0], FIELD[1])
    for y in range(top, bottom):
        for x in range(left, right):
            dx, dy = x - at[0], y - at[1]
            if dx * dx + dy * dy > radius * radius:
                continue
            if half_arc < pi and abs(wrap_angle(atan2(dy, dx) - middle)) > half_arc:
                continue
            for channel in range(len(colour)):
                under = picture[y, x, channel]
                picture[y, x, channel] = np.uint8(under + share * (float(colour[channel]) - under))


@compiled
def _fighters(
    picture: Pixels,
    row: StateRows,
    boss: tuple[float, float],
    ahead: tuple[float, float],
    invulnerable: Doubles,
    fixed: Doubles,
    colours: Pixels,
) -> None:
    id, progress = int(row[Column.PLAYER_ANIMATION]), row[Column.PLAYER_PROGRESS]
    safe = 0 <= id < len(invulnerable) and progress < invulnerable[id]
    own = colours[_SAFE if safe else _PLAYER]
    _fighter(picture, PLAYER_AT, fixed[3], row[Column.PLAYER_ANGLE], ahead, own, colours)
    seen = _seen(boss)
    if seen == boss:
        _fighter(picture, boss, fixed[4], row[Column.BOSS_ANGLE], ahead, colours[_BOSS], colours)
    else:
        _disc(picture, seen, _SMALL, 0.0, colours[_BOSS])
    if row[Column.LOCKED] == 1.0:
        radius = max(fixed[4] / PIXEL_M, _LEAST_RADIUS) + 2.5
        _disc(picture, seen, radius, radius - 1.2, colours[_LOCK])


@compiled
def _seen(place: tuple[float, float]) -> tuple[float, float]:
    """Return a place in the picture, or where the line to it from the player crosses the border."""
    dx, dy = place[0] - PLAYER_AT[0], place[1] - PLAYER_AT[1]
    share = 1.0
    if dx != 0.0:
        share = min(share, ((SIZE - 1 - _MARGIN if dx > 0.0 else _MARGIN) - PLAYER_AT[0]) / dx)
    if dy != 0.0:
        share = min(share, ((FIELD[1] - 1 - _MARGIN if dy > 0.0 else FIELD[0] + _MARGIN) - PLAYER_AT[1]) / dy)
    if share == 1.0:
        return place
    return PLAYER_AT[0] + share * dx, PLAYER_AT[1] + share * dy


@compiled
def _fighter(
    picture: Pixels,
    at: tuple[float, float],
    radius_m: float,
    heading: float,
    ahead: tuple[float, float],
    colour: Pixels,
    colours: Pixels,
) -> None:
    radius = max(radius_m / PIXEL_M, _LEAST_RADIUS)
    facing = _facing(heading, ahead)
    _disc(picture, at, radius, 0.0, colour)
    nose = (at[0] + facing[0] * radius, at[1] + facing[1] * radius)
    _disc(picture, nose, max(_BOSS_NOSE * radius, 1.0), 0.0, colours[_NOSE])


@compiled
def _bar(picture: Pixels, top: int, height: int, share: float, colour: Pixels, empty: Pixels) -> None:
    filled = min(max(share, 0.0), 1.0) * SIZE
    for y in range(top, top + height):
        for x in range(SIZE):
            _paint(picture, y, x, colour if x + 0.5 < filled else empty)


@compiled
def _bars(picture: Pixels, row: StateRows, colours: Pixels) -> None:
    empty, most = colours[_EMPTY], len(colours) - 1
    boss = colours[min(_ANIMATIONS + max(int(row[Column.BOSS_ANIMATION]), 0), most)]
    player = colours[min(_ANIMATIONS + max(int(row[Column.PLAYER_ANIMATION]), 0), most)]
    _bar(picture, 0, 3, row[Column.BOSS_HP], colours[_HP], empty)
    _bar(picture, 3, 3, row[Column.BOSS_PROGRESS], boss, empty)
    _bar(picture, 73, 3, row[Column.PLAYER_HP], colours[_HP], empty)
    _bar(picture, 76, 3, row[Column.STAMINA], colours[_STAMINA], empty)
    _bar(picture, 79, 2, row[Column.PLAYER_PROGRESS], player, empty)
    _bar(picture, 81, 3, 0.0, empty, empty)
    for flask in range(min(int(row[Column.FLASKS]), SIZE // 5)):
        for x in range(1 + 5 * flask, 5 + 5 * flask):
            _paint(picture, 82, x, colours[_FLASK])
    middle = 0.5 * (FIELD[0] + FIELD[1] - 1)
    y = round(middle - 0.5 * (FIELD[1] - FIELD[0] - 2) * min(max(row[Column.CAMERA_Z], -1.0), 1.0))
    for x in range(SIZE - 4, SIZE):
        _paint(picture, y, x, colours[_PITCH])
