import pytest

from commands import bench_commands


@pytest.mark.slow
def test_a_whole_command_is_measured_in_a_folder_of_its_own(tmp_path):
    code = """import os, pathlib, sys, time
print("compiling" if "NUMBA_CACHE_DIR" in os.environ else "ready")
pathlib.Path("result").write_text(sys.argv[1])
time.sleep(1)
print("done")"""
    commands = {"first of all": ("a",), "later": ("b",)}
    first, later = bench_commands(code, commands, "first of all", rounds=1)
    assert [one["name"] for one in (first, later)] == list(commands)
    for one in (first, later):
        assert one["first_line_s"]["median"] < one["second_line_s"]["median"] <= one["wall_s"]["median"]
        assert one["wall_s"]["median"] > 1 > one["cpu_s"]["median"] > 0
        assert one["memory_mib"]["median"] > 1


def test_only_the_command_named_cold_compiles(tmp_path):
    code = "import os, sys; sys.exit(('NUMBA_CACHE_DIR' in os.environ) != (sys.argv[1] == 'cold'))"
    assert len(list(bench_commands(code, {"cold": ("cold",), "warm": ("warm",)}, "cold", rounds=1))) == 2
