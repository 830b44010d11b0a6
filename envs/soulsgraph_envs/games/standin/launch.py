"""What a stand-in and its Siphon server are started with, and what surrounds its fight: bonfire, fog gate, loading.

Also the settings that lead clients to the server.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from math import hypot
from pathlib import Path
from typing import Annotated, Any, Literal

from soulsgraph_envs.core.access import family_of, is_loopback
from soulsgraph_envs.core.config import Between, NonEmpty, load_data, shipped_names
from soulsgraph_envs.core.errors import GameError, SoulsGraphError, UnknownNameError, plain_number, plain_range
from soulsgraph_envs.core.seeds import checked_seed
from soulsgraph_envs.core.terminal import handled_by, hangups
from soulsgraph_envs.games.address_map import Entry
from soulsgraph_envs.games.link import GameSettings, LinkError

#: (x, y, z) in metres, z up, and the angle in radians.
Pose = tuple[float, float, float, float]


@dataclass(frozen=True)
class Places:
    """The places where the player wakes, of both sides of the fog gate, and where the boss rests."""

    bonfire: Pose
    gate_outside: Pose
    gate_inside: Pose
    boss: Pose

    def ground_z(self, x: float, y: float) -> float:
        """Return the height of the ground beside the way from the bonfire through the gate to the boss."""
        way = (self.bonfire, self.gate_outside, self.gate_inside, self.boss)
        legs = [_nearest(start, end, x, y) for start, end in pairwise(way)]
        return min(legs)[1]


@dataclass(frozen=True)
class Interlude:
    """A time in which the player acts by itself: its animation and its length."""

    name: str
    length_s: Annotated[float, Between(0.02, 60.0)]


@dataclass(frozen=True)
class Menu:
    """The keys that lead from the fight to the title screen, and from there to the bonfire; empty without a menu."""

    quit: tuple[str, ...] = ()
    begin: tuple[str, ...] = ()


@dataclass(frozen=True)
class Copy:
    """A further place in memory that holds a field, or a value that is no field; no address map names it."""

    entry: Entry
    field: str = ""
    value: float = 0.0


@dataclass(frozen=True)
class Surroundings:
    """One encounter of the stand-in game.

    `maps` are the address maps of its memory, the first of them if none is named; `copies` are places
    that other readers of such a game read besides.
    """

    name: str
    maps: NonEmpty[str]
    scenario: str
    boss_name: str
    #: The bits of the boss's flags without which it rests.
    awake_flags: Annotated[int, Between(0, 127)]
    places: Places
    pass_gate: Interlude
    die: Interlude
    rise: Interlude
    load: Interlude
    #: Fields that the game only keeps, with what they are at first.
    switches: dict[str, float]
    #: Whether a loading screen takes the pointers to the world away; the title screen always does.
    load_unlinks: bool = True
    menu: Menu = Menu()
    #: By address map.
    copies: dict[str, tuple[Copy, ...]] = field(default_factory=dict)


def load_surroundings(name_or_path: str | Path) -> Surroundings:
    """Load the surroundings of an encounter, shipped or the user's own.

    Raises:
        UnknownNameError: if nothing of that name is shipped.
        DataError: for a missing, misspelt, mistyped or out-of-range value.
    """
    return load_data("encounter", Surroundings, name_or_path)


def surroundings_of(address_map: str) -> Surroundings:
    """Load the shipped encounter of an address map, the first by name if there are several.

    Raises:
        UnknownNameError: if none does.
    """
    shown = {name: one for one in map(load_surroundings, reversed(shipped_names("encounter"))) for name in one.maps}
    if address_map not in shown:
        raise UnknownNameError("address map that an encounter is shown by", address_map, shown)
    return shown[address_map]


def _nearest(start: Pose, end: Pose, x: float, y: float) -> tuple[float, float]:
    """Return (distance, height) of the point of a leg that lies nearest."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    along = ((x - start[0]) * dx + (y - start[1]) * dy) / max(dx * dx + dy * dy, 1e-9)
    along = min(max(along, 0.0), 1.0)
    distance = hypot(start[0] + along * dx - x, start[1] + along * dy - y)
    return distance, start[2] + along * (end[2] - start[2])


