"""The stand-in game as a program: its window, which hears keys, and how it may misbehave."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from textwrap import wrap
from typing import Any

from soulsgraph_envs.core.config import to_json
from soulsgraph_envs.core.errors import GameError, SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.files import temporary_folder
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.games.address_map import load_address_map
from soulsgraph_envs.games.guarded_device import find_window
from soulsgraph_envs.games.keys import Inputs, Keyboard, WindowEvent, load_bindings
from soulsgraph_envs.games.link import save_game
from soulsgraph_envs.games.standin.launch import (
    StandInOptions,
    ended_by_signals,
    load_surroundings,
    settings_of,
    surroundings_of,
)
from soulsgraph_envs.games.standin.memory import OwnMemory, name_process
from soulsgraph_envs.games.standin.world import CourseStage, StandInWorld
from soulsgraph_envs.render.pictures import import_pygame
from soulsgraph_envs.simulator.layout import FRAMES_PER_S
from soulsgraph_envs.simulator.render import render

WIDTH, HEIGHT = 800, 450
#: Below the fighters, above the boss's bar.
_TEXT_TOP, _TEXT_SIZE, _TEXT_COLOUR = 340, 17, (230, 230, 230)


class GameWindow:
    """A window, open as long as the program runs; with `keeps_mouse` the mouse stays inside while it has the focus.

    Raises:
        GameError: if pygame is not installed, or no display can be opened.
    """

    def __init__(self, title: str, display: str, keeps_mouse: bool = False) -> None:
        pygame = self._pygame = import_pygame("standin")
        # Nothing but an X window hears other programs' keys; a plain one costs less than an accelerated one.
        os.environ |= {"SDL_VIDEODRIVER": "x11", "SDL_FRAMEBUFFER_ACCELERATION": "0"}
        if display:
            os.environ["DISPLAY"] = display
        try:
            pygame.display.init()
        except pygame.error as error:
            raise GameError(
                f"expected an X display to open a window on, found none ({error}); name one with `display`, or "
                "start one: xvfb-run."
            ) from error
        pygame.font.init()
        self._font = pygame.font.Font(None, _TEXT_SIZE)
        self._surface = pygame.display.set_mode((WIDTH, HEIGHT))
        pygame.display.set_caption(title)
        self._inputs = Inputs(pygame)
        pygame.event.get()
        # Without a window manager nobody else gives a new window the keyboard.
        window = find_window(title, os.getpid())
        window.focus()
        window.close()
        # Its buttons are heard only while it is over the window: games that are turned by mouse keep it there.
        pygame.event.set_grab(keeps_mouse)

    def events(self) -> list[WindowEvent]:
        """Return what happened since the last call."""
        return self._inputs.read(self._pygame.event.get())

    def draw(self, picture: Any, lines: list[str]) -> None:
        """Show a picture of the window's size, (height, width, 3) uint8 or None, with lines of text over it."""
        pygame = self._pygame
        self._surface.fill((16, 16, 20))
        if picture is not None:
            pygame.surfarray.blit_array(self._surface, picture.swapaxes(0, 1))
        for number, line in enumerate(lines):
            self._surface.blit(self._font.render(line, True, _TEXT_COLOUR), (8, _TEXT_TOP + 18 * number))
        pygame.display.flip()

    def close(self) -> None:
        """Close the window."""
        self._pygame.display.quit()


#: Each kind, and whether it lasts (forever if no time is given) or happens once.
KINDS = {"crash": False, "move": False, "hang": True, "freeze": True, "stall": True, "drop": True}
_STANDARD_INPUT = 0
#: Commands besides the kinds.
_COMMANDS = ("pause", "speed", "die", "state", "quit")


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
    """Read how long a misbehaviour lasts, in seconds; forever if the text is empty. With 0 one under way ends.

    Raises:
        SoulsGraphError: for anything but a number of at least 0, or for a length of what happens once.
    """
    if not text:
        return inf
    if not KINDS[kind]:
        raise SoulsGraphError(f"{kind}: expected no length, for it happens once; found {text!r}.")
    return _seconds(text, f"{kind} {text}")


def _seconds(text: str, whole: str) -> float:
    with suppress(ValueError):
        if 0.0 <= float(text) < inf:
            return float(text)
    raise SoulsGraphError(
        f"misbehaviour: expected KIND@START or KIND@START+SECONDS, such as freeze@5+3; found {whole!r}."
    )


