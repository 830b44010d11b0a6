"""The stand-in's window, with the fight drawn, which hears keys: pygame on an X display."""

from __future__ import annotations

import os
from typing import Any

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.pictures import import_pygame
from soulsgraph_envs.drivers.keyboard.guarded_device import find_window
from soulsgraph_envs.drivers.keyboard.person import Happened, Inputs

WIDTH, HEIGHT = 800, 450
#: Below the fighters, above the boss's bar.
_TEXT_TOP, _TEXT_SIZE, _TEXT_COLOUR = 340, 17, (230, 230, 230)


class GameWindow:
    """A window, open as long as the program runs; with `keeps_mouse` the mouse stays inside while it has the focus.

    Raises:
        GameError: if pygame is not installed, or no display can be opened.
    """

    def __init__(self, title: str, display: str, keeps_mouse: bool = False) -> None:
        pygame = self._pygame = import_pygame("standin")
        # Nothing but an X window hears other programs' keys; a plain one costs less than an accelerated one.
        os.environ |= {"SDL_VIDEODRIVER": "x11", "SDL_FRAMEBUFFER_ACCELERATION": "0"}
        if display:
            os.environ["DISPLAY"] = display
        try:
            pygame.display.init()
        except pygame.error as error:
            raise GameError(
                f"expected an X display to open a window on, found none ({error}); name one with `display`, or "
                "start one: xvfb-run."
            ) from error
        pygame.font.init()
        self._font = pygame.font.Font(None, _TEXT_SIZE)
        self._surface = pygame.display.set_mode((WIDTH, HEIGHT))
        pygame.display.set_caption(title)
        self._inputs = Inputs(pygame)
        pygame.event.get()
        # Without a window manager nobody else gives a new window the keyboard.
        window = find_window(title, os.getpid())
        window.focus()
        window.close()
        # Its buttons are heard only while it is over the window: games that are turned by mouse keep it there.
        pygame.event.set_grab(keeps_mouse)

    def events(self) -> list[Happened]:
        """Return what happened since the last call."""
        return self._inputs.read(self._pygame.event.get())

    def draw(self, picture: Any, lines: list[str]) -> None:
        """Show a picture of the window's size, (height, width, 3) uint8 or None, with lines of text over it."""
        pygame = self._pygame
        self._surface.fill((16, 16, 20))
        if picture is not None:
            pygame.surfarray.blit_array(self._surface, picture.swapaxes(0, 1))
        for number, line in enumerate(lines):
            self._surface.blit(self._font.render(line, True, _TEXT_COLOUR), (8, _TEXT_TOP + 18 * number))
        pygame.display.flip()

    def close(self) -> None:
        """Close the window."""
        self._pygame.display.quit()
