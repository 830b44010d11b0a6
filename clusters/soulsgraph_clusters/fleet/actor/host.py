"""Play a PC's games for a head, each in a process of its own that is started again when it ends.

This module is also the program of such a process: its order comes on standard input, and it ends,
every key released, when that closes, however its parent ended.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import grpc

from soulsgraph_clusters.fleet.actor.spool import machine_id
from soulsgraph_clusters.fleet.actor.stream import CHECK, NOBODY, PLAY, Head, describe, step_that_fails
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import parse_message
from soulsgraph_clusters.fleet.protocol.security import channel_credentials, read_token_file, token_metadata
from soulsgraph_clusters.fleet.protocol.settings import FleetError
from soulsgraph_envs.core.access import is_loopback, split_address
from soulsgraph_envs.core.config import Between, check_fields
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.extras import installed_version
from soulsgraph_envs.core.files import slug
from soulsgraph_envs.core.machine import APART, raise_open_files, take_input, user_folder
from soulsgraph_envs.games.link import GameSettings, load_games
from soulsgraph_envs.games.opening import check_games

#: A game that ended is started again after so long, twice as long after each further end, at most the second.
RESTART_AFTER_S = 1.0, 30.0
#: The code of a game's process that refuses to play and says why; that does not change within seconds.
REFUSES = 2
#: How the line begins that says so.
_ERROR = "error: "
#: A game that ran at least this long is started again after the shortest wait.
_STEADY_S = 60.0
#: A process that does not end by then is killed.
END_WITHIN_S = 20.0
#: Timeout of the question whether this PC may play.
ASK_WITHIN_S = 10.0


def state_folder() -> Path:
    """Return where a user's programs keep what must outlive them; for one without a home what `check_spool` refuses."""
    return (user_folder("state") or Path("~")) / "soulsgraph" / "spool"


def check_spool(spool: Path) -> None:
    """Refuse a spool below a home folder that is not known.

    Raises:
        FleetError: naming what to set.
    """
    if spool.parts[:1] == ("~",):
        raise FleetError(
            f"spool: expected a folder, found {spool}, and no home of this user; set HOME or XDG_STATE_HOME, or name a "
            "folder that this user can write with `spool`."
        )


@dataclass(frozen=True)
class HostOptions:
    """The head, and the games that play for it.

    Raises:
        FleetError: for an address that is none, or one of another machine without a CA: a token is never sent bare.
    """

    head: str
    """Address of the head, as HOST:PORT."""
    token_file: Path
    """File (mode 600) with this PC's token."""
    games: Path
    """TOML file of the games to play, a process each."""
    ca: Path | None = None
    """PEM file of the fleet's CA; a head on another machine needs it."""
    spool: Path = field(default_factory=state_folder)
    """Folder for decisions that the head has not acknowledged yet; hosts of several token files may share it."""
    spool_mb: Annotated[int, Between(1, 100_000)] = 256
    """Megabytes that each game may keep there; beyond that the oldest decisions are dropped."""

    def __post_init__(self) -> None:
        check_spool(self.spool)
        check_fields(self)
        try:
            host, _ = split_address(self.head, least_port=1)
        except ValueError as error:
            raise FleetError(
                f"head: expected HOST:PORT, found {self.head!r}; correct it, with brackets around an IPv6 "
                "address, as [fd00::5]:7443."
            ) from error
        if self.ca is None and not is_loopback(host):
            raise FleetError(
                f"head: expected the fleet's CA for {host}, found none: a token is sent encrypted or to this "
                "machine alone; copy the head's ca.pem here and name it."
            )

    @property
    def own_spool(self) -> Path:
        """The folder of this host in the spool: decisions are sent by the token of the PC that they were made on."""
        file = self.token_file.absolute()
        return self.spool / f"{slug(file.stem)[:40]}-{sha256(os.fsencode(file)).hexdigest()[:8]}"

    def game_spool(self, game: int) -> Path:
        """Return the folder of a game's decisions; games count from 1."""
        return self.own_spool / f"game-{game}"

    def connection(self) -> Head:
        """Return the head with this PC's token and the CA; raises FleetError where a file cannot be used."""
        read_token_file(self.token_file)
        return Head(self.head, self.token_file, channel_credentials(self.ca), self.ca)


@dataclass(frozen=True)
class _Order:
    """What one game's process is to do: `game` is the place in the games' file, counted from 1, and its name.

    `options` are those of the whole PC, `projects` folders of projects to load, beside those that are installed.
    """

    options: HostOptions
    game: int
    machine: str
    projects: Sequence[Path] = ()


