"""The games that are connected to a gateway: one live session for each, and what waits to be sent to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from soulsgraph_clusters.fleet import fleet_pb2 as wire
from soulsgraph_clusters.fleet.head.serving import to_bytes
from soulsgraph_clusters.fleet.settings import FleetError

#: Acknowledgements wait so long for weights to ride on, which go out about once a second.
RIDE_WITHIN_S = 1.5


@dataclass(eq=False)
class Session:
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
    #: Whether the game was asked to play no longer.
    drained: bool = False
    #: Boot and sequence of the latest chunk that came.
    latest: tuple[str, int] = ("", 0)
    #: Why no more of its chunks are taken; set by whoever wrote a group of them.
    refused: str = ""
    #: What it proved its name by.
    token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        self._outbox: list[bytes] = []
        self._acknowledged: list[wire.Acknowledgement] = []
        self._ride: asyncio.TimerHandle | None = None
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
        self._changed.set()

    def acknowledge(self, answer: wire.Acknowledgement) -> None:
        """Send an acknowledgement with the next weights; alone where none come soon or the game reads no other."""
        if not self.hello.reads_acknowledged:
            self.send(wire.ToGame(acknowledgement=answer))
            return
        if self._ride is None:
            self._ride = asyncio.get_running_loop().call_later(RIDE_WITHIN_S, self._ride_no_longer)
        self._acknowledged.append(answer)

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

    def close(self) -> None:
        """Close at once, and set `over`."""
        self.closed = True
        self._cancel_ride()
        self.over.set()
        self._changed.set()

    async def waiting(self) -> list[bytes]:
        """Wait for messages to send and return them."""
        await self._changed.wait()
        self._changed.clear()
        messages, self._outbox = self._outbox, []
        if self._finishing and self._acknowledged:
            # A game may leave as soon as a stop has come.
            messages.insert(0, self._riders())
        if self.weights:
            messages.append(self.weights + self._riders())
            self.weights = b""
        self.closed = self.closed or self._finishing
        return messages


_REMEDY = "end one of them, or issue a token of its own for the other PC"


def check_alone(live: wire.Hello, new: wire.Hello) -> None:
    """Refuse a game while another process plays as it, or another machine as its PC, as a live game says.

    Raises:
        FleetError: naming the game or the PC.
    """
    if live.pc != new.pc:
        return
    if live.machine and new.machine and live.machine != new.machine:
        found = "another, whose games are live"
        raise FleetError(f"{new.pc}: expected one machine of this name, found {found}; {_REMEDY}.")
    if live.game == new.game and live.boot != new.boot:
        found = "another process that plays as it"
        raise FleetError(f"{new.pc}/{new.game}: expected one live game of this name, found {found}; {_REMEDY}.")


class Sessions:
    """The live sessions by name; a game that connects again takes the place of its own earlier stream."""

    def __init__(self) -> None:
        self._live: dict[str, Session] = {}
        self._latest: dict[str, Session] = {}
        #: Why a PC was refused the latest time, and when; of a PC that plays again it is gone.
        self.refusals: dict[str, tuple[str, float]] = {}

    @property
    def latest(self) -> Iterable[Session]:
        """The latest session of every game that was ever connected, closed or not; other threads may ask too."""
        return [*self._latest.values()]

    @property
    def live(self) -> Iterable[Session]:
        """The sessions that are not closed; other threads may ask too."""
        return [session for session in [*self._live.values()] if not session.closed]

    def begin(self, session: Session) -> Session | None:
        """Add a session, and return the one of the same process that it replaces; raises as `check_alone`."""
        for other in self.live:
            check_alone(other.hello, session.hello)
        earlier = self._live.get(session.name)
        self._live[session.name] = self._latest[session.name] = session
        return earlier

    def end(self, session: Session) -> bool:
        """Remove a session, and return whether no other has taken its place."""
        if self._live.get(session.name) is not session:
            return False
        del self._live[session.name]
        return True
