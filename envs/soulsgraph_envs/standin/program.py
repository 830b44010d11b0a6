"""The stand-in game as a program, and how it may misbehave."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from math import inf, isfinite
from pathlib import Path
from typing import Protocol

from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.temporary import temporary_folder
from soulsgraph_envs.drivers.keyboard.device import load_bindings
from soulsgraph_envs.drivers.memory.address_map import AddressMap, load_address_map
from soulsgraph_envs.drivers.realtime.link import save_game
from soulsgraph_envs.simulator.layout import FRAMES_PER_S
from soulsgraph_envs.standin.memory import OwnMemory
from soulsgraph_envs.standin.options import StandInOptions, load_surroundings, surroundings_of
from soulsgraph_envs.standin.process import ended_by_signals, forbid_core_dump, name_process, settings_of
from soulsgraph_envs.standin.window import HEIGHT, WIDTH, GameWindow, Keyboard
from soulsgraph_envs.standin.world import Readings, Stage, World

#: Each kind, and whether it lasts (forever if no time is given) or happens once.
KINDS = {"crash": False, "move": False, "hang": True, "freeze": True, "stall": True, "drop": True}
_STANDARD_INPUT = 0
_OTHERS = ("pause", "speed", "die", "state", "quit")


@dataclass(frozen=True)
class Misbehaviour:
    """One misbehaviour: its kind, when it begins, and how long it lasts, in seconds."""

    kind: str
    start_s: float
    length_s: float = inf


def parse_misbehaviour(text: str) -> Misbehaviour:
    """Read `KIND@START` or `KIND@START+SECONDS`.

    Raises:
        SoulsGraphError: for another form, an unknown kind, or a length for what happens once.
    """
    kind, _, times = text.partition("@")
    if kind not in KINDS:
        raise UnknownNameError("misbehaviour", kind, KINDS)
    start, _, length = times.partition("+")
    return Misbehaviour(kind, _seconds(start, text), length_of(kind, length))


def length_of(kind: str, text: str) -> float:
    """Read how long a misbehaviour lasts, in seconds; forever if the text is empty.

    Raises:
        SoulsGraphError: for anything but a number above 0, or for a length of what happens once.
    """
    if not text:
        return inf
    if not KINDS[kind]:
        raise SoulsGraphError(f"{kind}: expected no length, for it happens once; found {text!r}.")
    return _seconds(text, f"{kind} {text}")


def _seconds(text: str, whole: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not (isfinite(seconds) and seconds >= 0.0):
        raise SoulsGraphError(
            f"misbehaviour: expected KIND@START or KIND@START+SECONDS, such as freeze@5+3; found {whole!r}."
        )
    return seconds


@dataclass
class Schedule:
    """The coming and present misbehaviours, by wall time since the stand-in was ready.

    `on(kind)` is whether a lasting misbehaviour is under way; `due()` returns those that begin now.
    """

    plan: Sequence[Misbehaviour] = ()
    clock: Callable[[], float] = time.monotonic
    _begun_s: float = 0.0
    _waiting: list[Misbehaviour] = field(default_factory=list)
    _until_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begun_s = self.clock()
        self._waiting = sorted(self.plan, key=lambda one: one.start_s)

    def add(self, kind: str, length_s: float = inf) -> None:
        """Let a misbehaviour begin now."""
        self._waiting.insert(0, Misbehaviour(kind, 0.0, length_s))

    def due(self) -> list[Misbehaviour]:
        """Return the misbehaviours that begin now, each once; lasting ones are `on` from now."""
        now = self.clock()
        begun = [one for one in self._waiting if self._begun_s + one.start_s <= now]
        for one in begun:
            self._waiting.remove(one)
            self._until_s[one.kind] = now + one.length_s
        return begun

    def on(self, kind: str) -> bool:
        """Return whether a lasting misbehaviour is under way."""
        return self._until_s.get(kind, -inf) > self.clock()


def crash(folder: Path) -> None:
    """End this process like a crashed game, after removing its folder, as nothing else would."""
    shutil.rmtree(folder, ignore_errors=True)
    forbid_core_dump()
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(length_s: float) -> None:
    """Stop answering for a time; signals still end the process."""
    end = time.monotonic() + length_s
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 1.0))


class Commanded(Protocol):
    """The receiver of commands."""

    def pause(self) -> None:
        """Stop the world, or let it continue."""
        ...

    def set_speed(self, factor: float) -> None:
        """Set the factor of the game's clock."""
        ...

    def kill_player(self) -> None:
        """Let the player die."""
        ...

    def state(self) -> dict[str, object]:
        """Return the true state of the world."""
        ...


