"""The stand-in game as a program: its window, which hears keys, and the memory that others read and write."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from textwrap import wrap
from typing import Any

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.terminal import handled_by, hangups
from soulsgraph_envs.games.address_map import load_address_map
from soulsgraph_envs.games.guarded_device import find_window
from soulsgraph_envs.games.keys import Inputs, Keyboard, WindowEvent, load_bindings
from soulsgraph_envs.games.link import save_game
from soulsgraph_envs.games.standin.launch import StandInOptions, load_surroundings, settings_of
from soulsgraph_envs.games.standin.memory import OwnMemory, name_process
from soulsgraph_envs.games.standin.world import CourseStage, StandInWorld
from soulsgraph_envs.render.pictures import import_pygame
from soulsgraph_envs.simulator.layout import FRAMES_PER_S
from soulsgraph_envs.simulator.render import render

WIDTH, HEIGHT = 800, 450
#: Below the fighters, above the boss's bar.
_TEXT_TOP, _TEXT_SIZE, _TEXT_COLOUR = 340, 17, (230, 230, 230)
_PICTURES_PER_S = 10
#: Characters in a line of the help.
_HELP_WIDTH = 80
#: After a hold-up longer than this the lost frames are not made up for.
_MOST_LATE_S = 0.1
_STANDARD_INPUT = 0


class GameWindow:
    """A window, open as long as the program runs.

    Raises:
        GameError: if pygame is not installed, or no display can be opened.
    """

    def __init__(self, title: str, display: str) -> None:
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


def run(options: StandInOptions, report: Callable[[dict[str, object]], None]) -> None:
    """Run a stand-in until its window is closed or its input ends; `report` how others find it once they can.

    Raises:
        SoulsGraphError: for options that do not fit, or a display that cannot be opened.
    """
    surroundings = load_surroundings(options.encounter)
    address_map = load_address_map(options.map or surroundings.map)
    scenario = load_scenario(options.scenario or surroundings.scenario)
    world = StandInWorld(surroundings, scenario, options.seed, options.at != "arena", options.at != "new-game")
    world.switches["game_speed"] = options.speed
    with ExitStack() as stack:
        ended = stack.enter_context(ended_by_signals())
        name_process(address_map.process)
        window = GameWindow(address_map.window, options.display)
        stack.callback(window.close)
        memory = OwnMemory(address_map, surroundings.boss_name)
        stack.callback(memory.close)
        stand_in = StandIn(world, memory, window, Keyboard(load_bindings(address_map.bindings)))
        if options.settings:
            save_game(options.settings, settings_of(options, address_map.name, address_map.window))
        if options.until_eof:
            threading.Thread(target=_await_end, args=(ended,), daemon=True).start()
        report({"pid": os.getpid(), "map": address_map.name})
        stand_in.play(ended)


def _await_end(ended: threading.Event) -> None:
    """Set the event at the end of standard input."""
    with suppress(OSError):
        # Read below Python's buffers: a thread that waits in one of them can break the end of the process.
        while os.read(_STANDARD_INPUT, 4096):
            pass
    ended.set()


class StandIn:
    """A world with a window and a memory."""

    def __init__(self, world: StandInWorld, memory: OwnMemory, window: GameWindow, keyboard: Keyboard) -> None:
        self._world, self._memory, self._window, self._keyboard = world, memory, window, keyboard
        self._paused = False
        self._loads, self._part_of_frame = world.loads, 0.0
        self._memory.write(self._values())

    def play(self, ended: threading.Event) -> None:
        """Play until the event is set or the window is closed, polling keys and memory before each frame."""
        following, next_picture = time.monotonic(), 0.0
        while not ended.is_set():
            for event in self._window.events():
                if event.kind == "close":
                    ended.set()
                self._hear(event)
            if following >= next_picture:
                self._show()
                next_picture = following + 1.0 / _PICTURES_PER_S
            self._advance()
            following = _wait(following + 1.0 / (FRAMES_PER_S * max(self._world.speed, 1.0)))

    def _advance(self) -> None:
        """Play a frame between reading what others wrote and showing what became of it."""
        world, memory = self._world, self._memory
        world.write(memory.foreign_writes())
        self._part_of_frame += 0.0 if self._paused else world.speed / max(world.speed, 1.0)
        if self._part_of_frame >= 1.0:
            self._part_of_frame -= 1.0
            world.frame(self._keyboard.controls())
        if world.stage is CourseStage.LOADING:
            memory.unlink()
        elif world.loads != self._loads:
            self._loads = world.loads
            memory.load()
        memory.write(self._values())

    def _values(self) -> dict[str, float | str]:
        return self._world.readings() | {"window_width": WIDTH, "window_height": HEIGHT, "screen_mode": 0}

    def _hear(self, event: WindowEvent) -> None:
        if event.kind == "blur":
            self._keyboard.release_all()
        elif event.kind == "release":
            self._keyboard.release(event.key)
        elif event.key == "f5":
            self._paused = not self._paused
        elif event.key == "f6":
            self._world.switches["game_speed"] = self._world.speed % 3.0 + 1.0
        elif event.kind == "press":
            self._keyboard.press(event.key)

    def _show(self) -> None:
        world = self._world
        stage, died = "paused" if self._paused else world.stage.value, "You died. " if world.died else ""
        if world.stage is CourseStage.LOADING:
            self._window.draw(None, [stage, f"{died}You wake at the bonfire."])
            return
        scene = world.scene()
        if scene.goal is not None:
            interact = self._keyboard.name_of("interact")
            scene = replace(scene, hint=f"{died}Walk to {scene.goal.name} and press {interact} there.")
        status, keys = f"{stage}, speed {world.speed:g}", f"{self._keyboard.help}; F5 pause, F6 speed"
        self._window.draw(render(scene, (HEIGHT, WIDTH)), [status, *wrap(keys, _HELP_WIDTH)])


def _wait(until: float) -> float:
    """Sleep until a moment and return it; return now if it is long past."""
    left = until - time.monotonic()
    if left > 0:
        time.sleep(left)
    return until if left > -_MOST_LATE_S else time.monotonic()
