"""The games that are connected: one live connection for each, and what waits for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import plain, to_bytes
from soulsgraph_clusters.fleet.protocol.settings import FleetError, State

#: PCs that were refused, and notes that wait to be logged, at most.
_MOST_REFUSALS, _MOST_NOTES = 200, 200
_LONGEST_NOTE = 2_000
#: Acknowledgements and messages that a game may leave unread; with more its stream ends, and its chunks come again.
MOST_UNREAD = 4_096
#: Acknowledgements wait so long for weights to ride on, which go out about once a second.
#: With the journal's write before and the way to the PC they come within 1.5 s.
RIDE_WITHIN_S = 1.2


@dataclass(eq=False)
class Connection:
    """One game's stream, from its hello on; used in the gateway's thread alone. Times are the gateway's own."""

    hello: wire.Hello
    heard_s: float
    health: wire.Health = field(default_factory=wire.Health)
    #: When it came.
    health_s: float = 0.0
    #: The message of the newest weights, until it is sent, and their version; -1 before there are any.
    weights: bytes = b""
    weights_version: int = -1
    #: Why the stream ended, where the game did not end it.
    reason: str = ""
    closed: bool = False
    #: Whether the gateway does not read on, because too much waits to be written.
    held: bool = False
    #: Whether the head drained its PC.
    drained: bool = False
    #: Whoever let it play, the latest time.
    admitted: object | None = None
    #: The number of its first lane in the stage.
    first_lane: int = 0
    #: The hash of what it proved its name by.
    token: str = field(default="", repr=False)
    #: Its machine's address, as the gateway sees it.
    address: str = ""

    def __post_init__(self) -> None:
        self._outbox: list[bytes] = []
        self._acknowledged: list[wire.Acknowledgement] = []
        self._ride: asyncio.TimerHandle | None = None
        self._unread = 0
        self._changed = asyncio.Event()
        self.over = asyncio.Event()
        self._finishing = False

    @property
    def name(self) -> str:
        """The PC and its game, as logs and metrics name them."""
        return f"{self.hello.pc}/{self.hello.game}"

    def send(self, message: wire.ToGame) -> None:
        """Send a message after those that wait."""
        self._outbox.append(to_bytes(message))
        self._count_unread()
        self._changed.set()

    def _count_unread(self) -> None:
        self._unread += 1
        if self._unread > MOST_UNREAD and not self.closed:
            self.close(f"it read none of {MOST_UNREAD:,} messages")

    def acknowledge(self, answer: wire.Acknowledgement) -> None:
        """Send an acknowledgement with the next weights; alone where none come soon."""
        if self._ride is None:
            self._ride = asyncio.get_running_loop().call_later(RIDE_WITHIN_S, self._ride_no_longer)
        self._acknowledged.append(answer)
        self._count_unread()

    def _ride_no_longer(self) -> None:
        self._outbox.append(self._riders())
        self._changed.set()

    def _riders(self) -> bytes:
        """Return the waiting acknowledgements as a message; behind another one's bytes they become a part of that."""
        riders, self._acknowledged = self._acknowledged, []
        self._cancel_ride()
        return to_bytes(wire.ToGame(acknowledged=riders))

    def _cancel_ride(self) -> None:
        if self._ride is not None:
            self._ride.cancel()
            self._ride = None

    def wake(self) -> None:
        """Send newer `weights`, which replace those not yet sent."""
        self._changed.set()

    def finish(self) -> None:
        """Close once everything is sent."""
        self._finishing = True
        self._changed.set()

    def refuse(self, reason: str) -> None:
        """Send why it may not play, and close once everything is sent."""
        self.send(wire.ToGame(stop=wire.Stop(reason=reason, refused=True)))
        self.reason = reason
        self.finish()

    def close(self, reason: str = "") -> None:
        """Close at once, and set `over`; without a reason the one that is known stays."""
        self.reason = reason or self.reason
        self.closed = True
        self._cancel_ride()
        self.over.set()
        self._changed.set()

    async def waiting(self) -> list[bytes]:
        """Wait for messages to send and return them."""
        await self._changed.wait()
        self._changed.clear()
        messages, self._outbox = self._outbox, []
        self._unread = len(self._acknowledged)
        if self._finishing and self._acknowledged:
            # A game may leave as soon as a stop has come.
            messages.insert(0, self._riders())
        if self.weights:
            messages.append(self.weights + self._riders())
            self.weights = b""
        self.closed = self.closed or self._finishing
        return messages