class Schedule:
    """The coming and present misbehaviours, by wall time since the stand-in was ready.

    `on(kind)` is whether a lasting misbehaviour is under way; `due()` returns those that begin now.
    """

    def __init__(self, plan: Sequence[Misbehaviour], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._begun_s = clock, clock()
        self._waiting = sorted(plan, key=lambda one: one.start_s)
        self._until_s: dict[str, float] = {}

    def add(self, kind: str, length_s: float = inf) -> None:
        """Let a misbehaviour begin now."""
        self._waiting.insert(0, Misbehaviour(kind, 0.0, length_s))

    def due(self) -> list[Misbehaviour]:
        """Return the misbehaviours that begin now, each once; lasting ones are `on` from now."""
        now = self._clock()
        begun = [one for one in self._waiting if self._begun_s + one.start_s <= now]
        for one in begun:
            self._waiting.remove(one)
            self._until_s[one.kind] = now + one.length_s
        return begun

    def on(self, kind: str) -> bool:
        """Return whether a lasting misbehaviour is under way."""
        return self._until_s.get(kind, -inf) > self._clock()


def crash(folder: Path) -> None:
    """End this process like a crashed game, after removing its folder, as nothing else would."""
    import resource

    shutil.rmtree(folder, ignore_errors=True)
    # No core dump.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(length_s: float) -> None:
    """Stop answering for a time; signals still end the process."""
    end = time.monotonic() + length_s
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 1.0))


_PICTURES_PER_S = 10
#: Characters in a line of the help.
_HELP_WIDTH = 80
#: After a hold-up longer than this the lost frames are not made up for.
_MOST_LATE_S = 0.1


def run(options: StandInOptions) -> None:
    """Run a stand-in until its window is closed, a command ends it, or its time is over.

    Raises:
        SoulsGraphError: for options that do not fit, or a display that cannot be opened.
    """
    plan = [parse_misbehaviour(text) for text in options.misbehave]
    address_map = load_address_map(options.map)
    surroundings = load_surroundings(options.encounter) if options.encounter else surroundings_of(address_map.name)
    scenario = load_scenario(options.scenario or surroundings.scenario)
    world = StandInWorld(surroundings, scenario, options.seed, options.at != "arena", options.at != "new-game")
    world.switches["game_speed"] = options.speed
    with ExitStack() as stack:
        ended = stack.enter_context(ended_by_signals())
        folder = stack.enter_context(temporary_folder("soulsgraph-standin-"))
        name_process(address_map.process)
        window = GameWindow(address_map.window, options.display, keeps_mouse=options.until_eof)
        stack.callback(window.close)
        memory = OwnMemory(address_map, folder, surroundings)
        stack.callback(memory.close)
        stand_in = StandIn(options, world, memory, window, Keyboard(load_bindings(address_map.bindings)))
        if options.settings:
            save_game(options.settings, settings_of(options, address_map.window))
        stand_in.say("ready", pid=os.getpid(), map=address_map.name, base=memory.base)
        stand_in.play(Schedule(plan), folder, ended)


