"""Draw shapes and text on a picture with pillow: smooth edges, the same values always make the same picture.

Lengths are pixels, y grows downwards, angles are degrees clockwise from the right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil, floor
from typing import Any, Literal

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.render.palette import Colour

Point = tuple[float, float]
Box = tuple[float, float, float, float]
Fill = int | Colour

_SMOOTH = 2
_OPAQUE = 255
_WIDE_BLANKS = 14
_SHADOW: Colour = (0, 0, 0)


class Canvas:
    """A picture that is drawn on; `alpha` is 255 for opaque, below that what lies under a shape shows through.

    One that is not `smooth` is drawn in about half the time, with jagged edges.
    """

    def __init__(self, image: Image.Image, smooth: bool = True) -> None:
        self.image, self.smooth = image, smooth
        self.width, self.height = image.size
        self._draw = ImageDraw.Draw(image)

    @classmethod
    def blank(cls, size: tuple[int, int], colour: Colour) -> Canvas:
        """Return a canvas of `size` (height, width) in one colour."""
        return cls(Image.new("RGB", size[::-1], colour))

    def picture(self) -> Picture:
        """Return what was drawn, (height, width, 3) uint8."""
        return np.array(self.image)

    def rectangle(self, box: Box, colour: Colour, alpha: int = _OPAQUE) -> None:
        """Fill a box (left, top, right, bottom), rounded to whole pixels; right and bottom are outside of it."""
        left, top, right, bottom = (round(side) for side in box)
        left, top = max(left, 0), max(top, 0)
        right, bottom = min(right, self.width), min(bottom, self.height)
        if right <= left or bottom <= top:
            return
        if alpha == _OPAQUE:
            self.image.paste(colour, (left, top, right, bottom))
        else:
            mask = Image.new("L", (right - left, bottom - top), alpha)
            self.image.paste(colour, (left, top, right, bottom), mask)

    def bar(self, box: Box, share: float, colour: Colour, back: Colour) -> None:
        """Fill a share (0 to 1) of a box from its left, the rest with `back`."""
        left, top, right, bottom = box
        self.rectangle(box, back)
        self.rectangle((left, top, left + round(min(max(share, 0.0), 1.0) * (right - left)), bottom), colour)

    def disc(self, centre: Point, radius: float, colour: Colour, alpha: int = _OPAQUE) -> None:
        """Fill a disc."""
        self._shape(_around(centre, radius), colour, lambda draw, box, fill: draw.ellipse(box, fill=fill), alpha)

    def ring(self, centre: Point, radius: float, thick: float, colour: Colour, alpha: int = _OPAQUE) -> None:
        """Draw a circle that lies `thick` inside its radius."""
        self.arc(centre, radius, thick, (0.0, 360.0), colour, alpha)

    def arc(
        self, centre: Point, radius: float, thick: float, angles: Point, colour: Colour, alpha: int = _OPAQUE
    ) -> None:
        """Draw the part of a circle between two angles, clockwise."""
        width = max(round(thick * (_SMOOTH if self.smooth else 1)), 1)

        def drawn(draw: Any, box: Box, fill: Fill) -> None:
            draw.arc(box, *angles, fill=fill, width=width)

        self._shape(_around(centre, radius), colour, drawn, alpha)

    def sector(self, centre: Point, radius: float, angles: Point, colour: Colour, alpha: int = _OPAQUE) -> None:
        """Fill the sector of a disc between two angles, clockwise; all of the disc from 360 degrees on."""
        if angles[1] - angles[0] >= 360.0:
            self.disc(centre, radius, colour, alpha)
        else:
            box = _around(centre, radius)
            self._shape(box, colour, lambda draw, box, fill: draw.pieslice(box, *angles, fill=fill), alpha)

    def polygon(self, points: Sequence[Point], colour: Colour, alpha: int = _OPAQUE) -> None:
        """Fill a polygon."""
        xs, ys = [x for x, _ in points], [y for _, y in points]
        left, top, right, bottom = min(xs), min(ys), max(xs), max(ys)

        def drawn(draw: Any, box: Box, fill: Fill) -> None:
            scale = (box[2] - box[0]) / max(right - left, 1e-9)
            draw.polygon([(box[0] + (x - left) * scale, box[1] + (y - top) * scale) for x, y in points], fill=fill)

        self._shape((left, top, right, bottom), colour, drawn, alpha)

    def line(self, start: Point, end: Point, colour: Colour, thick: int = 1) -> None:
        """Draw a line."""
        self._draw.line([start, end], fill=colour, width=thick)

    def stroke(self, start: Point, end: Point, thick: float, colour: Colour, alpha: int = _OPAQUE) -> None:
        """Draw a line of any thickness as smoothly as a shape."""
        dx, dy = end[0] - start[0], end[1] - start[1]
        length = max((dx * dx + dy * dy) ** 0.5, 1e-9)
        x, y = -0.5 * thick * dy / length, 0.5 * thick * dx / length
        corners = [(start[0] + x, start[1] + y), (end[0] + x, end[1] + y)]
        self.polygon([*corners, (end[0] - x, end[1] - y), (start[0] - x, start[1] - y)], colour, alpha)

    def dashes(self, start: Point, end: Point, colour: Colour, dash: float, thick: int = 1) -> None:
        """Draw a dashed line; dash and gap are equally long."""
        dx, dy = end[0] - start[0], end[1] - start[1]
        length = max((dx * dx + dy * dy) ** 0.5, 1e-9)
        for number in range(0, int(length / dash) + 1, 2):
            first, last = (min(edge * dash / length, 1.0) for edge in (number, number + 1))
            ends = [(start[0] + part * dx, start[1] + part * dy) for part in (first, last)]
            self._draw.line(ends, fill=colour, width=thick)

    def text(
        self,
        place: Point,
        text: str,
        size: int,
        colour: Colour,
        anchor: Literal["left", "middle", "right"] = "left",
        alpha: int = _OPAQUE,
        shadow: bool = False,
    ) -> None:
        """Write a line of text of `size` pixels; its upper edge is at the place, which `anchor` puts beside it."""
        mask = _text_mask(text, size)
        back = {"left": 0.0, "middle": 0.5, "right": 1.0}[anchor] * mask.width
        x, y = round(place[0] - back), round(place[1])
        if alpha < _OPAQUE:
            mask = mask.point(lambda value: value * alpha // _OPAQUE)
        if shadow:
            self.image.paste(_SHADOW, (x + 1, y + 1), mask)
        self.image.paste(colour, (x, y), mask)

    def paste(self, image: Image.Image, left: int, top: int) -> None:
        """Put another picture on this one."""
        self.image.paste(image, (left, top))

    def _shape(self, box: Box, colour: Colour, drawn: Callable[[Any, Box, Fill], None], alpha: int) -> None:
        """Paint a shape through a mask of the part of its box that is in the picture, drawn larger where smooth."""
        left, top = max(floor(box[0]), 0), max(floor(box[1]), 0)
        right, bottom = min(ceil(box[2]) + 1, self.width), min(ceil(box[3]) + 1, self.height)
        if right <= left or bottom <= top:
            return
        if not self.smooth and alpha == _OPAQUE:
            drawn(self._draw, box, colour)
            return
        scale = _SMOOTH if self.smooth else 1
        mask = Image.new("L", ((right - left) * scale, (bottom - top) * scale))
        x1, y1, x2, y2 = box
        moved = (x1 - left) * scale, (y1 - top) * scale, (x2 - left) * scale, (y2 - top) * scale
        drawn(ImageDraw.Draw(mask), moved, alpha)
        self.image.paste(colour, (left, top, right, bottom), mask.reduce(scale) if scale > 1 else mask)


def text_width(text: str, size: int) -> int:
    """Return how wide a line of text is."""
    return int(_text_mask(text, size).width)


def fitted(text: str, size: int, width: float) -> str:
    """Shorten a line of text until it is at most `width` wide; an ellipsis stands for what is left out."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(f"{text}…", size) > width:
        text = text[:-1]
    return f"{text}…"


def _around(centre: Point, radius: float) -> Box:
    x, y = centre
    return x - radius, y - radius, x + radius, y + radius


@lru_cache(64)
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


@lru_cache(4096)
def _text_mask(text: str, size: int) -> Image.Image:
    font = _font(size)
    # At whole pixels the font's blank is too narrow to be seen in small sizes.
    text = text.replace(" ", "  ") if size < _WIDE_BLANKS else text
    mask = Image.new("L", (max(ceil(font.getlength(text)), 1), round(1.3 * size)))
    ImageDraw.Draw(mask).text((0, 0), text, font=font, fill=_OPAQUE)
    return mask
