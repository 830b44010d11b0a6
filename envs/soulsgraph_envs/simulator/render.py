"""Draw a fight from above, as a small picture: numpy only, the same values always give the same picture.

The camera looks up the picture, so FORWARD leads up; the middle lies halfway between the fighters,
and the farther apart they are, the more of the arena is seen. A fighter is a disc with its heading, in
a ring that fills with the progress of its animation and takes its colour from the animation's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi, sin, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.fighters import Window
from soulsgraph_envs.core.pictures import Picture
from soulsgraph_envs.core.scenario import Arena
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.simulator.tables import Row

Floats = npt.NDArray[np.float64]
Colour = tuple[int, int, int]

_ABYSS, _FLOOR, _TILE, _EDGE = (14, 14, 18), (70, 66, 60), (78, 74, 67), (120, 110, 90)
_PLAYER, _BOSS, _STRIKE, _LOCK = (70, 130, 220), (150, 70, 60), (255, 60, 30), (240, 230, 150)
_HP, _STAMINA, _EMPTY, _FLASK, _PHASE = (200, 40, 40), (60, 170, 70), (35, 30, 30), (240, 160, 40), (225, 225, 225)
_TILE_M, _EDGE_M, _RING_M = 2.0, 0.3, 0.35
#: What is seen of the arena from the lower to the upper border: this and the distance, but at least as much.
_MARGIN_M, _LEAST_M = 7.0, 14.0


class View(NamedTuple):
    """The plane of the picture: metres to the right of its middle by column, upwards by row, and its axes."""

    right: Floats
    up: Floats
    pixel_m: float
    x: float
    y: float
    ahead: tuple[float, float]

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return a place of the arena as metres (right, up) of the middle."""
        return self.turn(x - self.x, y - self.y)

    def turn(self, x: float, y: float) -> tuple[float, float]:
        """Return a vector of the arena along the picture's axes."""
        ahead_x, ahead_y = self.ahead
        return x * ahead_y - y * ahead_x, x * ahead_x + y * ahead_y


class Fighter(NamedTuple):
    """A disc to draw: its place and heading in the picture's plane, its animation and the animation's progress."""

    place: tuple[float, float]
    facing: tuple[float, float]
    radius_m: float
    colour: Colour
    animation: int
    progress: float


def is_size(size: object) -> bool:
    """Return whether a value is the size of a picture: (height, width), whole numbers above 0."""
    sides = np.asarray(size)
    return sides.shape == (2,) and sides.dtype.kind in "iu" and bool((sides > 0).all())


def render(raw: Floats, row: Row, windows: Sequence[Window], size: tuple[int, int]) -> Picture:
    """Draw one moment of a fight as a picture of `size` (height, width), from raw values (25,) and open windows."""
    view, picture = _view(raw, size), np.empty((*size, 3), np.uint8)
    _draw_floor(picture, view, row.scenario.arena)
    boss = _fighter(raw, view, "BOSS", row.boss.radius_m, _BOSS)
    player = _fighter(raw, view, "PLAYER", row.player.body.radius_m, _PLAYER)
    for window in windows:
        _draw_sector(picture, view, boss, window)
    if raw[Raw.LOCKED]:
        _draw_line(picture, view, player.place, boss.place)
    _draw_fighter(picture, view, boss)
    _draw_fighter(picture, view, player)
    _draw_bars(picture, raw, row.boss.phase)
    return picture


def _view(raw: Floats, size: tuple[int, int]) -> View:
    height, width = size
    dx, dy = raw[Raw.BOSS_X] - raw[Raw.PLAYER_X], raw[Raw.BOSS_Y] - raw[Raw.PLAYER_Y]
    scale = max(_MARGIN_M + sqrt(dx * dx + dy * dy), _LEAST_M) / height
    right = (np.arange(width, dtype=np.float64) - 0.5 * (width - 1)) * scale
    up = (0.5 * (height - 1) - np.arange(height, dtype=np.float64)) * scale
    level = sqrt(raw[Raw.CAMERA_X] ** 2 + raw[Raw.CAMERA_Y] ** 2)
    ahead = (raw[Raw.CAMERA_X] / level, raw[Raw.CAMERA_Y] / level) if level > 0.0 else (0.0, 1.0)
    return View(right, up, scale, raw[Raw.PLAYER_X] + 0.5 * dx, raw[Raw.PLAYER_Y] + 0.5 * dy, ahead)


def _fighter(raw: Floats, view: View, who: str, radius_m: float, colour: Colour) -> Fighter:
    heading, first = raw[Raw[f"{who}_ANGLE"]], Raw[f"{who}_ANIMATION"]
    place = view.place(raw[Raw[f"{who}_X"]], raw[Raw[f"{who}_Y"]])
    progress = raw[first + 1] / raw[first + 2] if raw[first + 2] > 0.0 else 0.0
    return Fighter(place, view.turn(-sin(heading), -cos(heading)), radius_m, colour, int(raw[first]), float(progress))