@dataclass(frozen=True)
class StandInOptions:
    """One stand-in game: its encounter, its speed, and its misbehaviours."""

    map: str = "dark-souls-3-1.15.2"
    """Address map its memory is laid out by: stand-in, dark-souls-3-1.15.2, elden-ring-1.16.1, or a TOML file."""
    encounter: str = ""
    """Encounter to play: iudex, vordt, vordt-in-place, margit; the map's own if not given."""
    scenario: str = ""
    """Scenario that fights as the encounter's boss: a name or a TOML file; the encounter's own if not given."""
    at: Literal["arena", "bonfire", "new-game"] = "arena"
    """Where the player begins: in the fight, or at the bonfire before the fog gate; in a new game it has not met the
    boss, whose sword must be pulled first."""
    speed: float = 1.0
    """Factor of the game's clock, 0.1 to 3."""
    seed: int = 0
    """Seed of the boss's random choices."""
    display: str = ""
    """X display of the window, such as :99; the environment's if not given."""
    settings: Path | None = None
    """Games file to write for other commands, once a driver can attach."""
    seconds: float = 0.0
    """End after this many seconds; 0 never."""
    misbehave: tuple[str, ...] = ()
    """KIND@START or KIND@START+SECONDS, as often as needed: crash, move, hang, freeze, stall, drop."""
    until_eof: bool = False
    """End when standard input ends: with the program that started it."""
    json_lines: bool = False
    """Print lines as JSON, for programs."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            SoulsGraphError: for one out of its range.
        """
        checked_seed(self.seed)
        for name, least, most in (("speed", 0.1, 3.0), ("seconds", 0.0, 1e9)):
            value = getattr(self, name)
            if not least <= value <= most:
                raise SoulsGraphError(
                    f"`{name}`: expected a number from {plain_range(least, most)}, found {plain_number(value)}."
                )

    def arguments(self) -> list[str]:
        """Return the command-line arguments that mean these options."""
        words: list[str] = []
        for option in fields(self):
            value = getattr(self, option.name)
            if value == option.default:
                continue
            flag = f"--{option.name.replace('_', '-')}"
            if isinstance(value, bool):
                words.append(flag)
            elif isinstance(value, tuple):
                words += [word for item in value for word in (flag, str(item))]
            else:
                words += [flag, str(value.resolve() if isinstance(value, Path) else value)]
        return words


DEFAULT_STAND_IN = StandInOptions()


@dataclass(frozen=True)
class ServingOptions:
    """The options of a Siphon server: how it is reached and what its clients may do."""

    address: str = "127.0.0.1:50051"
    """Where it listens; on any address but the loopback every call needs a token."""
    token_file: Path | None = None
    """File of the token, made with mode 600 if there is none; with one, every call needs it."""
    certificate: Path | None = None
    """PEM file of a certificate, to encrypt with its key."""
    key: Path | None = None
    """PEM file of the certificate's key."""
    allow_commands: bool = False
    """Let clients run any program on this machine."""
    recordings: Path = Path("recordings")
    """Folder that recordings go below."""
    display: str = ""
    """X display of the game, such as :99; the environment's if not given."""
    window: str = ""
    """Title of the game's window; that of its process if not given."""

    def check(self) -> None:
        """Refuse invalid or unsafe options before a game is started; make the token file if missing.

        Raises:
            GameError: for an address that is invalid, in use, or that others can reach without a token; for a
                certificate without its own key; for a token file that cannot be used.
        """
        # Imported here: it needs an extra, which a command's list of options must not.
        from soulsgraph_envs.games.siphon_link import read_or_create_token, split_address

        host, port = split_address(self.address)
        if (self.certificate is None) != (self.key is None):
            raise GameError("Siphon server: expected `certificate` and `key` together, found one of them; give both.")
        if not is_loopback(host) and self.token_file is None:
            raise GameError(
                f"Siphon server: expected `token_file` for {self.address}, which others can reach, found none; "
                "give one, or listen on 127.0.0.1 and let clients come through a tunnel."
            )
        self.certificate_pair()
        try:
            socket.create_server((host, port), family=family_of(host)).close()
        # A host that cannot be encoded is a UnicodeError.
        except (OSError, UnicodeError) as error:
            raise self.unusable_address(error) from error
        if self.token_file is not None:
            read_or_create_token(self.token_file)

    def certificate_pair(self) -> tuple[bytes, bytes] | None:
        """Read the key and the certificate, in gRPC's order; None without.

        Raises:
            GameError: if they cannot be read, or do not belong together.
        """
        if self.certificate is None or self.key is None:
            return None
        try:
            # Without a password OpenSSL would ask for that of an encrypted key, which gRPC cannot use.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, password="")
            return self.key.read_bytes(), self.certificate.read_bytes()
        except OSError as error:
            raise GameError(
                f"Siphon server: expected {self.certificate} and its key {self.key}, found {error}; "
                "give a certificate and its own key, both as PEM."
            ) from error

    def unusable_address(self, error: Exception) -> GameError:
        """Return the error of an address that cannot be listened at."""
        return GameError(
            f"Siphon server: expected {self.address} to be free and of this machine, found: {error}; "
            "give another `address`."
        )


DEFAULT_SERVING = ServingOptions()


