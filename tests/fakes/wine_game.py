"""A Windows program of our own that stands for the game, played by the stand-in's world.

`wine_game.c` becomes DarkSoulsIII.exe with the memory of the address map: code that holds its patterns, globals at
its distances, and the blocks behind them, copied from the stand-in's. It hears keys; what they do is decided here, and
written into its memory as the game would.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from fakes.programs import COMPILER, PATIENCE_S, RESOURCES
from fakes.waiting import until
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.games.address_map import Base, Entry, load_address_map
from soulsgraph_envs.games.keys import KEYS, Keyboard, WindowEvent, load_bindings
from soulsgraph_envs.games.link import GameSettings, Reading
from soulsgraph_envs.games.memory_link import AttachedGame, attach_game
from soulsgraph_envs.games.memory_reader import Reader, read_mappings
from soulsgraph_envs.games.standin.launch import load_surroundings
from soulsgraph_envs.games.standin.memory import Cell, OwnMemory
from soulsgraph_envs.games.standin.program import HEIGHT, WIDTH, GameWindow, StandIn
from soulsgraph_envs.games.standin.world import StandInWorld

MAP = load_address_map("dark-souls-3-1.15.2")
#: Bytes copied of each global: a pointer, or the flags that lie in the module itself.
GLOBAL_SIZE = 0x40
#: The scan codes of an English keyboard's rows, each from its first on, and of the blank.
_ROWS = {0x02: "digits", 0x10: "upper", 0x1E: "home", 0x2C: "lower"}
_SCAN_CODES = {first + at: key for first, row in _ROWS.items() for at, key in enumerate(KEYS["rows"][row]["keys"])}
_SCAN_CODES[0x39] = "space"
#: The boss does nothing once no key was heard for this long.
_WAITS_AFTER_S = 5.0


class WineGame(NamedTuple):
    """A running program, the content of its memory, and its output."""

    settings: GameSettings
    values: Reading
    output: Path

    def said(self) -> set[str]:
        """Return the lines that it has printed."""
        return set(self.output.read_text().splitlines())


def instruction(name: str, base: Base, place: int) -> str:
    """Assemble the bytes of a base's pattern, their displacement leading to `place` in the image."""
    words = ["0" if word == "??" else f"0x{word}" for word in base.pattern.split()]
    at = base.displacement_at
    return (
        f"{name}: .byte {', '.join(words[:at])}\n.long __ImageBase + {place} - ({name} + {base.length})\n"
        f".byte {', '.join(words[at + 4 :])}\n"
    )


def assemble(game: AttachedGame, folder: Path) -> str:
    """Write the memory of a game as assembler: instructions, room for globals, and the blocks behind them."""
    reader, bases = game.reader, game.memory.bases
    places = {name: resolved.address - game.module.base for name, resolved in bases.items()}
    patterned = {name: base for name, base in MAP.bases.items() if base.pattern}
    code = "".join(instruction(name, base, places[name]) for name, base in patterned.items())
    pieces = {f"__ImageBase + {place}": reader.read(bases[name].address, GLOBAL_SIZE) for name, place in places.items()}
    pointer = int.from_bytes(reader.read(bases["world"].address, 8), "little")
    (heap,) = (one for one in read_mappings(reader.pid) if one.start <= pointer < one.end)
    pieces[str(heap.start)] = reader.read(heap.start, heap.end - heap.start)
    table, contents = "", ""
    for number, (at, data) in enumerate(pieces.items()):
        (folder / f"{number}.bin").write_bytes(data)
        contents += f'piece_{number}: .incbin "{number}.bin"\n'
        table += f".quad {at}, {len(data)}, piece_{number}\n"
    return (
        f'.text\n{code}.bss\n.space {max(places.values()) + GLOBAL_SIZE}\n.section .rdata, "dr"\n{contents}.balign 8\n'
        f".globl pieces, pieces_end, watched\npieces:\n{table}pieces_end:\n"
        f"watched: .quad {game.memory.address('player_hp')}\n"
    )


