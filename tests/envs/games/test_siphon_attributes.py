"""Siphon's attribute files: their content, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from soulsgraph_envs.core.config import find, shipped_names
from soulsgraph_envs.core.errors import DataError, UnknownNameError
from soulsgraph_envs.games.link import FIELDS
from soulsgraph_envs.games.siphon_attributes import load_attributes

ELDEN_RING = "elden-ring-1.16.1"


@pytest.mark.parametrize("name", shipped_names("attribute file"))
def test_each_writable_field_can_be_written_alone_and_only_those_and_lies_where_it_is_read(name: str) -> None:
    file = load_attributes(name)
    alone = {field for layout in file.writes.values() if len(layout) == 1 for field in layout}
    assert alone == file.writable
    assert all(FIELDS[field].writable for field in alone)
    places: dict[str, set[tuple[object, ...]]] = {}
    for layouts in (file.reads, file.writes):
        for attribute_name, layout in layouts.items():
            attribute = file.attributes[attribute_name]
            for field, place in layout.items():
                offsets = (*attribute.offsets[:-1], attribute.offsets[-1] + place.at)
                found = (attribute.method, attribute.pattern, offsets, place.type, place.scale)
                places.setdefault(field, set()).add(found)
    assert {field: len(found) for field, found in places.items()} == dict.fromkeys(file.supplies, 1)


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
    text = find("attribute file", ELDEN_RING).read_text(encoding="utf-8")
    head, table, rest = text.partition("[attributes.player_hp_block]")
    assert old in rest
    path.write_text(head + table + rest.replace(old, wrong, 1), encoding="utf-8")
    with pytest.raises(DataError, match=rf"faulty\.toml.*{named}"):
        load_attributes(path)
    with pytest.raises(UnknownNameError, match="dark-souls-9"):
        load_attributes("dark-souls-9")
