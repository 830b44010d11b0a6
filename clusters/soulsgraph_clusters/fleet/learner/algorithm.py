"""The RLlib algorithm of games in real time, which never wait: rounds of whole chunks, as they come.

They come from the stage's journal, in its order, whatever arrives together: what is learned depends on the journal
alone, and the same journal, read in one process by a `JournalRunner`, leads to the same weights.
"""

from __future__ import annotations

import gc
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from ray.rllib.env.env_runner_group import EnvRunnerGroup

from soulsgraph_clusters.fleet.gateway.gateway import PUBLISH_EVERY_S
from soulsgraph_clusters.fleet.gateway.runner import FleetStage, GatewayGroup, JournalRunner, JournalSlice, read_chunk
from soulsgraph_clusters.fleet.gateway.status import FleetStatus
from soulsgraph_clusters.fleet.store import JOURNALED
from soulsgraph_envs.core.errors import SoulsGraphError, UnavailableError
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.sampler import Chunk
from soulsgraph_policies.learning.stage_config import SkillDQNConfig

#: Seconds until it is reported that no game is connected, and how many games that do not play an error names.
_SAY_AFTER_S, _SHOWN = 5.0, 3
#: A gateway that cannot be asked is asked again after so long.
_RETRY_AFTER_S = 0.5
#: A journal that was read to its end is read on after so long: a call costs driver and gateway some milliseconds, and
#: games get new weights once a second.
_FETCH_EVERY_S = 0.2
#: A gateway that died is asked whether it is back at most this often: asking a dead one takes time.
_PROBE_PERIOD_S = 1.0

_logger = logging.getLogger("soulsgraph")


