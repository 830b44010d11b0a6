"""Draw a fight from above so that a person can follow it: areas of blows, names, bars, numbers and a legend.

The camera looks up the picture, so FORWARD leads up; the middle lies halfway between the fighters, and the farther
apart they are, the more of the arena is seen. Small pictures have neither the panel at the right nor text.
"""

from __future__ import annotations

from functools import lru_cache, partial
from math import cos, degrees, inf, pi, sin, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.core.scenario import Arena
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.render import palette
from soulsgraph_envs.render.canvas import Canvas, Point, fitted, text_width
from soulsgraph_envs.render.palette import Colour
from soulsgraph_envs.simulator.bodies import DrawnFighter, draw_boss, draw_player, draw_way
from soulsgraph_envs.simulator.scene import CHANGE_S, Activity, Area, Change, Scene

Floats = npt.NDArray[np.float64]

_TILE_M, _EDGE_M, _RING_M, _SAFE_M = 4.0, 0.3, 0.35, 0.15
#: What is seen of the arena from the lower to the upper border: this and the distance, but at least as much.
_MARGIN_M, _LEAST_M = 7.0, 11.0
#: From these sizes on a picture has its panel, and text.
_PANEL_FROM, _TEXT_FROM = (270, 480), 150
_PANEL_SHARE = 0.275
#: The player's bars from above.
_BARS = ((Raw.PLAYER_HP, palette.HP), (Raw.STAMINA, palette.STAMINA))


class View(NamedTuple):
    """The plane of the picture: its size in pixels, a pixel's length, and the place and direction of its middle."""

    width: int
    height: int
    pixel_m: float
    x: float
    y: float
    ahead: tuple[float, float]

    def pixel(self, x: float, y: float) -> Point:
        """Return where a place of the arena lies in the picture, in pixels (from the left, from the top)."""
        right, up = self.turn(x - self.x, y - self.y)
        return 0.5 * self.width + right / self.pixel_m, 0.5 * self.height - up / self.pixel_m

    def turn(self, x: float, y: float) -> tuple[float, float]:
        """Return a vector of the arena along the picture's axes, (right, up)."""
        ahead_x, ahead_y = self.ahead
        return x * ahead_y - y * ahead_x, x * ahead_x + y * ahead_y


def panel_width(size: tuple[int, int]) -> int:
    """Return the width of the panel of a picture of `size` (height, width); 0 where it is too small for one."""
    height, width = size
    roomy = height >= _PANEL_FROM[0] and width >= _PANEL_FROM[1]
    return round(_PANEL_SHARE * width) if roomy else 0


def view_of(scene: Scene, size: tuple[int, int]) -> View:
    """Return the plane in which a scene is drawn in a picture of `size`, the panel left out."""
    raw, (height, width) = scene.raw, size
    dx, dy = raw[Raw.BOSS_X] - raw[Raw.PLAYER_X], raw[Raw.BOSS_Y] - raw[Raw.PLAYER_Y]
    pixel_m = max(_MARGIN_M + sqrt(dx * dx + dy * dy), _LEAST_M) / height
    level = sqrt(raw[Raw.CAMERA_X] ** 2 + raw[Raw.CAMERA_Y] ** 2)
    ahead = (raw[Raw.CAMERA_X] / level, raw[Raw.CAMERA_Y] / level) if level > 0.0 else (0.0, 1.0)
    middle = raw[Raw.PLAYER_X] + 0.5 * dx, raw[Raw.PLAYER_Y] + 0.5 * dy
    return View(width - panel_width(size), height, pixel_m, *middle, ahead)


def render(scene: Scene, size: tuple[int, int], legend: bool = True) -> Picture:
    """Draw a scene as a picture of `size` (height, width): (height, width, 3) uint8."""
    view = view_of(scene, size)
    with_text = view.height >= _TEXT_FROM
    # What a small picture shows of smooth edges does not pay for drawing them.
    field = Canvas(_floor(view, scene.arena), smooth=with_text)
    _draw_fight(field, view, scene)
    _draw_bars(field, scene)
    if with_text:
        _draw_numbers(field, scene)
        _draw_words(field, view, scene)
    if not panel_width(size):
        return field.picture()
    whole = Canvas.blank(size, palette.PANEL)
    whole.paste(field.image, 0, 0)
    _draw_panel(whole, scene, view.width, legend)
    return whole.picture()


