"""Play one game: tasks and weights in, chunks of what was played out. No torch, no Ray, no network.

The game is played in a thread of its own (`TaskPlay`), and whoever has the player asks it a few times a second by
`Player.exchange`: in a process of the game's own (`GameProcess`), or in a Ray actor. Messages are those of the wire.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from soulsgraph_clusters.fleet.actor.spool import AFTER_FIGHT, read_pause
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import MOST_DECISIONS, decode_weights, encode_columns, write_moments
from soulsgraph_clusters.fleet.protocol.settings import LOST_EPISODES, RESET_S, State
from soulsgraph_clusters.fleet.protocol.task import OpenGame, StageTask, TaskPlay, make_hello
from soulsgraph_clusters.fleet.store import UNFINISHED
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.extras import installed_version
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
HEALTH_EVERY_S = 1.0
#: A play's episodes are numbered from its own number times two to the power of this.
PLAY_SHIFT = 22


class PlayedGame(Protocol):
    """A game that is played somewhere, a `Player` or a way to one."""

    def exchange(self, sent: Sequence[bytes]) -> list[bytes]:
        """Send messages (`ToGame`) to the player, and return those that it has for the head (`FromGame`).

        The first of these is a hello.

        Raises:
            SoulsGraphError: if it refuses to play.
            EOFError: if it ended, with how.
        """

    def close(self) -> list[bytes]:
        """Let it end, every key released, and return the chunks that it still had."""

    def kill(self) -> None:
        """End it at once, from any thread."""


class _Play(TaskPlay):
    """A task under way, and what was collected since the last chunk; plays are counted from 0."""

    def __init__(self, order: wire.Task, number: int, settings: GameSettings, seed: int, open_it: OpenGame) -> None:
        super().__init__(StageTask.from_json(order.description), settings, seed, open_it)
        self.order, self.number = order, number
        self.has_weights, self.since_s = False, 0.0
        self.parts: list[Chunk] = []
        #: Decisions handed over.
        self.kept = 0


class Player:
    """One game; `game` is its name, and nothing is played while there is a `pause_file`."""

    def __init__(self, settings: GameSettings, game: str = "1", pause_file: Path | None = None) -> None:
        self._settings, self._pause_file = settings, pause_file
        #: What differs from process to process.
        self.boot, self._sequence = secrets.token_hex(8), 0
        hello = make_hello(game, settings.driver, settings.lanes, version=installed_version(), boot=self.boot)
        self._outbox = [wire.FromGame(hello=hello)]
        #: What the head wants played and the newest weights for it, kept while a person pauses the play.
        self._order: wire.Task | None = None
        self._weights: dict[str, Weights] = {}
        self._newest = wire.Weights()
        self._play: _Play | None = None
        self._plays = 0
        self._paused = self._read_pause()
        self._state, self._note = State.WAITING, ""
        self._said_s = -math.inf
        #: Of the plays before this one.
        self._ticks = self._finished = 0
        self._lost, self._metrics = Counter[str](), Counter[str]()

    def open_game(self, settings: GameSettings, clock: Clock) -> TimedGame:
        """Open the game to play; raises as `soulsgraph_envs.games.opening.open_game` does."""
        return open_game(settings, clock)

    def exchange(self, sent: Sequence[bytes]) -> list[bytes]:
        """Obey the head's messages, and return what there is for it a moment later: how the game does, and chunks."""
        for data in sent:
            self._trying(self._obey, wire.ToGame.FromString(data))
        self._trying(self._follow_pause)
        time.sleep(COLLECT_EVERY_S)
        if self._play is not None and self._play.has_weights:
            self._collect(self._play)
        return self._taken()

    def close(self) -> list[bytes]:
        """Release the game, and return the chunks that are in no doubt by then."""
        self._end_play()
        self._said_s = -math.inf
        return self._taken()

    def kill(self) -> None:
        """Do nothing: it ends with its process."""

    def _taken(self) -> list[bytes]:
        if time.monotonic() - self._said_s >= HEALTH_EVERY_S:
            self._said_s = time.monotonic()
            self._outbox.append(wire.FromGame(health=self._health()))
        taken, self._outbox = self._outbox, []
        return [message.SerializeToString() for message in taken]

    def _trying(self, act: Callable[..., None], *words: object) -> None:
        """Play nothing where something cannot be done, until the next task."""
        try:
            act(*words)
        except SoulsGraphError as error:
            self._order = None
            self._end_play()
            self._say(State.CANNOT_PLAY, str(error))

    def _obey(self, message: wire.ToGame) -> None:
        if message.HasField("task"):
            self._begin(message.task)
        elif message.HasField("weights"):
            self._load(message.weights)
        elif message.HasField("stop"):
            self._stop(message.stop)

    def _stop(self, stop: wire.Stop) -> None:
        self._order = None
        if stop.after_fight and self._play is not None and self._play.has_weights:
            self._play.sampling.finish_fight()
            self._say(State.LAST_FIGHT, stop.reason)
            return
        self._end_play()
        state = State.DRAINED if stop.after_fight else State.WAITING
        self._say(State.REFUSED if stop.refused else state, stop.reason)

    def _read_pause(self) -> str:
        return "" if self._pause_file is None else read_pause(self._pause_file)

    def _follow_pause(self) -> None:
        """Pause when a person at this PC wants to, and play on afterwards."""
        wanted = self._read_pause()
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
        """Take up a task, unless it is the one under way: then the way to the head was only opened anew."""
        if self._order == order:
            return
        self._end_play()
        self._order, self._weights = order, {}
        if not self._paused:
            self._start(order)

    def _start(self, order: wire.Task) -> None:
        # Each further play has other fights; the head's seed is another one for each boot.
        seed = int(derive_seeds(np.uint64(order.seed), self._plays)[0]) >> 1
        self._play = _Play(order, self._plays, self._settings, seed, self.open_game)
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

    def _use_weights(self, play: _Play, weights: Mapping[str, Weights]) -> None:
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
            self._hand_over(play)
        return chunk is not None

    def _hand_over(self, play: _Play) -> None:
        """Close a chunk of what was collected."""
        whole, play.parts = Chunk.join(play.parts), []
        for transitions in whole.transitions.values():
            transitions.episodes[...] += play.number << PLAY_SHIFT
        self._sequence += 1
        chunk = wire.Chunk(
            boot=self.boot,
            sequence=self._sequence,
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
        self._outbox.append(wire.FromGame(chunk=chunk))

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
            self._hand_over(play)
        self._play = None
        self._ticks += play.sampling.ticks
        self._finished += play.sampling.finished
        self._lost.update(play.sampling.lost)
        self._lost[UNFINISHED] += play.sampling.finished - play.sampling.lost.total() - play.kept
        self._metrics.update(_sums(play))

    def _health(self) -> wire.Health:
        play, lost = self._play, self._lost.copy()
        metrics = {"speed": self._settings.speed, "cpu_s": time.process_time(), **self._metrics}
        ticks, finished = self._ticks, self._finished
        if play is not None:
            lost.update(dict(play.sampling.lost))
            ticks, finished = ticks + play.sampling.ticks, finished + play.sampling.finished
            for name, value in _sums(play).items():
                metrics[name] = metrics.get(name, 0.0) + value
            metrics["lateness_p99_ms"] = play.lateness_p99_ms
        return wire.Health(
            state=self._state,
            note=self._note,
            ticks=ticks,
            weights_version=self._newest.version,
            finished_decisions=finished,
            lost_decisions=lost,
            metrics=metrics,
        )

    def _say(self, state: str, note: str = "") -> None:
        if (state, note) != (self._state, self._note):
            self._state, self._note = state, note
            self._outbox.append(wire.FromGame(health=self._health()))


def _sums(play: _Play) -> dict[str, float]:
    """Return a play's seconds of resets by phase and its lost episodes by reason, as names of metrics."""
    lost = dict(play.sampling.lost_episodes)
    return {
        **{f"{RESET_S}{phase}": seconds for phase, seconds in play.reset_s.items()},
        **{f"{LOST_EPISODES}{reason}": float(count) for reason, count in lost.items()},
    }
