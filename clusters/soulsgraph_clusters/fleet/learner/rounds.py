"""The learner of games in real time, which never wait: rounds of whole chunks, as they come."""

from __future__ import annotations

import gc
import logging
import math
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any

from soulsgraph_clusters.fleet.gateway.gateway import PUBLISH_EVERY_S
from soulsgraph_clusters.fleet.gateway.status import FleetStatus
from soulsgraph_envs.core.errors import UnavailableError
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.sampler import Chunk

#: Seconds until it is reported that no game is connected, and how many games that do not play an error names.
_SAY_AFTER_S, _SHOWN = 5.0, 3

_logger = logging.getLogger("soulsgraph")


class RealTimeDQN(SkillDQN):
    """Train from what games in real time played: `_fetch` brings it.

    A round is the shortest run of whole chunks that brings a module `steps_per_round` decisions, or all that its
    budget lacks. What is left of a budget's last chunk, and what comes after it, is surplus.
    """

    makes_runners = True
    #: Who plays, and what to do where nobody does, as errors say it.
    players, remedy = "games", "let the games play"
    #: The stage fails after so long without a game that plays.
    alone_for_s = 300.0

    def setup(self, config: Any) -> None:
        """Build the learner and what brings it the games' chunks."""
        #: Chunks that no round took yet, None for one that is not learned from, and what each takes in a journal.
        self._fetched: deque[tuple[Chunk | None, int]] = deque()
        self._sent_s, self._last_chunk_s = -math.inf, time.monotonic()
        #: Whether it was reported that no game is connected.
        self._waits = False
        #: How the games did when it was last asked for.
        self.status: FleetStatus | None = None
        super().setup(config)
        # What is frozen is never collected, so as long as the stage lasts.
        gc.collect()
        gc.freeze()

    def cleanup(self) -> None:
        """Stop the runners and the learner."""
        gc.unfreeze()
        super().cleanup()

    @abstractmethod
    def _fetch(self) -> int:
        """Append what came to `_fetched`, after a moment if there is nothing; return the count of chunks."""

    def _took(self, taken: Sequence[tuple[Chunk | None, int]]) -> None:
        """Note what a round is made of."""

    def training_step(self) -> None:
        """Run every round that is complete, at most to the end of the iteration; fetch first where none is."""
        self._send_unsent()
        received, fetched = 0, 0
        if not (taken := self._next_round()):
            fetched, taken = self._fetch(), self._next_round()
        while taken:
            received += self._round(taken)
            more = self.decisions < self._iteration_end and not self.checkpoint_due
            taken = self._next_round() if more else []
        self._wait_for_games(received + fetched > 0)
        self._log_sampling(received)
        if self.stop_requested() or self.checkpoint_due:
            self._set_iteration(0)

    def _next_round(self) -> list[Chunk]:
        """Take the next round's chunks; none while it is not complete."""
        counts = dict.fromkeys(self.training, 0)
        needed = {
            name: min(self.config.steps_per_round, one.hyperparameters.budget - one.decisions)
            for name, one in self.training.items()
        }
        for place, (chunk, _) in enumerate(self._fetched):
            for name, part in (chunk.transitions if chunk else {}).items():
                counts[name] = counts.get(name, 0) + len(part)
            if any(counts[name] >= most > 0 for name, most in needed.items()) or not needed:
                taken = [self._fetched.popleft() for _ in range(place + 1)]
                self._took(taken)
                return [chunk for chunk, _ in taken if chunk is not None]
        return []

    def _require_size(self, chunk: Chunk) -> None:
        """Take chunks of any size: games do not wait for a round."""

    def _send_unsent(self) -> None:
        """Send weights on once a second, as games get them: a call for each round would take longer."""
        now = time.monotonic()
        if self._unsent and now - self._sent_s >= PUBLISH_EVERY_S:
            self._send_state(self._state_of(sorted(self._unsent)))
            self._unsent.clear()
            self._sent_s = now

    def _send_state(self, state: dict[str, Any]) -> None:
        self._runner.set_state(state)

    def _wait_for_games(self, something: bool) -> None:
        now, games = time.monotonic(), () if self.status is None else self.status.games
        if something or any(game.is_put_aside for game in games):
            self._last_chunk_s, self._waits = now, False
        elif now - self._last_chunk_s > self.alone_for_s:
            found = "; ".join(f"{game.name} is {game.state}{game.note and f', {game.note}'}" for game in games[:_SHOWN])
            raise UnavailableError(
                f"{self.players}: expected a game that plays, found none for {self.alone_for_s:g} s"
                f"{found and f' ({found})'}; {self.remedy}, and resume the run."
            )
        elif now - self._last_chunk_s > _SAY_AFTER_S and not (self._waits or self.live_runners):
            self._waits = True
            _logger.warning(
                "%s: no game is connected; one is waited for, for %g s at most", self._title, self.alone_for_s
            )

    def runner_metrics(self) -> dict[str, dict[str, float]]:
        """Return how every game does, and for each PC what became of the decisions that came."""
        if self.status is None:
            return {}
        # Who sent no known token is named by an address, which no PC's name can be: it is on the page alone.
        named = [game for game in self.status.games if not {".", ":"} & {*game.name.partition("/")[0]}]
        metrics = {f"fleet/{game.name}": game.metrics for game in named}
        for key, count in self.status.decisions.items():
            pc, _, verdict = key.partition("/")
            metrics.setdefault(f"fleet/{pc}", {})[f"decisions/{verdict}"] = float(count)
        return metrics