class FleetDQN(SkillDQN):
    """Train from the journal of what games in real time played: the next round begins with its chunk at `position`.

    A round is the shortest run of whole chunks that brings a module `steps_per_round` decisions, or all that its
    budget lacks. What is left of a budget's last chunk, and what comes after it, is over budget.
    """

    def setup(self, config: Any) -> None:
        """Build the learner and its gateway, at the start of the journal."""
        #: Chunks that no round took yet, None for one that is not learned from, and what each takes in the journal.
        self._fetched: deque[tuple[Chunk | None, int]] = deque()
        self._sent_s, self._last_chunk_s = -math.inf, time.monotonic()
        #: Whether it was reported that no game is connected.
        self._waits = False
        #: How the games did when it was last asked for.
        self.status: FleetStatus | None = None
        self.live_runners = 0
        self.position, self.attempt = 0, ""
        #: Bytes of the chunks since the latest checkpoint. The next is due at a quarter of the journal's size: chunks
        #: between the two that are kept, those since and those not learned yet find room, so that the stage goes on.
        self._unsaved_bytes = 0
        self._next_fetch_s, self._next_probe_s, self._lost_gateway = 0.0, 0.0, False
        #: Positions of the latest checkpoints, at most two.
        self._saved: tuple[int, ...] = (0,)
        self._journaled: Mapping[str, int] = {}
        super().setup(config)
        self._task = self._stage.task(self.config)
        #: The stage fails after so long without a game that plays.
        self.alone_for_s = self._stage.fleet.settings.alone_for_s
        # What is frozen is never collected, so as long as the stage lasts.
        gc.collect()
        gc.freeze()

    def make_runners(self, config: SkillDQNConfig) -> EnvRunnerGroup:
        """Return the gateway, in a process that goes on after the stage or in the driver's own."""
        return GatewayGroup(config) if config.num_env_runners else super().make_runners(config)

    def training_step(self) -> None:
        """Run every round that is complete; a replay's last one says what became of all that came."""
        super().training_step()
        if self.finished and self._journaled and self._is_replay:
            self._log_account()

    def _rounds(self) -> Iterator[Sequence[Chunk]]:
        """Yield every round that is complete, at most to the end of the iteration; fetch first where none is."""
        self._send_unsent()
        before, fetched = self.decisions, 0
        if not (taken := self._next_round()):
            fetched, taken = self._fetch(), self._next_round()
        while taken:
            yield taken
            more = self.decisions < self._iteration_end and not self.checkpoint_due
            taken = self._next_round() if more else []
        self._wait_for_games(self.decisions - before + fetched > 0)
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
                self.position += len(taken)
                self._unsaved_bytes += sum(size for _, size in taken)
                self.checkpoint_due = self._unsaved_bytes > self._stage.fleet.settings.journal_bytes / 4
                return [chunk for chunk, _ in taken if chunk is not None]
        return []

    def _send_unsent(self) -> None:
        """Send weights on once a second, as games get them: a call for each round would take longer."""
        now = time.monotonic()
        if self._unsent and now - self._sent_s >= PUBLISH_EVERY_S:
            self._send_state(self._state_of(sorted(self._unsent)))
            self._unsent.clear()
            self._sent_s = now

    def _wait_for_games(self, something: bool) -> None:
        now, games = time.monotonic(), () if self.status is None else self.status.games
        if something or any(game.is_put_aside for game in games):
            self._last_chunk_s, self._waits = now, False
        elif now - self._last_chunk_s > self.alone_for_s:
            found = "; ".join(f"{game.name} is {game.state}{game.note and f', {game.note}'}" for game in games[:_SHOWN])
            raise UnavailableError(
                f"games: expected one that plays, found none for {self.alone_for_s:g} s"
                f"{found and f' ({found})'}; start them, or let them play again, and resume the run."
            )
        elif now - self._last_chunk_s > _SAY_AFTER_S and not (self._waits or self.live_runners):
            self._waits = True
            _logger.warning(
                "%s: no game is connected; one is waited for, for %g s at most", self._title, self.alone_for_s
            )

    def _fetch(self) -> int:
        """Fetch what the journal has more, some time after it was at its end; return the count of chunks."""
        time.sleep(max(self._next_fetch_s - time.monotonic(), 0.0))
        position, began_s = self.position + len(self._fetched), time.monotonic()
        answers: list[JournalSlice] = self.env_runner_group.foreach_env_runner(
            lambda runner: runner.fetch(position),
            local_env_runner=not self.config.num_env_runners,
            timeout_seconds=self.config.sample_timeout_s,
        )
        self._log_gateway(bool(answers))
        if not answers:
            time.sleep(_RETRY_AFTER_S)
            return 0
        (answer,) = answers
        if answer.failure:
            raise SoulsGraphError(answer.failure)
        self._journaled = answer.decisions
        self.status = answer.status or self.status
        self.live_runners = 0 if self.status is None else sum(game.connected for game in self.status.games)
        self._next_fetch_s = began_s + (0.0 if answer.is_full else _FETCH_EVERY_S)
        self.attempt = self.attempt or answer.attempt
        if answer.attempt != self.attempt:
            raise SoulsGraphError(
                f"{self._title}: expected the journal of attempt {self.attempt}, found that of {answer.attempt}; "
                "restore it, or remove the stage's checkpoints and its journal to begin the stage anew."
            )
        for note in answer.notes:
            _logger.warning("%s: %s", self._title, note)
        for stored in answer.chunks:
            chunk = read_chunk(stored, self._task, self._frozen)
            self._fetched.append((chunk, len(stored.content or b"")))
        return len(answer.chunks)

    @cached_property
    def _frozen(self) -> bytes:
        """The digest of what frozen skills are to be played by."""
        return self._task.frozen_digest(self.weights)

    def _log_account(self) -> None:
        """Log the verdict on every decision that came: learned, over budget, or refused by name."""
        counts: Counter[str] = Counter()
        for key, count in self._journaled.items():
            counts[key.rpartition("/")[2]] += count
        surplus = counts.pop(JOURNALED, 0) - self.decisions
        parts = [f"{self.decisions:,} learned", f"{surplus:,} over budget"]
        parts += [f"{count:,} refused as {reason}" for reason, count in sorted(counts.items())]
        _logger.warning("%s: of the decisions received %s", self._title, ", ".join(parts))

    def _log_gateway(self, there: bool) -> None:
        if there == self._lost_gateway:
            _logger.warning("%s: the gateway %s", self._title, "is back" if there else "was lost")
            self._prune()
        self._lost_gateway = not there

    def _send_state(self, state: dict[str, Any]) -> None:
        self._runner.set_state(state)
        self.env_runner_group.foreach_env_runner(
            "set_state", kwargs={"state": state}, local_env_runner=False, timeout_seconds=0.0
        )

    def _remote_sampling(self) -> None:
        """Return None: a gateway is asked for what comes after a position."""

    def cleanup(self) -> None:
        """End the stage, and say what became of all that came."""
        gc.unfreeze()
        super().cleanup()
        if self.finished and self._journaled and not self._is_replay:
            # What came while the stage ended is in the last status.
            if last := FleetStatus.last(self._stage.journal, self.attempt):
                self._journaled = last.decisions or self._journaled
            self._log_account()

    @property
    def _is_replay(self) -> bool:
        return self.config.env_runner_cls is JournalRunner

    def restore_env_runners(self, env_runner_group: EnvRunnerGroup) -> list[int]:
        """Ask a lost gateway at intervals whether it is back."""
        now = time.monotonic()
        if now < self._next_probe_s:
            return []
        self._next_probe_s = now + _PROBE_PERIOD_S
        return super().restore_env_runners(env_runner_group)

    @property
    def _stage(self) -> FleetStage:
        return FleetStage.of(self.config)

    def get_state(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return everything that the rest of the stage depends on, the position in the journal included."""
        return super().get_state() | {"journal": {"attempt": self.attempt, "position": self.position}}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`."""
        state = dict(state)
        if (journal := state.pop("journal", None)) is None:
            raise SoulsGraphError(
                f"{self._title}: expected a checkpoint of a stage that games play, found one of the simulator; resume "
                "it without `games` and `fleet`, or remove the stage's checkpoints to begin it anew."
            )
        self.attempt, self.position = journal["attempt"], int(journal["position"])
        self._saved = (self.position,)
        self._fetched.clear()
        self._unsaved_bytes, self.checkpoint_due = 0, False
        super().set_state(state)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write a checkpoint, and forget what the journal holds before the checkpoint before it."""
        super().save_checkpoint(checkpoint_dir)
        self._saved = (*self._saved[-1:], self.position)
        self._unsaved_bytes, self.checkpoint_due = 0, False
        self._prune()

    def _prune(self) -> None:
        before, local = self._saved[0], not self.config.num_env_runners
        self.env_runner_group.foreach_env_runner(
            lambda runner: runner.prune(before), local_env_runner=local, timeout_seconds=0.0
        )
