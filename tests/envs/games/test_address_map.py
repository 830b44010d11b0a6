"""The address maps: shipped ones against the published figures, and the errors of faulty ones."""

from pathlib import Path

import pytest

from soulsgraph_envs.core.config import shipped_names
from soulsgraph_envs.core.errors import DataError, UnknownNameError
from soulsgraph_envs.games.address_map import compile_pattern, is_pattern, load_address_map

IUDEX = "dark-souls-3-1.15.2"
CHAINS = {
    "player_hp": ("world", (0x80, 0x1F90, 0x18, 0xD8)),
    "player_x": ("world", (0x40, 0x28, 0x80)),
    "player_animation": ("world", (0x80, 0x1F90, 0x28, 0x898)),
    "boss_hp_max": ("enemies", (0, 0x320, 0, 0x1F90, 0x18, 0xE0)),
    "boss_attack_id_fallback": ("enemies", (0, 0x320, 0, 0x58, 0x320, 0x7438)),
    "camera_position_y": ("camera", (0x10, 0x568, 0x128)),
    "locked": ("lock_on", (0x2821,)),
    "boss_flags": ("event_flags", (0, 0x5A67)),
    "flasks": ("game_data", (0x10,)),
}
MINIMAL = """
name = "mine"
game = "Mine"
version = ""
process = "mine.exe"
window = "Mine"
bindings = "dark-souls-3"
source = "me"
[bases.world]
rva = 0x1000
[characters.player]
base = "world"
offsets = [8]
[fields]
player_hp = { base = "player", offsets = [0x18, 4], type = "i32" }
"""


def minimal(folder: Path, old: str = "", new: str = "") -> Path:
    assert old in MINIMAL
    path = folder / "mine.toml"
    path.write_text(MINIMAL.replace(old, new) if old else MINIMAL)
    return path


@pytest.mark.parametrize("name", shipped_names("address map"))
def test_shipped_map_loads_and_no_two_bases_share_a_pattern(name):
    patterns = [base.pattern for base in load_address_map(name).bases.values() if base.pattern]
    assert patterns
    assert len(set(patterns)) == len(patterns)


def test_dark_souls_addresses_are_the_published_ones():
    rvas = {name: base.rva for name, base in load_address_map(IUDEX).bases.items() if base.rva}
    assert rvas == {
        "world": 0x477FDB8,
        "game_data": 0x47572B8,
        "game": 0x475AC00,
        "debug_flags": 0x477FE94,
        "camera": 0x4796298,
        "enemies": 0x475A7A8,
    }
    assert not load_address_map(IUDEX).bases["debug_flags"].dereference
    assert {field: load_address_map(IUDEX).chain(field) for field in CHAINS} == CHAINS


def test_unverified_entries_are_those_without_two_sources_and_each_has_a_fallback():
    loaded = load_address_map(IUDEX)
    entries = {name: loaded.entry(name) for name in loaded.readable()}
    unverified = {name for name, entry in entries.items() if not entry.verified}
    assert unverified == {"player_animation_id", "boss_animation_id", "boss_name", "flasks"}
    assert all(entries[name].fallback for name in unverified)


def test_vordt_differs_from_iudex_in_the_boss_alone():
    iudex, vordt = load_address_map(IUDEX), load_address_map(f"{IUDEX}-vordt")
    changed = {name for name in iudex.readable() if iudex.entry(name) != vordt.entry(name)}
    assert changed == {"boss_hp_max", "boss_flags"}
    assert vordt.chain("boss_hp").offsets == (0, 0x4C8, 0, 0x1F90, 0x18, 0xD8)
    assert (iudex.characters["boss"].walk.name, vordt.characters["boss"].walk.name) == ("c5110", "")


WALK = '[characters.player.walk]\nname = "c0000"\nbase = "world"\n[fields]'
INVENTORY = """
[inventories.player_hp]
base = "world"
offsets = [0]
entry_size = 16
item_at = 4
quantity_at = 8
items = [1, 2]
lists = [{ capacity_at = 0, entries_at = 8 }]
[fields]"""


def test_faulty_map_is_refused_by_file_and_key(tmp_path):
    assert load_address_map(minimal(tmp_path)).chain("player_hp") == ("world", (8, 0x18, 4))
    with pytest.raises(UnknownNameError, match="dark-souls-4"):
        load_address_map("dark-souls-4")
    for old, new, key in (
        ("rva = 0x1000", 'pattern = "48 8B"', r"bases\.world\.pattern"),
        ("rva = 0x1000", 'pattern = "48 8B 05 ?? ??"', r"bases\.world\.displacement_at"),
        ('base = "world"', 'base = "word"', r"characters\.player\.base"),
        ('base = "player"', 'base = "boss"', r"fields\.player_hp\.base"),
        ("player_hp =", "player_health =", r"fields\.player_health"),
        ('"i32"', '"utf16", room = 8', r"fields\.player_hp\.type"),
        ('"i32"', '"bit"', r"fields\.player_hp\.bit"),
        ('"i32"', '"i32", scale = 0.0', r"fields\.player_hp\.scale"),
        ('"i32"', '"i32", verified = false', r"fields\.player_hp\.fallback"),
        ("[0x18, 4]", "[]", r"fields\.player_hp\.offsets"),
        ("[fields]", WALK, r"characters\.player\.walk"),
        ("[fields]", INVENTORY, "player_hp"),
    ):
        with pytest.raises(DataError, match=rf"mine\.toml.*{key}"):
            load_address_map(minimal(tmp_path, old, new))


def test_a_pattern_has_bytes_and_wildcards_which_stand_for_every_byte():
    pattern = compile_pattern("48 2E ?? 0a")
    assert pattern.search(b"\x00\x48\x2e\x0a\x0a") is not None
    assert pattern.search(b"\x48\x41\x0a\x0a") is None
    for text in ("", "48", "48 8b ??", "4 8B 05 00", "48 8B 05 ?", "48 8B 05 GG"):
        assert not is_pattern(text)
        with pytest.raises(ValueError, match="bytes"):
            compile_pattern(text)
