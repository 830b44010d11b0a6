"""Who is there before a stage begins: the head listens, every game says who it is, and nothing is played."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc

from soulsgraph_clusters.fleet.gateway.admission import MOST_GAMES
from soulsgraph_clusters.fleet.gateway.gateway import (
    HELLO_WITHIN_S,
    MOST_LANES,
    SERVER_OPTIONS,
    UNKNOWN_TOKEN,
    bind,
    check_hello,
    handler_of,
    host_of,
)
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import parse_message, plain
from soulsgraph_clusters.fleet.protocol.security import Tokens, credentials_of, read_identity, sent_token
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetError, read_drained
from soulsgraph_clusters.fleet.protocol.task import project_problem, projects_of_hello

_WAIT = "the head looks who is there, and trains nothing yet"
_MOST_STREAMS = 64
#: Projects of one game that are shown.
_MOST_PROJECTS = 20


@dataclass(frozen=True)
class GameReport:
    """What one game said of itself; `problem` is why it could not play, empty if it could.

    `projects` are those of own skills that it has, and `lacks` is why it could not play those of the head.
    """

    pc: str
    game: str
    version: str
    driver: str
    lanes: int
    problem: str
    projects: tuple[str, ...] = ()
    lacks: str = ""


class Preflight:
    """Listen where the fleet's gateway will, until it is closed.

    `projects` are the digests of those with which every game's are compared, by name.

    Raises:
        FleetError: if it cannot listen there, or tokens or certificate cannot be used.
    """

    def __init__(self, fleet: Fleet, projects: Mapping[str, str] | None = None) -> None:
        self._projects = projects or {}
        self._settings, self._folder = fleet.settings, fleet.folder
        self._tokens = Tokens(fleet.folder / fleet.settings.tokens)
        self._answers: dict[tuple[str, str], GameReport] = {}
        self._changed = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(_MOST_STREAMS), options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((handler_of(self._answer),))
        #: The port that it listens on.
        credentials = credentials_of(read_identity(fleet.settings, fleet.folder))
        self.port = bind(self._server, fleet.settings.listen, credentials)
        self._server.start()

    @property
    def missing(self) -> Mapping[str, str]:
        """The PCs of the fleet's file that have not answered, each with the reason as far as the head knows it."""
        known, drained = self._tokens.names, read_drained(self._folder)
        seen = {one.pc for one in self.answers}
        reasons = {pc: "has no token" for pc in self._settings.pcs if pc not in known}
        silent = {pc: "has not answered" for pc in self._settings.pcs if pc not in seen and pc not in drained}
        return silent | reasons

    @property
    def answers(self) -> tuple[GameReport, ...]:
        """The newest answer of every game, in the order of their names; of a PC's games the first `MOST_GAMES`."""
        with self._changed:
            return tuple(self._answers[key] for key in sorted(self._answers))

    def wait(self, seconds: float) -> None:
        """Wait until something is heard, at most so long."""
        with self._changed:
            self._changed.wait(seconds)

    def close(self) -> None:
        """Stop listening."""
        self._server.stop(0.5).wait()

    def _answer(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        name = self._tokens.name_of(sent_token(context.invocation_metadata())) or ""
        if not name:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, UNKNOWN_TOKEN)
        silent = threading.Timer(HELLO_WITHIN_S, context.cancel)
        silent.start()
        try:
            first = next(messages, None)
        finally:
            silent.cancel()
        # Cancelled or closed, a stream that said nothing ends here; whether it still counts as active is a race.
        if first is None:
            return
        problem, hello = "", wire.Hello()
        try:
            hello = parse_message(wire.FromGame, first, "PC").hello
            check_hello(hello, name, self._settings, host_of(context.peer()))
        except FleetError as refusal:
            problem = str(refusal)
        game, version, driver = (plain(text) for text in (hello.game, hello.version, hello.driver))
        with self._changed:
            there = projects_of_hello(hello)
            lacks = project_problem(self._projects, there)
            named = tuple(there)[:_MOST_PROJECTS]
            answer = GameReport(name, game, version, driver, min(hello.lanes, MOST_LANES), problem, named, lacks)
            if (name, game) in self._answers or sum(pc == name for pc, _ in self._answers) < MOST_GAMES:
                self._answers[name, game] = answer
            self._changed.notify_all()
        yield wire.ToGame(stop=wire.Stop(reason=problem or _WAIT, refused=bool(problem))).SerializeToString()
