"""A fleet by its commands in one folder, what can be done to it, and the account of what became of its play.

What stands between a PC and the head can be disturbed here: a `Proxy` delays bytes, a `Relay` repeats
and swaps chunks, a `Cable` leads to a network namespace of its own and can be pulled, a `Disk` is full.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fakes.clusters import Program
from fakes.runs import of_stage
from fakes.waiting import until
from soulsgraph_clusters.fleet.gateway.admission import Admission
from soulsgraph_clusters.fleet.gateway.gateway import Gateway
from soulsgraph_clusters.fleet.gateway.status import FleetStatus, read_status
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Health
from soulsgraph_clusters.fleet.protocol.settings import load_fleet
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.fleet.store import FILE, Journal, StoredChunk
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_envs.core.errors import SoulsGraphError

SOULSGRAPH = str(Path(sys.executable).with_name("soulsgraph"))
#: Fast enough for a test, slow enough to be broken off in the middle.
GAMES = '[[games]]\ndriver = "simulator"\nspeed = 20.0\nlanes = 8\n' * 2
#: The skill that is trained.
SKILL = "camera"
_MOST_RECORDS = 10**6
#: The stage of the gateway that takes what is left when training is over: it learns nothing.
_AFTER = "after"


class FleetInFolder:
    """A head and its PCs in one folder; every program that is started ends with the fleet.

    `games` maps each PC to the text of its games' file. PCs dial `address`, by default where the head listens.
    """

    def __init__(self, folder: Path, games: dict[str, str] | None = None, settings: str = "") -> None:
        self.folder, self.run = folder, folder / "run"
        self._programs: list[Program] = []
        self.games = games or {"attic": GAMES}
        self.port = free_port()
        self.file = folder / "fleet.toml"
        tables = f"pcs = {[*self.games]}\n"
        self.file.write_text(f'listen = "127.0.0.1:{self.port}"\n{settings}{tables}', encoding="utf-8")
        for pc, text in self.games.items():
            self.write_games(pc, text)
            code, logs = self.call("fleet", "token", pc, "--fleet", self.file)
            assert code == 0, logs

    def write_games(self, pc: str, text: str) -> None:
        """Write a PC's file of games; its next host plays them."""
        (self.folder / f"{pc}.toml").write_text(text, encoding="utf-8")

    def start(self, name: str, *words: object, before: Sequence[str] = ()) -> Program:
        """Start a command of ours, behind the words of another program such as `ip netns exec NAME`."""
        command, environment = [*before, SOULSGRAPH, *map(str, words)], os.environ | {"OMP_NUM_THREADS": "1"}
        program = Program(f"{name}-{len(self._programs)}", command, environment, self.folder)
        self._programs.append(program)
        return program

    def call(self, *words: object) -> tuple[int, str]:
        """Run a command of ours to its end; return its exit code and what it printed."""
        program = self.start("call", *words)
        return program.wait(), program.logs()

    def spool(self, pc: str = "attic") -> Path:
        """Return where a PC keeps what the head does not have."""
        return self.folder / f"spool-{pc}"

    def host(
        self,
        pc: str = "attic",
        head: str = "",
        ca: Path | None = None,
        before: Sequence[str] = (),
        projects: Sequence[Path] = (),
    ) -> Program:
        """Start a PC's host; it dials `head`, by default where the head listens, and knows the projects in folders."""
        files = ("--token-file", self.folder / f"{pc}.token", "--games", self.folder / f"{pc}.toml")
        words = ("fleet", "host", "--head", head or f"127.0.0.1:{self.port}", *files, "--spool", self.spool(pc))
        named = [word for folder in projects for word in ("--project", folder)]
        return self.start(f"host-{pc}", *words, *(("--ca", ca) if ca else ()), *named, before=before)

    def train(
        self,
        scale: float,
        preset: str = "best",
        supervised: bool = False,
        more: Sequence[object] = (),
        command: Sequence[str] = ("train", SKILL),
    ) -> Program:
        """Start training, or go on with it; a supervisor starts it again whatever ends it. `more` are further words."""
        words = ("--run", self.run, "--fleet", self.file, "--scale", scale, "--preset", preset, *more)
        before = ("supervise", "--") if supervised else ()
        return self.start("train", *before, *command, *words)

    @property
    def journal(self) -> Path:
        """The folder of the stage's journal."""
        return of_stage(self.run / "journal", SKILL)

    @property
    def chunks(self) -> int:
        """The journal's chunks as of the head's last report."""
        status = self.status()
        return 0 if status is None else status.records

    def records(self) -> list[StoredChunk]:
        """Return what the journal holds, once nobody trains."""
        return read_records(self.journal, SKILL)

    def status(self) -> FleetStatus | None:
        """Return what the head has last written of its games; None if it has written nothing yet."""
        return read_status(self.run / "journal")

    def journaled(self, *pcs: str) -> int:
        """Return the journal's decisions of some PCs, or of all, as of the head's last report."""
        status = self.status()
        counts = {} if status is None else status.decisions
        return sum(count for key, count in counts.items() if not pcs or key.partition("/")[0] in pcs)

    def logs(self, name: str) -> str:
        """Return what all programs of a name have printed."""
        return "".join(program.logs() for program in self._programs if program.name.rpartition("-")[0] == name)

    def replays(self) -> str:
        """Learn again from the journal; return what the command says."""
        code, text = self.call("check", self.run, "--journal", SKILL)
        return text if code == 0 else f"code {code}: {text}"

    def close(self) -> None:
        """Kill every program."""
        for program in reversed(self._programs):
            program.kill()


