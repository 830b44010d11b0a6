"""Draw a moment of a fight, and below it each skill's mind: what it observed, its Q-values, its action, its player."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from soulsgraph.watch.fights import Fight, Mind
from soulsgraph_envs.core.canvas import Canvas, Colour, fitted
from soulsgraph_envs.core.pictures import Picture
from soulsgraph_envs.simulator import palette
from soulsgraph_envs.simulator.render import render

#: Height and width of a fight, of what is written above it, and of the skills below it.
FIGHT_SIZE = (360, 640)
_TITLE, _MINDS = 24, 336
#: Height and width of a fight with its skills.
SIZE = (_TITLE + FIGHT_SIZE[0] + _MINDS, FIGHT_SIZE[1])

_CHOSEN: Colour = (60, 84, 130)
_BAR: Colour = (84, 100, 134)
_BEST_WIDTH, _LINE, _FONT = 126, 12, 10
_OUTCOMES = {"won": palette.WON, "died": palette.LOST, "time over": palette.FAINT}


def draw(fights: Sequence[Fight], tick: int, only_fight: bool = False) -> Picture:
    """Draw a tick of fights beside each other; one that has ended stays as it ended.

    Returns:
        (720, 640 a fight, 3) uint8; (360, 640 a fight, 3) with `only_fight`.
    """
    return np.hstack([_only(fight, tick) if only_fight else _tile(fight, tick) for fight in fights])


def _only(fight: Fight, tick: int) -> Picture:
    return render(fight.scenes[min(tick, len(fight) - 1)], FIGHT_SIZE)


def _tile(fight: Fight, tick: int) -> Picture:
    tick = min(tick, len(fight) - 1)
    canvas = Canvas.blank(SIZE, palette.PANEL)
    _draw_title(canvas, fight, tick)
    shares = FIGHT_SIZE[1] / len(fight.minds)
    top = _TITLE + FIGHT_SIZE[0]
    for index, mind in enumerate(fight.minds):
        _draw_mind(canvas, mind, tick, (index * shares + 4, top + 4), shares - 8)
        canvas.rectangle((round((index + 1) * shares) - 1, top, round((index + 1) * shares), SIZE[0]), palette.EMPTY)
    picture = canvas.picture()
    picture[_TITLE : _TITLE + FIGHT_SIZE[0]] = _only(fight, tick)
    return picture


def _draw_title(canvas: Canvas, fight: Fight, tick: int) -> None:
    canvas.text((8, 4), fitted(fight.name, 13, 380), 13, palette.TEXT)
    seconds = f"{(tick + 1) * fight.tick_s:.1f} s"
    ended = tick == len(fight) - 1 and fight.outcome != "cut"
    words = f"{fight.outcome} after {seconds}" if ended else seconds
    colour = _OUTCOMES[fight.outcome] if ended else palette.TEXT
    canvas.text((canvas.width - 8, 4), words, 13, colour, "right")


def _draw_mind(canvas: Canvas, mind: Mind, tick: int, place: tuple[float, float], width: float) -> None:
    """Draw one skill: its name, who plays it, its actions, what it observed; in several columns where there is room."""
    (left, top), random = place, mind.player == "random"
    canvas.text((left, top), fitted(mind.skill.name, 13, width), 13, palette.TEXT)
    shade = palette.WIND_UP if random else palette.FAINT
    canvas.text((left, top + 16), fitted(mind.player, _FONT, width), _FONT, shade)
    columns = max(int(width // _BEST_WIDTH), 1)
    wide = width / columns
    x, y, first = left, top + 32, top + 32
    for line in (*_action_lines(mind, tick), None, *_observation_lines(mind, tick)):
        if y + _LINE > canvas.height and x + wide < left + width - 1:
            x, y = x + wide, first
        if line is not None and y + _LINE <= canvas.height:
            _draw_line(canvas, line, (x, y), wide - 4)
        y += _LINE if line is not None else _LINE / 2


#: A name, a value in words, the share of a bar behind it (below 0 for none), and whether it is the action chosen.
Line = tuple[str, str, float, bool]


def _action_lines(mind: Mind, tick: int) -> Iterator[Line]:
    chosen = mind.actions[tick]
    values = None if mind.values is None or chosen < 0 else mind.values[tick]
    low, spread = (0.0, 1.0) if values is None else (float(values.min()), float(np.ptp(values)) or 1.0)
    for index, action in enumerate(mind.skill.actions):
        words = "" if values is None else f"{values[index]:.2f}"
        share = -1.0 if values is None else (float(values[index]) - low) / spread
        yield action.name.replace("_", " "), words, share, index == chosen


def _observation_lines(mind: Mind, tick: int) -> Iterator[Line]:
    if mind.actions[tick] < 0:
        yield "has not decided yet", "", -1.0, False
        return
    observed = mind.observations[tick]
    for name, places in observed_lines(mind.skill.observation.names):
        if len(places) == 1:
            words = f"{observed[places[0]]:.2f}"
        else:  # Indicators of one column: the id that is set.
            found = [number for number, place in enumerate(places) if observed[place] > 0.0]
            words = str(found[0]) if found else "other"
        yield name, words, -1.0, False


@cache
def observed_lines(names: tuple[str, ...]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return every observed column in words and the places of its values: several for a column of indicators."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        column, _, _ = name.partition("=")
        places.setdefault(column.lower().replace("_", " "), []).append(place)
    return tuple((name, tuple(found)) for name, found in places.items())


def _draw_line(canvas: Canvas, line: Line, place: tuple[float, float], width: float) -> None:
    (name, words, share, chosen), (x, y) = line, place
    if chosen:
        canvas.rectangle((x - 2, y, x + width + 2, y + _LINE), _CHOSEN)
    if share >= 0.0:
        canvas.rectangle((x, y + _LINE - 2, x + share * width, y + _LINE - 1), palette.LANDED if chosen else _BAR)
    colour = palette.TEXT if chosen or share < 0.0 else palette.FAINT
    canvas.text((x, y - 1), fitted(name, _FONT, width - 34), _FONT, colour)
    canvas.text((x + width, y - 1), words, _FONT, colour, "right")