def build(folder: Path) -> Reading:
    """Build the program in a folder, and return the content of its memory."""
    surroundings = load_surroundings("iudex")
    world = StandInWorld(surroundings, load_scenario(surroundings.scenario), seed=0, at_bonfire=False)
    values = world.readings() | {"window_width": WIDTH, "window_height": HEIGHT, "screen_mode": 0}
    memory = OwnMemory(MAP, surroundings.boss_name)
    try:
        memory.write(values)
        (folder / "layout.s").write_text(assemble(attach_game(GameSettings(pid=os.getpid()), MAP), folder))
    finally:
        memory.close()
    (folder / "version.rc").write_text(f"1 VERSIONINFO FILEVERSION {MAP.version.replace('.', ',')} BEGIN END\n")
    source = Path(__file__).with_name("wine_game.c")
    linking = ["-lgdi32", "-Wl,--disable-dynamicbase", "-o", MAP.process]
    for command in (
        [RESOURCES, "version.rc", "-O", "coff", "version.o"],
        [COMPILER, "-s", "-O1", "-Wall", "-Wextra", str(source), "layout.s", "version.o", *linking],
    ):
        subprocess.run(command, cwd=folder, check=True, timeout=PATIENCE_S)
    return values


@contextmanager
def running_wine_game(folder: Path, environment: dict[str, str]) -> Iterator[WineGame]:
    """Build the program in a folder, and run it in a prefix until the context ends."""
    values, output = build(folder), folder / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(["wine", MAP.process, MAP.window], cwd=folder, env=environment, stdout=file)
        try:
            running = WineGame(GameSettings(pid=process.pid, display=environment["DISPLAY"]), values, output)
            until(lambda: "ready" in running.said() or process.poll() is not None, "the window")
            assert process.poll() is None, running.said()
            yield running
        finally:
            process.kill()
            process.wait()


@contextmanager
def world_in(game: WineGame, at_bonfire: bool) -> Iterator[StandInWorld]:
    """Play the stand-in's world in a running program: its keys steer, its memory shows what becomes of it."""
    surroundings = load_surroundings("iudex")
    world = StandInWorld(surroundings, load_scenario(surroundings.scenario), seed=0, at_bonfire=at_bonfire)
    attached = attach_game(game.settings, MAP)
    keys = _HeardKeys(game.output)
    played = _Waiting(world, _TheirMemory(attached), keys, Keyboard(load_bindings(MAP.bindings)))
    playing = threading.Thread(target=played.play, args=(keys.closed,))
    with closing(attached.reader):
        playing.start()
        try:
            yield world
        finally:
            keys.closed.set()
            playing.join(PATIENCE_S)


class _Waiting(StandIn):
    """A stand-in without a picture, whose boss waits for somebody who plays: programs start slowly under Wine."""

    def __init__(self, world: StandInWorld, memory: OwnMemory, keys: _HeardKeys, keyboard: Keyboard) -> None:
        super().__init__(world, memory, keys, keyboard)
        self._keys = keys

    def _show(self) -> None:
        """Draw nothing: the program has its own window."""

    def _advance(self) -> None:
        self._world.switches["no_ai"] = float(time.monotonic() - self._keys.heard_s > _WAITS_AFTER_S)
        super()._advance()


class _HeardKeys(GameWindow):
    """The keys that the program hears, by the lines that it prints, until it is `closed`.

    `heard_s` is when the last one was.
    """

    def __init__(self, output: Path) -> None:
        self.closed, self.heard_s = threading.Event(), -inf
        self._output, self._at = output, output.stat().st_size

    def events(self) -> list[WindowEvent]:
        with self._output.open("rb") as file:
            file.seek(self._at)
            *lines, _ = file.read().split(b"\n")
        self._at += sum(len(line) + 1 for line in lines)
        events = [event for line in lines for event in _heard(line.decode().split())]
        self.heard_s = time.monotonic() if events else self.heard_s
        return events


def _heard(words: list[str]) -> list[WindowEvent]:
    if words == ["blur"]:
        return [WindowEvent("blur")]
    if words[:1] in (["down"], ["up"]) and (key := _SCAN_CODES.get(int(words[1], 16))):
        return [WindowEvent("press" if words[0] == "down" else "release", key)]
    return []


class _Span:
    """Bytes of another process."""

    def __init__(self, reader: Reader, address: int, size: int) -> None:
        self._reader, self._address, self._size = reader, address, size

    def __bytes__(self) -> bytes:
        return self._reader.read(self._address, self._size)

    def __getitem__(self, at: int) -> int:
        return bytes(self)[at]

    def __setitem__(self, _: slice, data: bytes) -> None:
        self._reader.write(self._address, data)


class _TheirMemory(OwnMemory):
    """The program's memory, which stays where it is."""

    def __init__(self, game: AttachedGame) -> None:
        memory = game.memory
        self._cells = []
        for name in MAP.readable():
            entry = MAP.fields.get(name, Entry("", (), type="u32"))
            span: Any = _Span(game.reader, memory.address(name), entry.size)
            self._cells.append((name, Cell(entry, span)))

    def load(self) -> None:
        """Leave all where it is."""

    def unlink(self) -> None:
        """Leave all where it is."""
