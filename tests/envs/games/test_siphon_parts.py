"""The parts of a Siphon server and link, each by itself: addresses, keys, clients, tokens, items."""

from __future__ import annotations

import struct
from math import isnan
from pathlib import Path

import pytest

from fakes.keys import FakeDevice
from fakes.memory import FakeProcess, FakeReader
from fakes.waiting import until
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.keys import KEY_NAMES
from soulsgraph_envs.games.memory_reader import Module
from soulsgraph_envs.games.siphon_attributes import Attribute, ItemCount, ItemListNames
from soulsgraph_envs.games.siphon_link import (
    SIPHON_KEYS,
    ItemFinder,
    ItemMovedError,
    from_siphon,
    read_or_create_token,
    split_address,
    to_siphon,
)
from soulsgraph_envs.games.standin.siphon_server import ServedGame, ServedKeys

MODULE, HEAP, OBJECT = 0x140000000, 0x7F0000000000, 0x7F0000001000
PATTERN = "48 8B 05 ?? ?? ?? ?? 48 85 C0"
HOOK = "48 8B 48 08 49 89 8D"


def made_process() -> FakeProcess:
    """Return a game with two patterns: at 0x100 one that leads to the pointer at 0x800, at 0x200 a hooked one."""
    image = bytearray(0x1000)
    # 0x100 + 7 + 0x6F9 = 0x800.
    image[0x100:0x10A] = bytes.fromhex("48 8B 05 F9 06 00 00 48 85 C0")
    image[0x1F8:0x207] = struct.pack("<Q", HEAP) + bytes.fromhex(HOOK)
    image[0x800:0x808] = struct.pack("<Q", HEAP)
    image[0x900:0x902] = b"\x01\x08"
    heap, below = bytearray(0x100), bytearray(0x100)
    heap[0x40:0x48] = struct.pack("<Q", OBJECT)
    below[0xD8:0xE0] = struct.pack("<if", -7, 0.5)
    process = FakeProcess({MODULE: image, HEAP: heap, OBJECT: below})
    process.modules.append(Module("Game.exe", MODULE, 0x1000))
    return process


ATTRIBUTES = {
    "Hp": Attribute((0x40, 0xD8), "int", PATTERN),
    "Speed": Attribute((0x40, 0xDC), "float", PATTERN),
    "Both": Attribute((0x40, 0xD8), "array", PATTERN, length=8),
    "Target": Attribute((0x40, 0xD8), "int", HOOK, method="dll"),
    "Flag": Attribute((0x900,), "bool", method="module"),
    "Bit": Attribute((0x901,), "bool", method="module", mask=1 << 3),
    "Lost": Attribute((0x48, 0xD8), "int", PATTERN),
}


def served(process: FakeProcess, captured_slots: bool = True) -> ServedGame:
    game = ServedGame(lambda: process.pid, captured_slots, lambda pid: FakeReader(process))
    game.configure("game.exe", ATTRIBUTES)
    game.attach()
    return game


def test_attributes_are_found_by_siphons_rule() -> None:
    game = served(made_process())
    assert [game.read(name) for name in ("Hp", "Speed", "Target", "Flag", "Bit")] == [-7, 0.5, -7, True, True]
    assert game.read("Both") == struct.pack("<if", -7, 0.5)


def test_writes_touch_what_the_attribute_is_and_nothing_beside_it() -> None:
    process = made_process()
    game = served(process)
    process.memory[MODULE][0x901] = 0xF8
    game.write("Bit", False)
    game.write("Hp", 12)
    game.write("Both", struct.pack("<i", 13))
    assert process.memory[MODULE][0x901] == 0xF0
    assert process.memory[OBJECT][0xD8:0xE0] == struct.pack("<if", 13, 0.5)


@pytest.mark.parametrize(("name", "value"), [("Hp", 1.0), ("Speed", 1), ("Flag", 1), ("Both", bytes(9))])
def test_a_value_that_does_not_fit_is_refused(name: str, value: float | bytes) -> None:
    process = made_process()
    before = {address: bytes(data) for address, data in process.memory.items()}
    with pytest.raises(GameError, match=f"{name}: expected"):
        served(process).write(name, value)
    assert process.memory == before


def test_a_key_comes_up_with_the_last_client_that_holds_it() -> None:
    device, clients = FakeDevice(), {"one", "two"}
    keys = ServedKeys(device, lambda: clients)
    for client, key in (("one", "w"), ("two", "w"), ("two", "a")):
        keys.press(client, key)
    keys.release("one", "w")
    assert device.down == {"w", "a"}
    clients.remove("two")
    until(lambda: device.down == set())
    keys.press("one", "d")
    keys.close()
    assert (device.down, device.closed) == (set(), True)


def test_every_key_is_spelt_back() -> None:
    assert all(from_siphon(to_siphon(key)) == key for key in KEY_NAMES)
    assert from_siphon("left_Shift") == "left_shift"
    # Siphon's LEFT is the mouse's; its own server has no arrow keys, but EldenGym's client asks for them.
    assert (to_siphon("mouse_left"), from_siphon("LEFT")) == ("LEFT", "mouse_left")
    assert to_siphon("left") not in SIPHON_KEYS
    arrows = ["up", "down", "left", "right"]
    assert [from_siphon(f"{arrow.upper()}_ARROW") for arrow in arrows] == arrows


def test_a_token_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = read_or_create_token(path)
    assert len(token) > 40
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_or_create_token(path) == token
    with pytest.raises(GameError, match="no-such"):
        read_or_create_token(tmp_path / "no-such" / "token")
    for wrong in ("localhost", "pc:70000"):
        with pytest.raises(GameError, match=wrong):
            split_address(wrong)


ITEMS = ItemCount(
    lists=(ItemListNames("capacity", "entries"),),
    entry_size=16,
    item_at=4,
    quantity_at=8,
    items=(0x40000096, 0x400000AB),
)


def entry(item: int, quantity: int) -> bytes:
    return struct.pack("<IIII", 1, item, quantity, 0)


def test_an_item_is_followed_where_it_lies() -> None:
    whole = Attribute((0x10, 0x3E8, 0), "array", PATTERN)
    content = entry(5, 1) + entry(0x400000A0, 3) + entry(0x400000BE, 9)
    finder = ItemFinder("flasks", ITEMS)
    assert finder.locate([(whole, content)]) == finder.entries | finder.quantities
    assert [each.offsets for each in finder.entries.values()] == [(0x10, 0x3E8, 16)]
    assert [each.offsets for each in finder.quantities.values()] == [(0x10, 0x3E8, 24)]
    assert finder.total([content[16:32]]) == 3.0
    assert finder.write(2.0) == ("flasks_quantity_1", struct.pack("<i", 2))
    with pytest.raises(ItemMovedError):
        finder.total([content[:16]])
    for nowhere in (entry(5, 1), b""):
        assert finder.locate([(whole, nowhere)]) == {}
        assert isnan(finder.total([]))
        with pytest.raises(GameError, match="flasks"):
            finder.write(1.0)
