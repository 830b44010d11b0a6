"""Draw a moment of a fight with each skill's mind below; show fights in a window, or write them as MP4 or GIF.

A mind is what the skill observed, its Q-values, its action and its player.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from soulsgraph.watch.fights import Fight, Mind
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.extras import pip_install
from soulsgraph_envs.core.files import whole_file
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.games.keys import Inputs
from soulsgraph_envs.render import palette
from soulsgraph_envs.render.canvas import Canvas, Colour, fitted, text_width
from soulsgraph_envs.render.pictures import PictureWindow, import_pygame
from soulsgraph_envs.simulator.render import render

#: Height and width of a fight, of what is written above it, and of the skills below it.
FIGHT_SIZE = (360, 640)
_TITLE, _MINDS = 24, 336
#: Height and width of a fight with its skills.
SIZE = (_TITLE + FIGHT_SIZE[0] + _MINDS, FIGHT_SIZE[1])

_CHOSEN: Colour = (60, 84, 130)
_BAR: Colour = (84, 100, 134)
_BEST_WIDTH = 126
#: Heights of a line and of its letters, the best first: the first is taken in which every skill has room.
LINES = ((16, 12), (14, 11), (12, 10))
#: What most values take of a line, the gap before one, and where a skill's lines begin below the fight.
_VALUE, _SPACE, _FIRST = 36, 6, 36
#: Between two columns of one skill.
_GAP = 14
Names = tuple[tuple[str, ...], ...]
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
    sizes = line_sizes(fight)
    for index, mind in enumerate(fight.minds):
        _draw_mind(canvas, mind, tick, (index * shares + 4, top + 4), (shares - 8, *sizes))
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


def line_sizes(fight: Fight) -> tuple[int, int]:
    """Return the height of a line and of its letters with which every skill of a fight has room."""
    skills = [mind.skill for mind in fight.minds]
    actions = tuple(tuple(action.name for action in skill.actions) for skill in skills)
    observed = tuple(tuple(name for name, _ in observed_lines(skill.observation.names)) for skill in skills)
    return _line_sizes(actions, observed, FIGHT_SIZE[1] / len(skills) - 8)


@lru_cache
def _line_sizes(actions: Names, observed: Names, width: float) -> tuple[int, int]:
    columns, wide = _columns(width)
    for high, font in LINES[:-1]:
        known = [[text_width(name.replace("_", " "), font) for name in names] for names in actions]
        seen = [[text_width(name, font) for name in names] for names in observed]
        # A value of what was observed may have a line of its own, one of an action is beside its name.
        rows = [
            len(first) + 1 + len(names) + sum(one > wide - _VALUE for one in names)
            for first, names in zip(known, seen, strict=True)
        ]
        cut = max(chain(*known)) > wide - _VALUE or max(chain(*seen)) > wide
        if not cut and max(rows) <= columns * ((_MINDS - _FIRST) // high):
            return high, font
    return LINES[-1]


def _columns(width: float) -> tuple[int, float]:
    """Return how many columns a skill has, and how wide the lines in each are."""
    columns = max(int(width // _BEST_WIDTH), 1)
    return columns, width / columns - (4 if columns == 1 else _GAP)


def _needs_two(line: Line, font: int, width: float) -> bool:
    """Return whether a name leaves its value no room beside it."""
    return bool(line.words) and text_width(line.name, font) + _SPACE + text_width(line.words, font) > width


def _draw_mind(
    canvas: Canvas, mind: Mind, tick: int, place: tuple[float, float], sizes: tuple[float, int, int]
) -> None:
    """Draw one skill: its name, who plays it, its actions, what it observed; in several columns where there is room.

    `sizes` are its width, and the height of a line and of its letters. A name that leaves its value no room has it
    on a line of its own.
    """
    (left, top), (width, high, font), random = place, sizes, mind.player == "random"
    canvas.text((left, top), fitted(mind.skill.name, 13, width), 13, palette.TEXT)
    shade = palette.WIND_UP if random else palette.FAINT
    canvas.text((left, top + 16), fitted(mind.player, font, width), font, shade)
    columns, wide = _columns(width)
    x, first = left, top + _FIRST - 4
    y: float = first
    for line in (*_action_lines(mind, tick), None, *_observation_lines(mind, tick)):
        parts = 1 if line is None else 1 + _needs_two(line, font, wide)
        tall = high / 2 if line is None else parts * high
        if y + tall > canvas.height and x + 2 * wide < left + width:
            x, y = x + width / columns, first
        if line is not None and y + tall <= canvas.height:
            _draw_line(canvas, line, (x, y, x + wide, y + tall), (high, font))
        y += tall


class Line(NamedTuple):
    """A name, a value in words, the share of a bar behind it (below 0 for none), whether it is the chosen action."""

    name: str
    words: str
    share: float = -1.0
    chosen: bool = False


def _action_lines(mind: Mind, tick: int) -> Iterator[Line]:
    chosen = mind.actions[tick]
    values = None if mind.values is None or chosen < 0 else mind.values[tick]
    low, spread = (0.0, 1.0) if values is None else (float(values.min()), float(np.ptp(values)) or 1.0)
    for index, action in enumerate(mind.skill.actions):
        words = "" if values is None else f"{values[index]:.2f}"
        share = -1.0 if values is None else (float(values[index]) - low) / spread
        yield Line(action.name.replace("_", " "), words, share, bool(index == chosen))


def _observation_lines(mind: Mind, tick: int) -> Iterator[Line]:
    if mind.actions[tick] < 0:
        yield Line("has not decided yet", "")
        return
    observed = mind.observations[tick]
    for name, places in observed_lines(mind.skill.observation.names):
        if len(places) == 1:
            words = f"{observed[places[0]]:.2f}"
        else:  # Indicators of one column: the id that is set.
            found = [number for number, place in enumerate(places) if observed[place] > 0.0]
            words = str(found[0]) if found else "other"
        yield Line(name, words)


@cache
def observed_lines(names: tuple[str, ...]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return every observed column in words and the places of its values: several for a column of indicators."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        column, _, _ = name.partition("=")
        places.setdefault(column.lower().replace("_", " "), []).append(place)
    return tuple((name, tuple(found)) for name, found in places.items())


def _draw_line(canvas: Canvas, line: Line, box: tuple[float, float, float, float], sizes: tuple[int, int]) -> None:
    (left, top, right, bottom), (high, font) = box, sizes
    if line.chosen:
        canvas.rectangle((left - 2, top, right + 2, bottom), _CHOSEN)
    if line.share >= 0.0:
        end = left + line.share * (right - left)
        canvas.rectangle((left, bottom - 2, end, bottom - 1), palette.LANDED if line.chosen else _BAR)
    colour = palette.TEXT if line.chosen or line.share < 0.0 else palette.FAINT
    canvas.text((left, top - 1), fitted(line.name, font, right - left), font, colour)
    canvas.text((right, bottom - high - 1), line.words, font, colour, "right")


#: How long the end of a fight stays.
_END_S = 1.5
_COLOURS = 64
#: Without dithering what stays the same has the same pixels in every picture, which then cost nothing.
_EVEN = Image.Dither.NONE
_CAPTION = "soulsgraph: space pauses, arrows step, n next fight, esc ends"
_IN_A_FILE = "write a file with `gif` or `mp4`"


def frames(fights: Sequence[Fight], only_fight: bool = False) -> Iterator[Picture]:
    """Yield a picture for every tick of fights beside each other, the last one again for a moment."""
    ticks = max(map(len, fights))
    for tick in range(ticks):
        picture = draw(fights, tick, only_fight)
        yield picture
    for _ in range(round(_END_S / fights[0].tick_s)):
        yield picture


class FightWindow:
    """A window in which fights are watched at the speed of the game.

    Raises:
        GameError: if pygame is not installed, or there is no display.
    """

    def __init__(self, size: tuple[int, int], tick_s: float = 0.1) -> None:
        self._size, self._window = size, PictureWindow(_CAPTION, size, 1.0 / tick_s, _IN_A_FILE)
        self._inputs = Inputs(import_pygame())

    def say(self, words: str) -> None:
        """Show a line of text alone, for a person who waits."""
        canvas = Canvas.blank(self._size, palette.PANEL)
        canvas.text((0.5 * self._size[1], 0.5 * self._size[0]), words, 15, palette.TEXT, "middle")
        self._window.show(canvas.picture())

    def play(self, fights: Sequence[Fight], only_fight: bool = False) -> bool:
        """Show fights beside each other from begin to end; return whether another one is wanted."""
        window, tick, paused = self._window, 0, False
        last = max(map(len, fights)) + round(_END_S / fights[0].tick_s)
        while tick < last:
            window.show(draw(fights, tick, only_fight))
            keys = [key for kind, key in self._inputs.read(window.events) if kind == "press"]
            if window.closing or {"escape", "q"} & set(keys):
                return False
            if "n" in keys:
                return True
            paused ^= keys.count("space") % 2 == 1
            step = keys.count("right") - keys.count("left")
            paused |= step != 0
            tick = max(tick + (step if paused else 1), 0)
        return True

    def close(self) -> None:
        """Close the window."""
        self._window.close()


def write_png(path: Path, pictures: Iterable[Picture], tick_s: float) -> None:
    """Write the last picture as PNG.

    Raises:
        WriteError: if the place cannot be written.
    """
    (last,) = deque(pictures, maxlen=1)
    with whole_file(path) as temporary:
        Image.fromarray(last).save(temporary, format="PNG", optimize=True)


def write_gif(path: Path, pictures: Iterable[Picture], tick_s: float) -> None:
    """Write pictures as a GIF that begins again at its end.

    Raises:
        WriteError: if the place cannot be written.
    """
    images = map(_few_colours, pictures)
    first = next(images)
    with whole_file(path) as temporary:
        first.save(temporary, format="GIF", save_all=True, append_images=images, duration=round(1000 * tick_s), loop=0)


def _few_colours(picture: Picture) -> Image.Image:
    return Image.fromarray(picture).quantize(_COLOURS, Image.Quantize.FASTOCTREE, dither=_EVEN)


def write_mp4(path: Path, pictures: Iterable[Picture], tick_s: float) -> None:
    """Write pictures as an MP4 of their own size.

    Raises:
        SoulsGraphError: if imageio-ffmpeg or its program is missing.
        WriteError: if the place cannot be written.
    """
    ffmpeg, pictures = import_ffmpeg(), iter(pictures)
    first = next(pictures)
    height, width = first.shape[:2]
    with whole_file(path) as temporary:
        writer = ffmpeg.write_frames(
            str(temporary),
            (width, height),
            fps=1.0 / tick_s,
            macro_block_size=2,
            ffmpeg_log_level="error",
            output_params=["-f", "mp4", "-movflags", "+faststart"],
        )
        writer.send(None)
        try:
            for picture in chain((first,), pictures):
                writer.send(picture.tobytes())
        finally:
            writer.close()


def import_ffmpeg() -> Any:
    """Import imageio-ffmpeg, and find its program.

    Raises:
        SoulsGraphError: if either is missing.
    """
    try:
        import imageio_ffmpeg

        imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        raise SoulsGraphError(
            f"expected imageio-ffmpeg to be installed, found none ({error}); install it: {pip_install('video')}."
        ) from error
    return imageio_ffmpeg


#: What writes a kind of file.
WRITERS: Mapping[str, Callable[[Path, Iterable[Picture], float], None]] = {
    "mp4": write_mp4,
    "gif": write_gif,
    "png": write_png,
}
