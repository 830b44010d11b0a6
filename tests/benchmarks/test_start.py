"""The benchmark of what commands take to start."""

import subprocess

import pytest

from start import bench_start, describe, start_cpu_s


def test_every_command_line_is_measured_beside_python_alone():
    code = "import sys; assert sys.argv[-1] == '--help'; sum(range(4_000_000 * len(sys.argv)))"
    alone, libraries, short, long = bench_start(code, (("--help",), ("zoo", "list", "--help")), rounds=2)
    assert [one["name"] for one in (short, long)] == ["--help", "zoo list --help"]
    assert all(one["rounds"] == 2 and one["start_cpu_s"]["lowest"] > 0 for one in (alone, libraries, short, long))
    assert describe(long).startswith("zoo list --help: ")


def test_a_command_that_fails_is_no_measurement():
    with pytest.raises(subprocess.CalledProcessError):
        start_cpu_s(("import sys; sys.exit(2)",))
