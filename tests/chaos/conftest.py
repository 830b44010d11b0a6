"""The arena of the chaos suite: a head and its PCs, all between them breakable, and the table of what was done."""

import json
import os
import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from fakes.disturbing import Cable, Disk, Proxy, Relay
from fakes.fleet_in_folder import SKILL, FleetInFolder, require_replay, settle
from fakes.waiting import until
from soulsgraph.results.origin import describe_origin
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_clusters.fleet.actor.stream import Head
from soulsgraph_clusters.fleet.protocol.certificates import channel_credentials
from soulsgraph_clusters.fleet.store import FILE

#: Slow, so that a stage lasts through its faults, and fast, so that it ends soon after them.
SLOW = '[[games]]\ndriver = "simulator"\nspeed = 3.0\nlanes = 1\n'
FAST = '[[games]]\ndriver = "simulator"\nspeed = 20.0\nlanes = 8\n'
#: Decisions a second of one slow game at most: a decision takes a tick.
MOST_PER_S = 30.0
GAMES = ("attic/1", "attic/2", "cellar/1")
#: A third PC, which joins when all faults are over.
LAST = ("loft/1", "loft/2")
#: A game is reported twice a second or so; with an older report nobody knows how much more it played.
HEARD_WITHIN_S = 2.0
#: On the head's disk there is room for a whole run, on a PC's for minutes of play.
HEAD_MB, PC_MB = 300, 8


class Arena:
    """PC attic plays through a cable and a proxy, PC cellar through a relay, both for a head under a supervisor."""

    def __init__(self, folder, scale, seed=0):
        self.random, self.scale = random.Random(seed), scale
        self.cable, settings = Cable(), 'certificate = "head.pem"\nkey = "head.key"\n'
        self.fleet = fleet = FleetInFolder(folder, {"attic": SLOW * 2, "cellar": SLOW, "loft": FAST * 2}, settings)
        self.disks = {"head": Disk(fleet.run, HEAD_MB), "attic": Disk(fleet.spool(), PC_MB)}
        self.ca = fleet.folder / "head.pem"
        code, logs = fleet.call("fleet", "certificates", self.cable.address, "127.0.0.1", "--fleet", fleet.file)
        assert code == 0, logs
        self.proxy = Proxy(fleet.port, self.cable.address)
        head = Head(f"127.0.0.1:{fleet.port}", folder / "cellar.token", channel_credentials(self.ca))
        self.relay = Relay(head, seed)
        #: Processes of games that met a full disk, and those that were killed, with how long ago they were heard.
        self.dropped, self.kills = set(), {}
        self.hosts = {pc: self.start_host(pc) for pc in ("attic", "cellar")}
        self.training = self.start_training()
        self.grows(*("attic", "cellar"))

    def start_host(self, pc):
        if pc == "cellar":
            return self.fleet.host(pc, self.relay.address)
        return self.fleet.host(pc, self.proxy.address, self.ca, self.cable.before)

    def start_training(self):
        return self.fleet.train(self.scale, supervised=True)

    def grows(self, *pcs):
        """Wait until each of the PCs has something new in the journal; return after how many seconds."""
        began, before = time.monotonic(), {pc: self.fleet.journaled(pc) for pc in pcs or ("attic", "cellar")}
        for pc, count in before.items():
            until(lambda pc=pc, count=count: self.grown(pc, count), f"more of {pc}")
        return time.monotonic() - began

    def grown(self, pc, before):
        if not self.training.running:
            raise RuntimeError(f"training ended: {self.training.logs()[-1000:]}")
        return self.fleet.journaled(pc) > before

    def boots(self):
        """Return the processes that play now: the last of each game."""
        return {game.name: game.boot for game in self.fleet.status().games if game.boot}

    def note_kill(self, pc):
        """Note how long ago a PC's games were last heard, right before they are killed."""
        status, now = self.fleet.status(), time.time()
        for game in status.games:
            if game.boot and game.name.startswith(f"{pc}/"):
                self.kills[f"{game.name} {game.boot}"] = now - status.written + game.silent_s

    def finished(self):
        """Return what each process of a game had finished when it was last heard, without what it said it had lost."""
        with closing(sqlite3.connect(self.fleet.journal / FILE)) as database:
            rows = database.execute("SELECT name, boot, finished, lost FROM counts").fetchall()
        return {f"{name} {boot}": finished - sum(json.loads(lost).values()) for name, boot, finished, lost in rows}

    def new_boots(self, pc, before):
        """Wait until every game of a PC plays as another process than before."""
        mine = [name for name in GAMES if name.startswith(f"{pc}/")]

        def others():
            now = self.boots()
            return all(now.get(name) != before.get(name) for name in mine)

        until(others, f"new processes of {pc}")

    def lost(self, pc, reason):
        """Return what a PC's games have lost for a reason, as of the head's last report."""
        games = self.fleet.status().games
        return sum(game.lost.get(reason, 0) for game in games if game.name.startswith(f"{pc}/"))

    def head_pid(self, *words):
        """Return the process of the head whose command line holds one of the words; the newest if there are more."""
        found = []
        for pid in self.training.pids:
            try:
                process = psutil.Process(pid)
                if any(word in " ".join(process.cmdline()) for word in words):
                    found.append((process.create_time(), pid))
            except psutil.NoSuchProcess:
                continue
        return max(found)[1] if found else 0

    def driver_pid(self):
        """Return the process that trains: the supervisor's only child."""
        children = psutil.Process(self.training.pid).children()
        return children[0].pid if children else 0

    def finish(self):
        """Let a fast PC join to end the stage, then check everything that must hold whatever happened."""
        fleet = self.fleet
        fleet.host("loft", ca=self.ca)
        assert self.training.wait() == 0, self.training.logs()
        account = settle(fleet, (*GAMES, *LAST))
        account.require(self.dropped)
        arrived = {
            (boot.split()[1], sequence)
            for found in (account.journal, account.rest)
            for boot, chunks in found.items()
            for sequence in chunks
        }
        assert self.relay.acknowledged, "the relay saw no acknowledgement"
        assert self.relay.acknowledged <= arrived, "an acknowledged chunk is nowhere"
        verdicts = Counter()
        records = fleet.records()
        for record in records:
            verdicts[record.verdict] += record.decisions
        assert inverted(records) > 0 or not self.relay.swapped, "no chunk lies before an earlier one of its process"
        learned = RunFolder.open(fleet.run).library.load(SKILL, 1).card.training.steps
        surplus = verdicts.pop("journaled") - learned
        assert surplus >= 0
        assert f"{learned:,} learned" in fleet.logs("train").rpartition("of the decisions received")[2]
        lost = self.lost_by_kills(account)
        require_replay(fleet)
        return {
            "learned": learned,
            "surplus": surplus,
            "refused": dict(verdicts),
            "refused_afterwards": sum(sum(chunks.values()) for chunks in account.rest.values()),
            "lost": {boot: dict(health.lost_decisions) for boot, health in account.counters.items()},
            "chunks": sum(len(chunks) for chunks in account.journal.values()),
            "processes_of_games": len(account.journal),
            "acknowledged_chunks_seen_by_the_relay": len(self.relay.acknowledged),
            "killed_games": lost,
            "replay": "the same bits",
        }

    def lost_by_kills(self, account):
        """Return a row for each killed game with the seconds of play that it lost at most: finished, and nobody's."""
        lost, finished = [], self.finished()
        for boot, unheard_s in self.kills.items():
            if boot not in self.dropped:
                # It may have gone on since it was last heard, at its full rate; what it then sent has arrived as well.
                most = finished.get(boot, 0) + MOST_PER_S * min(unheard_s, HEARD_WITHIN_S)
                seconds = round(max(most - account.arrived(boot), 0.0) / MOST_PER_S, 2)
                row = {"game": boot, "finished": finished.get(boot, 0), "unheard_s": round(unheard_s, 2)}
                lost.append(row | {"arrived": account.arrived(boot), "seconds": seconds})
        return lost

    def close(self):
        self.fleet.close()
        self.relay.close()
        self.proxy.close()
        for disk in self.disks.values():
            disk.close()
        self.cable.close()


