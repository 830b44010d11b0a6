"""The stand-in game as a child of the server, started again when it ended by itself."""

from __future__ import annotations

import threading
from types import TracebackType

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.live.link import LinkError
from soulsgraph_envs.standin.options import StandInOptions
from soulsgraph_envs.standin.process import StandInProcess


class LastingStandIn:
    """Run a stand-in; `pid` finds it, and starts another one where it crashed.

    Raises:
        GameError: if it does not start, with what it said.
    """

    def __init__(self, options: StandInOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._process = StandInProcess(options)

    def pid(self) -> int:
        """Give the id of the stand-in that runs."""
        with self._lock:
            if not self._process.running:
                self._process.close()
                try:
                    self._process = StandInProcess(self._options)
                except GameError as error:
                    raise LinkError(str(error)) from error
            return self._process.pid

    def tell(self, command: str) -> None:
        """Send a command of the stand-in's standard input, such as "crash" or "freeze 3"."""
        self._process.tell(command)

    def close(self) -> None:
        """End it; a second call does nothing."""
        with self._lock:
            self._process.close()

    def __enter__(self) -> LastingStandIn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
