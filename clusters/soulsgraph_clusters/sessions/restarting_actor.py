"""Keep a Ray actor at work that may lose its machine: it is asked again whenever it ends, and why is reported."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError

from soulsgraph_envs.core.errors import SoulsGraphError

_logger = logging.getLogger("soulsgraph")


class RestartingActor:
    """Keep an actor's `play` under way; why it ended is reported once, and it is called again after `try_every_s`.

    The actor has `is_placed`, which returns once it runs, `play`, which gets `words` and returns after `stop`, and
    `stop`.
    """

    def __init__(
        self, name: str, actor: ray.actor.ActorHandle, try_every_s: float, end_within_s: float, *words: Any
    ) -> None:
        self._name, self._actor, self._words, self._over = name, actor, words, threading.Event()
        self._try_every_s, self._end_within_s = try_every_s, end_within_s
        self._placed = actor.is_placed.remote()
        self._thread = threading.Thread(target=self._keep, name=name, daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        said = ""
        while not self._over.is_set():
            began_s = time.monotonic()
            try:
                ray.get(self._actor.play.remote(*self._words))
            except (RayError, SoulsGraphError) as error:
                # Of an error of ours Ray's own has the trace beside it.
                reason = str(getattr(error, "cause", error)).partition("\n")[0]
                played = time.monotonic() - began_s > self._try_every_s
                if not self._over.is_set() and (played or reason != said):
                    _logger.warning("%s: %s; it is tried again every %g s", self._name, reason, self._try_every_s)
                said = reason
                self._over.wait(self._try_every_s)

    def end(self) -> None:
        """End its work and the actor; one that still waits for a place has none."""
        self._over.set()
        with suppress(RayError):
            if ray.wait([self._placed], timeout=0.0)[0]:
                ray.get(self._actor.stop.remote(), timeout=self._end_within_s)
                self._thread.join(self._end_within_s)
        ray.kill(self._actor)
