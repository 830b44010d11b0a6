"""The link of the memory driver: read and write a game's process here, press its keys, focus its window."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.core.pictures import Picture
from soulsgraph_envs.drivers.keyboard.device import KeyDevice, Window
from soulsgraph_envs.drivers.keyboard.guarded_device import find_window, open_key_device
from soulsgraph_envs.drivers.memory.address_map import load_address_map
from soulsgraph_envs.drivers.memory.game_memory import (
    AttachedGame,
    OpenReader,
    attach_game,
    notes,
    open_process,
    writable,
)
from soulsgraph_envs.drivers.memory.reader import NoPermissionError
from soulsgraph_envs.drivers.realtime.link import GameSettings, LinkError, Reading

_LOG = logging.getLogger(__name__)
#: Between two tries to attach.
_RETRY_S = 0.25
_T = TypeVar("_T")


class MemoryLink:
    """Reach a game on this machine through its memory and keys; see `live.link.Link`."""

    def __init__(
        self,
        settings: GameSettings,
        open_reader: OpenReader = open_process,
        open_device: Callable[[str], KeyDevice] = open_key_device,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Load the settings' address map and open the key device; the game is sought by `attach`.

        Raises:
            SoulsGraphError: for a faulty map, or a key device that cannot be opened.
        """
        self.address_map = load_address_map(settings.map)
        self.supplies = self.address_map.readable()
        self.writes = writable(self.address_map)
        self._settings, self._open_reader, self._sleep = settings, open_reader, sleep
        self.bindings = settings.bindings or self.address_map.bindings
        self.keys: KeyDevice = open_device(settings.display)
        self._game: AttachedGame | None = None
        self._window: Window | None = None

    def attach(self, timeout_s: float, process_id: int = 0) -> None:
        """Find the game and resolve its addresses; a second call searches again.

        `process_id` is that of a game just launched, which replaces the settings' own; 0 for none.

        Raises:
            LinkError: with the last reason, if it was not found in time; at once if reading is not permitted.
        """
        self._let_go()
        if process_id:
            self._settings = replace(self._settings, pid=process_id)
        end_s = time.monotonic() + timeout_s
        while True:
            try:
                self._game = attach_game(self._settings, self.address_map, self._open_reader)
                break
            except NoPermissionError:
                raise
            except LinkError:
                if time.monotonic() >= end_s:
                    raise
                self._sleep(_RETRY_S)
        for note in notes(self._game.memory.bases):
            _LOG.warning("%s: %s", self.address_map.name, note)

    @property
    def game(self) -> AttachedGame:
        """Return the game that is attached.

        Raises:
            LinkError: if none is.
        """
        if self._game is None:
            raise LinkError("the game: expected it attached, found it was not; call attach first.")
        return self._game

    def read(self) -> Reading:
        """Return every field of `supplies`; an unverified one may be NaN or an empty text."""
        return self.game.memory.read()

    def write(self, values: Mapping[str, float]) -> None:
        """Write fields of `writes`; those that touch in one piece."""
        for name in values:
            if name not in self.writes:
                raise UnknownNameError("field to write", name, sorted(self.writes))
        self.game.memory.write(values)

    def focus(self) -> None:
        """Bring the game's window to the front; nothing if it is there already."""
        if not self.focused():
            self._on_window(lambda window: window.focus())

    def focused(self) -> bool:
        """Return whether keys reach the game's window."""
        return self._on_window(lambda window: window.focused())

    def capture(self) -> Picture:
        """Capture the game's window, which must lie wholly on the screen with nothing before it."""
        return self._on_window(lambda window: window.capture())

    def close(self) -> None:
        """Disconnect from the game and close its keys; a second call does nothing."""
        self._let_go()
        self.keys.close()

    def _on_window(self, ask: Callable[[Window], _T]) -> _T:
        """Call a method of the window, which is searched again if it has been replaced."""
        try:
            if self._window is not None:
                with suppress(GameError):
                    return ask(self._window)
                self._close_window()
            self._window = self._find_window()
            return ask(self._window)
        except GameError as error:
            raise LinkError(str(error)) from error

    def _find_window(self) -> Window:
        title = self._settings.window or self.address_map.window
        return find_window(title, self.game.reader.pid, self._settings.display)

    def _close_window(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None

    def _let_go(self) -> None:
        self._close_window()
        if self._game is not None:
            self._game.reader.close()
            self._game = None
