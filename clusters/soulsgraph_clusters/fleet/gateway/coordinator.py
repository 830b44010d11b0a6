"""Several gateways of one fleet: the one beside the journal coordinates, and the others, relays, ask it.

Relays serve games on their own machines and have no journal: chunks go to the one writer, those of a moment in one
call, and are acknowledged once that has them on disk. A relay is no part of a round of learning: one that freezes or
dies costs the others nothing. Calls come by Ray, which has authenticated them: relays are trusted, the games behind
them are not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from soulsgraph_clusters.fleet.gateway.admission import Admission, Answers, ChunkGroup, ChunkSink
from soulsgraph_clusters.fleet.gateway.connections import Connection, Player, check_alone
from soulsgraph_clusters.fleet.gateway.gateway import STOP_WITHIN_S, Gateway
from soulsgraph_clusters.fleet.gateway.status import Describer, GameStatus
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import decode_weights, to_bytes
from soulsgraph_clusters.fleet.protocol.security import Identity, Tokens, read_identity
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetError, FleetSettings, read_drained, set_drained
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.sessions.session import RestartingActor
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import temporary_folder
from soulsgraph_policies.agents.projects import LoadedProject, take_over

#: Between two reports to the gateway beside the journal, and between two that say how games do.
EXCHANGE_EVERY_S, DESCRIBE_EVERY_S = 0.25, 1.0
#: An answer that takes longer is not waited for; what was asked is asked again.
ANSWER_WITHIN_S = 10.0
#: A gateway that ended is started again after so long; its last chunks and streams have so long to end.
_TRY_EVERY_S, _END_WITHIN_S = 5.0, ANSWER_WITHIN_S + STOP_WITHIN_S
#: Their processes are waited for this long; a stage begins without those that have not started by then.
_PLACED_WITHIN_S = 30.0
_TOKENS = "tokens.json"
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
    live: Sequence[Player]
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


class Coordinator:
    """Answer the other gateways, which are numbered from 2 on; one thread calls it, beside the gateway's own."""

    def __init__(
        self, fleet: Fleet, admission: Admission, gateway: Gateway, projects: tuple[LoadedProject, ...] = ()
    ) -> None:
        self._fleet, self._admission, self._gateway, self._projects = fleet, admission, gateway, projects
        self._tokens = Tokens(fleet.folder / fleet.settings.tokens)
        self._described: dict[int, Sequence[GameStatus]] = {}
        #: The attempt of a stage that each gateway serves.
        self._serving: dict[int, str] = {}
        self._attempt = admission.journal.attempt

    def start(self) -> StageStart:
        """Return what a gateway begins with."""
        fleet, task, journal = self._fleet, self._admission.task.to_json(), self._admission.journal
        identity = read_identity(fleet.settings, fleet.folder)
        return StageStart(
            journal.stage, journal.attempt, task, fleet.settings, identity, self._rights(), self._projects
        )

    def admit(self, number: int, hello: bytes) -> bytes:
        """Let a game of a gateway play, or say why not: a message to the game, with its task or a stop."""
        connection = Connection(wire.Hello.FromString(hello), time.monotonic())
        here = [*self._gateway.connections.live]
        try:
            for other in here:
                check_alone(other.hello, connection.hello)
            self._admission.admit(connection, number)
            task = self._admission.task_for(connection)
        except SoulsGraphError as refusal:
            return to_bytes(wire.ToGame(stop=wire.Stop(reason=str(refusal), refused=True)))
        if any(other.name == connection.name for other in here):
            self._gateway.end({connection.name}, MOVED)
        return to_bytes(wire.ToGame(task=task))

    def write(self, hellos: Sequence[bytes], chunks: Sequence[tuple[int, bytes]]) -> Acknowledgements:
        """Write chunks to the journal with one fsync, each with the place of its game among the hellos."""
        now_s = time.monotonic()
        connections = [Connection(wire.Hello.FromString(hello), now_s) for hello in hellos]
        places = {connection: place for place, connection in enumerate(connections)}
        refused: dict[int, str] = {}
        group: list[tuple[Connection, wire.Chunk]] = []
        for place, data in chunks:
            chunk = wire.Chunk.FromString(data)
            try:
                self._admission.require_room(connections[place], chunk)
                group.append((connections[place], chunk))
            except SoulsGraphError as refusal:
                refused[place] = str(refusal)
        try:
            answers = self._admission.write(group, now_s) if group else []
        except SoulsGraphError as failure:
            return Acknowledgements(failure=str(failure))
        self._gateway.chunks.appended.set()
        return Acknowledgements(
            [(places[connection], answer.SerializeToString()) for connection, answer in answers], refused
        )

    def exchange(self, number: int, report: Report) -> Orders:
        """Take a gateway's report, and return what it is to do."""
        here = {connection.name for connection in self._gateway.connections.live}
        ended = self._admission.elsewhere.report(number, report.live, here)
        self._serving[number] = report.attempt
        for note in report.notes:
            self._gateway.notes.add(f"gateway {number}: {note}")
        if report.games is not None:
            self._described = {**self._described, number: report.games}
        return Orders(self._attempt, self._rights(), self._gateway.newest_weights(report.known), frozenset(ended))

    def end_stage(self) -> None:
        """Let every gateway end the stage."""
        self._attempt = ""

    @property
    def stage_over(self) -> bool:
        """Whether those that were heard recently serve the stage no longer."""
        return not any(self._serving.get(number) for number in self._admission.elsewhere.heard)

    @property
    def playing(self) -> int:
        """The number of games that are connected to the other gateways."""
        return self._admission.elsewhere.playing

    def games(self) -> list[GameStatus]:
        """Return how the games of the other gateways do, of those that were heard recently."""
        heard = self._admission.elsewhere.heard
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


