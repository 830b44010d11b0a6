"""Games of a fleet in real time: beside a bare loop that only keeps the time, and while one of them stands still."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fakes.fleet_in_folder import FleetInFolder
from fakes.waiting import until
from fleet_streams import GatewayServer, call_here, open_server
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph_clusters.fleet.actor.host import HostOptions, PCGame, play_games
from soulsgraph_clusters.fleet.actor.player import Player
from soulsgraph_clusters.fleet.actor.stream import Head
from soulsgraph_clusters.fleet.gateway.status import TICKS_PER_S, WINDOW_S, FleetStatus, GameStatus
from soulsgraph_clusters.fleet.protocol.settings import SILENT_AFTER_S
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.game import LaneIndices
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import RawValues
from soulsgraph_envs.games.cycle_timer import RECENT_TICKS, Clock, CycleTimer, TimedGame
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.games.live_game import PacedSimulator
from speed import spread

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

    def report(game: int, line: str) -> None:
        lines.append(f"game {game}: {line}")

    thread = threading.Thread(target=play_games, args=(options, report, stopped.is_set))
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


#: Games, the one that is disturbed among them, and their speed.
GAMES, SPEED = 8, 3.0
_OTHERS, _DISTURBED = "attic", "cellar"
#: A budget that outlasts the measurement.
_SCALE = 100.0
_HELD_LOOK_S, _LEARNING_AFTER_S, _MANY_BYTES = 0.02, 5.0, 2**28
#: A status is a second old at most, and what a game last said in it another.
_READ_AFTER_S = WINDOW_S + 2.0


class HeldSimulator(PacedSimulator):
    """A simulator in real time whose resets last as long as a file is there."""

    def __init__(self, settings: GameSettings, clock: Clock, hold: Path) -> None:
        super().__init__(settings.lanes, settings.speed, clock)
        self._clock, self._hold = clock, hold

    def reset(self, lanes: LaneIndices, scenario: Scenario, seeds: Seeds) -> RawValues:
        """Begin an episode as `Simulator.reset` does, when the file is gone."""
        with self.reset_clock.phase("start"):
            while self._hold.exists():
                self._clock.sleep(_HELD_LOOK_S)
            return super().reset(lanes, scenario, seeds)


class _HeldGame(Player):
    """A game of a PC whose resets last as long as a file is there."""

    hold = Path()

    def open_game(self, settings: GameSettings, clock: Clock) -> TimedGame:
        """Open the simulator that can be held."""
        return HeldSimulator(settings, clock, self.hold)


def play_held(address: str, token_file: str, folder: str, hold: str) -> None:
    """Play one game in this process, until it is killed."""
    game = _HeldGame(GameSettings(driver="simulator", speed=SPEED))
    game.hold = Path(hold)
    head = Head(address, Path(token_file))
    PCGame(head, Path(folder) / "game-1", lambda: game, lambda line: None, _MANY_BYTES)
    threading.Event().wait()


def _plays(game: GameStatus) -> bool:
    return game.connected and game.ticks > 0


class _Fleet:
    """A head that trains and the games that play for it, all by the commands of a fleet but for the one disturbed."""

    def __init__(self, folder: Path, games: int, worker: WorkerProcess) -> None:
        one = f'[[games]]\ndriver = "simulator"\nspeed = {SPEED}\n'
        self.files = FleetInFolder(folder, {_OTHERS: one * (games - 1), _DISTURBED: one})
        self.games, self.hold = games, folder / "hold"
        worker.submit(os.getpid)
        self.pid = worker.result()
        self.files.host(_OTHERS)
        token, spool = folder / f"{_DISTURBED}.token", self.files.spool(_DISTURBED)
        worker.submit(play_held, f"127.0.0.1:{self.files.port}", str(token), str(spool), str(self.hold))
        self.files.train(_SCALE)

    @property
    def status(self) -> FleetStatus:
        """What the head last wrote of its games."""
        status = self.files.status()
        assert status is not None, "asked for once every game plays"
        return status

    def _ticks(self) -> int:
        return sum(game.ticks for game in self.status.games if game.name.startswith(_DISTURBED))

    def wait_for_all(self) -> None:
        """Wait until every game plays and learning goes on."""
        until(lambda: (found := self.files.status()) and sum(map(_plays, found.games)) == self.games, "games")
        version, ticks = self.status.weights_version, self._ticks()
        until(lambda: self.status.weights_version > version and self._ticks() > ticks, "decisions to learn from")
        time.sleep(_LEARNING_AFTER_S)

    def measure(self, playing: int) -> dict[str, float]:
        """Return the others' ticks a second, and the decisions learned a second and playing game."""
        first = self.status
        time.sleep(_READ_AFTER_S)
        last = self.status
        rates = [game.ticks_per_s for game in last.games if game.name.startswith(_OTHERS)]
        learned = (last.weights_version - first.weights_version) / (last.written - first.written)
        return {
            "ticks_per_s": sum(rates) / len(rates),
            "slowest_ticks_per_s": min(rates),
            "learned_per_s_and_game": learned / playing,
            "load": os.getloadavg()[0],
        }

    @contextmanager
    def resetting(self) -> Iterator[dict[str, float]]:
        """Let one game be in a reset."""
        self.hold.touch()

        def stands() -> bool:
            ticks = self._ticks()
            time.sleep(3.0)
            return self._ticks() == ticks

        until(stands, "a game in its reset")
        try:
            yield {}
        finally:
            self.hold.unlink()

    @contextmanager
    def frozen(self) -> Iterator[dict[str, float]]:
        """Freeze one game's process; yield after how many seconds the head reported it by name."""
        line = f"{_DISTURBED}/1 left: silent for {SILENT_AFTER_S:g} s"
        before, began_s = self.files.logs("train").count(line), time.monotonic()
        os.kill(self.pid, signal.SIGSTOP)
        try:
            until(lambda: self.files.logs("train").count(line) > before, f"the line {line!r}")
            yield {"reported_after_s": time.monotonic() - began_s}
        finally:
            os.kill(self.pid, signal.SIGCONT)


