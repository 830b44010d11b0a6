"""A fleet in one process: a gateway on the loopback, and games that play in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from fakes.stored import everything
from soulsgraph_clusters.fleet.actor.host import PCGame
from soulsgraph_clusters.fleet.actor.player import Player
from soulsgraph_clusters.fleet.actor.spool import pause_file
from soulsgraph_clusters.fleet.actor.stream import Head
from soulsgraph_clusters.fleet.gateway.admission import Admission
from soulsgraph_clusters.fleet.gateway.gateway import Gateway
from soulsgraph_clusters.fleet.gateway.status import StatusWriter
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.fleet.protocol.tokens import Tokens, write_token_file
from soulsgraph_clusters.fleet.store import Journal, Spool, StoredChunk
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, Weights, layer_names_at
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters

#: A stage of the camera alone that no test comes to the end of.
CAMERA = StageTask(
    "iudex-phase1", {"camera": "camera"}, {"camera": DQNHyperparameters(budget=10**9, capacity=1000)}, 10.0
)


def random_weights(task: StageTask, seed: int = 0) -> dict[str, Weights]:
    """Return weights of small networks for every module of a task, drawn by a seed."""
    generator, weights = np.random.default_rng(seed), {}
    for module in task.modules:
        skill = task.skills_of([module])[0]
        sizes = (skill.observation.size, 64, 64, len(skill.actions))
        own: Weights = {MEAN: np.zeros(sizes[0]), DEVIATION: np.ones(sizes[0])}
        for index, (inputs, outputs) in enumerate(pairwise(sizes)):
            weight, bias = layer_names_at(index)
            own[weight] = generator.normal(0.0, 0.1, (outputs, inputs)).astype(np.float32)
            own[bias] = np.zeros(outputs, np.float32)
        weights[module] = own
    return weights


@contextmanager
def playing(
    head: Head,
    spool: Path,
    settings: GameSettings,
    game: str = "1",
    report: Callable[[str], None] = lambda line: None,
    make_spool: type[Spool] = Spool,
) -> Iterator[None]:
    """Play one game for a head in this process; `spool` is the folder of the PC's spools."""
    kind = type("Kept", (PCGame,), {"spool_kind": make_spool})
    kept = kind(head, spool / f"game-{game}", lambda: Player(settings, game, pause_file(spool)), report)
    try:
        yield
    finally:
        kept.stop()
        kept.join()


@contextmanager
def played_for(fleet: Fleet, lanes: Sequence[int]) -> Iterator[list[str]]:
    """Play games of PC attic in threads of this process, a simulator for each number of lanes, by a fleet without TLS.

    Yield what the games report; their head may begin to listen later.
    """
    file, lines = fleet.folder / "attic.token", list[str]()
    write_token_file(file, Tokens(fleet.folder / fleet.settings.tokens).issue("attic"))
    with ExitStack() as games:
        for number, count in enumerate(lanes, 1):
            settings = GameSettings(driver="simulator", speed=50.0, lanes=count)
            head, spool = Head(fleet.settings.listen, file), fleet.folder / "spool"
            games.enter_context(playing(head, spool, settings, str(number), lines.append))
        yield lines


class GatewayHere:
    """A gateway on the loopback, in this process, and games that play for it, stage after stage; nothing learns.

    `host` is an address of the loopback. Where the settings name a certificate it is in the folder.
    """

    def __init__(
        self,
        folder: Path,
        task: StageTask,
        settings: FleetSettings | None = None,
        stage: str = "stage",
        journal: Callable[[Path, str], Journal] = Journal,
        host: str = "127.0.0.1",
    ) -> None:
        self.folder, self._open_journal = folder, journal
        self.fleet = Fleet(replace(settings or FleetSettings(), listen=f"{host}:0"), folder)
        self.tokens = Tokens(folder / self.fleet.settings.tokens)
        self._take_up(task, stage)
        self.gateway = Gateway(self.fleet, self.admission)
        #: What PCs dial.
        self.address = f"{host}:{self.gateway.port}"
        self.status = StatusWriter(self.admission, self.gateway.connections)
        self._games = ExitStack()

    def _take_up(self, task: StageTask, stage: str) -> None:
        self.task, self.version = task, 0
        self.journal = self._open_journal(self.folder / "journal" / stage, stage)
        self.admission = Admission(self.journal, task, 0, self.fleet.settings)

    def end_stage(self) -> None:
        """End the stage; games wait for the next one."""
        self.gateway.end_stage("the stage is over")
        self.admission.close()

    def begin_stage(self, stage: str, task: StageTask | None = None) -> None:
        """Begin another stage, by default of the same task."""
        self._take_up(task or self.task, stage)
        self.gateway.begin_stage(self.admission)
        self.status = StatusWriter(self.admission, self.gateway.connections)

    def token_file(self, pc: str = "attic") -> Path:
        """Return the file of a PC's token, which is issued at first."""
        file = self.folder / f"{pc}.token"
        if not file.exists():
            write_token_file(file, self.tokens.issue(pc))
        return file

    def head(self, pc: str = "attic") -> Head:
        """Return what a PC dials, with its token."""
        return Head(self.address, self.token_file(pc))

    def publish(self, version: int = 0, weights: Mapping[str, Weights] | None = None) -> None:
        """Offer weights to every game: those given, or others of every module at first and later of those that learn.

        The version is by default the next one, which is the seed of the weights, too.
        """
        first, self.version = not self.version, version or self.version + 1
        drawn = random_weights(self.task, self.version)
        offered = weights or (drawn if first else {name: drawn[name] for name in self.task.learns})
        self.admission.freeze(offered)
        self.gateway.publish(self.version, offered, dict.fromkeys(self.task.learns, 0))

    def play(self, settings: GameSettings, pc: str = "attic") -> list[str]:
        """Let a PC's game play in a thread of this process, and return the list of what it will report."""
        if not self.version:
            self.publish()
        lines = list[str]()
        self._games.enter_context(playing(self.head(pc), self.folder / pc, settings, report=lines.append))
        return lines

    def records(self) -> list[StoredChunk]:
        """Return what the journal holds."""
        return everything(self.journal)

    def close(self) -> None:
        """End the games and the gateway."""
        self._games.close()
        self.gateway.stop("the stage is over")
        self.journal.close()

    def __enter__(self) -> GatewayHere:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