class RemoteCoordinator:
    """Ask the `Coordinator` by calls of the process that writes the journal, from any thread.

    Words and answers are those of its methods, by name.
    """

    def __init__(self, process: ray.actor.ActorHandle) -> None:
        self._process = process

    def has_stage(self) -> bool:
        """Return whether it serves a stage now; not one that does not answer, as it may have to start first."""
        try:
            return bool(_answer(self._process.has_stage.remote()))
        except FleetError:
            return False

    def ask(self, question: str, *words: Any) -> Any:
        """Return the answer to a question; raises FleetError where none comes."""
        return _answer(self._process.answer.remote(question, *words))


def _answer(call: ray.ObjectRef) -> Any:
    try:
        return ray.get(call, timeout=ANSWER_WITHIN_S)
    except RayError as error:
        # Of an error of ours Ray's own has the trace beside it.
        reason = str(getattr(error, "cause", error)).partition("\n")[0] or type(error).__name__
        raise FleetError(
            f"gateway: expected an answer of the gateway beside the journal, found: {reason.strip(' .')}; it is "
            "asked again."
        ) from error


class RelayAdmission(ChunkSink):
    """Let the gateway beside the journal decide and write."""

    def __init__(self, number: int, coordinator: RemoteCoordinator, start: StageStart) -> None:
        super().__init__(start.stage, StageTask.from_json(start.task))
        self._number, self._coordinator, self._attempt = number, coordinator, start.attempt
        self._tasks: dict[str, wire.Task] = {}

    def admit(self, connection: Connection) -> None:
        """Ask whether a game may play; raises FleetError if not, or if nobody answers."""
        answer = self._coordinator.ask("admit", self._number, connection.hello.SerializeToString())
        permit = wire.ToGame.FromString(answer)
        if permit.HasField("stop"):
            raise FleetError(permit.stop.reason)
        if permit.task.attempt != self._attempt:
            raise FleetError("gateway: expected the stage that it serves, found that another began; try again.")
        self._tasks[connection.name] = permit.task

    def task_for(self, connection: Connection) -> wire.Task:
        """Return what a game that was admitted is to play."""
        return self._tasks[connection.name]

    def require_room(self, connection: Connection, chunk: wire.Chunk) -> None:
        """Do nothing: the coordinator knows what the journal has."""

    def write(self, group: ChunkGroup, now_s: float) -> Answers:
        """Let chunks be written, and return the acknowledgements to send; raises FleetError where they are not."""
        connections = list(dict.fromkeys(connection for connection, _ in group))
        places = {connection: place for place, connection in enumerate(connections)}
        written: Acknowledgements = self._coordinator.ask(
            "write",
            [connection.hello.SerializeToString() for connection in connections],
            [(places[connection], chunk.SerializeToString()) for connection, chunk in group],
        )
        if written.failure:
            raise FleetError(written.failure)
        for place, reason in written.refused.items():
            connections[place].refused = reason
        return [(connections[place], wire.Acknowledgement.FromString(answer)) for place, answer in written.answers]


