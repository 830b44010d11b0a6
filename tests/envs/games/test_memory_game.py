"""A game's fields in memory laid out by hand from the published chains, not by the map under test."""

import math
import struct

import pytest

from fakes.memory import FakeProcess, FakeReader
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.address_map import load_address_map
from soulsgraph_envs.games.link import LinkError
from soulsgraph_envs.games.memory_link import GameMemory, resolve_bases
from soulsgraph_envs.games.memory_reader import Module
from soulsgraph_envs.games.standin.memory import Sections, write_header, write_resources

BASE = 0x140000000
SIZE, PAGE = 0x4800000, 0x1000
#: Instructions as they stand in the game: the published patterns, wildcards filled; the displacement is at 3.
CODE = {
    "world": ("48 8B 1D 00 00 00 04 48 8B F9 48 85 DB 74 10 8B 11 85 D2 78 0A 8D", 0x477FDB8),
    "game_data": ("48 8B 05 00 00 00 00 48 85 C0 74 05 48 8B 40 68 C3", 0x47572B8),
    "game": ("48 8B 05 00 00 00 00 48 8B 80 60 0C 00 00", 0x475AC00),
    "event_flags": ("48 8B 0D 00 00 00 00 44 0F B6 CB 41 B8 07 00 00 00 8B D6", 0x4752F68),
    "debug_flags": (
        "4C 8D 05 00 00 00 00 48 8D 15 01 02 03 04 48 8B CB E8 01 02 03 04 48 83 3D 01 02 03 04 00",
        0x477FE94,
    ),
    "lock_on": ("48 8B 0D 00 00 00 00 E8 01 02 03 04 48 8B D8 48 85 C0 0F 84 01 02 03 04 C7", 0x4766CD0),
    "window": ("48 8B 0D 00 00 00 00 48 85 C9 74 11 48 83 C1 08 48 8D 45", 0x4760000),
}
WORLD, PLAYER, BOSS, OTHER = 0x200000000, 0x210000000, 0x220000000, 0x230000000


class Heap:
    """Objects by address; putting a value grows a block of the object's size."""

    def __init__(self):
        self.objects = {}

    def new(self, address, size=0x2000):
        self.objects[address] = bytearray(size)
        return address

    def put(self, address, kind, value):
        base = max(start for start in self.objects if start <= address)
        data = value.encode("utf-16-le") + b"\0\0" if kind == "text" else struct.pack("<" + kind, value)
        at = address - base
        assert at + len(data) <= len(self.objects[base])
        self.objects[base][at : at + len(data)] = data

    def point(self, address, target):
        self.put(address, "Q", target)


def character(heap, at, name, hp, place):
    """Lay out a character: its modules and their values, by the modules' tables."""
    heap.new(at, 0x3000)
    table, clock, data, look, body = (heap.new(at + 0x10000 * n, 0x1000) for n in range(1, 6))
    heap.point(at + 0x1F90, table)
    for offset, module in ((0x10, clock), (0x18, data), (0x28, look), (0x68, body)):
        heap.point(table + offset, module)
    heap.put(data + 0x130, "text", name)
    for offset, value in ((0xD8, hp), (0xDC, 500), (0xE0, 1037), (0xF0, 80), (0xF4, 95), (0x1F0, 1), (0x204, 100)):
        heap.put(data + offset, "i", value)
    heap.put(look + 0x898, "text", "Attack3003")
    heap.put(clock + 0x24, "f", 0.5)
    heap.put(clock + 0x2C, "f", 2.0)
    heap.put(clock + 0xD0, "i", 3003)
    heap.put(body + 0x74, "f", 1.25)
    for number, value in enumerate(place):
        heap.put(body + 0x80 + 4 * number, "f", value)
    return body


def lay_out_code(module):
    """Write each pattern's instruction, leading to its global."""
    for number, (text, rva) in enumerate(CODE.values()):
        at, code = 0x1000 * (number + 1), bytearray(bytes.fromhex(text))
        struct.pack_into("<i", code, 3, rva - (at + 7))
        module[at : at + len(code)] = code


def lay_out_blocks(heap):
    """Load three blocks: one is empty, the boss is the third entry of the last."""
    heap.put(WORLD + 0xC0, "i", 3)
    for number, entries in ((0, [OTHER]), (2, [0, OTHER, BOSS])):
        block, table = heap.new(0x250000000 + number * 0x1000000), heap.new(0x258000000 + number * 0x1000000)
        heap.point(WORLD + 0xC8 + 8 * number, block)
        heap.put(block + 0x80, "I", len(entries))
        heap.point(block + 0x88, table)
        for index, one in enumerate(entries):
            heap.point(table + 0x38 * index, one)


