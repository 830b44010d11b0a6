"""Siphon's attribute files: their content, and that it agrees with the address maps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from soulsgraph_envs.core.config import shipped_names
from soulsgraph_envs.core.errors import DataError, UnknownNameError
from soulsgraph_envs.games.address_map import load_address_map
from soulsgraph_envs.games.link import FIELDS
from soulsgraph_envs.games.siphon_attributes import (
    Attribute,
    AttributeFile,
    Layout,
    attributes_for,
    dump,
    load_attributes,
    make_attributes,
)

DARK_SOULS, ELDEN_RING = "dark-souls-3-1.15.2", "elden-ring-1.16.1"
SHIPPED = shipped_names("attribute file")


def chains(file: AttributeFile, layouts: dict[str, Layout]) -> dict[str, set[tuple[object, ...]]]:
    """Return the address of each field in every attribute it is a part of."""
    found: dict[str, set[tuple[object, ...]]] = {}
    for name, layout in layouts.items():
        attribute = file.attributes[name]
        for field, place in layout.items():
            offsets = (*attribute.offsets[:-1], attribute.offsets[-1] + place.at)
            found.setdefault(field, set()).add((attribute.method, attribute.pattern, offsets, place.type, place.scale))
    return found


def test_dark_souls_3_file_is_what_its_address_map_makes() -> None:
    assert load_attributes(DARK_SOULS) == make_attributes(load_address_map(DARK_SOULS))


def test_elden_ring_file_finds_every_field_where_the_address_map_does() -> None:
    shipped, made = load_attributes(ELDEN_RING), make_attributes(load_address_map(ELDEN_RING))
    assert chains(shipped, shipped.reads) == chains(made, made.reads)
    assert chains(shipped, shipped.writes) == chains(made, made.writes)


def test_elden_ring_file_has_the_published_attributes() -> None:
    attributes = load_attributes(ELDEN_RING).attributes
    hero = "48 8B 05 ?? ?? ?? ?? 48 85 C0 74 0F 48 39 88"
    assert attributes["HeroHp"] == Attribute((0x10EF8, 0x0, 0x190, 0x0, 0x138), "int", hero)
    assert attributes["HeroAnimLength"] == Attribute((0x10EF8, 0x0, 0x190, 0x18, 0x24), "float", hero)
    target = Attribute((0x190, 0x68, 0xA8, 0x18, 0x88), "float", "48 8B 48 08 49 89 8D", method="dll")
    assert attributes["NpcLocalPosY"] == target
    assert (attributes["gameSpeedFlag"].type, attributes["gameSpeedFlag"].offsets) == ("bool", (0x2D0,))
    assert not {"camera_x", "locked", "flasks"} & load_attributes(ELDEN_RING).supplies


@pytest.mark.parametrize("name", SHIPPED)
def test_each_writable_field_can_be_written_alone_and_only_those(name: str) -> None:
    file = load_attributes(name)
    alone = {field for layout in file.writes.values() if len(layout) == 1 for field in layout}
    assert alone == file.writable
    assert all(FIELDS[field].writable for field in alone)


def test_what_siphon_cannot_follow_starts_at_the_module() -> None:
    attributes = load_attributes(DARK_SOULS).attributes
    # The flags are no pointer, and of the camera no pattern is public.
    assert attributes["no_death"].method == "module"
    assert attributes["no_death"].offsets == (0x477FE94 + 8,)
    assert attributes["camera_x"].offsets == (0x4796298, 0x10, 0x568, 0x110)
    assert attributes["player_hp"].method == "aobscan"
    assert attributes["gate_open"].mask == 1 << 3


@pytest.mark.parametrize("name", [*SHIPPED, "dark-souls-3-1.15.2-vordt"])
def test_a_written_file_reads_as_the_same(name: str, tmp_path: Path) -> None:
    file, path = attributes_for(name), tmp_path / "attributes.toml"
    path.write_text(dump(file), encoding="utf-8")
    assert load_attributes(path) == file


def test_a_file_written_for_siphon_alone_supplies_no_fields(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        '[process_info]\nname = "game.exe"\n'
        '[attributes.Hp]\npattern = "48 8B 05 ?? ?? ?? ?? 48"\noffsets = [0x10]\ntype = "int"\n'
    )
    file = load_attributes(path)
    assert file.attributes["Hp"].method == "aobscan"
    assert not file.supplies | file.writable


def test_a_field_that_nothing_reaches_is_left_out() -> None:
    address_map = load_address_map(DARK_SOULS)
    base = replace(address_map.bases["event_flags"], displacement_at=2)
    made = make_attributes(replace(address_map, bases=address_map.bases | {"event_flags": base}))
    assert made.supplies == load_attributes(DARK_SOULS).supplies - {"boss_flags", "gate_open"}


@pytest.mark.parametrize(
    ("old", "wrong", "named"),
    [
        ('type = "array"', 'type = "double"', r"attributes\.player_hp_block\.type"),
        ('type = "array"', 'type = "array"\nmethod = "guess"', r"attributes\.player_hp_block\.method"),
        ("pattern = ", 'pattern = "48 8B 05 48 85 C0" # ', r"attributes\.player_hp_block\.pattern"),
        ("length = ", "length = 8 # ", r"reads\.player_hp_block\.player_stamina"),
    ],
)
def test_a_faulty_attribute_is_refused_with_its_place(old: str, wrong: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "faulty.toml"
    head, table, rest = dump(load_attributes(DARK_SOULS)).partition("[attributes.player_hp_block]")
    assert old in rest
    path.write_text(head + table + rest.replace(old, wrong, 1), encoding="utf-8")
    with pytest.raises(DataError, match=rf"faulty\.toml.*{named}"):
        load_attributes(path)
    with pytest.raises(UnknownNameError, match="dark-souls-9"):
        attributes_for("dark-souls-9")
