"""A further gateway of a fleet: it serves games on its own machine, and the one beside the journal decides for it.

It has no journal: chunks go to the one writer, those of a moment in one call, and are acknowledged once that has them
on disk. It is no part of a round of learning: one that freezes or dies costs the others nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import ray
from ray.exceptions import RayError

from soulsgraph_clusters.fleet.gateway.admission import Offers
from soulsgraph_clusters.fleet.gateway.coordinator import (
    MOVED,
    Acknowledgements,
    Admission,
    Orders,
    Report,
    Rights,
    StageStart,
)
from soulsgraph_clusters.fleet.gateway.folder import read_drained, set_drained
from soulsgraph_clusters.fleet.gateway.gateway import STOP_WITHIN_S, Gateway
from soulsgraph_clusters.fleet.gateway.sessions import GameSession, Player
from soulsgraph_clusters.fleet.gateway.status import Describer
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.arrays import decode_weights
from soulsgraph_clusters.fleet.protocol.security import Tokens
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetError
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.sessions.restarting_actor import Keeper
from soulsgraph_envs.core.files import temporary_folder
from soulsgraph_policies.agents.projects import take_over

#: Between two reports to the gateway beside the journal, and between two that say how games do.
EXCHANGE_EVERY_S, DESCRIBE_EVERY_S = 0.25, 1.0
#: An answer that takes longer is not waited for; what was asked is asked again.
ANSWER_WITHIN_S = 10.0
#: A gateway that ended is started again after so long; its last chunks and streams have so long to end.
_TRY_EVERY_S, _END_WITHIN_S = 5.0, ANSWER_WITHIN_S + STOP_WITHIN_S
#: Their processes are waited for this long; a stage begins without those that have not started by then.
_PLACED_WITHIN_S = 30.0
_TOKENS = "tokens.json"


class Writer(Protocol):
    """The gateway beside the journal, as `desk.Desk` answers; every call raises FleetError where it does not answer."""

    def start(self) -> StageStart:
        """Return what a gateway begins with."""

    def admit(self, number: int, hello: bytes) -> Admission:
        """Let a game of a gateway play, or say why not."""

    def write(self, hellos: Sequence[bytes], chunks: Sequence[tuple[int, bytes]]) -> Acknowledgements:
        """Write chunks to the journal."""

    def exchange(self, number: int, report: Report) -> Orders:
        """Take a gateway's report, and return what it is to do."""


class RayWriter:
    """Ask the gateway beside the journal by calls of its process, from any thread."""

    def __init__(self, actor: ray.actor.ActorHandle) -> None:
        self._actor = actor

    def has_stage(self) -> bool:
        """Return whether it serves a stage now; not one that does not answer, as it may have to start first."""
        try:
            return bool(self._get(self._actor.has_stage.remote()))
        except FleetError:
            return False

    def _ask(self, question: str, *words: Any) -> Any:
        return self._get(self._actor.answer.remote(question, *words))

    def _get(self, answer: ray.ObjectRef) -> Any:
        try:
            return ray.get(answer, timeout=ANSWER_WITHIN_S)
        except RayError as error:
            # Of an error of ours Ray's own has the trace beside it.
            reason = str(getattr(error, "cause", error)).partition("\n")[0] or type(error).__name__
            raise FleetError(
                f"gateway: expected an answer of the gateway beside the journal, found: {reason.strip(' .')}; it is "
                "asked again."
            ) from error

    def start(self) -> StageStart:
        """Return what a gateway begins with."""
        start: StageStart = self._ask("start")
        return start

    def admit(self, number: int, hello: bytes) -> Admission:
        """Let a game of a gateway play, or say why not."""
        admission: Admission = self._ask("admit", number, hello)
        return admission

    def write(self, hellos: Sequence[bytes], chunks: Sequence[tuple[int, bytes]]) -> Acknowledgements:
        """Write chunks to the journal."""
        written: Acknowledgements = self._ask("write", hellos, chunks)
        return written

    def exchange(self, number: int, report: Report) -> Orders:
        """Take a gateway's report, and return what it is to do."""
        orders: Orders = self._ask("exchange", number, report)
        return orders