def _floor(view: View, arena: Arena) -> Image.Image:
    """Draw the arena's floor in tiles, its edge, and nothing beyond."""
    right = ((np.arange(view.width) + 0.5 - 0.5 * view.width) * view.pixel_m).astype(np.float32)
    up = ((0.5 * view.height - np.arange(view.height) - 0.5) * view.pixel_m).astype(np.float32)
    ahead_x, ahead_y = view.ahead
    # A tile's parity is that of the sum of its two numbers, which are counted in 65,536ths along both axes.
    unit = 65_536 / _TILE_M
    x = _whole(unit * (view.x + right * ahead_y)) + _whole(unit * up * ahead_x)[:, None]
    y = _whole(unit * (view.y - right * ahead_x)) + _whole(unit * up * ahead_y)[:, None]
    kinds = ((((x ^ y) >> 16) & 1) + 1).astype(np.uint8)
    offset, ahead = view.turn(arena.centre_m[0] - view.x, arena.centre_m[1] - view.y)
    squared = (right - np.float32(offset)) ** 2 + ((up - np.float32(ahead)) ** 2)[:, None]
    if squared.max() >= arena.radius_m**2:
        np.putmask(kinds, squared >= arena.radius_m**2, 3)
        np.putmask(kinds, squared >= (arena.radius_m + _EDGE_M) ** 2, 0)
    image = Image.fromarray(kinds)
    image.putpalette(bytes((*palette.ABYSS, *palette.FLOOR, *palette.TILE, *palette.EDGE)))
    return image.convert("RGB")


def _whole(values: npt.NDArray[np.floating]) -> npt.NDArray[np.int32]:
    return np.asarray(values, np.float64).astype(np.int32)


def _fighter(scene: Scene, view: View, who: str, radius_m: float, colour: Colour) -> DrawnFighter:
    raw, heading = scene.raw, scene.raw[Raw[f"{who}_ANGLE"]]
    place = view.pixel(raw[Raw[f"{who}_X"]], raw[Raw[f"{who}_Y"]])
    return DrawnFighter(place, view.turn(-sin(heading), -cos(heading)), radius_m / view.pixel_m, colour)


def _draw_fight(canvas: Canvas, view: View, scene: Scene) -> None:
    raw = scene.raw
    boss = _fighter(scene, view, "BOSS", scene.radii_m[1], _struck(scene.boss_change, palette.LANDED) or palette.BOSS)
    colour = _struck(scene.player_change, palette.LOST) or palette.PLAYER
    player = _fighter(scene, view, "PLAYER", scene.radii_m[0], colour)
    if canvas.smooth:
        seen, far = degrees(scene.view_rad), scene.lock_range_m / view.pixel_m
        canvas.sector(player.place, far, (-90.0 - seen, -90.0 + seen), palette.VIEW, palette.VIEW_ALPHA)
    for area in scene.areas:
        _draw_area(canvas, view, boss, area)
    if raw[Raw.LOCKED]:
        canvas.dashes(player.place, boss.place, palette.LOCK, 0.3 / view.pixel_m)
    if canvas.smooth:
        for fighter, way in zip((player, boss), scene.ways, strict=True):
            draw_way(canvas, [view.pixel(*place) for place in way], fighter.colour, fighter.radius)
        draw_boss(canvas, boss, scene.boss, scene.areas[0] if scene.areas else None, view.pixel_m)
        draw_player(canvas, player, scene.player)
    else:
        _draw_token(canvas, view, boss, scene.boss, int(raw[Raw.BOSS_ANIMATION]))
        _draw_token(canvas, view, player, scene.player, int(raw[Raw.PLAYER_ANIMATION]))
    if scene.invulnerable:
        canvas.ring(player.place, player.radius + _SAFE_M / view.pixel_m, _SAFE_M / view.pixel_m, palette.SAFE)
    if raw[Raw.LOCKED]:
        canvas.disc(boss.place, 0.22 / view.pixel_m, palette.LOCK)


def _struck(change: Change, colour: Colour) -> Colour | None:
    """Return the colour in which a fighter flashes that was just struck."""
    return colour if change.recent and change.points < 0.0 and change.age_s < 0.25 else None