def laid_out(version="1.15.2"):
    """Lay a whole game out by hand: x, up, y of the player 1, 2, 3, of the boss 4, 5, 6."""
    heap = Heap()
    heap.new(BASE, SIZE)
    heap.objects[BASE][:PAGE] = write_header(Sections(PAGE, 16 * PAGE, SIZE - PAGE, SIZE))
    resources = write_resources(version, SIZE - PAGE)
    heap.objects[BASE][SIZE - PAGE : SIZE - PAGE + len(resources)] = resources
    lay_out_code(heap.objects[BASE])
    heap.new(WORLD)
    heap.point(BASE + 0x477FDB8, WORLD)
    body = character(heap, PLAYER, "c0000", 400, (1.0, 2.0, 3.0))
    heap.point(WORLD + 0x80, PLAYER)
    players = heap.new(0x201000000)
    heap.point(WORLD + 0x40, players)
    heap.point(players + 0x28, body)
    heap.put(PLAYER + 0x1A08, "B", 0b10100101)
    character(heap, BOSS, "c5110", 900, (4.0, 5.0, 6.0))
    character(heap, OTHER, "c1000", 50, (0.0, 0.0, 0.0))
    mind, acts = heap.new(0x240000000), heap.new(0x241000000, 0x8000)
    heap.point(BOSS + 0x58, mind)
    heap.point(mind + 0x320, acts)
    heap.put(acts + 0x7428, "i", -1)
    heap.put(acts + 0x7438, "i", 3007)
    lay_out_blocks(heap)
    roots = [heap.new(0x260000000 + number * 0x1000000, 0x25000) for number in range(8)]
    game_data, game, flags, lock, window, camera, view, ceremony = roots
    for rva, root in zip((0x47572B8, 0x475AC00, 0x4752F68, 0x4766CD0, 0x4760000, 0x4796298), roots, strict=False):
        heap.point(BASE + rva, root)
    heap.point(camera + 0x10, view)
    heap.point(view + 0x568, view + 0x1000)
    for number, value in enumerate((0.6, 0.0, 0.8, 0.0, 7.0, 8.0, 9.0)):
        heap.put(view + 0x1000 + 0x110 + 4 * number, "f", value)
    heap.put(game_data + 0xA4, "i", 12345)
    saved = heap.new(0x270000000)
    heap.point(game_data + 0x10, saved)
    bits = heap.new(0x271000000, 0x25000)
    heap.point(flags, bits)
    heap.put(bits + 0x5A67, "B", 0x60)
    heap.put(bits + 0x24923, "B", 0b1000)
    heap.put(game + 0xACC, "i", 4002951)
    heap.put(lock + 0x2821, "B", 1)
    heap.put(window + 0xB0, "i", 800)
    heap.put(window + 0xB4, "i", 450)
    heap.point(WORLD + 0x7D8, ceremony)
    heap.point(ceremony + 8, ceremony + 0x100)
    stock = heap.new(0x272000000)
    heap.put(saved + 0x3E4, "I", 8)
    heap.point(saved + 0x3E8, stock)
    heap.put(stock + 16 * 5 + 4, "I", 0x40000097)
    heap.put(stock + 16 * 5 + 8, "I", 3)
    return heap


def attach(heap):
    process = FakeProcess(heap.objects, [Module("DarkSoulsIII.exe", BASE, SIZE)])
    # The blocks are shared, so that a test may change them.
    process.memory = heap.objects
    reader, address_map = FakeReader(process), load_address_map("dark-souls-3-1.15.2")
    bases = resolve_bases(reader, reader.module("DarkSoulsIII.exe"), address_map)
    return GameMemory(reader, address_map, bases, lambda: 0.0), reader


def test_every_field_reads_as_laid_out_by_hand():
    memory, _ = attach(laid_out())
    values = memory.read()
    expected = {
        **{"player_x": 1.0, "player_z": 2.0, "player_y": 3.0, "boss_x": 4.0, "boss_z": 5.0, "boss_y": 6.0},
        **{"player_hp": 400.0, "player_hp_max": 500.0, "boss_hp": 900.0, "boss_hp_max": 1037.0, "player_angle": 1.25},
        **{
            "player_stamina": 80.0,
            "player_stamina_max": 95.0,
            "boss_angle": 1.25,
            "play_time_s": pytest.approx(12.345),
        },
        **{"player_animation": "Attack3003", "boss_animation_id": 3003.0, "boss_animation_length_s": 2.0},
        **{"camera_x": pytest.approx(0.6), "camera_z": 0.0, "camera_y": pytest.approx(0.8), "camera_position_z": 8.0},
        **{
            "boss_attack_id": -1.0,
            "boss_attack_id_fallback": 3007.0,
            "boss_name": "c5110",
            "locked": 1.0,
            "flasks": 3.0,
        },
        **{
            "player_no_gravity": 0.0,
            "boss_flags": 96.0,
            "gate_open": 1.0,
            "last_bonfire": 4002951.0,
            "window_height": 450.0,
        },
    }
    assert {name: values[name] for name in expected} == expected
    assert values.keys() == memory.address_map.readable()
    assert memory.found_by_name == {"boss"}


