"""Play a PC's games for a head, each in a process of its own that is started again when it ends."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import grpc

from soulsgraph_clusters.fleet.actor.player import PlayedGame
from soulsgraph_clusters.fleet.actor.process import GameOrder, GameProcess, Kept
from soulsgraph_clusters.fleet.actor.spool import pause_file
from soulsgraph_clusters.fleet.actor.stream import PLAY, Head, Stream, describe, why_silent
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.certificates import channel_credentials
from soulsgraph_clusters.fleet.protocol.messages import parse_message
from soulsgraph_clusters.fleet.protocol.settings import FleetError, State
from soulsgraph_clusters.fleet.protocol.tokens import read_token_file, token_metadata
from soulsgraph_clusters.fleet.store import MOST_SPOOL_BYTES, Spool
from soulsgraph_envs.core.access import is_loopback, split_address
from soulsgraph_envs.core.config import Between, check_fields
from soulsgraph_envs.core.extras import installed_version
from soulsgraph_envs.core.files import slug
from soulsgraph_envs.core.machine import raise_open_files, user_folder
from soulsgraph_envs.games.link import GameSettings, load_games
from soulsgraph_envs.games.opening import check_games

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
    """PEM file with the head's certificate, or that of its CA; a head on another machine needs it."""
    spool: Path = field(default_factory=state_folder)
    """Folder for decisions that the head has not acknowledged yet; hosts of several token files may share it."""
    spool_mb: Annotated[int, Between(1, 100_000)] = MOST_SPOOL_BYTES // 2**20
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
                f"head: expected its certificate for {host}, found none: a token is sent encrypted or to this "
                "machine alone; copy the head's head.pem here and name it."
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
        unreached = error.code() == grpc.StatusCode.UNAVAILABLE
        raise FleetError(f"{why_silent(head) if unreached else f'{head.address}: {describe(error)}'}.") from error
    finally:
        channel.close()
    if first is None:
        raise FleetError(f"{head.address}: expected a head's answer, found a stream that ended without one; try again.")
    answer = parse_message(wire.ToGame, first, "head").stop
    if answer.refused:
        raise FleetError(answer.reason)
    stage: str = answer.reason
    return stage


class PCGame(Kept):
    """Keep one game of this PC playing for its head; `show` gets each line about it.

    What it played lies in a spool until the head has acknowledged it.
    """

    spool_kind = Spool

    def __init__(
        self,
        head: Head,
        folder: Path,
        open_it: Callable[[], PlayedGame],
        show: Callable[[str], None],
        most_bytes: int = MOST_SPOOL_BYTES,
    ) -> None:
        self._head, self._folder, self._most_bytes = head, folder, most_bytes
        #: What the head said and the game does not know yet.
        self._unsent = deque[bytes]()
        super().__init__(folder.name, open_it, show)

    def _play(self) -> None:
        self._spool = self.spool_kind(self._folder, self._most_bytes)
        self._stream: Stream | None = None
        self._unsent.clear()
        self._latest = wire.Health(state=State.WAITING)
        try:
            super()._play()
        finally:
            if self._stream is not None:
                self._stream.stop()
            self._spool.close()

    def _sent(self) -> list[bytes]:
        return [self._unsent.popleft() for _ in range(len(self._unsent))]

    def _take(self, messages: Sequence[bytes]) -> None:
        for message in map(wire.FromGame.FromString, messages):
            if message.HasField("hello"):
                hello = message.hello
                hello.boot = self._spool.boot
                self._stream = Stream(self._head, hello, self._spool, self._unsent.append, self.say)
                self._stream.start()
            assert self._stream is not None, "a player says hello first"
            if message.HasField("chunk") and (kept := self._spool.put(message.chunk)) is not None:
                self._stream.send(*kept)
            elif message.HasField("health"):
                before, health = self._latest, message.health
                if (health.state, health.note) != (before.state, before.note):
                    self.say(f"{health.state}: {health.note}" if health.note else health.state)
                self._latest = health
                health.waiting_chunks = self._spool.waiting
                for reason, count in [*self._spool.lost.items()]:
                    health.lost_decisions[reason] += count
                self._stream.tell(health)


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

    head = options.connection()
    folders = tuple(folder.absolute() for folder in projects)

    def opened(number: int) -> Callable[[], PlayedGame]:
        order = GameOrder(games[number - 1], str(number), pause_file(options.spool).absolute(), folders)
        return lambda: GameProcess(order)

    kept = [
        PCGame(head, options.game_spool(number), opened(number), reporter(number), options.spool_mb * 2**20)
        for number in range(1, len(games) + 1)
    ]
    try:
        yield
    finally:
        for one in kept:
            one.stop()
        for one in kept:
            one.join()