def ask(options: HostOptions, game: str = "1", settings: GameSettings | None = None) -> str:
    """Ask the head whether a game of this PC may play; return its stage.

    Raises:
        FleetError: if it may not, or nothing answers.
    """
    # Imported here, as in `load_projects`: a help text need not wait for it.
    from soulsgraph_clusters.fleet.protocol.task import make_hello

    head = options.connection()
    channel = head.channel()
    driver, lanes = ("", 1) if settings is None else (settings.driver, settings.lanes)
    hello = make_hello(game, driver, lanes, version=installed_version(), only_asks=True)
    try:
        play = channel.stream_stream(PLAY, wire.FromGame.SerializeToString)
        asked = play(iter([wire.FromGame(hello=hello)]), timeout=ASK_WITHIN_S, metadata=token_metadata(head.token))
        first = next(asked, None)
    except grpc.RpcError as error:
        raise FleetError(_refusal(head, error)) from error
    finally:
        channel.close()
    if first is None:
        raise FleetError(f"{head.address}: expected a head's answer, found a stream that ended without one; try again.")
    answer = parse_message(wire.ToGame, first, "head").stop
    if answer.refused:
        raise FleetError(answer.reason)
    stage: str = answer.reason
    return stage


def _refusal(head: Head, error: Any) -> str:
    """Return why the head did not answer, expected, found and remedy."""
    found, remedy = describe(error), "a head listens while a stage is trained; check its address and port, too"
    if error.code() == grpc.StatusCode.UNAUTHENTICATED:
        remedy = "put the token that the head issued into the token's file"
    where, unreached = head.address, error.code() == grpc.StatusCode.UNAVAILABLE
    # gRPC says the same of a wrong CA, a wrong name and an old certificate.
    why = step_that_fails(head.address, head.ca) if unreached else ""
    if why not in ("", NOBODY):
        return f"{where}: expected a head that takes this PC, found: {why.removesuffix(CHECK)}."
    return f"{where}: expected a head that takes this PC, found: {found}; {remedy}."


