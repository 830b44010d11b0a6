"""A skill's learning curves as SVG, in the page's own colours and letters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from soulsgraph.pages import Html, tag

#: Points of a curve: decisions, mean return, and the ends of its interval.
Curve = list[tuple[float, float, float, float]]
#: Curves that have colours of their own.
MOST_CURVES = 10
#: Width and height of the picture, and the margins at its left, right, top and bottom.
_SIZE, _LEFT, _RIGHT, _TOP, _BOTTOM = (360, 230), 46, 10, 26, 34
_TICKS = 4


def draw_curve(skill: str, runs: Sequence[Sequence[Curve]]) -> Html:
    """Return the curves of one skill, of each run in its colour; each run has a curve a stage."""
    points = [point for curves in runs for curve in curves for point in curve if all(map(math.isfinite, point))]
    if not points:
        return Html("")
    right = max(point[0] for point in points)
    low, high = min(point[2] for point in points), max(point[3] for point in points)
    ticks = _round_values(low, high if high > low else low + 1.0)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    frame = _Frame(right, low, high)
    shown = [frame.curve(number, curve) for number, curves in enumerate(runs) for curve in curves if curve]
    title = tag("text", skill.replace("_", " "), x=_LEFT, y=16, class_="title")
    box, name = f"0 0 {_SIZE[0]} {_SIZE[1]}", f"learning curve of {skill}"
    return tag("svg", title, frame.axes(ticks), shown, viewBox=box, class_="curve", role="img", aria_label=name)


def legend(names: Iterable[str]) -> Html:
    """Return the names of what is drawn, each with its colour."""
    return tag("p", [tag("span", _line_of(number), name) for number, name in enumerate(names)], class_="legend")


def _line_of(number: int) -> Html:
    mark = tag("rect", y=4, width=16, height=4, class_=f"mark-{number}")
    return tag("svg", mark, width=16, height=12, aria_hidden="true")


class _Frame:
    """Where values lie in the picture."""

    def __init__(self, right: float, low: float, high: float) -> None:
        self._right, self._low, self._high = max(right, 1.0), low, high

    def x(self, decisions: float) -> float:
        """Return the place of a number of decisions."""
        return round(_LEFT + decisions / self._right * (_SIZE[0] - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        """Return the place of a return."""
        share = (value - self._low) / ((self._high - self._low) or 1.0)
        return round(_SIZE[1] - _BOTTOM - share * (_SIZE[1] - _TOP - _BOTTOM), 1)

    def axes(self, ticks: Sequence[float]) -> list[Html]:
        """Return grid lines with their values, returns at the left and thousands of decisions below."""
        drawn = []
        for value in ticks:
            y = self.y(value)
            drawn.append(tag("path", d=f"M{_LEFT} {y}H{_SIZE[0] - _RIGHT}", class_="grid"))
            drawn.append(tag("text", f"{value:g}", x=_LEFT - 6, y=y + 4, class_="left"))
        low = _SIZE[1] - _BOTTOM + 15
        for value in _round_values(0.0, self._right / 1e3):
            drawn.append(tag("text", f"{value:g}", x=self.x(1e3 * value), y=low, class_="below"))
        middle = (_LEFT + _SIZE[0] - _RIGHT) / 2
        return [*drawn, tag("text", "thousand decisions", x=middle, y=_SIZE[1] - 4, class_="below")]

    def curve(self, number: int, curve: Curve) -> Html:
        """Return a curve and the band of its intervals."""
        known = [point for point in curve if all(map(math.isfinite, point))]
        line = _path(((x, mean) for x, mean, _, _ in known), self)
        ahead = [(x, high) for x, _, _, high in known]
        band = _path((*ahead, *((x, low) for x, _, low, _ in reversed(known))), self) + "Z"
        dots = [tag("circle", cx=self.x(x), cy=self.y(mean), r=1.8) for x, mean, _, _ in known]
        shown = tag("path", d=band, class_="band"), tag("path", d=line, class_="line"), dots
        return tag("g", *shown, class_=f"mark-{number}")


def _path(points: Iterable[tuple[float, float]], frame: _Frame) -> str:
    return "M" + "L".join(f"{frame.x(x)} {frame.y(y)}" for x, y in points)


def _round_values(low: float, high: float) -> list[float]:
    """Return about as many round values as ticks, within two ends."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one * power for one in (1.0, 2.0, 5.0, 10.0) if one * power >= rough * (1 - 1e-9))
    return [round(number * step, 10) for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
