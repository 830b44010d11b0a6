"""Draw the two fighters from above: shoulders, head, weapon, what the weapon sweeps over, and the way they came."""

from __future__ import annotations

from collections.abc import Sequence
from math import atan2, cos, degrees, pi, sin
from typing import NamedTuple

from soulsgraph_envs.render import palette
from soulsgraph_envs.render.canvas import Canvas, Point
from soulsgraph_envs.render.palette import Colour
from soulsgraph_envs.simulator.scene import Activity, Area

#: The shoulders' depth and the head's radius, as shares of the body's radius.
_DEPTH, _HEAD = 0.62, 0.42
_OUTLINE = 24
#: How a weapon is held at rest: its direction from straight ahead, to the left, and its length in radii of the body.
_BOSS_REST, _PLAYER_REST = (-0.9, 1.9), (-0.6, 2.3)
#: How far a sword swings, from its right to its left, within these shares of an animation around its blow.
_SWING_RAD, _SWING = (-1.9, 1.3), (0.22, 0.14)
_SWORD_RADII = 3.2
#: With half of an arc below this a weapon thrusts.
_THRUST_RAD = 0.6
#: What part of a swing its trail shows, and of the weapon, from its tip.
_TRAIL, _TRAIL_PART = 0.45, 0.06
_TRAIL_ALPHA, _WAY_ALPHA = 200, 120


class DrawnFighter(NamedTuple):
    """A fighter in the picture: place in pixels, unit vector of its heading (right, up), radius, colour."""

    place: Point
    facing: tuple[float, float]
    radius: float
    colour: Colour

    def angle(self) -> float:
        """The heading in degrees clockwise from the right."""
        return degrees(atan2(-self.facing[1], self.facing[0]))

    def pixel(self, ahead: float, left: float) -> Point:
        """Return where a point of the fighter lies in the picture, that many pixels ahead of it and to its left."""
        (x, y), (right, up) = self.place, self.facing
        return x + ahead * right - left * up, y - ahead * up - left * right

    def toward(self, angle_rad: float, far: float) -> Point:
        """Return the point of the picture that lies `far` pixels away, at an angle to the left of the heading."""
        return self.pixel(far * cos(angle_rad), far * sin(angle_rad))


class Blade(NamedTuple):
    """A weapon: the way it points, to the left of the heading, its length in pixels, and where its trail begins."""

    angle_rad: float
    length: float
    trail_rad: float | None = None


def draw_way(canvas: Canvas, way: Sequence[Point], colour: Colour, thick: float) -> None:
    """Draw where a fighter came from, the oldest place first, fading backwards."""
    for number, place in enumerate(way):
        share = (number + 1) / (len(way) + 1)
        canvas.disc(place, 0.5 * thick * (0.4 + 0.6 * share), colour, round(_WAY_ALPHA * share))


def draw_boss(canvas: Canvas, fighter: DrawnFighter, doing: Activity, area: Area | None, pixel_m: float) -> None:
    """Draw the boss; its weapon is raised before a window opens, and sweeps through its arc while it is open."""
    blade = _boss_blade(fighter, doing, area, pixel_m)
    _draw_blade(canvas, fighter, blade, palette.HALBERD, palette.LANDED)
    _draw_body(canvas, fighter, palette.BOSS_HEAD)


def draw_player(canvas: Canvas, fighter: DrawnFighter, doing: Activity) -> None:
    """Draw the player: its sword swings around the moment of its blow, a flask is at its mouth, a roll is a ball."""
    kind = doing.kind
    if kind == "rolls":
        _draw_roll(canvas, fighter, doing)
        return
    blade = _sword(fighter, doing)
    _draw_blade(canvas, fighter, blade, palette.STEEL, palette.LANDED)
    first, last = (fighter.pixel(ahead * fighter.radius, 1.15 * fighter.radius) for ahead in (-0.35, 0.75))
    canvas.stroke(first, last, 0.35 * fighter.radius, palette.SHIELD)
    _draw_body(canvas, fighter, palette.PLAYER_HEAD)
    if kind == "drinks":
        canvas.disc(fighter.pixel(0.75 * fighter.radius, 0.0), 0.38 * fighter.radius, palette.FLASK)


