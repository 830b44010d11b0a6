"""The stand-in's memory, read from outside as by a reader of a real game."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import pytest

from soulsgraph_envs.core.config import shipped_names
from soulsgraph_envs.games.address_map import load_address_map
from soulsgraph_envs.games.link import FIELDS, GameSettings, LinkError
from soulsgraph_envs.games.memory_link import AttachedGame, attach_game
from soulsgraph_envs.games.standin.memory import OwnMemory

GAME = "dark-souls-3-1.15.2"
MAPS = shipped_names("address map")


def some_values() -> dict[str, float | str]:
    """Return a distinct value for every field, one that fits any type."""
    values: dict[str, float | str] = {name: float(number + 2) for number, name in enumerate(FIELDS)}
    values |= {name: 1.0 for name, field in FIELDS.items() if "flag" in field.unit}
    values |= {name: f"name {len(name)}" for name, field in FIELDS.items() if field.kind == "text"}
    return values | {"boss_name": "c5110"}


@pytest.fixture
def memory(request: pytest.FixtureRequest) -> Iterator[OwnMemory]:
    own = OwnMemory(load_address_map(getattr(request, "param", GAME)), "c5110")
    own.write(some_values())
    yield own
    own.close()


def attach(name: str = GAME) -> AttachedGame:
    return attach_game(GameSettings(pid=os.getpid()), load_address_map(name))


def read(address: int, layout: str) -> int:
    with open(f"/proc/{os.getpid()}/mem", "rb", 0) as file:
        return int(struct.unpack("<" + layout, os.pread(file.fileno(), struct.calcsize(layout), address))[0])


@pytest.mark.parametrize("memory", MAPS, indirect=True)
def test_every_field_of_a_map_is_read_back(memory: OwnMemory, request: pytest.FixtureRequest) -> None:
    address_map = load_address_map(request.node.callspec.params["memory"])
    game, values = attach(address_map.name), some_values()
    assert game.version == address_map.version
    found = game.memory.read()
    assert set(found) == address_map.readable()
    assert found == {name: pytest.approx(values[name]) for name in found}


def test_static_chain_and_walk_lead_to_the_same_boss_as_hand_worked(memory: OwnMemory) -> None:
    enemies = read(memory.image.base + 0x475A7A8, "Q")
    by_chain = read(read(read(enemies, "Q") + 0x320, "Q"), "Q")
    world = read(memory.image.base + 0x477FDB8, "Q")
    assert read(world + 0xC0, "i") == 2
    second_block = read(world + 0xC8 + 8, "Q")
    entries = read(second_block + 0x88, "Q")
    assert read(entries, "Q") == 0
    assert read(entries + 0x38, "Q") == by_chain
    data = read(read(by_chain + 0x1F90, "Q") + 0x18, "Q")
    assert read(data + 0xD8, "i") == some_values()["boss_hp"]


def test_loading_screen_moves_the_blocks(memory: OwnMemory) -> None:
    game = attach()
    before = game.memory.address("player_hp")
    memory.unlink()
    with pytest.raises(LinkError):
        game.memory.read()
    assert game.memory.look_up("play_time_s")[1] > 0
    memory.load()
    memory.write(some_values() | {"player_hp": 400.0})
    assert game.memory.read()["player_hp"] == 400.0
    assert game.memory.address("player_hp") != before
    # Freed memory keeps for a while what lay there: a reader must not go by old addresses.
    assert read(before, "i") == some_values()["player_hp"]