class RelayIntake(Offers):
    """Let the gateway beside the journal decide and write."""

    def __init__(self, number: int, writer: Writer, start: StageStart) -> None:
        super().__init__(StageTask.from_json(start.task))
        self._number, self._writer, self.stage, self._attempt = number, writer, start.stage, start.attempt
        self._tasks: dict[str, wire.Task] = {}

    def admit(self, session: GameSession) -> None:
        """Ask whether a game may play; raises FleetError if not, or if nobody answers."""
        admission = self._writer.admit(self._number, session.hello.SerializeToString())
        if admission.refusal:
            raise FleetError(admission.refusal)
        task = wire.Task.FromString(admission.task)
        if task.attempt != self._attempt:
            raise FleetError("gateway: expected the stage that it serves, found that another began; try again.")
        self._tasks[session.name] = task

    def task_for(self, session: GameSession) -> wire.Task:
        """Return what a game that was admitted is to play."""
        return self._tasks[session.name]

    def require_room(self, session: GameSession, chunk: wire.Chunk) -> None:
        """Do nothing: the writer knows what it has."""

    def write(
        self, group: Sequence[tuple[GameSession, wire.Chunk]], now_s: float
    ) -> list[tuple[GameSession, wire.Acknowledgement]]:
        """Let chunks be written, and return the acknowledgements to send; raises FleetError where they are not."""
        sessions = list(dict.fromkeys(session for session, _ in group))
        places = {session: place for place, session in enumerate(sessions)}
        written = self._writer.write(
            [session.hello.SerializeToString() for session in sessions],
            [(places[session], chunk.SerializeToString()) for session, chunk in group],
        )
        if written.failure:
            raise FleetError(written.failure)
        for place, reason in written.refused.items():
            sessions[place].refused = reason
        return [(sessions[place], wire.Acknowledgement.FromString(answer)) for place, answer in written.answers]


class RelayGateway:
    """Serve games at an address for a writer; `folder` gets the hashes of tokens, and is the gateway's own.

    The head's key stays in memory.

    Raises:
        FleetError: if the writer does not answer, or it cannot listen there.
    """

    def __init__(self, number: int, address: str, writer: Writer, folder: Path) -> None:
        self._number, self._writer, self._folder = number, writer, folder
        start = writer.start()
        # The head's own file may be anywhere on its machine, which may be this one.
        settings = replace(start.settings, listen=address, relays=(), tokens=_TOKENS)
        self._tokens = Tokens(folder / _TOKENS)
        self._follow(start.rights)
        self.gateway = Gateway(Fleet(settings, folder), self._intake(start), start.identity)
        self._notes = [f"listens at {address}"]
        self._begin(start.attempt)

    def _intake(self, start: StageStart) -> RelayIntake:
        take_over(start.projects)
        self._offers = RelayIntake(self._number, self._writer, start)
        return self._offers

    def _begin(self, attempt: str) -> None:
        """Report, from here on, on the stage of this attempt."""
        self._describer = Describer(self._offers, self.gateway.sessions)
        self._attempt, self._known, self._described_s = attempt, -1, 0.0

    def exchange(self) -> None:
        """Report what happened, and do what the writer says; one that does not answer is asked the next time.

        Raises:
            BaseException: what ended a part of the gateway.
        """
        self.gateway.check()
        self._notes += self.gateway.notes.take()
        live = {session.name: Player.of(session.hello) for session in self.gateway.sessions.live}
        due = time.monotonic() - self._described_s >= DESCRIBE_EVERY_S
        report = Report(self._attempt, live, self._notes, self._known, self._describer.games() if due else None)
        try:
            orders = self._writer.exchange(self._number, report)
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
        """End the stage that is served, if there is one, and begin the writer's; raises as `Writer.start`."""
        if self._attempt:
            self.gateway.end_stage("the stage is over")
            self._attempt = ""
        if attempt:
            start = self._writer.start()
            self.gateway.begin_stage(self._intake(start))
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
        """Let the writer have what has come, and end the stage for the games."""
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
        asked = RayWriter(writer)
        while not asked.has_stage():
            if self._stopped.wait(EXCHANGE_EVERY_S):
                return
        with temporary_folder("soulsgraph-gateway-") as temporary:
            # A folder of tokens is locked while they are written; the temporary one is locked by its process already.
            (folder := temporary / "fleet").mkdir(0o700)
            with closing(RelayGateway(self._number, self._address, asked, folder)) as relay:
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
        self._keepers: list[Keeper] = []
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
            self._keepers.append(Keeper(f"gateway {number}", actor, _TRY_EVERY_S, _END_WITHIN_S, writer))

    def end(self) -> None:
        """End them, each once it has passed on what it received."""
        for keeper in self._keepers:
            keeper.end()
        for actor in self._actors[len(self._keepers) :]:
            ray.kill(actor)
