"""Pictures of a game: their type, scaling, and a window that shows them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from PIL import Image

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.extras import pip_install
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.render import palette

#: SDL's drivers that draw where nobody sees it, and the variables by which a user asks SDL for a driver.
_INVISIBLE, _ASKED_BY = ("offscreen", "dummy"), ("SDL_VIDEODRIVER", "SDL_VIDEO_DRIVER")


def scaled(picture: Picture, size: tuple[int, int]) -> Picture:
    """Scale a picture, of any number of channels, to `size` (height, width), averaging where it shrinks."""
    height, width = size
    if picture.shape[:2] == size:
        return picture
    # Pillow takes three channels in one go.
    parts = [picture] if picture.shape[2] == 3 else np.moveaxis(picture, -1, 0)
    return np.dstack([Image.fromarray(part).resize((width, height), Image.Resampling.BOX) for part in parts])


class PictureWindow:
    """Show pictures of `size` (height, width) one after the other, at most `pictures_per_s` a second; 0 for no limit.

    `closing` is whether a person asked to close it; `events` is what pygame reported with the last picture.
    `remedy` is what a user can do without a window.

    Raises:
        GameError: if pygame is not installed, or there is no display.
    """

    def __init__(self, title: str, size: tuple[int, int], pictures_per_s: float, remedy: str) -> None:
        self._pygame, self._title, self._pictures_per_s = import_pygame(), title, pictures_per_s
        self._size, self._remedy = size[::-1], remedy
        self.closing, self.events = False, list[Any]()
        self._clock = self._pygame.time.Clock()
        self._open()

    def say(self, words: str) -> None:
        """Show a line of text alone, for a person who waits."""
        # Imported here: environments that nobody watches need no fonts.
        from soulsgraph_envs.render.canvas import Canvas

        width, height = self._size
        canvas = Canvas.blank((height, width), palette.PANEL)
        canvas.text((0.5 * width, 0.5 * height), words, 15, palette.TEXT, "middle")
        self.draw(canvas.picture())

    def draw(self, picture: Picture) -> None:
        """Show a picture, after waiting for its time."""
        pygame = self._pygame
        surface = pygame.display.get_surface()
        # A process has one window: another one may have replaced or closed it.
        if surface is None or surface.get_size() != self._size:
            surface = self._open()
        pygame.surfarray.blit_array(surface, picture.swapaxes(0, 1))
        self.events = pygame.event.get()
        self.closing |= any(event.type == pygame.QUIT for event in self.events)
        self._clock.tick(self._pictures_per_s)
        pygame.display.flip()

    def close(self) -> None:
        """Close the window; another picture opens it again."""
        self._pygame.display.quit()

    def _open(self) -> Any:
        pygame = self._pygame
        try:
            open_display(pygame)
            surface = pygame.display.set_mode(self._size)
        except pygame.error as error:
            raise GameError(
                f"expected a display to open a window on, found none ({error}): set DISPLAY or WAYLAND_DISPLAY, "
                f"or {self._remedy}."
            ) from error
        pygame.display.set_caption(self._title)
        return surface


def open_display(pygame: Any) -> None:
    """Let SDL take a display that a person can see, or the driver that `SDL_VIDEODRIVER` asks for.

    Raises:
        pygame.error: if there is none: SDL alone would draw where nobody sees it, without an end.
    """
    asked = ",".join(os.environ.get(name, "") for name in _ASKED_BY).split(",")
    pygame.display.init()
    driver = pygame.display.get_driver()
    if driver in _INVISIBLE and driver not in asked:
        pygame.display.quit()
        raise pygame.error(f"only SDL's driver {driver!r}, whose window nobody sees")


def import_pygame(extra: str = "watch") -> Any:
    """Import pygame without its greeting; `extra` is named to install it by.

    Raises:
        GameError: if it is not installed.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame
    except ImportError as error:
        raise GameError(f"expected pygame to be installed, found none; install it: {pip_install(extra)}.") from error
    return pygame
