"""Games of a host that play for a gateway in real time, beside a bare loop that only keeps the time."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from soulsgraph.bench.fleet_streams import GatewayServer, call_here, open_server
from soulsgraph.bench.limits import spread
from soulsgraph.worker_process import WorkerProcess
from soulsgraph_clusters.fleet.head.status import TICKS_PER_S, GameStatus
from soulsgraph_clusters.fleet.pc.host import HostOptions, play_games
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.drivers.realtime.cycle_timer import RECENT_TICKS, CycleTimer

#: Games, a process each, and their speed.
FLEETS = (1, 1.0), (4, 1.0), (16, 1.0), (8, 3.0)
_ALL_PLAY_WITHIN_S = 600.0
_LOOK_S = 0.5
_SETTLED_AFTER_S = 3.0

_Games = dict[str, tuple[float, GameStatus]]


def keep_time(speed: float, seconds: float) -> tuple[float, float]:
    """Run a loop that only waits for its ticks; return its ticks a second and p99 lateness in ms."""
    timer = CycleTimer(1.0 / TICKS_PER_S / speed)
    began_s = time.perf_counter()
    while time.perf_counter() - began_s < seconds:
        timer.wait()
    return timer.report().rate_hz, timer.recent_lateness().p99_ms


@contextmanager
def _host(folder: Path, address: str, token_file: str, games: int, speed: float) -> Iterator[list[str]]:
    """Play games as a PC's host does; yield the lines that it reports."""
    file, stopped, lines = folder / "games.toml", threading.Event(), list[str]()
    file.write_text(f'[[games]]\ndriver = "simulator"\nspeed = {speed}\n' * games, encoding="utf-8")
    options = HostOptions(address, Path(token_file), file, spool=folder / "spool")
    thread = threading.Thread(target=play_games, args=(options, lines.append, stopped.is_set))
    thread.start()
    try:
        yield lines
    finally:
        stopped.set()
        thread.join()


def _ask(server: WorkerProcess, method: str) -> Any:
    server.submit(call_here, method)
    return server.result()


def _wait_for(server: WorkerProcess, games: int, lines: list[str]) -> None:
    until_s = time.monotonic() + _ALL_PLAY_WITHIN_S
    while len(_ask(server, "games")) < games:
        if time.monotonic() > until_s:
            raise SoulsGraphError(f"bench: expected {games} games that play, found fewer; the host says: {lines[-3:]}.")
        time.sleep(_LOOK_S)
    time.sleep(_SETTLED_AFTER_S)


def _measure(games: int, speed: float, seconds: float, folder: Path) -> dict[str, float]:
    """Measure once every game plays; the lateness is that of the latest ticks at the end, which are then all steady."""
    with ExitStack() as opened:
        server, bare = opened.enter_context(WorkerProcess()), opened.enter_context(WorkerProcess())
        server.submit(open_server, GatewayServer, str(folder))
        address, _ = server.result()
        lines = opened.enter_context(_host(folder, address, str(folder / "attic.token"), games, speed))
        _wait_for(server, games, lines)
        settling_s = max(RECENT_TICKS / TICKS_PER_S / speed - seconds, 0.0)
        bare.submit(keep_time, speed, settling_s + seconds)
        time.sleep(settling_s)
        before: _Games = _ask(server, "games")
        time.sleep(seconds)
        after: _Games = _ask(server, "games")
        bare_rate, bare_p99_ms = bare.result()
    return _figures(before, after) | {"bare_ticks_per_s": bare_rate, "bare_lateness_p99_ms": bare_p99_ms}


def _figures(before: _Games, after: _Games) -> dict[str, float]:
    """Return the mean of the games' ticks a second and CPU time a tick, and the worst game's share and lateness."""
    rates, ticks, cpu_s = [], 0, 0.0
    for name, (since_s, first) in before.items():
        until_s, last = after[name]
        rates.append((last.ticks - first.ticks) / (until_s - since_s))
        ticks, cpu_s = ticks + last.ticks - first.ticks, cpu_s + last.cpu_s - first.cpu_s
    late = [game.lateness_p99_ms for _, game in after.values()]
    return {
        "ticks_per_s": sum(rates) / len(rates),
        "slowest_ticks_per_s": min(rates),
        "lateness_p99_ms": sum(late) / len(late),
        "worst_lateness_p99_ms": max(late),
        "cpu_ms_a_tick": 1000.0 * cpu_s / ticks,
    }


def bench_paced(games: int, speed: float, seconds: float, rounds: int, folder: Path) -> dict[str, Any]:
    """Measure games in a process each, and a bare loop of the same speed in the same time, once a round."""
    folder.mkdir(parents=True, exist_ok=True)
    measured = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder, prefix="paced-") as place:
            measured.append(_measure(games, speed, seconds, Path(place)))
    return {
        "name": f"{games} paced games at speed {speed:g}",
        "games": games,
        "speed": speed,
        "seconds": seconds,
        "rounds": rounds,
        "load": os.getloadavg()[0],
        "share_of_bare_ticks": spread([one["ticks_per_s"] / one["bare_ticks_per_s"] for one in measured]),
        "lateness_p99_beyond_bare_ms": spread(
            [one["lateness_p99_ms"] - one["bare_lateness_p99_ms"] for one in measured]
        ),
        "cpu_ms_a_tick": spread([one["cpu_ms_a_tick"] for one in measured]),
        "measured": measured,
    }
