"""Every way to break a fleet, alone and a hundred in a row: what was acknowledged is there once."""

import os
import random
import signal
import time
from contextlib import contextmanager

import psutil
import pytest

from fakes.clusters import over
from fakes.fleet_in_folder import require_still
from fakes.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.slow]
#: Of the stage's whole budget: some minutes of slow games.
SCALE = 3.0
#: How long a fault lasts, and one that is to pass unnoticed.
FREEZE_S, SHORT_FREEZE_S = float(os.environ.get("CHAOS_FREEZE_S", "90")), 8.0
COUNT, SEED = int(os.environ.get("CHAOS_FAULTS", "100")), int(os.environ.get("CHAOS_SEED", "20"))
LEAST_OF_A_KIND = 5
DELAY_S = 0.4
#: Decisions that are taken from a PC whose disk is full: what it was sent while the disk had room are fewer.
WITHOUT_ROOM = 1_000
#: What a killed game may lose: what it played since its last chunk. On a busy machine it is a moment more.
MOST_LOST_S, BUSY_S = 2.0, 1.0


def kill_host(arena):
    pc = arena.random.choice(("attic", "cellar"))
    boots, victims = arena.boots(), arena.hosts[pc].pids
    arena.note_kill(pc)
    arena.hosts[pc].kill()
    assert not any(psutil.pid_exists(pid) for pid in victims)
    arena.hosts[pc] = arena.start_host(pc)
    arena.new_boots(pc, boots)
    return f"{len(victims)} processes of {pc} gone, new ones play"


def kill_game(arena):
    host = arena.hosts["cellar"]
    boots, ends = arena.boots(), host.logs().count("its process ended with code -9")
    (game,) = psutil.Process(host.pid).children()
    arena.note_kill("cellar")
    game.kill()
    until(lambda: host.logs().count("its process ended with code -9") > ends, "a line of the host")
    arena.new_boots("cellar", boots)
    return "the host's line that its game ended with code -9, a new one plays"


def freeze_host(arena, seconds=FREEZE_S):
    _require_both(arena)
    pids, left = arena.hosts["attic"].pids, arena.fleet.logs("train").count("left: silent for 5 s")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        require_still(arena.fleet, "attic", seconds)
        until(lambda: arena.fleet.logs("train").count("left: silent for 5 s") >= left + 2, "silent games", 30.0)
        cellar = arena.fleet.journaled("cellar")
        until(lambda: arena.fleet.journaled("cellar") > cellar, "the other PC's play", 60.0)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    return f"nothing of attic for {seconds:g} s, reported as silent; cellar played on"


def cut_5_s(arena):
    return _cut(arena, 5.0)


def cut_30_s(arena):
    return _cut(arena, 30.0)


def _require_both(arena):
    """Wait until both games of attic are connected: both are to leave."""

    def connected():
        status = arena.fleet.status()
        return {one.name for one in status.games if one.connected} if status else set()

    until(lambda: connected() >= {"attic/1", "attic/2"}, "both games of attic")


def _cut(arena, seconds):
    _require_both(arena)
    left = arena.fleet.logs("train").count("left")
    arena.cable.pull()
    try:
        require_still(arena.fleet, "attic", seconds)
        if seconds > 10.0:
            until(lambda: arena.fleet.logs("train").count("left") >= left + 2, "games that left", 30.0)
    finally:
        arena.cable.plug()
    return f"nothing of attic for {seconds:g} s"


def repeat_chunks(arena):
    with _relaying(arena, "repeats"):
        before, broken = arena.relay.repeated, arena.relay.broken
        until(lambda: arena.relay.repeated >= before + 4, "chunks sent again")
        arena.relay.break_streams()
        until(lambda: arena.relay.repeated >= before + 8, "chunks sent again over a new stream")
    return f"{arena.relay.repeated - before} chunks sent again, {arena.relay.broken - broken} streams broken off"


def swap_chunks(arena):
    with _relaying(arena, "swaps"):
        before = arena.relay.swapped
        until(lambda: arena.relay.swapped >= before + 2, "chunks swapped")
        arena.relay.break_streams()
        until(lambda: arena.relay.swapped >= before + 3, "chunks swapped over a new stream")
    return f"{arena.relay.swapped - before} chunks swapped"


@contextmanager
def _relaying(arena, what):
    setattr(arena.relay, what, True)
    try:
        yield
    finally:
        setattr(arena.relay, what, False)


def delay_bytes(arena):
    before, arena.proxy.delay_s = arena.proxy.delayed, DELAY_S
    try:
        until(lambda: arena.proxy.delayed >= before + 20, "pieces held back")
        arena.grows("attic")
    finally:
        arena.proxy.delay_s = 0.0
    return f"{arena.proxy.delayed - before} pieces {DELAY_S:g} s late, play went on"


