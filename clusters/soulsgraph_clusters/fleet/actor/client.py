"""Play one game for a head: a stage's task and weights in, chunks of what was played out.

The game is played in a thread of its own, the stream is served in another; neither ever waits for the network. Here
what was played is collected, about once a second put into the spool, and from there sent.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from soulsgraph_clusters.fleet.actor.spool import AFTER_FIGHT, read_pause
from soulsgraph_clusters.fleet.actor.stream import Head, Stream
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import MOST_DECISIONS, decode_weights, encode_columns, write_moments
from soulsgraph_clusters.fleet.protocol.settings import LOST_EPISODES, RESET_S, State
from soulsgraph_clusters.fleet.protocol.task import OpenGame, StageTask, TaskPlay, make_hello
from soulsgraph_clusters.fleet.store import UNFINISHED, Spool
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.games.cycle_timer import Clock, TimedGame
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.games.opening import open_game
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.learning.sampler import Chunk

#: Between two looks at what was played: a look at every decision would keep the game's thread waiting.
COLLECT_EVERY_S = 0.25
#: A chunk is closed so long after its first look: with the wait for that, one leaves about once a second.
CHUNK_S = 0.7
#: A task or weights that a game cannot play by are asked for again, at most so often.
ASK_AGAIN_EVERY_S = 30.0
#: A play's episodes are numbered from its own number times two to the power of this.
PLAY_SHIFT = 22


class _Play(TaskPlay):
    """A task under way, and what was collected since the last chunk; plays are counted from 0."""

    def __init__(self, order: wire.Task, number: int, settings: GameSettings, seed: int, open_it: OpenGame) -> None:
        super().__init__(StageTask.from_json(order.description), settings, seed, open_it)
        self.order, self.number = order, number
        self.has_weights, self.since_s = False, 0.0
        self.parts: list[Chunk] = []
        #: Decisions put into the spool, or lost there.
        self.kept = 0


class GameClient:
    """One game of a PC; `game` is its name there, `report` shows people what happens.

    Nothing is played while there is a `pause_file`. The PC's games name the same `machine` (`machine_id`).
    """

    def __init__(
        self,
        head: Head,
        game: str,
        settings: GameSettings,
        spool: Spool,
        version: str,
        report: Callable[[str], None],
        pause_file: Path,
        machine: str = "",
    ) -> None:
        self._settings, self._spool, self._report, self._pause_file = settings, spool, report, pause_file
        own = {"version": version, "boot": spool.boot, "machine": machine}
        hello = make_hello(game, settings.driver, settings.lanes, **own)
        self._stream = Stream(head, hello, spool, self._health, self._take, report)
        self._inbox: list[wire.ToGame] = []
        self._arrived = threading.Condition()
        #: What the head wants played and the newest weights for it, kept while a person pauses the play.
        self._order: wire.Task | None = None
        self._weights: dict[str, Weights] = {}
        self._newest = wire.Weights()
        self._play: _Play | None = None
        self._plays = 0
        # Looked at before the first task, which may come at once.
        self._paused = read_pause(pause_file)
        self._state, self._note = State.WAITING, ""
        #: Whether to ask for the task again, and when that was last done.
        self._asks_again, self._asked_s = False, -math.inf
        self._speed = settings.speed
        #: Of the plays before this one.
        self._ticks = self._finished = 0
        self._lost = Counter[str]()
        self._metrics = Counter[str]()
        self._counting = threading.Lock()

    def open_game(self, settings: GameSettings, clock: Clock) -> TimedGame:
        """Open the game to play; raises as `soulsgraph_envs.games.opening.open_game` does."""
        return open_game(settings, clock)

    def run(self, stopped: threading.Event) -> None:
        """Play until `stopped` is set, then release the game; chunks not acknowledged stay in the spool."""
        self._stream.start()
        try:
            while not stopped.is_set():
                with self._arrived:
                    self._arrived.wait_for(lambda: self._inbox, COLLECT_EVERY_S)
                self._obey()
                try:
                    self._follow_pause()
                except SoulsGraphError as error:
                    self._cannot_play(error)
                self._ask_again()
                if self._play is not None and self._play.has_weights:
                    self._collect(self._play)
        finally:
            self._end_play()
            self._stream.stop()

    def _take(self, message: wire.ToGame) -> None:
        """Keep a message for the playing loop; called by the stream's thread."""
        with self._arrived:
            self._inbox.append(message)
            self._arrived.notify()

    def _obey(self) -> None:
        with self._arrived:
            messages, self._inbox = self._inbox, []
        for message in messages:
            try:
                if message.HasField("task"):
                    self._begin(message.task)
                elif message.HasField("weights"):
                    self._load(message.weights)
                elif message.HasField("stop"):
                    self._stop(message.stop)
            except SoulsGraphError as error:
                self._cannot_play(error)

    def _cannot_play(self, error: SoulsGraphError) -> None:
        self._order = None
        self._end_play()
        self._say(State.CANNOT_PLAY, str(error))
        self._asks_again = True

    def _ask_again(self) -> None:
        """Connect anew after a task or weights that could not be used: the head then sends both once more."""
        now = time.monotonic()
        if self._asks_again and now - self._asked_s >= ASK_AGAIN_EVERY_S:
            self._asks_again, self._asked_s = False, now
            self._stream.reconnect()

    def _stop(self, stop: wire.Stop) -> None:
        self._order, self._asks_again = None, False
        if stop.after_fight and self._play is not None and self._play.has_weights:
            self._play.sampling.finish_fight()
            self._say(State.LAST_FIGHT, stop.reason)
            return
        self._end_play()
        state = State.DRAINED if stop.after_fight else State.WAITING
        self._say(State.REFUSED if stop.refused else state, stop.reason)

    def _follow_pause(self) -> None:
        """Pause when a person at this PC wants to, and play on afterwards."""
        wanted = read_pause(self._pause_file)
        if wanted and wanted != self._paused and self._play is not None:
            if wanted == AFTER_FIGHT and self._play.has_weights:
                self._play.sampling.finish_fight()
            else:
                self._end_play()
                if self._order is None:
                    self._say(State.DRAINED)
        self._paused = wanted
        if self._play is None and self._order is not None:
            if wanted:
                self._say(State.PAUSED, "a person at the PC paused it")
            else:
                self._start(self._order)

    def _begin(self, order: wire.Task) -> None:
        """Take up a task, unless it is the one under way: then the stream was only connected anew."""
        if self._order == order:
            return
        self._end_play()
        self._order, self._weights, self._asks_again = order, {}, False
        if not self._paused:
            self._start(order)

    def _start(self, order: wire.Task) -> None:
        self._speed = min(self._settings.speed, order.speed or self._settings.speed)
        settings = replace(self._settings, speed=self._speed)
        # Each further play has other fights; the head's seed is another one for each boot.
        seed = int(derive_seeds(np.uint64(order.seed), self._plays)[0]) >> 1
        self._play = _Play(order, self._plays, settings, seed, self.open_game)
        self._plays += 1
        self._say("waiting for weights")
        self._use_weights(self._play, self._weights)

    def _load(self, message: wire.Weights) -> None:
        if self._order is None:
            return
        weights = decode_weights(message.arrays)
        self._weights |= weights
        self._newest = message
        if self._play is not None:
            self._use_weights(self._play, weights if self._play.has_weights else self._weights)

    def _use_weights(self, play: _Play, weights: dict[str, Weights]) -> None:
        """Play by these weights; the first ones are those of every module."""
        weights = {name: own for name, own in weights.items() if name in play.task.modules}
        if not play.has_weights and len(weights) < len(play.task.modules):
            return
        play.use(weights, self._newest.version, self._newest.decisions)
        if not play.has_weights:
            play.has_weights = True
            self._say(State.PLAYING)

    def _collect(self, play: _Play) -> None:
        self._gather(play)
        if play.sampling.over:
            self._end_play()
            if self._order is None:
                self._say(State.DRAINED)

    def _gather(self, play: _Play) -> bool:
        """Take what was played since the last time, and return whether there was anything."""
        chunk = play.sampling.sample(MOST_DECISIONS // 2, 0.0)
        now = time.monotonic()
        if chunk is not None:
            # Without an order the last fight is played, and called so.
            notes = (*chunk.notes, chunk.failure)
            for note in filter(None, notes) if self._order is None else notes:
                self._say(State.PLAYING if play.sampling.ready else State.BROKEN, note)
            if chunk.transitions:
                play.since_s = play.since_s if play.parts else now
                play.parts.append(replace(chunk, notes=(), failure=""))
        full = sum(part.env_steps() for part in play.parts) >= MOST_DECISIONS // 2
        if play.parts and (full or now - play.since_s >= CHUNK_S):
            self._keep(play)
        return chunk is not None

    def _keep(self, play: _Play) -> None:
        """Put what was collected into the spool, and send it."""
        whole, play.parts = Chunk.join(play.parts), []
        for transitions in whole.transitions.values():
            transitions.episodes[...] += play.number << PLAY_SHIFT
        chunk = wire.Chunk(
            stage=play.order.stage,
            attempt=play.order.attempt,
            lane_ticks=whole.lane_ticks,
            decisions={name: len(part) for name, part in whole.transitions.items()},
            columns=encode_columns(whole),
            frozen=play.frozen,
        )
        # Ticks of a boot count on over its plays, as in `Health`.
        write_moments({name: own.after(self._ticks) for name, own in whole.moments.items()}, chunk)
        play.kept += whole.env_steps()
        kept = self._spool.put(chunk)
        if kept is not None:
            self._stream.send(*kept)

    def _end_play(self) -> None:
        """Release the game; what it finished and nobody needs any more is counted."""
        if self._play is None:
            return
        play = self._play
        # A last fight leaves its last decisions when it is over; those of one broken off are in doubt.
        while play.sampling.over and self._gather(play):
            pass
        play.sampling.close()
        if play.parts:
            self._keep(play)
        # A count that fell for a moment would look like a game that was started again.
        with self._counting:
            self._play = None
            self._ticks += play.sampling.ticks
            self._finished += play.sampling.finished
            self._lost.update(play.sampling.lost)
            self._lost[UNFINISHED] += play.sampling.finished - play.sampling.lost.total() - play.kept
            self._metrics.update(_sums(play))

    def _health(self) -> wire.Health:
        """Describe the game; called by the stream's thread, once a second."""
        with self._counting:
            return self._counted(self._play)

    def _counted(self, play: _Play | None) -> wire.Health:
        lost = self._lost + Counter(dict(self._spool.lost))
        if play is not None:
            lost.update(dict(play.sampling.lost))
        return wire.Health(
            state=self._state,
            note=self._note,
            ticks=self._ticks + (0 if play is None else play.sampling.ticks),
            weights_version=self._newest.version,
            waiting_chunks=self._spool.waiting,
            finished_decisions=self._finished + (0 if play is None else play.sampling.finished),
            lost_decisions=lost,
            metrics=self._measured(play),
        )

    def _measured(self, play: _Play | None) -> dict[str, float]:
        """Return the metrics of a `Health` message, those that are summed up being since the boot."""
        found = {"speed": self._speed, "cpu_s": time.process_time(), **self._metrics}
        if play is None:
            return found
        for name, value in _sums(play).items():
            found[name] = found.get(name, 0.0) + value
        if play.game is not None:
            found["lateness_p99_ms"] = play.lateness_p99_ms
        return found

    def _say(self, state: str, note: str = "") -> None:
        if (state, note) != (self._state, self._note):
            self._state, self._note = state, note
            self._report(f"{state}: {note}" if note else state)


def _sums(play: _Play) -> dict[str, float]:
    """Return a play's seconds of resets by phase and its lost episodes by reason, as names of metrics."""
    lost = dict(play.sampling.lost_episodes)
    return {
        **{f"{RESET_S}{phase}": seconds for phase, seconds in play.reset_s.items()},
        **{f"{LOST_EPISODES}{reason}": float(count) for reason, count in lost.items()},
    }
