"""Reach a running game again after any failure: look for it, wait for it, end and launch it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.realtime.cycle_timer import timed_phase
from soulsgraph_envs.games.realtime.link import LinkError, Reading, RefusedError
from soulsgraph_envs.games.realtime.operations import DriverState
from soulsgraph_envs.games.realtime.readings import same_moment

_ATTACHING_S, _LAUNCHING_S, _LOADING_S, _FOCUSING_S = 3.0, 180.0, 60.0, 3.0
#: Values that stand still for the first time are a hang; the second is for a look at them from anew.
_STOPPED_S, _STILL_HANGING_S = 3.0, 1.0
_LOOK_S, _FIRST_LOOK_S = 0.05, 0.002


class Recovery:
    """Reach a game again after any failure; with a launch command, start it when it is gone or hangs.

    `interruptions` counts how often it was out of reach: its world may have been reloaded. Time limits
    are in the machine's time.
    """

    def __init__(self, session: DriverState) -> None:
        self._session, self.reset_clock = session, session.reset_clock
        self._process: subprocess.Popen[bytes] | None = None
        self.interruptions = 0

    @timed_phase("reach")
    def reach(self) -> Reading:
        """Return a reading of a game that can be played.

        Raises:
            GameError: with the reason, if it cannot be fixed from here.
        """
        link = self._session.link
        if not self._readable():
            self._attach_anew()
        self._wait(self._readable, _LOADING_S, "the game's world loaded")
        if link.read().get("online", 0) == 1:
            raise GameError("expected the game in offline mode, found it online; switch over, then try again.")
        # Before the game's clock shows whether it runs: it may have been stopped on purpose.
        self._session.set_speed(self._session.settings.speed)
        if not self._moves(_STOPPED_S):
            self._attach_anew()
            if not self._moves(_STILL_HANGING_S):
                self._restart()
        if not link.focused():
            link.focus()
            self._wait(link.focused, _FOCUSING_S, "the game's window in front")
        return link.read()

    def _attach_anew(self) -> None:
        session = self._session
        try:
            session.link.attach(_ATTACHING_S)
        except RefusedError as error:
            raise GameError(str(error)) from error
        except LinkError as error:
            if not session.settings.launch:
                raise GameError(f"{error} A launch command in the settings would start it again.") from error
            self._launch()
        self.interruptions += 1
        session.pad.check()

    def _launch(self) -> None:
        """Start the game and wait until its world is there."""
        session = self._session
        command = session.settings.launch
        try:
            self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        except OSError as error:
            raise GameError(f"launch: expected a command that runs, found {command[0]}: {error}.") from error
        # A launcher may end long before its game, which outlives this program: somebody has to notice.
        threading.Thread(target=self._process.wait, name="launched game", daemon=True).start()
        self._attach_launched(self._process)
        self._wait(self._readable, _LAUNCHING_S, "the world of the game just launched")

    def _attach_launched(self, process: subprocess.Popen[bytes]) -> None:
        """Attach to the game of a launched process, or to one that it starts before it ends."""
        session = self._session
        # Only a game that was named by its process is looked for by its process.
        process_id = process.pid if session.settings.pid else 0
        end_s = session.clock.now() + _LAUNCHING_S
        while True:
            try:
                session.link.attach(_ATTACHING_S, process_id)
                return
            except LinkError as error:
                if code := process.poll():
                    command = " ".join(session.settings.launch)
                    raise GameError(
                        f"launch: expected a game, found that its command ended with {code}; run it by hand: {command}"
                    ) from error
                if session.clock.now() > end_s:
                    raise GameError(str(error)) from error
                session.clock.sleep(_LOOK_S)

    def _restart(self) -> None:
        """End a game that hangs, and launch it again."""
        settings = self._session.settings
        if not settings.launch or not settings.pid:
            raise GameError(
                f"expected a running game, found one whose values have not changed for {_STOPPED_S:g} s; end it and "
                "start it again, or name launch and pid in the settings so that it can be done from here."
            )
        if self._process:
            # Nothing is sent once it has ended: its id may be another's by then.
            self._process.kill()
            self._process.wait()
        else:
            with suppress(ProcessLookupError):
                os.kill(settings.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        self._launch()

    def _moves(self, limit_s: float) -> bool:
        """Return whether the values change within a time."""
        first = self._session.link.read()
        return self._soon(lambda: not same_moment(first, self._session.link.read()), limit_s)

    def _readable(self) -> bool:
        try:
            self._session.link.read()
        except LinkError:
            return False
        return True

    def _wait(self, met: Callable[[], bool], limit_s: float, what: str) -> None:
        if not self._soon(met, limit_s):
            raise GameError(f"expected {what} within {limit_s:g} s, and it did not come; look at the game.")

    def _soon(self, met: Callable[[], bool], limit_s: float) -> bool:
        clock = self._session.clock
        end_s, look_s = clock.now() + limit_s, _FIRST_LOOK_S
        while not met():
            if clock.now() > end_s:
                return False
            clock.sleep(look_s)
            look_s = min(2.0 * look_s, _LOOK_S)
        return True
