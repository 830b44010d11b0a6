"""What the gateway beside the journal does for the other gateways of a fleet, which relay what their games send.

Their calls come by Ray, which has authenticated them: they are trusted, the games behind them are not.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from soulsgraph_clusters.fleet.gateway.admission import Intake
from soulsgraph_clusters.fleet.gateway.folder import read_drained
from soulsgraph_clusters.fleet.gateway.gateway import Gateway
from soulsgraph_clusters.fleet.gateway.sessions import GameSession, Player, check_alone
from soulsgraph_clusters.fleet.gateway.status import GameStatus
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.security import Identity, Tokens, read_identity
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.agents.projects import LoadedProject

#: Why a stream ends whose game dialled another gateway.
MOVED = "it plays through another gateway"


@dataclass(frozen=True)
class Rights:
    """Which PCs may play: hashes of their tokens, None while they cannot be read, and those that are drained."""

    hashes: Mapping[str, str] | None
    drained: frozenset[str]


@dataclass(frozen=True)
class StageStart:
    """What a gateway begins a stage with: its task as JSON, the fleet's settings, and what it proves itself by.

    `projects` are those whose skills take part, by value: its process has not imported their code.
    """

    stage: str
    attempt: str
    task: str
    settings: FleetSettings
    identity: Identity | None = field(repr=False)
    rights: Rights = field(repr=False)
    projects: tuple[LoadedProject, ...] = ()


@dataclass(frozen=True)
class Admission:
    """The task of a game that may play, as bytes, or why it may not."""

    task: bytes = b""
    refusal: str = ""


@dataclass(frozen=True)
class Acknowledgements:
    """Acknowledgements, as bytes, each with the place of its game among those of the call.

    `refused` says by the same places whose chunks are taken no longer, `failure` why nothing was written.
    """

    answers: Sequence[tuple[int, bytes]] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    failure: str = ""


@dataclass(frozen=True)
class Report:
    """What a gateway reports several times a second.

    `attempt` is that of the stage which it serves, empty between two stages. `live` says who plays its games,
    `known` is the version of its weights, -1 without any; `games` is how they do, None where that was reported a moment
    ago.
    """

    attempt: str
    live: Mapping[str, Player]
    notes: Sequence[str] = ()
    known: int = -1
    games: Sequence[GameStatus] | None = None


@dataclass(frozen=True)
class Orders:
    """The answer to a report: rights, newer weights as games get them, and the games whose streams are to end.

    `attempt` is that of the stage to serve, empty where it ends.
    """

    attempt: str
    rights: Rights = field(repr=False)
    weights: bytes
    ended: frozenset[str]


class Desk:
    """Answer the other gateways, which are numbered from 2 on; one thread calls it, beside the gateway's own."""

    def __init__(
        self, fleet: Fleet, intake: Intake, gateway: Gateway, projects: tuple[LoadedProject, ...] = ()
    ) -> None:
        self._fleet, self._intake, self._gateway, self._projects = fleet, intake, gateway, projects
        self._tokens = Tokens(fleet.folder / fleet.settings.tokens)
        self._described: dict[int, Sequence[GameStatus]] = {}
        #: The attempt of a stage that each gateway serves.
        self._serving: dict[int, str] = {}
        self._attempt = intake.journal.attempt

    def start(self) -> StageStart:
        """Return what a gateway begins with."""
        fleet, task, journal = self._fleet, self._intake.task.to_json(), self._intake.journal
        identity = read_identity(fleet.settings, fleet.folder)
        return StageStart(
            journal.stage, journal.attempt, task, fleet.settings, identity, self._rights(), self._projects
        )

    def admit(self, number: int, hello: bytes) -> Admission:
        """Let a game of a gateway play, or say why not."""
        session = GameSession(wire.Hello.FromString(hello), time.monotonic())
        here = [*self._gateway.sessions.live]
        try:
            for other in here:
                check_alone(other.hello, session.hello)
            self._intake.admit(session, number)
            task = self._intake.task_for(session)
        except SoulsGraphError as refusal:
            return Admission(refusal=str(refusal))
        if any(other.name == session.name for other in here):
            self._gateway.end({session.name}, MOVED)
        return Admission(task.SerializeToString())

    def write(self, hellos: Sequence[bytes], chunks: Sequence[tuple[int, bytes]]) -> Acknowledgements:
        """Write chunks to the journal with one fsync, each with the place of its game among the hellos."""
        now_s = time.monotonic()
        sessions = [GameSession(wire.Hello.FromString(hello), now_s) for hello in hellos]
        places = {session: place for place, session in enumerate(sessions)}
        refused: dict[int, str] = {}
        group: list[tuple[GameSession, wire.Chunk]] = []
        for place, data in chunks:
            chunk = wire.Chunk.FromString(data)
            try:
                self._intake.require_room(sessions[place], chunk)
                group.append((sessions[place], chunk))
            except SoulsGraphError as refusal:
                refused[place] = str(refusal)
        try:
            answers = self._intake.write(group, now_s) if group else []
        except SoulsGraphError as failure:
            return Acknowledgements(failure=str(failure))
        self._gateway.chunks.appended.set()
        return Acknowledgements([(places[session], answer.SerializeToString()) for session, answer in answers], refused)

    def exchange(self, number: int, report: Report) -> Orders:
        """Take a gateway's report, and return what it is to do."""
        here = {session.name for session in self._gateway.sessions.live}
        ended = self._intake.elsewhere.report(number, report.live, here)
        self._serving[number] = report.attempt
        for note in report.notes:
            self._gateway.notes.add(f"gateway {number}: {note}")
        if report.games is not None:
            self._described = {**self._described, number: report.games}
        return Orders(self._attempt, self._rights(), self._gateway.offered(report.known), frozenset(ended))

    def end_stage(self) -> None:
        """Let every gateway end the stage."""
        self._attempt = ""

    @property
    def stage_over(self) -> bool:
        """Whether those that were heard recently serve the stage no longer."""
        return not any(self._serving.get(number) for number in self._intake.elsewhere.heard)

    @property
    def playing(self) -> int:
        """The number of games that are connected to the other gateways."""
        return self._intake.elsewhere.playing

    def games(self) -> list[GameStatus]:
        """Return how the games of the other gateways do, of those that were heard recently."""
        heard = self._intake.elsewhere.heard
        return [game for number, games in sorted(self._described.items()) if number in heard for game in games]

    def _rights(self) -> Rights:
        hashes, drained = None, frozenset[str]()
        # The gateway beside the journal notes what is wrong with a file.
        try:
            hashes = self._tokens.hashes
            drained = read_drained(self._fleet.folder)
        except SoulsGraphError:
            pass
        return Rights(hashes, drained)