def _draw_floor(picture: Picture, view: View, arena: Arena) -> None:
    right, up = view.place(*arena.centre_m)
    squared = (view.right - right) ** 2 + ((view.up - up) ** 2)[:, None]
    # A tile's parity is that of the sum of its two numbers, each of which is linear in the pixel's place.
    ahead_x, ahead_y = view.ahead
    x = view.x + view.right * ahead_y + (view.up * ahead_x)[:, None]
    y = view.y - view.right * ahead_x + (view.up * ahead_y)[:, None]
    tiles = (np.floor(x / _TILE_M) + np.floor(y / _TILE_M)).astype(np.int64) & 1
    inside = squared < arena.radius_m**2
    kinds = np.where(inside, 1 + tiles, np.where(squared < (arena.radius_m + _EDGE_M) ** 2, 3, 0))
    picture[:] = np.array((_ABYSS, _FLOOR, _TILE, _EDGE), np.uint8)[kinds]


def _draw_sector(picture: Picture, view: View, boss: Fighter, window: Window) -> None:
    """Draw the area of an open window: ahead of the boss within half an arc, around a point ahead of it."""
    x, y = boss.facing
    place = (boss.place[0] + x * window.offset_m, boss.place[1] + y * window.offset_m)
    pixels, right, up = _around(picture, view, place, window.reach_m)
    distance = np.sqrt(right**2 + up**2)
    struck = (distance <= window.reach_m) & (right * x + up * y >= cos(min(window.half_arc_rad, pi)) * distance)
    pixels[struck] = (pixels[struck].astype(np.uint16) + np.array(_STRIKE, np.uint16)) // 2


def _draw_line(picture: Picture, view: View, start: tuple[float, float], end: tuple[float, float]) -> None:
    along = np.linspace(0.0, 1.0, sum(picture.shape[:2]))
    columns = (start[0] + along * (end[0] - start[0]) - view.right[0]) / view.pixel_m
    rows = (view.up[0] - start[1] - along * (end[1] - start[1])) / view.pixel_m
    inside = (columns >= 0) & (columns <= picture.shape[1] - 1)
    picture[np.rint(rows[inside]).astype(np.int64), np.rint(columns[inside]).astype(np.int64)] = _LOCK


def _draw_fighter(picture: Picture, view: View, fighter: Fighter) -> None:
    radius, ring = fighter.radius_m, fighter.radius_m + _RING_M
    pixels, right, up = _around(picture, view, fighter.place, ring)
    squared, (x, y) = right**2 + up**2, fighter.facing
    turned = np.arctan2(right, up) % (2.0 * pi)
    band = (squared > radius**2) & (squared <= ring**2)
    pixels[band] = _EMPTY
    pixels[band & (turned < 2.0 * pi * fighter.progress)] = _animation_colour(fighter.animation)
    pixels[squared <= radius**2] = fighter.colour
    ahead, aside = right * x + up * y, np.abs(right * y - up * x)
    pixels[(ahead > 0.0) & (squared <= ring**2) & (aside < 0.25 * radius)] = _PHASE


def _animation_colour(animation: int) -> Colour:
    """Return a distinct hue for an id: golden-ratio steps around the circle keep neighbours apart."""
    hue = 6.0 * (animation * 0.6180339887 % 1.0)
    red, green, blue = (min(max(abs((hue + shift) % 6.0 - 3.0) - 1.0, 0.0), 1.0) for shift in (0.0, 4.0, 2.0))
    return int(80 + 175 * red), int(80 + 175 * green), int(80 + 175 * blue)


def _draw_bars(picture: Picture, raw: Floats, phase: int) -> None:
    height, width = picture.shape[:2]
    thick = max(height // 40, 1)
    for number, name in enumerate(("PLAYER_HP", "STAMINA")):
        share = raw[Raw[name]] / max(raw[Raw[f"{name}_MAX"]], 1.0)
        _draw_bar(picture, (2 * number + 1) * thick, thick, (thick, width * 2 // 5), share, (_HP, _STAMINA)[number])
    _draw_row(picture, 5 * thick, thick, int(raw[Raw.FLASKS]), _FLASK)
    low = height - 2 * thick
    share = raw[Raw.BOSS_HP] / max(raw[Raw.BOSS_HP_MAX], 1.0)
    _draw_bar(picture, low, thick, (width // 6, width - width // 6), share, _HP)
    _draw_row(picture[:, width // 6 :], low - 2 * thick, thick, phase, _PHASE)


def _draw_bar(picture: Picture, top: int, thick: int, columns: tuple[int, int], share: float, colour: Colour) -> None:
    left, right = columns
    picture[top : top + thick, left:right] = _EMPTY
    picture[top : top + thick, left : left + round(min(max(share, 0.0), 1.0) * (right - left))] = colour


def _draw_row(picture: Picture, top: int, thick: int, count: int, colour: Colour) -> None:
    for number in range(count):
        left = (2 * number + 1) * thick
        picture[top : top + thick, left : left + thick] = colour


def _around(picture: Picture, view: View, place: tuple[float, float], reach_m: float) -> tuple[Picture, Floats, Floats]:
    """Return the pixels near a place, (n, m, 3), and their distances right (m,) and up (n, 1) of it."""
    right, up = view.right - place[0], view.up - place[1]
    columns, rows = np.flatnonzero(np.abs(right) <= reach_m), np.flatnonzero(np.abs(up) <= reach_m)
    if not (columns.size and rows.size):
        return picture[:0, :0], right[:0], up[:0, None]
    across, along = slice(columns[0], columns[-1] + 1), slice(rows[0], rows[-1] + 1)
    return picture[along, across], right[across], up[along, None]
