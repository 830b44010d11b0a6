"""Run the stand-in: frames in real time, keys in, memory out."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path

from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.keys.bindings import load_bindings
from soulsgraph_envs.live.settings import save_game
from soulsgraph_envs.memory.address_map import AddressMap, load_address_map
from soulsgraph_envs.simulator.layout import FRAMES_PER_S
from soulsgraph_envs.standin.memory import OwnMemory
from soulsgraph_envs.standin.misbehaviour import Commands, Schedule, crash, hang, parse_misbehaviour
from soulsgraph_envs.standin.native import name_process
from soulsgraph_envs.standin.options import StandInOptions
from soulsgraph_envs.standin.readings import Readings
from soulsgraph_envs.standin.starting import ended_by_signals, settings_of
from soulsgraph_envs.standin.surroundings import load_surroundings, surroundings_of
from soulsgraph_envs.standin.window import HEIGHT, WIDTH, GameWindow, Keyboard
from soulsgraph_envs.standin.world import Stage, World
from soulsgraph_envs.temporary import temporary_folder

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