def _draw_area(canvas: Canvas, view: View, boss: DrawnFighter, area: Area) -> None:
    """Draw the area of a window: ahead of the boss within half an arc, around a point ahead of it."""
    window, (right, up) = area.window, boss.facing
    offset, reach = window.offset_m / view.pixel_m, window.reach_m / view.pixel_m
    centre = boss.place[0] + right * offset, boss.place[1] - up * offset
    half = degrees(min(window.half_arc_rad, pi))
    angles = (boss.angle() - half, boss.angle() + half)
    if area.open:
        canvas.sector(centre, reach, angles, palette.STRIKE, palette.STRIKE_ALPHA)
        return
    canvas.sector(centre, reach, angles, palette.WIND_UP, palette.WIND_UP_ALPHA)
    # It fills up from the middle: full when the blow falls.
    canvas.sector(centre, reach * area.winding_up, angles, palette.WIND_UP, palette.WIND_UP_ALPHA)
    canvas.arc(centre, reach, 0.08 / view.pixel_m, angles, palette.WIND_UP)


def _draw_token(canvas: Canvas, view: View, fighter: DrawnFighter, doing: Activity, animation: int) -> None:
    """Draw a fighter of a small picture: a disc, around it how far its animation is, in that animation's colour."""
    edge = _RING_M / view.pixel_m
    canvas.disc(fighter.place, fighter.radius + edge, palette.EMPTY)
    if doing.progress > 0.0:
        angles = (-90.0, -90.0 + 360.0 * doing.progress)
        canvas.sector(fighter.place, fighter.radius + edge, angles, palette.animation_colour(animation))
    canvas.disc(fighter.place, fighter.radius, fighter.colour)
    (x, y), (right, up), length = fighter.place, fighter.facing, fighter.radius + edge
    tip = x + right * length, y - up * length
    wings = [(x - up * side * 0.4 * fighter.radius, y - right * side * 0.4 * fighter.radius) for side in (-1.0, 1.0)]
    canvas.polygon([tip, *wings], palette.NOSE)


