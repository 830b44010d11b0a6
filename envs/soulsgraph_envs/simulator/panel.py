"""The panel beside a fight: what both fighters do and how far they are, the camera, and the legend."""

from __future__ import annotations

from functools import lru_cache
from math import inf, sqrt

from PIL import Image

from soulsgraph_envs.core.canvas import Canvas, Colour, Point, fitted
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.simulator import palette
from soulsgraph_envs.simulator.scene import Doing, Scene


def draw_panel(canvas: Canvas, scene: Scene, left: int) -> None:
    """Draw the panel at the right: what both do and how far they are, the camera, the legend."""
    unit = canvas.height / 360.0
    inside, wide = left + round(9 * unit), canvas.width - left - round(18 * unit)
    small, large = max(round(11 * unit), 9), max(round(15 * unit), 11)
    canvas.rectangle((left, 0, left + 1, canvas.height), palette.EDGE)
    strikes = scene.until_hit_s == 0.0
    colour = palette.LOST if strikes else palette.WIND_UP if scene.until_hit_s < inf else palette.TEXT
    boss_line = "strikes now" if strikes else f"winds up: strikes in {scene.until_hit_s:.1f} s"
    if scene.until_hit_s == inf:
        boss_line = "recovers" if scene.boss.parts else ""
    player_line = ("cannot be hit", palette.SAFE) if scene.invulnerable else ("can be hit", palette.FAINT)
    names = (f"Boss: {scene.boss_name}", "You")
    lines = ((scene.boss, (boss_line, colour), palette.STRIKE), (scene.player, player_line, palette.SAFE))
    top = 8 * unit
    for name, (doing, (line, shade), part) in zip(names, lines, strict=True):
        canvas.text((inside, top), fitted(name, small, wide), small, palette.FAINT)
        canvas.text((inside, top + 14 * unit), fitted(doing.name, large, wide), large, palette.TEXT)
        canvas.text((inside, top + 33 * unit), line, small, shade)
        _draw_course(canvas, (inside, top + 50 * unit, inside + wide, top + 58 * unit), doing, part)
        top += 68 * unit
    raw = scene.raw
    away = sqrt((raw[Raw.BOSS_X] - raw[Raw.PLAYER_X]) ** 2 + (raw[Raw.BOSS_Y] - raw[Raw.PLAYER_Y]) ** 2)
    lock = "locked on" if raw[Raw.LOCKED] else "not locked on"
    canvas.text(
        (inside, top), f"camera {lock}, {away:.1f} m", small, palette.LOCK if raw[Raw.LOCKED] else palette.FAINT
    )
    start = round(top + 20 * unit)
    canvas.paste(_legend(canvas.width - left - 1, canvas.height - start), left + 1, start)


def _draw_course(canvas: Canvas, box: tuple[float, float, float, float], doing: Doing, colour: Colour) -> None:
    """Draw an animation from its begin to its end: parts that matter in a colour, a mark where it is now."""
    left, top, right, bottom = box
    wide = right - left
    canvas.rectangle(box, palette.EMPTY)
    canvas.rectangle((left, top, left + doing.progress * wide, bottom), palette.FAINT)
    for first, last in doing.parts:
        canvas.rectangle((left + first * wide, top, left + last * wide, bottom), colour, 200)
    if doing.moment >= 0.0:
        canvas.rectangle((left + doing.moment * wide - 1, top, left + doing.moment * wide + 1, bottom), palette.FLASK)
    now = left + doing.progress * wide
    canvas.rectangle((now - 1, top - 2, now + 1, bottom + 2), palette.LANDED)


_LEGEND = (
    ("you", "you"),
    ("boss", "the boss"),
    ("wind_up", "will strike here"),
    ("strike", "strikes here now"),
    ("safe", "cannot be hit"),
    ("lock", "locked on"),
    ("view", "the camera's view"),
    ("bars", "HP, stamina, flasks"),
    ("lost", "HP you lost (+ healed)"),
    ("landed", "HP the boss lost"),
    ("course", "blow, safe, effect"),
)


@lru_cache(8)
def _legend(width: int, height: int) -> Image.Image:
    canvas = Canvas.blank((height, width), palette.PANEL)
    line = height / (len(_LEGEND) + 0.4)
    font = max(min(round(0.72 * line), round(0.066 * width)), 8)
    x = 0.5 * line + 6
    canvas.rectangle((6, 0, width - 6, 1), palette.EDGE)
    for number, (kind, words) in enumerate(_LEGEND):
        y = (number + 0.75) * line
        _draw_icon(canvas, kind, (x + 4, y), 0.36 * line)
        canvas.text((x + line, y - 0.62 * font), fitted(words, font, width - x - line - 2), font, palette.TEXT)
    return canvas.image


def _draw_icon(canvas: Canvas, kind: str, centre: Point, radius: float) -> None:
    x, y = centre
    if kind in ("you", "boss"):
        canvas.disc(centre, radius, palette.PLAYER if kind == "you" else palette.BOSS)
        canvas.polygon([(x + radius, y), (x, y - 0.4 * radius), (x, y + 0.4 * radius)], palette.NOSE)
        if kind == "boss":
            canvas.arc(centre, radius + 2, 2, (-90.0, 120.0), palette.COURSE)
    elif kind in ("wind_up", "strike", "view"):
        colour, alpha = {
            "wind_up": (palette.WIND_UP, 140),
            "strike": (palette.STRIKE, 220),
            "view": (palette.VIEW, 70),
        }[kind]
        canvas.sector((x - radius, y), 2.2 * radius, (-35.0, 35.0), colour, alpha)
    elif kind == "safe":
        canvas.disc(centre, 1.2 * radius, palette.SAFE, 150)
        canvas.disc(centre, 0.6 * radius, palette.PLAYER)
    elif kind == "lock":
        canvas.dashes((x - 1.3 * radius, y), (x + 1.3 * radius, y), palette.LOCK, 3.0)
    elif kind == "bars":
        for number, colour in enumerate((palette.HP, palette.STAMINA, palette.FLASK)):
            top = y + (number - 1.5) * 0.7 * radius
            canvas.rectangle((x - 1.2 * radius, top, x + 1.2 * radius, top + 0.5 * radius), colour)
    elif kind in ("lost", "landed"):
        font = max(round(1.8 * radius), 7)
        colour = palette.LOST if kind == "lost" else palette.LANDED
        canvas.text((x, y - 0.7 * font), "-9", font, colour, "middle")
    else:
        for number, colour in enumerate((palette.STRIKE, palette.SAFE, palette.FLASK)):
            start = x + (number - 1.5) * 0.85 * radius
            canvas.rectangle((start, y - 0.5 * radius, start + 0.7 * radius, y + 0.5 * radius), colour)