class KeptProcess(ABC):
    """Keep the process of one game running: started again whenever it ended, after a wait, until `stop`.

    `show` gets each line about it.
    """

    def __init__(self, name: str, show: Callable[[str], None]) -> None:
        self._show = show
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name=name, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """The id of the process that plays now; 0 between two of them."""
        return 0 if self._process is None or self._process.poll() is not None else self._process.pid

    @abstractmethod
    def stop(self) -> None:
        """Ask the process to end; `join` waits for it."""

    def join(self) -> None:
        """Wait until the process has ended, and kill it if it takes too long."""
        self._thread.join(END_WITHIN_S)
        if self._thread.is_alive() and self._process is not None:
            self._process.kill()
            self._thread.join()

    @abstractmethod
    def _play(self) -> tuple[int, str]:
        """Run the process to its end; return its code, and why it refused to play."""

    def _say(self, line: str) -> None:
        # A game is played although nobody can read about it.
        with suppress(OSError, ValueError):
            self._show(line)

    def _start(self, *program: str) -> subprocess.Popen[bytes]:
        """Start a program of Python's, its input and output being ours."""
        self._process = subprocess.Popen(
            # -P: what lies in the present folder is none of our modules. A path that is printed may hold any
            # character, of which Windows' own encodings lack most.
            [sys.executable, "-P", "-X", "utf8", *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the parent, which ends its games in order.
            **APART,
        )
        return self._process

    def _keep(self) -> None:
        wait_s, longest_s = RESTART_AFTER_S
        said = ""
        while not self._stopping.is_set():
            began_s, refusal = time.monotonic(), ""
            try:
                code, refusal = self._play()
                end = f"its process ended with code {code}"
            except (OSError, ValueError) as error:
                end = f"expected a process that plays it, found: {error}"
            if self._stopping.is_set():
                return
            if refusal:
                # Once: it is the same each time, until a person does something about it.
                if refusal != said:
                    self._say(f"{refusal.rstrip('.')}; it is tried again every {longest_s:g} s")
                wait_s, said = longest_s, refusal
            else:
                wait_s = RESTART_AFTER_S[0] if said or time.monotonic() - began_s > _STEADY_S else wait_s
                self._say(f"{end}; it is started again in {wait_s:g} s")
                said = ""
            self._stopping.wait(wait_s)
            wait_s = min(2 * wait_s, longest_s)


class GameProcess(KeptProcess):
    """Keep the process of one game of a host running; `report` gets each line that it prints."""

    def __init__(self, order: _Order, report: Callable[[str], None]) -> None:
        self._order, self._lock = order, threading.Lock()
        super().__init__(f"game {order.game}", report)

    def stop(self) -> None:
        """Ask the process to end; `join` waits for it."""
        self._stopping.set()
        with self._lock:
            if self._process is not None and self._process.stdin is not None:
                # What a process that died had not read yet cannot be written any more.
                with suppress(OSError):
                    self._process.stdin.close()

    def _play(self) -> tuple[int, str]:
        with self._lock:
            if self._stopping.is_set():
                return 0, ""
            process = self._start("-m", __name__)
            assert process.stdin is not None
            # A process that ended at once is reported with its code.
            with suppress(BrokenPipeError):
                pickle.dump(self._order, process.stdin)
                process.stdin.flush()
        assert process.stdout is not None
        error = ""
        # Its pipes are closed behind it.
        with process, TextIOWrapper(process.stdout, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith(_ERROR):
                    error = line.rstrip("\n")
                else:
                    self._say(line.rstrip("\n"))
        code = process.wait()
        return code, error if code == REFUSES else ""


def checked_games(options: HostOptions) -> tuple[GameSettings, ...]:
    """Return this PC's games.

    Raises:
        SoulsGraphError: if the games' file, the token or the CA cannot be used.
    """
    games = load_games(options.games)
    check_games(games)
    options.connection()
    return games


def play_games(
    options: HostOptions, report: Callable[[int, str], None], stopped: Callable[[], bool], projects: Sequence[Path] = ()
) -> None:
    """Play this PC's games until `stopped` returns true; raises as `playing`."""
    with playing(options, report, projects):
        while not stopped():
            time.sleep(0.2)


def load_projects(folders: Sequence[Path], report: Callable[[str], None]) -> None:
    """Load the projects that are installed, and those in folders that a person named; others cannot be played.

    An installed one that cannot be loaded is reported, and left out.

    Raises:
        SoulsGraphError: if a folder holds no project, or its code cannot be loaded.
    """
    from soulsgraph_policies.agents.projects import load_installed, load_project

    for one in load_installed():
        report(f"warning: {one}")
    for folder in folders:
        load_project(folder)


@contextmanager
def playing(options: HostOptions, report: Callable[[int, str], None], projects: Sequence[Path] = ()) -> Iterator[None]:
    """Play this PC's games, and end their processes at the end; `report` gets a game's number and a line of it.

    Their processes load the projects that are installed, and those in the folders `projects`.

    Raises:
        SoulsGraphError: as `checked_games`; nothing is started then.
    """
    games = checked_games(options)
    raise_open_files()
    printing = threading.Lock()

    def reporter(number: int) -> Callable[[str], None]:
        def report_one(line: str) -> None:
            with printing:
                report(number, line)

        return report_one

    ca = None if options.ca is None else options.ca.absolute()
    options = replace(options, token_file=options.token_file.absolute(), games=options.games.absolute(), ca=ca)
    machine, folders = machine_id(options.own_spool), [folder.absolute() for folder in projects]
    numbers = range(1, len(games) + 1)
    processes = [GameProcess(_Order(options, number, machine, folders), reporter(number)) for number in numbers]
    try:
        yield
    finally:
        for process in processes:
            process.stop()
        for process in processes:
            process.join()


def main() -> None:
    """Play one game as the order on standard input says, until that closes."""
    # Imported here: the parent needs nothing of it.
    from soulsgraph_clusters.fleet.actor.client import GameClient
    from soulsgraph_clusters.fleet.actor.spool import pause_file
    from soulsgraph_clusters.fleet.store import Spool

    orders = take_input()
    order: _Order = pickle.load(orders)
    options, game = order.options, order.game
    stopped = threading.Event()

    def wait_for_the_end() -> None:
        # Not by its buffer, which could not be closed where the process ends first.
        while os.read(orders.fileno(), 4096):
            pass
        stopped.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    games = load_games(options.games)
    if game > len(games):
        raise FleetError(f"{options.games}: expected game {game}, found {len(games)}; start this PC's games anew.")
    settings = games[game - 1]

    def report(line: str) -> None:
        print(line, flush=True)

    spool = Spool(options.game_spool(game), options.spool_mb * 2**20)
    try:
        load_projects(order.projects, report)
        head, file = options.connection(), pause_file(options.spool)
        GameClient(head, str(game), settings, spool, installed_version(), report, file, order.machine).run(stopped)
    finally:
        spool.close()


if __name__ == "__main__":
    try:
        main()
    except SoulsGraphError as error:
        print(f"{_ERROR}{error}", flush=True)
        sys.exit(REFUSES)