def fill_pc_disk(arena):
    before, played = arena.lost("attic", "disk full"), arena.fleet.journaled("attic")
    _note_dropped(arena)
    with _full(arena, "attic") as fill:
        # A spool that was larger once has room of its own: nothing is lost then.
        until(
            lambda: (
                fill()
                or arena.lost("attic", "disk full") > before
                or arena.fleet.journaled("attic") > played + WITHOUT_ROOM
            ),
            "decisions lost to a full disk, or kept in the spool's own room",
        )
    _note_dropped(arena)
    return f"{arena.lost('attic', 'disk full') - before} decisions lost as disk full"


def _note_dropped(arena):
    arena.dropped |= {f"{name} {boot}" for name, boot in arena.boots().items() if name.startswith("attic/")}


def fill_head_disk(arena):
    before = _refused(arena)
    with _full(arena, "head") as fill:
        until(lambda: fill() or _refused(arena) > before, "a line about the head's disk")
    ended = not arena.training.running
    if ended:
        arena.training = arena.start_training()
    return f"a line about the head's disk{', training ended and was started again' if ended else ', training went on'}"


def _refused(arena):
    return arena.fleet.logs("train").count("No space left")


@contextmanager
def _full(arena, where):
    """Fill a disk; yields what fills it again, where something was deleted meanwhile."""
    arena.disks[where].fill()
    try:
        yield arena.disks[where].fill
    finally:
        arena.disks[where].free()


def kill_gateway(arena):
    back = arena.fleet.logs("train").count("the gateway is back")
    _kill(until(lambda: arena.head_pid("GatewayProcess"), "a gateway"))
    until(lambda: arena.fleet.logs("train").count("the gateway is back") > back, "a new gateway")
    return "its process gone, the log says lost and back"


def kill_node(arena):
    node = until(lambda: arena.head_pid("/raylet "), "a Ray node")
    _kill(node)
    until(lambda: arena.head_pid("/raylet ") not in (0, node), "a new Ray node")
    return "the raylet gone, the driver ended and was started again"


def kill_driver(arena):
    ends = arena.fleet.logs("train").count("was ended by SIGKILL")
    _kill(until(arena.driver_pid, "a driver"))
    until(lambda: arena.fleet.logs("train").count("was ended by SIGKILL") > ends, "the supervisor's line")
    return "the supervisor's line that it was killed, and a new one"


def kill_head(arena):
    victims = arena.training.pids
    arena.training.kill()
    until(lambda: not any(psutil.pid_exists(pid) for pid in victims), "the head's end")
    arena.training = arena.start_training()
    return f"{len(victims)} processes of the head gone, started again"


def _kill(pid):
    victim = psutil.Process(pid)
    victim.kill()
    until(lambda: over(victim), "its end")


def freeze_host_shortly(arena):
    return freeze_host(arena, SHORT_FREEZE_S)


FAULTS = [
    kill_host,
    kill_game,
    freeze_host,
    cut_5_s,
    cut_30_s,
    repeat_chunks,
    swap_chunks,
    delay_bytes,
    fill_pc_disk,
    fill_head_disk,
    kill_gateway,
    kill_node,
    kill_driver,
    kill_head,
]


def _break(arena, fault):
    """Let a fault happen and wait until both PCs are back; return the row of the table."""
    assert arena.training.running, arena.training.logs()[-2000:]
    began = time.monotonic()
    seen = fault(arena)
    back_s = arena.grows()
    name, taken_s = fault.__name__.replace("_shortly", ""), time.monotonic() - began
    # The head has a recent report of every game again, by which the next fault counts what it lost.
    arena.grows()
    return {"fault": name, "seen": seen, "back_s": round(back_s, 2), "seconds": round(taken_s, 2)}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_fault(make_arena, results, fault):
    began = time.monotonic()
    arena = make_arena(SCALE)
    row = _break(arena, fault)
    found = arena.finish()
    results.setdefault("faults", {})[fault.__name__] = row | found | {"seconds": round(time.monotonic() - began, 2)}
    assert not [one for one in found["killed_games"] if one["seconds"] > MOST_LOST_S + BUSY_S]


def _order(count, seed):
    """Return faults in random order: every kind at least five times as far as the count allows."""
    kinds = [freeze_host_shortly if fault is freeze_host else fault for fault in FAULTS]
    least = min(LEAST_OF_A_KIND, count // len(kinds))
    drawn = random.Random(seed)
    faults = kinds * least
    faults += drawn.choices(kinds, k=count - len(faults))
    drawn.shuffle(faults)
    return faults


def test_many_faults_in_one_run(make_arena, results):
    began = time.monotonic()
    arena, rows = make_arena(max(SCALE, COUNT * 0.15), SEED), []
    run = results["run"] = {"seed": SEED, "faults": rows, "seconds": 0.0}
    for number, fault in enumerate(_order(COUNT, SEED), 1):
        at_s = run["seconds"] = round(time.monotonic() - began, 1)
        rows.append({"at_s": at_s} | _break(arena, fault))
        print(f"{number:3d} {at_s:7.1f} s {rows[-1]['fault']}: {rows[-1]['seen']}", flush=True)
    found = arena.finish()
    run |= found | {"seconds": round(time.monotonic() - began, 2)}
    # Written before it is judged: which game lost more tells why.
    assert not [one for one in found["killed_games"] if one["seconds"] > MOST_LOST_S + BUSY_S]
