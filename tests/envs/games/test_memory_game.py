"""A game's fields in the stand-in's memory: what moves, breaks and is gone. Its own tests work the layout by hand."""

import math
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.address_map import load_address_map
from soulsgraph_envs.games.link import FIELDS, LinkError
from soulsgraph_envs.games.memory_link import GameMemory, resolve_bases
from soulsgraph_envs.games.memory_reader import LinuxReader
from soulsgraph_envs.games.standin.memory import OwnMemory, view

MAP = load_address_map("dark-souls-3-1.15.2")
WORLD, GAME_DATA = 0x477FDB8, 0x47572B8
#: Of an item's list.
ENTRY, ITEM_AT, QUANTITY_AT = 16, 4, 8
ELSEWHERE = "48 8B 05 ?? ?? ?? ?? 11 22 33 44 55"


class RecordingReader(LinuxReader):
    """Record what is written."""

    def __init__(self, process: int) -> None:
        super().__init__(process)
        self.writes: list[tuple[int, bytes]] = []

    def write(self, address: int, data: bytes) -> None:
        self.writes.append((address, data))
        super().write(address, data)


def poke(address, layout, value):
    view(address, struct.calcsize(layout))[:] = struct.pack("<" + layout, value)


def pointer(address, *offsets):
    """Follow a pointer, and further ones behind it."""
    for offset in (0, *offsets):
        address = int.from_bytes(view(address + offset, 8), "little")
    return address


def rename_boss(memory, name):
    at = memory.address("boss_name")
    view(at, 2 * len(name))[:] = name.encode("utf-16-le")


@contextmanager
def laid_out(lost=(), version=MAP.version) -> Iterator[OwnMemory]:
    """Lay out a game of a version, some patterns of whose code are lost."""
    bases = {name: replace(base, pattern=ELSEWHERE) if name in lost else base for name, base in MAP.bases.items()}
    own = OwnMemory(replace(MAP, bases=bases, version=version), "c5110")
    texts = {name: "Idle" for name, field in FIELDS.items() if field.kind == "text"}
    own.write(dict.fromkeys(FIELDS, 1.0) | texts | {"boss_name": "c5110", "boss_hp": 900.0, "flasks": 3.0})
    try:
        yield own
    finally:
        own.close()


@pytest.fixture
def own():
    with laid_out() as own:
        yield own


def attach():
    reader = RecordingReader(os.getpid())
    return GameMemory(reader, MAP, resolve_bases(reader, reader.module(MAP.process), MAP), lambda: 0.0), reader


def test_boss_is_found_again_where_another_has_taken_its_place(own):
    memory, _ = attach()
    memory.read()
    assert memory.found.keys() == {"boss"}
    # The second entry of each of two loaded blocks.
    places = [pointer(own.image.base + WORLD, 0xC8 + 8 * block, 0x88) + 0x38 for block in (0, 1)]
    other, boss = map(pointer, places)
    poke(places[0], "Q", boss)
    poke(places[1], "Q", other)
    memory.write({"boss_hp": 500})
    assert own.foreign_writes() == {"boss_hp": 500.0}
    assert memory.read()["boss_hp"] == 500.0


def test_boss_that_is_gone_is_an_error_and_none_else_is_written_to(own):
    memory, reader = attach()
    memory.read()
    rename_boss(memory, "c9999")
    for ask in (memory.read, lambda: memory.write({"boss_hp": 1})):
        with pytest.raises(LinkError, match="c5110"):
            ask()
    assert not reader.writes


def test_chain_of_the_boss_serves_until_it_is_found_by_name(own):
    poke(pointer(own.image.base + WORLD) + 0xC0, "i", 0)
    memory, _ = attach()
    assert memory.read()["boss_hp"] == 900.0
    assert not memory.found
    rename_boss(memory, "c1000")
    with pytest.raises(LinkError, match="c1000"):
        memory.read()


def test_flasks_are_found_again_in_another_entry_and_a_list_that_is_gone_is_no_error(own):
    memory, _ = attach()
    assert memory.read()["flasks"] == 3.0
    saved = pointer(own.image.base + GAME_DATA, 0x10)
    stock = pointer(saved + 0x3E8)
    poke(stock + 4 * ENTRY + ITEM_AT, "I", 0x40000096 - 1)
    poke(stock + 6 * ENTRY + ITEM_AT, "I", 0x400000AB)
    poke(stock + 6 * ENTRY + QUANTITY_AT, "I", 2)
    assert memory.read()["flasks"] == 2.0
    memory.write({"flasks": 1})
    assert memory.read()["flasks"] == 1.0
    # Nothing confirms where the lists are.
    for one in MAP.inventories["flasks"].lists:
        poke(saved + one.entries_at, "Q", 0)
    assert math.isnan(memory.read()["flasks"])
    poke(pointer(own.image.base + WORLD) + 0x40, "Q", 0)
    with pytest.raises(LinkError):
        memory.read()


def test_neighbours_are_written_in_one_piece_and_a_bit_leaves_the_others(own):
    memory, reader = attach()
    world = own.image.base + WORLD
    flags, place = pointer(world, 0x80) + 0x1A08, pointer(world, 0x40, 0x28) + 0x80
    poke(flags, "B", 0b10100101)
    memory.write({"player_x": 1.5, "player_y": 3.5, "player_z": 2.5, "player_no_gravity": 1})
    assert sorted(reader.writes) == sorted([(flags, b"\xe5"), (place, struct.pack("<3f", 1.5, 2.5, 3.5))])
    reader.writes.clear()
    with pytest.raises(GameError, match="a value to write"):
        memory.write({"boss_hp": 5, "player_hp": math.nan})
    assert not reader.writes


def test_lost_pattern_falls_back_on_the_fixed_address_and_where_there_is_none_is_refused():
    with laid_out({"world"}):
        memory, _ = attach()
        assert {name for name, base in memory.bases.items() if base.found_by == "rva"} == {"camera", "enemies", "world"}
        assert memory.bases["world"].note
    with laid_out({"lock_on"}), pytest.raises(LinkError, match="lock_on"):
        attach()


def test_another_version_is_refused_where_patterns_are_lost_and_noted_where_they_stand():
    with laid_out(version="1.15.0.0"):
        memory, _ = attach()
        assert {name for name, base in memory.bases.items() if base.note} == {"camera", "enemies"}
    with laid_out({"world"}, "1.15.0.0"), pytest.raises(LinkError, match=r"world.*1\.15\.0\.0"):
        attach()