@pytest.fixture
def make_arena(tmp_path):
    if not (Cable.possible() and Disk.possible(tmp_path)):
        pytest.skip("this user may not make network namespaces and mount disks here")
    arenas = []

    def make(scale, seed=0):
        arenas.append(Arena(tmp_path, scale, seed))
        return arenas[-1]

    yield make
    for arena in arenas:
        arena.close()


@pytest.fixture(scope="session")
def results():
    """Collect what the tests measured; at the end it is written to the folder CHAOS_OUT."""
    found, origin = {}, describe_origin() | {"load_before": os.getloadavg()}
    yield found
    if not (out := os.environ.get("CHAOS_OUT")):
        return
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    origin |= {"load_after": os.getloadavg()}
    (folder / "chaos.json").write_text(json.dumps(origin | found, indent=1) + "\n")
    (folder / "chaos.md").write_text("\n".join(_page(origin, found)) + "\n")


def _page(origin, found):
    yield f"# What `make chaos` measured at commit {origin['commit']}\n"
    yield "| fault | seconds | back after, s | seen |\n| --- | --- | --- | --- |"
    for name, row in found.get("faults", {}).items():
        yield f"| {name} | {row['seconds']:.0f} | {row['back_s']:.1f} | {row['seen']} |"
    if "run" in found:
        run = found["run"]
        yield f"\n## One run with {len(run['faults'])} faults, seed {run['seed']}, {run['seconds']:.0f} s\n"
        yield "| number | at, s | fault | back after, s | seen |\n| --- | --- | --- | --- | --- |"
        for number, row in enumerate(run["faults"], 1):
            yield f"| {number} | {row['at_s']:.0f} | {row['fault']} | {row['back_s']:.1f} | {row['seen']} |"


def inverted(records):
    """Count chunks that lie in the journal before an earlier one of the same process."""
    last, count = {}, 0
    for one in records:
        count += one.number < last.get(one.boot, 0)
        last[one.boot] = one.number
    return count