def _draw_bars(canvas: Canvas, scene: Scene) -> None:
    """Draw HP, stamina, build-up and flasks above, and the boss's HP below: HP within what the fight is about."""
    raw, unit, width = scene.raw, _unit(canvas), canvas.width
    left, right = _bar_ends(canvas)
    for number, (value, colour) in enumerate(_BARS):
        top = (2 * number + 1) * unit
        canvas.bar((left, top, right, top + unit), _share(scene, value), colour, palette.EMPTY)
    if scene.build_up > 0.0:
        under = (left, 5 * unit, right, 5 * unit + max(unit // 2, 1))
        canvas.bar(under, scene.build_up, palette.STATUS, palette.EMPTY)
    for number in range(int(raw[Raw.FLASKS])):
        start = left + 2 * number * unit
        canvas.rectangle((start, 7 * unit, start + unit, 8 * unit), palette.FLASK)
    low, left, right = canvas.height - 2 * unit, width // 6, width - width // 6
    canvas.bar((left, low, right, low + unit), _share(scene, Raw.BOSS_HP), palette.HP, palette.EMPTY)
    if not canvas.smooth:
        for number in range(scene.phase):
            start = left + 2 * number * unit
            canvas.rectangle((start, low - 2 * unit, start + unit, low - unit), palette.NOSE)


def _unit(canvas: Canvas) -> int:
    """Return the height of a bar in pixels."""
    return max(int(canvas.height) // 40, 1)


def _small(canvas: Canvas) -> int:
    """Return the height of letters beside a bar in pixels."""
    return max(int(canvas.height) // 32, 9)


def _bar_ends(canvas: Canvas) -> tuple[int, int]:
    """Return where the player's bars begin and end, in pixels from the left."""
    unit = _unit(canvas)
    return unit, unit + round(0.38 * canvas.width)


def _draw_numbers(canvas: Canvas, scene: Scene) -> None:
    """Write the values of the bars beside them, and who the boss is."""
    raw, unit, width, font = scene.raw, _unit(canvas), canvas.width, _small(canvas)
    left, right = _bar_ends(canvas)
    flasks, low = int(raw[Raw.FLASKS]), canvas.height - 2 * unit
    lines = [
        (right + unit, unit - font // 6, f"{raw[Raw.PLAYER_HP]:.0f} HP"),
        (right + unit, 3 * unit - font // 6, f"{max(raw[Raw.STAMINA], 0.0):.0f} stamina"),
        (left + 2 * flasks * unit, 7 * unit - font // 6, f"{flasks or 'no'} flask{'s' * (flasks != 1)}"),
        # Whole also where the letters are higher than the bar and the border below it.
        (width - width // 6 + unit, min(low - font // 6, canvas.height - 1.2 * font), f"{raw[Raw.BOSS_HP]:.0f} HP"),
    ]
    if scene.build_up > 0.0:
        lines.append((right + unit, 5 * unit - font // 4, scene.status))
    for x, y, words in lines:
        canvas.text((x, y), words, font, palette.TEXT, shadow=True)
    _draw_name(canvas, scene, low - unit - font)


def _draw_name(canvas: Canvas, scene: Scene, top: int) -> None:
    """Write who the boss is in the middle, and at the right the HP at which the fight is won where it is above 0."""
    unit, font = _unit(canvas), _small(canvas)
    name, left_hp = f"{scene.boss_name}, phase {scene.phase}", scene.hp_windows[1][0] * scene.raw[Raw.BOSS_HP_MAX]
    middle = 0.5 * canvas.width
    if round(left_hp) > 0:
        words = f"won below {left_hp:.0f}"
        canvas.text((canvas.width - unit, top), words, font, palette.FAINT, "right", shadow=True)
        middle = min(middle, canvas.width - 3 * unit - text_width(words, font) - 0.5 * text_width(name, font))
    canvas.text((middle, top), name, font, palette.TEXT, "middle", shadow=True)


def _share(scene: Scene, value: Raw) -> float:
    """Return how much of a bar is full: HP count from where their owner has lost to where the fight begins."""
    raw, (players, bosses) = scene.raw, scene.hp_windows
    low, high = {Raw.PLAYER_HP: players, Raw.BOSS_HP: bosses}.get(value, (0.0, 1.0))
    return (float(raw[value] / max(raw[Raw[f"{value.name}_MAX"]], 1.0)) - low) / (high - low)


def _draw_words(canvas: Canvas, view: View, scene: Scene) -> None:
    """Write what the boss does beside it, changes of HP above both, the way to go, and how the fight ended."""
    raw, font = scene.raw, max(canvas.height // 24, 10)
    boss = view.pixel(raw[Raw.BOSS_X], raw[Raw.BOSS_Y])
    away = (scene.radii_m[1] + 2.2 * _RING_M) / view.pixel_m
    words, colour = boss_words(scene)
    top = boss[1] - away - 1.2 * font
    # Below the boss where it would lie over the values of the player's bars, or the player.
    values = (5 if scene.build_up > 0.0 else 3) * _unit(canvas) + 1.2 * _small(canvas)
    player = view.pixel(raw[Raw.PLAYER_X], raw[Raw.PLAYER_Y])
    hidden = abs(player[0] - boss[0]) < 6.0 * font and top - 2.0 * font < player[1] < boss[1]
    top = boss[1] + away if top < values or hidden else top
    canvas.text((boss[0], top), words, font, colour, "middle", shadow=True)
    changes = (("PLAYER", scene.player_change), ("BOSS", scene.boss_change))
    for (who, change), radius_m in zip(changes, scene.radii_m, strict=True):
        if change.recent:
            place = view.pixel(raw[Raw[f"{who}_X"]], raw[Raw[f"{who}_Y"]])
            aside, rise = (radius_m + 0.9) / view.pixel_m, change.age_s / view.pixel_m
            _draw_change(canvas, (place[0] + aside, place[1] - rise - 0.7 * font), change, who, round(1.4 * font))
    if scene.goal is not None:
        _draw_goal(canvas, view, scene)
    if scene.banner:
        _draw_banner(canvas, view, scene)
    elif scene.hint:
        canvas.text((0.5 * canvas.width, 0.68 * canvas.height), scene.hint, font, palette.TEXT, "middle", shadow=True)


def boss_words(scene: Scene) -> tuple[str, Colour]:
    """Return what the boss does in words, and their colour."""
    if not scene.boss.parts:
        return scene.boss.name, palette.FAINT
    if scene.until_hit_s == 0.0:
        return f"{scene.boss.name}: strikes", palette.LOST
    if scene.until_hit_s < inf:
        return f"{scene.boss.name} in {scene.until_hit_s:.1f} s", palette.WIND_UP
    return f"{scene.boss.name}: over", palette.FAINT


def _draw_change(canvas: Canvas, place: Point, change: Change, who: str, font: int) -> None:
    colour = palette.HEAL if change.points > 0.0 else palette.LOST if who == "PLAYER" else palette.LANDED
    alpha = round(255 * min(2.0 * (1.0 - change.age_s / CHANGE_S), 1.0))
    canvas.text(place, f"{change.points:+.0f}", font, colour, alpha=max(alpha, 0), shadow=True)


def _draw_goal(canvas: Canvas, view: View, scene: Scene) -> None:
    """Draw an arrow at the border that leads to the goal, or a ring around it where it is seen."""
    goal, font = scene.goal, max(canvas.height // 24, 10)
    assert goal is not None
    dx, dy = goal.x - scene.raw[Raw.PLAYER_X], goal.y - scene.raw[Raw.PLAYER_Y]
    words = f"{goal.name}, {sqrt(dx * dx + dy * dy):.0f} m"
    x, y = view.pixel(goal.x, goal.y)
    edge = 2.0 * font
    if edge < x < view.width - edge and edge < y < view.height - edge:
        canvas.ring((x, y), font, font / 5, palette.LOCK)
        canvas.text((x, y + 1.2 * font), words, font, palette.LOCK, "middle", shadow=True)
        return
    right, down = x - 0.5 * view.width, y - 0.5 * view.height
    shrink = min((0.5 * view.width - edge) / max(abs(right), 1e-9), (0.5 * view.height - edge) / max(abs(down), 1e-9))
    tip = 0.5 * view.width + shrink * right, 0.5 * view.height + shrink * down
    length = sqrt(right * right + down * down)
    right, down = right / length, down / length
    back = tip[0] - 1.4 * font * right, tip[1] - 1.4 * font * down
    wings = [(back[0] - side * 0.7 * font * down, back[1] + side * 0.7 * font * right) for side in (-1.0, 1.0)]
    canvas.polygon([tip, *wings], palette.LOCK)
    place = min(max(back[0], 5 * font), view.width - 5 * font), back[1] - 2.0 * font * down - 0.6 * font
    canvas.text(place, words, font, palette.LOCK, "middle", shadow=True)


def _draw_banner(canvas: Canvas, view: View, scene: Scene) -> None:
    """Write how the fight ended across the picture: below the fighters, above or between them, where neither stands."""
    height, font, raw, unit = canvas.height, max(canvas.height // 9, 12), scene.raw, _unit(canvas)
    high = 1.6 * font + (0.6 * font if scene.hint else 0.0)
    places = (height - 3.0 * unit - _small(canvas) - high, 9.0 * unit, 0.5 * (height - high))
    bands = []
    for who, radius_m in zip(("PLAYER", "BOSS"), scene.radii_m, strict=True):
        middle, half = view.pixel(raw[Raw[f"{who}_X"]], raw[Raw[f"{who}_Y"]])[1], radius_m / view.pixel_m
        bands.append((middle - half, middle + half))
    free = (top for top in places if not any(upper < top + high and lower > top for upper, lower in bands))
    top = next(free, places[0])
    canvas.rectangle((0, top, canvas.width, top + high), palette.ABYSS, 200)
    colour = palette.WON if scene.banner == "VICTORY" else palette.DIED
    canvas.text((0.5 * canvas.width, top + 0.2 * font), scene.banner, font, colour, "middle")
    if scene.hint:
        size = max(canvas.height // 24, 10)
        canvas.text((0.5 * canvas.width, top + 1.5 * font), scene.hint, size, palette.TEXT, "middle")


def _draw_panel(canvas: Canvas, scene: Scene, left: int, legend: bool) -> None:
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
    if not legend:
        return
    start = round(top + 20 * unit)
    canvas.paste(_legend(canvas.width - left - 1, canvas.height - start), left + 1, start)


def _draw_course(canvas: Canvas, box: tuple[float, float, float, float], doing: Activity, colour: Colour) -> None:
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
        draw = draw_player if kind == "you" else partial(draw_boss, area=None, pixel_m=1.0)
        colour = palette.PLAYER if kind == "you" else palette.BOSS
        draw(canvas, DrawnFighter(centre, (1.0, 0.0), 0.8 * radius, colour), Activity("", 0.0))
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
