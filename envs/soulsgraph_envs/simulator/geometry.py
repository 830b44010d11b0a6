"""Plane geometry in the game's headings: heading a faces (-sin a, -cos a), and grows to the right."""

from __future__ import annotations

from math import pi, sqrt
from typing import NamedTuple

from soulsgraph_envs.core.compiling import every_frame

#: Coefficients of the square's seventh-highest power downwards, after the two that begin the series.
_ARCTANGENT = (0.0429096138, -0.0752896400, 0.1065626393, -0.1420889944, 0.1999355085, -0.3333314528)


class Sight(NamedTuple):
    """One fighter as seen by the other: heading, distance in metres, unit vector."""

    heading: float
    distance: float
    x: float
    y: float


@every_frame
def sight(dx: float, dy: float) -> Sight:
    """Return the sight along (dx, dy)."""
    distance = sqrt(dx * dx + dy * dy)
    scale = 1.0 / distance if distance > 0.0 else 0.0
    return Sight(heading_to(dx, dy), distance, dx * scale, dy * scale)


@every_frame
def seen_back(seen: Sight) -> Sight:
    """Return the same line seen from its other end."""
    return Sight(wrapped(seen.heading + pi), seen.distance, -seen.x, -seen.y)


@every_frame
def heading_to(dx: float, dy: float) -> float:
    """Return the heading that faces along (dx, dy), in [-pi, pi], to within 2e-8 rad.

    The arctangent on [0, 1] is Abramowitz and Stegun's polynomial 4.4.49, folded out over the
    circle: the library's own takes an eighth of a frame.
    """
    across, along = abs(dx), abs(dy)
    longer = max(across, along)
    if longer == 0.0:
        return 0.0
    ratio = min(across, along) / longer
    square = ratio * ratio
    series = -0.0161657367 + 0.0028662257 * square
    for coefficient in _ARCTANGENT:
        series = coefficient + series * square
    angle = ratio * (1.0 + series * square)
    if across > along:
        angle = 0.5 * pi - angle
    if dy > 0.0:
        angle = pi - angle
    return -angle if dx > 0.0 else angle


@every_frame
def wrapped(angle_rad: float) -> float:
    """Wrap the sum or difference of two headings into [-pi, pi]."""
    if angle_rad > pi:
        return angle_rad - 2.0 * pi
    if angle_rad < -pi:
        return angle_rad + 2.0 * pi
    return angle_rad


@every_frame
def turned(heading_rad: float, goal_rad: float, most_rad: float) -> float:
    """Turn a heading towards another by at most an angle."""
    offset = wrapped(goal_rad - heading_rad)
    if offset > most_rad:
        offset = most_rad
    elif offset < -most_rad:
        offset = -most_rad
    return wrapped(heading_rad + offset)


@every_frame
def clamped(x: float, y: float, radius: float) -> tuple[float, float]:
    """Return the nearest point of the disc of that radius around the origin."""
    squared = x * x + y * y
    if squared <= radius * radius:
        return x, y
    factor = radius / sqrt(squared)
    return x * factor, y * factor