class StandIn:
    """A world with a window and a memory, that misbehaves and takes commands, one per line of standard input."""

    def __init__(
        self, options: StandInOptions, world: StandInWorld, memory: OwnMemory, window: GameWindow, keyboard: Keyboard
    ) -> None:
        self._options, self._world, self._memory = options, world, memory
        self._window, self._keyboard = window, keyboard
        self._over = self._paused = False
        self._loads, self._part_of_frame = world.loads, 0.0
        self._memory.write(self._values())
        self._lines: deque[str] = deque()
        threading.Thread(target=self._listen, daemon=True).start()

    def say(self, event: str, **values: object) -> None:
        """Print a line: the event and its values, for people or as JSON."""
        if self._options.json_lines:
            print(to_json({"event": event, **values}), flush=True)
        else:
            print(f"{event}: {', '.join(f'{name} {value}' for name, value in values.items())}", flush=True)

    def play(self, schedule: Schedule, folder: Path, ended: threading.Event) -> None:
        """Play until the end, or until it is ended, polling keys and memory before each frame."""
        following, next_picture = time.monotonic(), 0.0
        end_s = following + (self._options.seconds or inf)
        while not (self._over or ended.is_set()) and time.monotonic() < end_s:
            self._misbehave(schedule, folder)
            while self._lines:
                try:
                    self._obey(self._lines.popleft(), schedule)
                except SoulsGraphError as error:
                    self.say("error", message=str(error))
            if not schedule.on("stall"):
                self._hear(dropping=schedule.on("drop"))
                if following >= next_picture:
                    self._show()
                    next_picture = following + 1.0 / _PICTURES_PER_S
            self._advance(frozen=schedule.on("freeze"))
            following = _wait(following + 1.0 / (FRAMES_PER_S * max(self._world.speed, 1.0)))

    def _listen(self) -> None:
        # Read below Python's buffers: a thread that waits in one of them can break the end of the process.
        rest = b""
        with suppress(OSError):
            while piece := os.read(_STANDARD_INPUT, 4096):
                *lines, rest = (rest + piece).split(b"\n")
                self._lines.extend(line for line in (one.decode(errors="replace").strip() for one in lines) if line)
        if self._options.until_eof:
            self._over = True

    def _obey(self, line: str, schedule: Schedule) -> None:
        word, _, argument = line.partition(" ")
        if word in KINDS:
            schedule.add(word, length_of(word, argument))
        elif word == "pause":
            self._paused = not self._paused
        elif word == "speed":
            self._set_speed(_factor(argument))
        elif word == "die":
            self._world.kill_player()
        elif word == "state":
            # The true state of the world, whatever the memory shows.
            shown = {"stage": self._world.stage.value, "fighting": self._world.fighting}
            self.say("state", **self._values(), **shown, keys=sorted(self._keyboard.down))
        elif word == "quit":
            self._over = True
        else:
            raise UnknownNameError("command", word, (*KINDS, *_COMMANDS))

    def _set_speed(self, factor: float) -> None:
        self._world.switches["game_speed"] = factor

    def _advance(self, frozen: bool) -> None:
        """Play a frame between reading what others wrote and showing what became of it."""
        world, memory = self._world, self._memory
        if not frozen:
            world.write(memory.foreign_writes())
        self._part_of_frame += 0.0 if self._paused else world.speed / max(world.speed, 1.0)
        if self._part_of_frame >= 1.0:
            self._part_of_frame -= 1.0
            world.frame(self._keyboard.controls())
        if frozen:
            return
        if world.stage is CourseStage.TITLE or (world.stage is CourseStage.LOADING and world.surroundings.load_unlinks):
            memory.unlink()
        elif world.loads != self._loads:
            self._loads = world.loads
            memory.load()
        memory.write(self._values())

    def _values(self) -> dict[str, float | str]:
        return self._world.readings() | {"window_width": WIDTH, "window_height": HEIGHT, "screen_mode": 0}

    def _hear(self, dropping: bool) -> None:
        for event, key in self._window.events():
            if event == "close":
                self._over = True
            elif event == "blur":
                self._keyboard.release_all()
            elif dropping:
                continue
            elif event == "release":
                self._keyboard.release(key)
            elif key == "f5":
                self._paused = not self._paused
            elif key == "f6":
                self._set_speed(self._world.speed % 3.0 + 1.0)
            elif not self._world.navigate(key):
                self._keyboard.press(key)

    def _show(self) -> None:
        world = self._world
        stage = "paused" if self._paused else world.stage.value
        if world.stage in (CourseStage.LOADING, CourseStage.TITLE):
            self._window.draw(None, [stage, *(["You died. You wake at the bonfire."] if world.died else [])])
            return
        scene = world.scene()
        if scene.goal is not None:
            died = "You died. " if world.died else ""
            way = f"{died}Walk to {scene.goal.name} and press {self._keyboard.name_of('interact')} there."
            scene = replace(scene, hint=way)
        status, keys = f"{stage}, speed {world.speed:g}", f"{self._keyboard.help}; F5 pause, F6 speed"
        self._window.draw(render(scene, (HEIGHT, WIDTH)), [status, *wrap(keys, _HELP_WIDTH)])

    def _misbehave(self, schedule: Schedule, folder: Path) -> None:
        for one in schedule.due():
            if one.kind == "move":
                # Before it is reported: whoever attaches then finds the whole game.
                self._memory.move()
                self._memory.write(self._values())
            self.say("misbehaving", kind=one.kind)
            if one.kind == "crash":
                crash(folder)
            elif one.kind == "hang":
                hang(one.length_s)


def _factor(text: str) -> float:
    with suppress(ValueError):
        if isfinite(float(text)):
            return float(text)
    raise SoulsGraphError(f"speed: expected a number, found {text!r}.")


def _wait(until: float) -> float:
    """Sleep until a moment and return it; return now if it is long past."""
    left = until - time.monotonic()
    if left > 0:
        time.sleep(left)
    return until if left > -_MOST_LATE_S else time.monotonic()
