"""The reading benchmark against a process of its own."""

from games import bench_reading, describe
from soulsgraph_envs.games.address_map import load_address_map


def test_reading_is_measured_over_all_fields_of_the_map():
    result = bench_reading("dark-souls-3-1.15.2", 50)
    assert str(len(load_address_map("dark-souls-3-1.15.2").readable())) in describe(result)
    assert 0.0 < result["cpu_ms"]["median"] <= result["cpu_ms"]["highest"]