def test_no_pointer_outlives_the_object_it_led_to():
    heap = laid_out()
    memory, reader = attach(heap)
    memory.read()
    character(heap, 0x280000000, "c0000", 77, (0.0, 0.0, 0.0))
    heap.point(WORLD + 0x80, 0x280000000)
    # The old character is still there, as freed memory often is.
    assert memory.read()["player_hp"] == 77.0
    with pytest.raises(GameError, match="a value to write"):
        memory.write({"boss_hp": 5, "player_hp": math.nan})
    assert not reader.writes


def test_boss_is_found_again_where_another_has_taken_its_place():
    heap = laid_out()
    memory, reader = attach(heap)
    memory.read()
    entries = 0x258000000 + 2 * 0x1000000
    heap.point(entries + 0x38, BOSS)
    heap.point(entries + 2 * 0x38, OTHER)
    memory.write({"boss_hp": 500})
    assert reader.writes == [(BOSS + 0x30000 + 0xD8, struct.pack("<i", 500))]
    assert memory.read()["boss_hp"] == 500.0


def test_boss_that_is_gone_is_told_and_none_else_is_written_to():
    heap = laid_out()
    memory, reader = attach(heap)
    memory.read()
    heap.put(BOSS + 0x30000 + 0x130, "text", "c9999")
    with pytest.raises(LinkError, match="c5110"):
        memory.read()
    with pytest.raises(LinkError, match="c5110"):
        memory.write({"boss_hp": 1})
    assert not reader.writes


def test_chain_of_the_boss_serves_until_it_is_found_by_name():
    heap = laid_out()
    heap.put(WORLD + 0xC0, "i", 0)
    enemies = heap.new(0x290000000)
    heap.point(BASE + 0x475A7A8, enemies)
    heap.point(enemies, enemies + 0x1000)
    heap.point(enemies + 0x1000 + 0x320, enemies + 0x1800)
    heap.point(enemies + 0x1800, BOSS)
    memory, _ = attach(heap)
    assert memory.read()["boss_hp"] == 900.0
    assert not memory.found_by_name
    heap.point(enemies + 0x1800, OTHER)
    heap.point(OTHER + 0x58, 0x240000000)
    with pytest.raises(LinkError, match="c1000"):
        memory.read()


def test_broken_chain_is_an_error_and_an_unconfirmed_field_is_not():
    heap = laid_out()
    memory, _ = attach(heap)
    heap.point(0x270000000 + 0x3E8, 0)
    assert math.isnan(memory.read()["flasks"])
    heap.point(WORLD + 0x40, 0)
    with pytest.raises(LinkError):
        memory.read()


def test_flasks_are_found_again_in_another_entry():
    heap = laid_out()
    memory, _ = attach(heap)
    assert memory.read()["flasks"] == 3.0
    stock = 0x272000000
    heap.put(stock + 16 * 5 + 4, "I", 0x40000096 - 1)
    heap.put(stock + 16 * 7 + 4, "I", 0x400000AB)
    heap.put(stock + 16 * 7 + 8, "I", 2)
    assert memory.read()["flasks"] == 2.0
    memory.write({"flasks": 1})
    assert memory.read()["flasks"] == 1.0


def test_neighbours_are_written_in_one_piece_and_a_bit_leaves_the_others():
    memory, reader = attach(laid_out())
    body = PLAYER + 0x50000
    memory.write({"player_x": 1.5, "player_y": 3.5, "player_z": 2.5, "player_no_gravity": 1})
    assert sorted(reader.writes) == [(PLAYER + 0x1A08, b"\xe5"), (body + 0x80, struct.pack("<3f", 1.5, 2.5, 3.5))]


def test_lost_pattern_falls_back_on_the_fixed_address_or_is_told():
    heap = laid_out()
    heap.objects[BASE][0x1000] = 0
    memory, _ = attach(heap)
    assert memory.bases["world"].found_by == "rva"
    assert "0 times" in memory.bases["world"].note
    heap.objects[BASE][0x6000] = 0
    with pytest.raises(LinkError, match="lock_on"):
        attach(heap)


def test_another_version_is_told_where_patterns_are_lost_and_noted_where_they_stand():
    heap = laid_out(version="1.15.0")
    memory, _ = attach(heap)
    assert {name for name, base in memory.bases.items() if "version is another" in base.note} == {"camera", "enemies"}
    heap.objects[BASE][0x1000] = 0
    with pytest.raises(LinkError, match=r"world.*1\.15\.0\.0"):
        attach(heap)