class Notes(deque[str]):
    """What happened to games since it was last taken, the latest at most; other threads may take it."""

    def __init__(self) -> None:
        super().__init__(maxlen=_MOST_NOTES)
        self._latest = ""
        #: Games that could not play; between that and playing again they may report another state, as a reset.
        self._out_of_play: set[str] = set()

    def add(self, note: str) -> None:
        """Add a note, in one line, unless the latest one was the same."""
        note = plain(note, _LONGEST_NOTE)
        if note != self._latest:
            self._latest = note
            self.append(note)

    def add_change(self, game: str, before: wire.Health, now: wire.Health) -> None:
        """Note when a game cannot play, is paused or drained, and when it plays again."""
        if (now.state, now.note) == (before.state, before.note):
            return
        if now.state in State.OUT_OF_PLAY:
            self._out_of_play.add(game)
            self.add(f"{game} is {now.state}{now.note and f': {now.note}'}")
        elif now.state == State.PLAYING and game in self._out_of_play:
            self._out_of_play.remove(game)
            self.add(f"{game} plays again")

    def take(self) -> list[str]:
        """Return what waits to be logged, and forget it."""
        return [self.popleft() for _ in range(len(self))]


class Connections:
    """The live connections by name; a game that connects again takes the place of its own earlier stream."""

    def __init__(self) -> None:
        self._live: dict[str, Connection] = {}
        self._latest: dict[str, Connection] = {}
        #: Why a PC was refused the latest time, and when; of a PC that plays again it is gone.
        self.refusals: dict[str, tuple[str, float]] = {}

    @property
    def latest(self) -> Iterable[Connection]:
        """The latest connection of every game that was connected in the stage; other threads may ask too."""
        return [*self._latest.values()]

    @property
    def live(self) -> Iterable[Connection]:
        """The connections that are not closed; other threads may ask too."""
        return [connection for connection in [*self._live.values()] if not connection.closed]

    def refuse(self, who: str, reason: str, now_s: float) -> bool:
        """Keep why a PC was refused, and return whether that is another reason than before."""
        earlier, _ = self.refusals.get(who, ("", 0.0))
        if who not in self.refusals and len(self.refusals) >= _MOST_REFUSALS:
            self.refusals.clear()
        self.refusals[who] = reason, now_s
        return reason != earlier

    def accept(self, *who: str) -> None:
        """Forget why a PC was refused, by its names."""
        for name in who:
            self.refusals.pop(name, None)

    def forget_closed(self) -> None:
        """Keep the connections that are live, and no refusal: another stage begins."""
        self._latest = {connection.name: connection for connection in self.live}
        self.refusals.clear()

    def begin(self, connection: Connection) -> Connection | None:
        """Add a connection, and return the one of the same process that it replaces.

        Raises:
            FleetError: if another process plays as the game.
        """
        earlier = self._live.get(connection.name)
        if earlier is not None and not earlier.closed and earlier.hello.boot != connection.hello.boot:
            raise FleetError(
                f"{connection.name}: expected one live game of this name, found another process that plays as it; end "
                "one of them, or issue a token of its own for the other PC."
            )
        self._live[connection.name] = self._latest[connection.name] = connection
        return earlier

    def end(self, connection: Connection) -> bool:
        """Remove a connection, and return whether no other has taken its place."""
        if self._live.get(connection.name) is not connection:
            return False
        del self._live[connection.name]
        return True