class Commands:
    """Commands and answers, one per line; `over` is whether the stand-in is to end."""

    def __init__(self, options: StandInOptions) -> None:
        self._json, self._until_eof = options.json, options.until_eof
        self._end_s = time.monotonic() + options.seconds if options.seconds else float("inf")
        self._told_to_end = False
        self._lines: deque[str] = deque()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def over(self) -> bool:
        """Whether the stand-in is to end: by a command, or because its time is over."""
        return self._told_to_end or time.monotonic() >= self._end_s

    @over.setter
    def over(self, ended: bool) -> None:
        self._told_to_end = ended

    def say(self, event: str, **values: object) -> None:
        """Print a line: the event and its values, for people or as JSON."""
        if self._json:
            print(json.dumps({"event": event, **values}), flush=True)
        else:
            print(f"{event}: {', '.join(f'{name} {value}' for name, value in values.items())}", flush=True)

    def obey(self, stand_in: Commanded, schedule: Schedule) -> None:
        """Carry out the commands received."""
        while self._lines:
            word, _, argument = self._lines.popleft().partition(" ")
            try:
                self._carry_out(word, argument, stand_in, schedule)
            except SoulsGraphError as error:
                self.say("error", message=str(error))

    def _carry_out(self, word: str, argument: str, stand_in: Commanded, schedule: Schedule) -> None:
        if word in KINDS:
            schedule.add(word, length_of(word, argument))
        elif word == "pause":
            stand_in.pause()
        elif word == "speed":
            stand_in.set_speed(_factor(argument))
        elif word == "die":
            stand_in.kill_player()
        elif word == "state":
            self.say("state", **stand_in.state())
        elif word == "quit":
            self.over = True
        else:
            raise UnknownNameError("command", word, (*KINDS, *_OTHERS))

    def _listen(self) -> None:
        # Read below Python's buffers: a thread that waits in one of them can break the end of the process.
        rest = b""
        with suppress(OSError):
            while piece := os.read(_STANDARD_INPUT, 4096):
                *lines, rest = (rest + piece).split(b"\n")
                self._lines.extend(line for line in (one.decode(errors="replace").strip() for one in lines) if line)
        if self._until_eof:
            self.over = True


