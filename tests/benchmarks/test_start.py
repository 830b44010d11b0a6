"""The benchmark of what commands take to start."""

from start import bench_start, describe


def test_every_command_line_is_measured_beside_python_alone():
    code = "import sys; assert sys.argv[-1] == '--help'; sum(range(1_000_000 * len(sys.argv)))"
    alone, libraries, short, long = bench_start(code, (("--help",), ("zoo", "list", "--help")), rounds=2)
    assert [one["name"] for one in (short, long)] == ["--help", "zoo list --help"]
    assert all(one["rounds"] == 2 and one["start_cpu_s"]["lowest"] > 0 for one in (alone, libraries, short, long))
    assert describe(long)
