"""The stand-in's window, with the fight drawn, and its keyboard: pygame on an X display."""

from __future__ import annotations

import os
from typing import Any

from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.pictures import import_pygame
from soulsgraph_envs.drivers.keyboard.device import MOUSE_BUTTONS, Bindings
from soulsgraph_envs.drivers.keyboard.guarded_device import find_window

WIDTH, HEIGHT = 800, 450
#: Below the bars of the picture.
_TEXT_TOP, _TEXT_SIZE, _TEXT_COLOUR = 66, 17, (230, 230, 230)
#: Names of pygame's keys where they are not ours with blanks for bars.
_KEY_NAMES = {"return": "enter"}
_MOUSE = dict(zip((1, 2, 3, 6, 7), MOUSE_BUTTONS, strict=True))


class GameWindow:
    """A window, open as long as the program runs; with `keeps_mouse` the mouse stays inside while it has the focus.

    Raises:
        GameError: if pygame is not installed, or no display can be opened.
    """

    def __init__(self, title: str, display: str, keeps_mouse: bool = False) -> None:
        pygame = self._pygame = import_pygame()
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
        pygame.event.get()
        # Without a window manager nobody else gives a new window the keyboard.
        window = find_window(title, os.getpid())
        window.focus()
        window.close()
        # Its buttons are heard only while it is over the window: games that are turned by mouse keep it there.
        pygame.event.set_grab(keeps_mouse)

    def events(self) -> list[tuple[str, str]]:
        """Return what happened since the last call: ("press" or "release", key), ("blur", ""), ("close", "")."""
        pygame = self._pygame
        happened = []
        for event in pygame.event.get():
            if event.type in (pygame.KEYDOWN, pygame.KEYUP):
                name = pygame.key.name(event.key)
                key = _KEY_NAMES.get(name, name).replace(" ", "_")
                happened.append(("press" if event.type == pygame.KEYDOWN else "release", key))
            elif event.type in (pygame.MOUSEBUTTONDOWN, pygame.MOUSEBUTTONUP) and event.button in _MOUSE:
                happened.append(("press" if event.type == pygame.MOUSEBUTTONDOWN else "release", _MOUSE[event.button]))
            elif event.type == pygame.WINDOWFOCUSLOST:
                happened.append(("blur", ""))
            elif event.type == pygame.QUIT:
                happened.append(("close", ""))
        return happened

    def draw(self, picture: Any, lines: list[str]) -> None:
        """Show a picture, (height, width, 3) uint8 or None, with lines of text over it."""
        pygame = self._pygame
        self._surface.fill((16, 16, 20))
        if picture is not None:
            small = pygame.surfarray.make_surface(picture.swapaxes(0, 1))
            pygame.transform.scale(small, (WIDTH, HEIGHT), self._surface)
        for number, line in enumerate(lines):
            self._surface.blit(self._font.render(line, True, _TEXT_COLOUR), (8, _TEXT_TOP + 18 * number))
        pygame.display.flip()

    def close(self) -> None:
        """Close the window."""
        self._pygame.display.quit()


class Keyboard:
    """The keys that are `down`, and those that went down since the last frame.

    A tapped control counts once for each press, however long the key stays down; a held one counts
    as long as its keys are down, and for one frame at least.
    """

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings
        self.down: set[str] = set()
        self._pressed: set[str] = set()
        self._taps = Control(sum(Control[name.upper()] for name in bindings.tap))

    @property
    def help(self) -> str:
        """What the keys do, in a line."""
        steps = "".join(key for keys in self._bindings.hold.values() for key in keys)
        taps = [f"{'+'.join(keys)} {control.replace('_', ' ')}" for control, keys in self._bindings.tap.items()]
        return f"{steps} move and look, {', '.join(taps)}; F5 pause, F6 speed"

    def press(self, key: str) -> None:
        """Record a key that goes down."""
        self.down.add(key)
        self._pressed.add(key)

    def release(self, key: str) -> None:
        """Record a key that comes up."""
        self.down.discard(key)

    def release_all(self) -> None:
        """Record that the window no longer receives keys."""
        self.down.clear()

    def controls(self) -> Control:
        """Return the controls of a frame, and start the next frame."""
        down = self._bindings.controls_of(self.down | self._pressed)
        steady = self._bindings.controls_of(self.down - self._pressed)
        self._pressed.clear()
        return down & ~(self._taps & steady)