def read_records(folder: Path, stage: str) -> list[StoredChunk]:
    """Return what a journal holds; nothing if there is none yet."""
    if not (folder / FILE).exists():
        return []
    journal = Journal(folder, stage, reading=True)
    try:
        return journal.read(journal.first, _MOST_RECORDS)
    finally:
        journal.close()


def require_once(records: Iterable[StoredChunk]) -> None:
    """Check that no chunk is in the journal twice."""
    keys = [record[:4] for record in records]
    assert len(keys) == len(set(keys)), f"{len(keys) - len(set(keys))} of {len(keys)} chunks are there twice"


def require_replay(fleet: FleetInFolder) -> None:
    """Check that the journal alone leads to the skill that was saved, bit by bit."""
    text = fleet.replays()
    assert "the same bits as version 1 of" in text, text


@dataclass
class Account:
    """What became of every finished decision, when training is over and the spools are empty.

    `journal` and `rest` map each process of a game, `pc/game boot`, to the decisions of its chunks by sequence: those
    that came while the stage was trained, and later. `counters` are the games' own, of the processes still alive.
    """

    journal: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    rest: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    counters: dict[str, Health] = field(default_factory=dict)

    def arrived(self, boot: str) -> int:
        """Return the decisions of a process that have a verdict."""
        return sum(self.journal.get(boot, {}).values()) + sum(self.rest.get(boot, {}).values())

    def missing(self, boot: str) -> list[int]:
        """Return the sequences below a process's last that nobody has."""
        there = {*self.journal.get(boot, {}), *self.rest.get(boot, {})}
        return sorted({*range(1, max(there, default=0) + 1)} - there)

    def require(self, dropped: Iterable[str] = ()) -> None:
        """Check that the sums of live processes are those of their own counters, and no chunk is missing or twice.

        Processes in `dropped` met a full disk: of them chunks may be missing, as many as they count as lost.
        """
        for boot in {*self.journal, *self.rest}:
            twice = {*self.journal.get(boot, {})} & {*self.rest.get(boot, {})}
            assert not twice, f"{boot}: chunks {sorted(twice)[:5]} were taken again when training was over"
            assert boot in dropped or not self.missing(boot), f"{boot}: lacks the chunks {self.missing(boot)[:5]}"
        assert self.counters, "no game's counters"
        for boot, health in self.counters.items():
            lost = dict(health.lost_decisions)
            assert self.arrived(boot) + sum(lost.values()) == health.finished_decisions, (
                f"{boot}: expected {health.finished_decisions} finished decisions, found {self.arrived(boot)} with a "
                f"verdict and lost {lost}"
            )


def settle(fleet: FleetInFolder, games: Iterable[str]) -> Account:
    """Take what PCs still hold when training is over, by a gateway that refuses it by name; return the account.

    `games`, as `pc/game`, are those that must connect and have nothing left to send.
    """
    task, folder, account = StageTask("iudex-phase1", {SKILL: SKILL}, {}, 10.0), fleet.folder / _AFTER, Account()
    journal, settings = Journal(folder, _AFTER), load_fleet(fleet.file)
    gateway = Gateway(settings, Admission(journal, task, 0, settings.settings))

    def settled() -> dict[str, Health]:
        live = {one.name: one for one in gateway.connections.live if one.health.state == "waiting for weights"}
        ready = {*games} <= {*live} and not any(one.health.waiting_chunks for one in live.values())
        return {f"{name} {one.hello.boot}": one.health for name, one in live.items()} if ready else {}

    try:
        account.counters = until(settled, "games that have nothing left to send")
    finally:
        gateway.stop("all is there")
        journal.close()
    for found, records in ((account.journal, fleet.records()), (account.rest, read_records(folder, _AFTER))):
        require_once(records)
        for record in records:
            boot = f"{record.pc}/{record.game} {record.boot}"
            found[boot][record.number] = record.decisions
    return account


def require_still(fleet: FleetInFolder, pc: str, seconds: float) -> None:
    """Check that no chunk of a PC arrives in this time; those under way have a second to arrive first."""
    time.sleep(min(2.0, seconds / 2))
    before = fleet.journaled(pc)
    time.sleep(max(seconds - 2.0, seconds / 2))
    if came := fleet.journaled(pc) - before:
        raise SoulsGraphError(f"{pc}: expected that nothing comes for {seconds:g} s, found {came} decisions.")
