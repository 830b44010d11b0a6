"""Show fights in a window, or write them as MP4 or GIF without a display."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from PIL import Image

from soulsgraph.watch.fights import Fight
from soulsgraph.watch.minds import draw
from soulsgraph_envs.core.canvas import Canvas
from soulsgraph_envs.core.distribution import pip_install
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.pictures import Picture, PictureWindow, import_pygame
from soulsgraph_envs.drivers.keyboard.person import Inputs
from soulsgraph_envs.simulator import palette
from soulsgraph_policies.atomic import whole_file

#: How long the end of a fight stays.
_END_S = 1.5
_COLOURS = 64
#: Without dithering what stays the same has the same pixels in every picture, which then cost nothing.
_EVEN = Image.Dither.NONE
_TITLE = "soulsgraph: space pauses, arrows step, n next fight, esc ends"


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
        self._size, self._window = size, PictureWindow(_TITLE, size, 1.0 / tick_s)
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
