"""The games that play through other gateways: a game has one live session, whichever gateway it dialled."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from soulsgraph_clusters.fleet import fleet_pb2 as wire
from soulsgraph_clusters.fleet.head.sessions import check_alone
from soulsgraph_clusters.fleet.settings import SILENT_AFTER_S

#: A game that was let in counts as live for this long, whatever its gateway reports: its stream may not stand yet.
_CLAIM_S = 2.0


@dataclass
class _Relay:
    """What is known of another gateway: when it was heard, and the boot of each live game by name."""

    heard_s: float = 0.0
    live: dict[str, str] = field(default_factory=dict)
    #: When games were let in.
    claimed_s: dict[str, float] = field(default_factory=dict)
    #: What each game that was let in said of itself.
    hellos: dict[str, wire.Hello] = field(default_factory=dict)

    def hello_of(self, name: str, boot: str) -> wire.Hello:
        """Return what a live game said of itself; of one that was let in before this process began, its name."""
        pc, _, game = name.partition("/")
        known = self.hellos.get(name)
        return known if known is not None and known.boot == boot else wire.Hello(pc=pc, game=game, boot=boot)


class Elsewhere:
    """The live games of other gateways by name; one that was silent for `SILENT_AFTER_S` has none.

    Gateways are numbered; 0 is the one beside the journal, whose own sessions are not kept here. Any thread may ask.
    """

    def __init__(self) -> None:
        self._relays: dict[int, _Relay] = {}
        self._access = threading.Lock()

    def claim(self, hello: wire.Hello, gateway: int) -> None:
        """Let a game play through a gateway; its session at another one is over then.

        Raises:
            FleetError: as `check_alone`, of the games of other gateways.
        """
        name = f"{hello.pc}/{hello.game}"
        with self._access:
            others = [one for number, one in self._heard().items() if number != gateway]
            for one in others:
                for other, boot in one.live.items():
                    check_alone(one.hello_of(other, boot), hello)
            for one in others:
                one.live.pop(name, None)
            if gateway:
                own = self._relays.setdefault(gateway, _Relay(heard_s=time.monotonic()))
                own.live[name], own.claimed_s[name], own.hellos[name] = hello.boot, time.monotonic(), hello

    def report(self, gateway: int, live: Mapping[str, str], here: Mapping[str, str]) -> set[str]:
        """Note the live games of a gateway, and return those that it is to end: they play through another one.

        `live` and `here`, of the gateway beside the journal, map names to boots.
        """
        with self._access:
            own = self._relays.setdefault(gateway, _Relay())
            others = [one.live for number, one in self._heard().items() if number != gateway]
            ended = {name for name in live if name in here or any(name in other for other in others)}
            own.heard_s = now = time.monotonic()
            own.claimed_s = {name: at_s for name, at_s in own.claimed_s.items() if now - at_s < _CLAIM_S}
            kept = {name: boot for name, boot in own.live.items() if name in own.claimed_s}
            own.live = kept | {name: boot for name, boot in live.items() if name not in ended}
            own.hellos = {name: hello for name, hello in own.hellos.items() if name in own.live}
            return ended

    @property
    def heard(self) -> set[int]:
        """The gateways that were heard recently."""
        with self._access:
            return {*self._heard()}

    @property
    def playing(self) -> int:
        """The number of live games."""
        with self._access:
            return sum(len(one.live) for one in self._heard().values())

    def _heard(self) -> dict[int, _Relay]:
        now = time.monotonic()
        return {number: one for number, one in self._relays.items() if now - one.heard_s < SILENT_AFTER_S}