def bench_disturbed(games: int, rounds: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Measure games while one of them resets or is frozen, each time beside the same games just before."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[dict[str, float]]] = {"resetting": [], "frozen": []}
    with tempfile.TemporaryDirectory(dir=folder, prefix="disturbed-") as place, WorkerProcess() as worker:
        fleet = _Fleet(Path(place).absolute(), games, worker)
        try:
            for _ in range(rounds):
                for name, disturbed in (("resetting", fleet.resetting), ("frozen", fleet.frozen)):
                    found[name].append(_beside(fleet, disturbed))
        finally:
            worker.close()
            fleet.files.close()
    for name, measured in found.items():
        yield {
            "name": f"one of {games} paced games {name}",
            "games": games,
            "speed": SPEED,
            "rounds": rounds,
            "load": os.getloadavg()[0],
            "others_ticks": spread([one["ticks_per_s"] / one["before_ticks_per_s"] for one in measured]),
            "learned_a_game": spread(
                [one["learned_per_s_and_game"] / one["before_learned_per_s_and_game"] for one in measured]
            ),
            **({"reported_after_s": spread([one["reported_after_s"] for one in measured])} if name == "frozen" else {}),
            "measured": measured,
        }


def _beside(fleet: _Fleet, disturbed: Callable[[], AbstractContextManager[dict[str, float]]]) -> dict[str, float]:
    """Measure all games, and then those that play on beside one that is disturbed."""
    fleet.wait_for_all()
    before = {f"before_{name}": value for name, value in fleet.measure(fleet.games).items()}
    with disturbed() as extra:
        return {**fleet.measure(fleet.games - 1), **extra, **before}
