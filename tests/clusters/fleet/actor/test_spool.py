"""Whose a folder of spools is."""

import pytest

from soulsgraph_clusters.fleet.actor.spool import machine_id


def test_a_folder_of_spools_names_one_machine_for_good(tmp_path):
    first = machine_id(tmp_path / "pc")
    assert len(first) == 16
    assert int(first, 16) >= 0
    assert machine_id(tmp_path / "pc") == first
    assert machine_id(tmp_path / "other") != first


@pytest.mark.parametrize("damage", [b"", b"\xff" * 16, b"g" * 16, b"0" * 17])
def test_a_damaged_id_is_drawn_again(tmp_path, damage):
    (tmp_path / "machine").write_bytes(damage)
    drawn = machine_id(tmp_path)
    assert (tmp_path / "machine").read_text() == drawn != damage.decode(errors="replace")


def test_without_a_place_for_it_the_id_holds_for_once(tmp_path):
    (tmp_path / "file").write_text("")
    assert machine_id(tmp_path / "file" / "pc") != machine_id(tmp_path / "file" / "pc")
