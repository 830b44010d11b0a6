"""A game under Wine, as a Proton user meets it: a Windows program of our own, read, written, keyed and examined.

`wine_game.c` becomes DarkSoulsIII.exe with the memory of the address map: code that holds its patterns, globals at
its distances, and the blocks behind them, copied from the stand-in's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fakes.keys import virtual_screen
from fakes.programs import COMPILER, PATIENCE_S, RESOURCES, missing_for_wine, wine
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.games.address_map import Base, load_address_map
from soulsgraph_envs.games.doctor import examine
from soulsgraph_envs.games.guarded_device import HeldKeys
from soulsgraph_envs.games.keys import load_bindings
from soulsgraph_envs.games.link import GameSettings, Reading
from soulsgraph_envs.games.memory_link import AttachedGame, MemoryLink, attach_game
from soulsgraph_envs.games.memory_reader import ProcessGoneError, read_mappings
from soulsgraph_envs.games.standin.launch import surroundings_of
from soulsgraph_envs.games.standin.memory import OwnMemory
from soulsgraph_envs.games.standin.program import HEIGHT, WIDTH
from soulsgraph_envs.games.standin.world import StandInWorld

MAP = load_address_map("dark-souls-3-1.15.2")
#: Bytes copied of each global: a pointer, or the flags that lie in the module itself.
GLOBAL_SIZE = 0x40
MISSING = missing_for_wine()

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


class WineGame(NamedTuple):
    """A running program, the content of its memory, and its output."""

    settings: GameSettings
    values: Reading
    output: Path

    def said(self) -> set[str]:
        return set(self.output.read_text().splitlines())


def until(met: Callable[[], bool], what: object) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not met():
        assert time.monotonic() < end_s, f"{what} did not come"
        time.sleep(0.02)


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
    surroundings = surroundings_of(MAP.name)
    world = StandInWorld(surroundings, load_scenario(surroundings.scenario), seed=0, at_bonfire=False)
    values = world.readings() | {"window_width": WIDTH, "window_height": HEIGHT, "screen_mode": 0}
    memory = OwnMemory(MAP, folder, surroundings)
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


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WineGame]:
    folder = tmp_path_factory.mktemp("wine")
    values, output = build(folder), folder / "output"
    with virtual_screen() as display, wine(folder, display) as environment, output.open("wb") as file:
        process = subprocess.Popen(["wine", MAP.process, MAP.window], cwd=folder, env=environment, stdout=file)
        try:
            settings = GameSettings(pid=process.pid, display=display)
            running = WineGame(settings, values, output)
            until(lambda: "ready" in running.said() or process.poll() is not None, "the window")
            assert process.poll() is None, running.said()
            yield running
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def link(game: WineGame) -> Iterator[MemoryLink]:
    link = MemoryLink(game.settings)
    link.attach(PATIENCE_S)
    yield link
    link.close()


def test_every_field_is_read_and_what_is_written_reaches_the_program(game: WineGame, link: MemoryLink) -> None:
    assert link.game.version == MAP.version
    assert {base.found_by for name, base in link.game.memory.bases.items() if MAP.bases[name].pattern} == {"pattern"}
    reading = link.read()
    assert reading.keys() == MAP.readable()
    assert reading == {name: pytest.approx(game.values[name]) for name in reading}
    until(lambda: f"value {reading['player_hp']:.0f}" in game.said(), "the value as it was")
    link.write({"player_hp": 321, "no_death": 1})
    assert (link.read()["player_hp"], link.read()["no_death"]) == (321, 1)
    until(lambda: "value 321" in game.said(), "the value as it was written")
    link.write({name: float(game.values[name]) for name in ("player_hp", "no_death")})


def test_every_key_of_the_bindings_reaches_the_program_in_each_way_that_games_ask_for_keys(
    game: WineGame, link: MemoryLink
) -> None:
    link.focus()
    until(link.focused, "the keyboard")
    with HeldKeys(link.keys) as held:
        for key in load_bindings(MAP.bindings).keys:
            # The codes of winuser.h for letters and the blank are theirs in ASCII.
            code = f"{ord(' ' if key == 'space' else key.upper()):02X}"
            held.hold((key,))
            heard = {f"{way} {code}" for way in ("message", "raw", "state")}
            until(lambda heard=heard: heard <= game.said(), heard)


def test_the_window_is_photographed(link: MemoryLink) -> None:
    link.focus()
    picture = link.capture()
    assert picture.shape == (HEIGHT, WIDTH, 3)
    until(lambda: bool((link.capture() == [192, 32, 16]).all()), "a picture of the window's one colour")


def test_doctor_finds_everything_that_playing_needs(game: WineGame, link: MemoryLink) -> None:
    link.focus()
    until(link.focused, "the keyboard")
    checks = {check.name: check for check in examine([game.settings])}
    failed = {name: check.found for name, check in checks.items() if not check.passed}
    assert not failed
    assert {checks[name].status for name in ("game", "version", "window", "resolution", "key round trip")} == {"ok"}
    assert checks["window"].found == f"{MAP.window!r}, with the keyboard"
    doubted = {name for name in MAP.readable() if checks[name].status != "ok"}
    assert doubted == {name for name in MAP.readable() if not MAP.entry(name).verified}


def test_a_game_that_ended_is_reported_as_ended(game: WineGame, link: MemoryLink) -> None:
    os.kill(game.settings.pid, signal.SIGKILL)

    def gone() -> bool:
        try:
            link.read()
        except ProcessGoneError:
            return True
        return False

    until(gone, "the end")