class RelayGateway:
    """Serve games at an address for a coordinator; `folder` gets the hashes of tokens, and is the gateway's own.

    The head's key stays in memory.

    Raises:
        FleetError: if the coordinator does not answer, or it cannot listen there.
    """

    def __init__(self, number: int, address: str, coordinator: RemoteCoordinator, folder: Path) -> None:
        self._number, self._coordinator, self._folder = number, coordinator, folder
        start: StageStart = coordinator.ask("start")
        # The head's own file may be anywhere on its machine, which may be this one.
        settings = replace(start.settings, listen=address, relays=(), tokens=_TOKENS)
        self._tokens = Tokens(folder / _TOKENS)
        self._follow(start.rights)
        self.gateway = Gateway(Fleet(settings, folder), self._admission(start), start.identity)
        self._notes = [f"listens at {address}"]
        self._begin(start.attempt)

    def _admission(self, start: StageStart) -> RelayAdmission:
        take_over(start.projects)
        self._publisher = RelayAdmission(self._number, self._coordinator, start)
        return self._publisher

    def _begin(self, attempt: str) -> None:
        """Report, from here on, on the stage of this attempt."""
        self._describer = Describer(self._publisher)
        self._attempt, self._known, self._described_s = attempt, -1, 0.0

    def exchange(self) -> None:
        """Report what happened, and do what the coordinator says; one that does not answer is asked the next time.

        Raises:
            BaseException: what ended a part of the gateway.
        """
        self.gateway.check()
        self._notes += self.gateway.notes.take()
        live = [*self.gateway.connections.live]
        due = time.monotonic() - self._described_s >= DESCRIBE_EVERY_S
        games = [row for _, row in self._describer.rows(live)] if due else None
        report = Report(self._attempt, [Player.of(one.hello) for one in live], self._notes, self._known, games)
        try:
            orders: Orders = self._coordinator.ask("exchange", self._number, report)
            self._notes, self._described_s = [], time.monotonic() if due else self._described_s
            if orders.ended:
                self.gateway.end(orders.ended, MOVED)
            self._follow(orders.rights)
            if orders.attempt != self._attempt:
                self._change_stage(orders.attempt)
                return
        except FleetError:
            return
        if orders.weights:
            weights = wire.ToGame.FromString(orders.weights).weights
            self._known = int(weights.version)
            self.gateway.publish(self._known, decode_weights(weights.arrays), dict(weights.decisions))

    def _change_stage(self, attempt: str) -> None:
        """End the stage that is served, if there is one, and begin the next; raises as `RemoteCoordinator.ask`."""
        if self._attempt:
            self.gateway.end_stage("the stage is over")
            self._attempt = ""
        if attempt:
            start: StageStart = self._coordinator.ask("start")
            self.gateway.begin_stage(self._admission(start))
            self._begin(start.attempt)

    def _follow(self, rights: Rights) -> None:
        """Keep tokens and drained PCs as the head has them, in files that the gateway looks at."""
        if rights.hashes is None:
            return
        if not self._tokens.path.exists() or self._tokens.hashes != rights.hashes:
            self._tokens.replace(rights.hashes)
        before = read_drained(self._folder)
        for pc in before ^ rights.drained:
            set_drained(self._folder, pc, pc in rights.drained)

    def close(self) -> None:
        """Let the coordinator have what has come, and end the stage for the games."""
        self.gateway.stop("the stage is over")


class Relay:
    """A Ray actor that is a further gateway, until `stop`."""

    def __init__(self, number: int, address: str) -> None:
        self._number, self._address = number, address
        self._stopped = threading.Event()

    def is_placed(self) -> bool:
        """Return that the actor runs."""
        return True

    def play(self, writer: ray.actor.ActorHandle) -> None:
        """Serve until `stop` for the actor that writes the journal; raises as `RelayGateway` and its `exchange`."""
        coordinator = RemoteCoordinator(writer)
        while not coordinator.has_stage():
            if self._stopped.wait(EXCHANGE_EVERY_S):
                return
        with temporary_folder("soulsgraph-gateway-") as temporary:
            # A folder of tokens is locked while they are written; the temporary one is locked by its process already.
            (folder := temporary / "fleet").mkdir(0o700)
            with closing(RelayGateway(self._number, self._address, coordinator, folder)) as relay:
                while not self._stopped.is_set():
                    relay.exchange()
                    self._stopped.wait(EXCHANGE_EVERY_S)

    def stop(self) -> None:
        """End `play`."""
        self._stopped.set()


class Relays:
    """The further gateways of a fleet, kept running; `places` maps each one's address to what of Ray's it takes.

    The processes have some seconds to start, so that all gateways begin to listen within a moment: games that are set
    to prefer one find it then.
    """

    def __init__(self, places: Mapping[str, Mapping[str, float]]) -> None:
        self._keepers: list[RestartingActor] = []
        self._actors: list[ray.actor.ActorHandle] = []
        for number, (address, resources) in enumerate(places.items(), 2):
            # One that lost its machine waits for it.
            kept = ray.remote(max_restarts=-1, max_concurrency=2, num_cpus=0, resources=dict(resources))(Relay)
            self._actors.append(kept.remote(number, address))
        if placed := [actor.is_placed.remote() for actor in self._actors]:
            ray.wait(placed, num_returns=len(placed), timeout=_PLACED_WITHIN_S)

    def serve(self, writer: ray.actor.ActorHandle) -> None:
        """Let them serve, for the process that writes the journal."""
        for number, actor in enumerate(self._actors, 2):
            self._keepers.append(RestartingActor(f"gateway {number}", actor, _TRY_EVERY_S, _END_WITHIN_S, writer))

    def end(self) -> None:
        """End them, each once it has passed on what it received."""
        for keeper in self._keepers:
            keeper.end()
        for actor in self._actors[len(self._keepers) :]:
            ray.kill(actor)