def _draw_body(canvas: Canvas, fighter: DrawnFighter, head: Colour) -> None:
    turns = [2.0 * pi * number / _OUTLINE for number in range(_OUTLINE)]
    for scale, colour in ((1.0, palette.EMPTY), (0.9, fighter.colour)):
        radius = scale * fighter.radius
        canvas.polygon([fighter.pixel(_DEPTH * radius * cos(turn), radius * sin(turn)) for turn in turns], colour)
    canvas.disc(fighter.pixel(0.15 * fighter.radius, 0.0), _HEAD * fighter.radius, head)
    nose = [(0.95, 0.0), (0.45, 0.22), (0.45, -0.22)]
    canvas.polygon([fighter.pixel(ahead * fighter.radius, left * fighter.radius) for ahead, left in nose], palette.NOSE)


def _draw_roll(canvas: Canvas, fighter: DrawnFighter, doing: Activity) -> None:
    canvas.disc(fighter.place, 0.85 * fighter.radius, palette.EMPTY)
    canvas.disc(fighter.place, 0.75 * fighter.radius, fighter.colour)
    # The head goes once around.
    ahead = 0.45 * fighter.radius * cos(2.0 * pi * doing.progress)
    canvas.disc(fighter.pixel(ahead, 0.0), 0.35 * fighter.radius, palette.PLAYER_HEAD)


def _draw_blade(canvas: Canvas, fighter: DrawnFighter, blade: Blade, colour: Colour, swept: Colour) -> None:
    if blade.trail_rad is not None and blade.trail_rad != blade.angle_rad:
        ends = sorted(fighter.angle() - degrees(angle) for angle in (blade.angle_rad, blade.trail_rad))
        canvas.arc(fighter.place, blade.length, _TRAIL_PART * blade.length, (ends[0], ends[1]), swept, _TRAIL_ALPHA)
    hand, tip = (fighter.toward(blade.angle_rad, far) for far in (0.5 * fighter.radius, blade.length))
    canvas.stroke(hand, tip, max(0.16 * fighter.radius, 2.0), colour)


def _boss_blade(fighter: DrawnFighter, doing: Activity, area: Area | None, pixel_m: float) -> Blade:
    rest = Blade(_BOSS_REST[0], _BOSS_REST[1] * fighter.radius)
    if area is None:
        return rest
    half = min(area.window.half_arc_rad, pi)
    reach = max((area.window.offset_m + area.window.reach_m) / pixel_m, rest.length)
    if not area.open:
        raised, thrusts = area.winding_up**2, half < _THRUST_RAD
        angle, length = (0.0, rest.length) if thrusts else (half, 0.7 * reach)
        return Blade(rest.angle_rad + raised * (angle - rest.angle_rad), rest.length + raised * (length - rest.length))
    share = _share_of(doing)
    if half < _THRUST_RAD:
        return Blade(0.0, rest.length + min(3.0 * share, 1.0) * (reach - rest.length))
    angle = half * (1.0 - 2.0 * share)
    return Blade(angle, reach, angle + min(2.0 * half * _TRAIL, half - angle))


def _share_of(doing: Activity) -> float:
    """Return how much of the open window has passed."""
    for first, last in doing.parts:
        if doing.progress < last:
            return min(max((doing.progress - first) / max(last - first, 1e-6), 0.0), 1.0)
    return 1.0


def _sword(fighter: DrawnFighter, doing: Activity) -> Blade:
    rest = Blade(_PLAYER_REST[0], _PLAYER_REST[1] * fighter.radius)
    before, after = _SWING
    share = (doing.progress - doing.moment + before) / (before + after)
    if doing.kind != "strikes" or doing.moment < 0.0 or not 0.0 <= share <= 1.0:
        return rest
    first, last = _SWING_RAD
    angle, back = first + share * (last - first), min(share, _TRAIL) * (last - first)
    return Blade(angle, _SWORD_RADII * fighter.radius, angle - back)