def _factor(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SoulsGraphError(f"speed: expected a number, found {text!r}.") from None


_PICTURES_PER_S, _PICTURE_SIZE = 20, (90, 160)
#: After a hold-up longer than this the lost frames are not made up for.
_MOST_LATE_S = 0.1


def run(options: StandInOptions) -> None:
    """Run a stand-in until its window is closed, a command ends it, or its time is over.

    Raises:
        SoulsGraphError: for options that do not fit, or a display that cannot be opened.
    """
    schedule = [parse_misbehaviour(text) for text in options.misbehave]
    address_map = load_address_map(options.map)
    world = _open_world(options, address_map)
    with ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        folder = stack.enter_context(temporary_folder("soulsgraph-standin-"))
        name_process(address_map.process)
        window = GameWindow(address_map.window, options.display, keeps_mouse=options.until_eof)
        stack.callback(window.close)
        memory = OwnMemory(address_map, folder, world.surroundings)
        stack.callback(memory.close)
        stand_in = StandIn(world, memory, window, Keyboard(load_bindings(address_map.bindings)))
        commands = Commands(options)
        if options.settings:
            save_game(options.settings, settings_of(options, address_map.window))
        commands.say("ready", pid=os.getpid(), map=address_map.name, base=memory.base)
        stand_in.play(Schedule(schedule), commands, folder)


class StandIn:
    """A world with a window and a memory."""

    def __init__(self, world: World, memory: OwnMemory, window: GameWindow, keyboard: Keyboard) -> None:
        self._world, self._memory, self._window, self._keyboard = world, memory, window, keyboard
        self._readings = Readings(world)
        self._paused = False
        self._loads, self._part_of_frame = world.loads, 0.0
        self._memory.write(self._values())

    def play(self, schedule: Schedule, commands: Commands, folder: Path) -> None:
        """Play until the end, polling keys and memory before each frame."""
        following, next_picture = time.monotonic(), 0.0
        while not commands.over:
            self._misbehave(schedule, commands, folder)
            commands.obey(self, schedule)
            if not schedule.on("stall"):
                self._hear(commands, dropping=schedule.on("drop"))
                if following >= next_picture:
                    self._show()
                    next_picture = following + 1.0 / _PICTURES_PER_S
            self._poll(frozen=schedule.on("freeze"))
            following = _wait(following + 1.0 / (FRAMES_PER_S * max(self._world.speed, 1.0)))

    def pause(self) -> None:
        """Stop the world, or let it continue."""
        self._paused = not self._paused

    def set_speed(self, factor: float) -> None:
        """Set the factor of the game's clock."""
        self._world.switches["game_speed"] = factor

    def kill_player(self) -> None:
        """Let the player die."""
        self._world.kill_player()

    def state(self) -> dict[str, object]:
        """Return the true state of the world, whatever the memory shows."""
        keys = sorted(self._keyboard.down)
        return {**self._values(), "stage": self._world.stage.value, "fighting": self._world.fighting, "keys": keys}

    def _poll(self, frozen: bool) -> None:
        if not frozen:
            self._world.write(self._memory.foreign_writes())
        self._advance()
        if not frozen:
            self._publish()

    def _advance(self) -> None:
        speed = self._world.speed
        self._part_of_frame += 0.0 if self._paused else speed / max(speed, 1.0)
        if self._part_of_frame >= 1.0:
            self._part_of_frame -= 1.0
            self._world.frame(self._keyboard.controls())

    def _publish(self) -> None:
        world = self._world
        if world.stage is Stage.TITLE or (world.stage is Stage.LOADING and world.surroundings.load_unlinks):
            self._memory.unlink()
        elif self._world.loads != self._loads:
            self._loads = self._world.loads
            self._memory.load()
        self._memory.write(self._values())

    def _values(self) -> dict[str, float | str]:
        return self._readings() | {"window_width": WIDTH, "window_height": HEIGHT, "screen_mode": 0}

    def _hear(self, commands: Commands, dropping: bool) -> None:
        for event, key in self._window.events():
            if event == "close":
                commands.over = True
            elif event == "blur":
                self._keyboard.release_all()
            elif dropping:
                continue
            elif event == "release":
                self._keyboard.release(key)
            elif key == "f5":
                self.pause()
            elif key == "f6":
                self.set_speed(self._world.speed % 3.0 + 1.0)
            elif not self._world.navigate(key):
                self._keyboard.press(key)

    def _show(self) -> None:
        stage = "paused" if self._paused else self._world.stage.value
        if self._world.stage in (Stage.LOADING, Stage.TITLE):
            self._window.draw(None, [stage])
            return
        status = f"{stage}, speed {self._world.speed:g}"
        self._window.draw(self._world.simulator.render(0, _PICTURE_SIZE), [status, self._keyboard.help])

    def _misbehave(self, schedule: Schedule, commands: Commands, folder: Path) -> None:
        for one in schedule.due():
            commands.say("misbehaving", kind=one.kind)
            if one.kind == "crash":
                crash(folder)
            elif one.kind == "hang":
                hang(one.length_s)
            elif one.kind == "move":
                self._memory.move()


def _open_world(options: StandInOptions, address_map: AddressMap) -> World:
    surroundings = load_surroundings(options.encounter) if options.encounter else surroundings_of(address_map.name)
    scenario = load_scenario(options.scenario or surroundings.scenario)
    world = World(surroundings, scenario, options.seed, options.at != "arena", options.at != "new-game")
    world.switches["game_speed"] = options.speed
    return world


def _wait(until: float) -> float:
    """Sleep until a moment and return it; return now if it is long past."""
    left = until - time.monotonic()
    if left > 0:
        time.sleep(left)
    return until if left > -_MOST_LATE_S else time.monotonic()
