"""Pictures of a game: their type, scaling, and a window that shows them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from soulsgraph_envs.core.errors import GameError

#: (height, width, 3) uint8: red, green and blue.
Picture = npt.NDArray[np.uint8]


def scaled(picture: Picture, size: tuple[int, int]) -> Picture:
    """Scale a picture, of any number of channels, to `size` (height, width), averaging where it shrinks."""
    height, width = size
    if picture.shape[:2] == size:
        return picture
    # Pillow takes three channels in one go.
    parts = [picture] if picture.shape[2] == 3 else np.moveaxis(picture, -1, 0)
    return np.dstack([Image.fromarray(part).resize((width, height), Image.Resampling.BOX) for part in parts])


class PictureWindow:
    """Show pictures of `size` (height, width) one after the other, at most `pictures_per_s` a second.

    Raises:
        GameError: if pygame is not installed, or there is no display.
    """

    def __init__(self, title: str, size: tuple[int, int], pictures_per_s: float) -> None:
        self._pygame, self._title, self._pictures_per_s = import_pygame(), title, pictures_per_s
        self._size = size[::-1]
        self._clock = self._pygame.time.Clock()
        self._open()

    def show(self, picture: Picture) -> None:
        """Show a picture, after waiting for its time."""
        pygame = self._pygame
        surface = pygame.display.get_surface()
        # A process has one window: another one may have replaced or closed it.
        if surface is None or surface.get_size() != self._size:
            surface = self._open()
        pygame.surfarray.blit_array(surface, picture.swapaxes(0, 1))
        pygame.event.pump()
        self._clock.tick(self._pictures_per_s)
        pygame.display.flip()

    def close(self) -> None:
        """Close the window; another picture opens it again."""
        self._pygame.display.quit()

    def _open(self) -> Any:
        pygame = self._pygame
        try:
            pygame.display.init()
            surface = pygame.display.set_mode(self._size)
        except pygame.error as error:
            raise GameError(
                f"expected a display to open a window on, found none ({error}): set DISPLAY, or draw into arrays."
            ) from error
        pygame.display.set_caption(self._title)
        return surface


def import_pygame() -> Any:
    """Import pygame without its greeting.

    Raises:
        GameError: if it is not installed.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame
    except ImportError as error:
        raise GameError(
            "expected pygame to be installed, found none; install it: pip install 'soulsgraph[standin]'."
        ) from error
    return pygame