def server_settings(serving: ServingOptions, address: str, address_map: str, speed: float) -> GameSettings:
    """Return the settings with which clients reach a server that listens at `address`."""
    token_file, certificate = (
        str(path.resolve()) if path else "" for path in (serving.token_file, serving.certificate)
    )
    return GameSettings(
        "siphon", address_map, host=address, speed=speed, token_file=token_file, certificate=certificate
    )


@contextmanager
def ended_by_signals() -> Iterator[threading.Event]:
    """Let Ctrl-C, SIGTERM and a closed terminal end the program normally; the event is set by them.

    What a handler raises is lost where Python happens to be in a finalizer or a callback, so who loops looks at the
    event as well.
    """
    asked = threading.Event()

    def end(*_: object) -> None:
        asked.set()
        raise SystemExit(0)

    with handled_by(end, signal.SIGINT, signal.SIGTERM, *hangups()):
        yield asked


def settings_of(options: StandInOptions, window: str) -> GameSettings:
    """Return the settings with which clients find this stand-in.

    Their launch command starts it again with the same options, but without misbehaviours.
    """
    files = {name: getattr(options, name) for name in ("map", "encounter", "scenario")}
    changes: dict[str, Any] = {
        name: str(Path(file).resolve()) for name, file in files.items() if file.endswith(".toml")
    }
    changes["display"] = options.display or os.environ.get("DISPLAY", "")
    again = replace(options, **changes, misbehave=(), until_eof=False)
    return GameSettings(
        map=again.map,
        pid=os.getpid(),
        display=again.display,
        window=window,
        speed=options.speed,
        launch=(sys.executable, "-P", "-m", "soulsgraph_envs.games.standin", *again.arguments()),
    )


#: The first start after a change compiles the simulator, on a busy machine for minutes.
_START_S, _ANSWER_S, _END_S = 600.0, 60.0, 5.0


class StandInProcess:
    """Run a stand-in as a child process, which ends with this one.

    Raises:
        GameError: if it does not start, with its output.
    """

    def __init__(self, options: StandInOptions) -> None:
        as_child = replace(options, json_lines=True, until_eof=True)
        self._command = [sys.executable, "-P", "-m", "soulsgraph_envs.games.standin", *as_child.arguments()]
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        self._said: queue.Queue[dict[str, Any]] = queue.Queue()
        self._complaint = ""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        try:
            self.expect("ready", _START_S)
        except GameError:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def living_pid(self) -> int:
        """Return its process id; start it again if it crashed.

        Raises:
            LinkError: if it does not start, with its output.
        """
        with self._lock:
            if not self.running:
                self.close()
                try:
                    self._start()
                except GameError as error:
                    raise LinkError(str(error)) from error
            return self.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._child.poll() is None

    def tell(self, command: str) -> None:
        """Send it a command on standard input, such as "crash" or "freeze 3"."""
        try:
            print(command, file=self._child.stdin, flush=True)
        except BrokenPipeError as error:
            raise GameError(f"the stand-in: expected it to run, found it gone ({self._last_words}).") from error

    def state(self, timeout_s: float = _ANSWER_S) -> dict[str, Any]:
        """Return the true state of the world, whatever its memory shows."""
        self.tell("state")
        return self.expect("state", timeout_s)

    def expect(self, event: str, timeout_s: float) -> dict[str, Any]:
        """Wait until it reports an event and return the event's values; earlier events are skipped.

        Raises:
            GameError: if it does not in time, or ends.
        """
        while True:
            try:
                said = self._said.get(timeout=timeout_s)
            except queue.Empty:
                raise GameError(
                    f"the stand-in: expected {event!r} within {timeout_s:g} s, it did not say it."
                ) from None
            if said["event"] == event:
                return said
            if said["event"] == "ended":
                raise GameError(f"the stand-in: expected {event!r}, found it ended: {self._last_words}")

    def wait(self, timeout_s: float) -> int:
        """Wait for its end and return its exit code, negative for the signal that ended it.

        Raises:
            GameError: if it does not end in time.
        """
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise GameError(f"the stand-in: expected it to end within {timeout_s:g} s, it still runs.") from None

    def close(self) -> None:
        """End it; a second call does nothing."""
        with self._child:
            self._child.terminate()
            try:
                self._child.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
            self._listener.join()

    def __enter__(self) -> StandInProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _last_words(self) -> str:
        return self._complaint.strip().removeprefix("error: ")

    def _listen(self) -> None:
        """Sort what it prints into events, which are JSON, and complaints."""
        for line in self._child.stdout or ():
            if line.startswith("{"):
                self._said.put(json.loads(line))
            else:
                self._complaint += line
        self._said.put({"event": "ended"})
