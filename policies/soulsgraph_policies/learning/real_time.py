"""Sample a real-time game in a thread of its own, which never waits on learning.

It keeps playing while the learner learns, and an env runner takes what it collected. New networks replace those that
play between two decisions, so that none is played half old and half new. The last transitions of a lost game are
dropped before anything learns from them.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from soulsgraph_envs.core.errors import MOST_DOUBTFUL_TICKS, EpisodeLostError, SoulsGraphError
from soulsgraph_envs.games.cycle_timer import StoppedError
from soulsgraph_policies.agents.inference import FrozenNetwork, Weights
from soulsgraph_policies.learning.sampler import Chunk, Moments, Sampler, Transitions

#: Chunks that wait for the learner; when there are more, the oldest are dropped.
MOST_WAITING = 4096
#: A game that cannot be reset is tried again after so long.
RETRY_AFTER_S = 5.0
#: Changes of the weights that are remembered: a decision that took longer has the version of the oldest of them.
_MOST_CHANGES = 64


class RealTimeSampling:
    """Play a sampler's game without a pause; `sample` returns what was collected since its last call.

    `notes` of the chunks say which episodes were lost and why, and when the game could not be reset.
    The `rehearsal`, a sampler of the simulator, plays first, so that no compilation delays a running fight.
    Only then `open_sampler` opens the game, with the event that ends its waiting; while it cannot, chunks
    have a `failure`.
    """

    def __init__(self, open_sampler: Callable[[threading.Event], Sampler], rehearsal: Sampler) -> None:
        self._open, self._rehearsal = open_sampler, rehearsal
        self._sampler: Sampler | None = None
        self._decisions: dict[str, int] = {}
        self._failure = ""
        self._networks: dict[str, FrozenNetwork] = {}
        #: Chunks that may still be in doubt, with the ticks at which they ended.
        self._young: deque[tuple[int, Chunk]] = deque()
        self._ready: deque[Chunk] = deque()
        self._notes: list[str] = []
        self._pending: dict[str, FrozenNetwork] = {}
        self._pending_version = 0
        #: The ticks from which on newer weights decided, with their versions.
        self._changes: deque[tuple[int, int]] = deque(maxlen=_MOST_CHANGES)
        #: Decisions finished so far, and of those the ones that `sample` never returns, by reason.
        self.finished, self.lost = 0, Counter[str]()
        #: Episodes that were broken off, by the kind of reason.
        self.lost_episodes = Counter[str]()
        self._defect: BaseException | None = None
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._last_fight = False
        #: Whether the game could be played when it was last tried.
        self.ready = True
        self._thread = threading.Thread(target=self._run, name="real-time sampling", daemon=True)

    def receive(self, decisions: Mapping[str, int]) -> None:
        """Set the counts of decisions that drive the exploration: the thread counts on from there."""
        self._decisions = dict(decisions)
        if self._sampler is not None:
            self._sampler.receive(decisions)

    def set_networks(self, networks: Sequence[FrozenNetwork], version: int = 0) -> None:
        """Play skills by these networks from their next decision on; the first call starts the fight."""
        with self._changed:
            self._pending |= {network.skill: network for network in networks}
            self._pending_version = version
        if self._thread.ident is None and not self._stopping.is_set():
            self._thread.start()

    @property
    def ticks(self) -> int:
        """Control ticks played so far."""
        return 0 if self._sampler is None else self._sampler.ticks

    def weights(self, skill: str) -> Weights:
        """Return a copy of the weights that a skill is played by; empty before the game is opened."""
        return {} if self._sampler is None else self._sampler.weights(skill)

    def sample(self, max_transitions: int, timeout_s: float) -> Chunk | None:
        """Return up to `max_transitions` waiting transitions, or the first in `timeout_s`; None if there is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._notes or self._failure or self._defect, timeout_s)
            if self._defect is not None:
                raise self._defect
            parts, count = [], 0
            while self._ready and count + self._ready[0].env_steps() <= max_transitions:
                parts.append(self._ready.popleft())
                count += parts[-1].env_steps()
            notes, self._notes = tuple(self._notes), []
            failure, self._failure = self._failure, ""
        if not parts and not notes and not failure:
            return None
        return Chunk.join(parts, notes, failure)

    def finish_fight(self) -> None:
        """Play no other fight after the one under way, however it ends; `over` says when."""
        self._last_fight = True

    @property
    def over(self) -> bool:
        """Whether nothing is played any more."""
        return self._stopping.is_set()

    def close(self) -> None:
        """Stop the thread, even while it waits, and close the game."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._sampler is not None:
            self._sampler.close()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                with self._changed:
                    networks, self._pending = list(self._pending.values()), {}
                    version = self._pending_version
                if self._sampler is None:
                    self._open_game(networks)
                else:
                    self._sampler.set_networks(networks)
                    if not self._changes or self._changes[-1][1] != version:
                        self._changes.append((self._sampler.ticks, version))
                    self._play(self._sampler)
        # In a thread nothing but code exits, or interrupts; nobody would hear of it.
        except (Exception, SystemExit, KeyboardInterrupt) as defect:
            with self._changed:
                self._defect = defect
                self._changed.notify()

    def _open_game(self, networks: Sequence[FrozenNetwork]) -> None:
        """Rehearse and open the game; retry at intervals if it cannot be opened."""
        self._networks |= {network.skill: network for network in networks}
        every = list(self._networks.values())
        self._rehearsal.set_networks(every)
        self._rehearsal.sample(1)
        try:
            sampler = self._open(self._stopping)
        except SoulsGraphError as error:
            self.ready = False
            with self._changed:
                self._failure = str(error)
                self._changed.notify()
            self._wait_to_retry()
            return
        try:
            sampler.set_networks(every)
            sampler.receive(self._decisions)
        except BaseException:
            sampler.close()
            raise
        self._sampler, self.ready = sampler, True

    def _play(self, sampler: Sampler) -> None:
        try:
            chunk = sampler.sample(1)
            self.ready = True
            self.finished += chunk.env_steps()
            moments = {name: self._moments(part, sampler.ticks) for name, part in chunk.transitions.items()}
            self._keep(replace(chunk, moments=moments), sampler.ticks)
            if self._last_fight and any(len(ended) for ended in chunk.episodes.values()):
                # The reset behind it may have put its end in doubt: the next call says so, and its tick is of no use.
                sampler.sample(1)
                self._end_if_last()
        except StoppedError:
            return
        except EpisodeLostError as loss:
            self.lost_episodes[loss.kind] += 1
            self._lose(sampler, f"episode lost: {loss.reason}", loss.doubtful_ticks)
            self._end_if_last()
        except SoulsGraphError as error:
            self.ready = False
            self._lose(sampler, f"game not ready, trying again: {error}", MOST_DOUBTFUL_TICKS)
            self._wait_to_retry()

    def _moments(self, transitions: Transitions, now: int) -> Moments:
        """Return when transitions that ended with tick `now` were decided."""
        since, versions = np.array(self._changes).T
        places = np.searchsorted(since, now - transitions.ticks, "right") - 1
        return Moments(versions[np.maximum(places, 0)], np.full(len(transitions), now))

    def _wait_to_retry(self) -> None:
        if not self._last_fight:
            self._stopping.wait(RETRY_AFTER_S)
        self._end_if_last()

    def _end_if_last(self) -> None:
        """Stop if no other fight is wanted; what is held back is no longer in doubt."""
        if self._last_fight:
            self._release(len(self._young))
            self._stopping.set()

    def _keep(self, chunk: Chunk, now: int) -> None:
        """Hold a chunk back until it can no longer be in doubt; ticks are counted from the first on."""
        self._young.append((now, chunk))
        self._release(sum(now - ended >= MOST_DOUBTFUL_TICKS for ended, _ in self._young))

    def _release(self, count: int) -> None:
        """Let `sample` return the oldest chunks that were held back."""
        with self._changed:
            for _ in range(count):
                if len(self._ready) == MOST_WAITING:
                    self.lost["waited too long"] += self._ready.popleft().env_steps()
                self._ready.append(self._young.popleft()[1])
            self._changed.notify()

    def _lose(self, sampler: Sampler, note: str, doubtful_ticks: int) -> None:
        since = sampler.ticks - doubtful_ticks
        while self._young and self._young[-1][0] > since:
            self.lost["doubtful"] += self._young.pop()[1].env_steps()
        broken_off = sampler.abandon_episodes()
        self.finished += broken_off
        self.lost["doubtful"] += broken_off
        with self._changed:
            if not self._notes or self._notes[-1] != note:
                self._notes.append(note)
            self._changed.notify()
