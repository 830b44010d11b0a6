import os
import subprocess
import sys
from pathlib import Path

import pytest

from soulsgraph_envs.core.machine import usable_memory, usable_processors

GIB = 2**30
#: What an unlimited cgroup of version 1 holds: the largest whole number of pages.
UNLIMITED = 9223372036854771712


def _tree(root: Path, files: dict[str, object], total: int = 24 * GIB, available: int = 20 * GIB) -> Path:
    meminfo = f"MemTotal:       {total // 1024} kB\nMemFree:  1 kB\nMemAvailable:   {available // 1024} kB\n"
    for name, content in ({"proc/meminfo": meminfo} | files).items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")
    return root


def _version_1(path: str, within: str = "/") -> dict[str, object]:
    mounts = [
        f"30 25 0:26 {within} /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory",
        f"31 25 0:27 {within} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
        "32 25 0:28 / /sys/fs/cgroup/systemd rw - cgroup systemd rw,xattr,name=systemd",
        "33 25 8:1 / /home rw - ext4 /dev/sda1 rw",
    ]
    own = f"9:name=systemd:/\n4:memory:{path}\n2:cpu,cpuacct:{path}\n0::/elsewhere"
    return {"proc/self/cgroup": own, "proc/self/mountinfo": "\n".join(mounts)}


def _version_2(path: str, within: str = "/", mount: str = "/sys/fs/cgroup") -> dict[str, object]:
    line = f"29 24 0:25 {within} {mount} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
    return {"proc/self/cgroup": f"0::{path}", "proc/self/mountinfo": line}


def _affine() -> int:
    return len(os.sched_getaffinity(0))


def test_without_cgroups_the_machine_is_what_may_be_used(tmp_path: Path) -> None:
    memory = usable_memory(_tree(tmp_path, {}))
    assert (memory.limit, memory.available) == (24 * GIB, 20 * GIB)
    assert usable_processors(tmp_path) == _affine()
    here = usable_memory()
    assert 0 < here.available <= here.limit


@pytest.mark.parametrize("limited", ["sys/fs/cgroup/a.slice", "sys/fs/cgroup/a.slice/b.scope"])
def test_version_2_limits_by_the_own_cgroup_and_those_around_it(tmp_path: Path, limited: str) -> None:
    files = _version_2("/a.slice/b.scope") | {
        "sys/fs/cgroup/a.slice/memory.max": "max",
        "sys/fs/cgroup/a.slice/b.scope/memory.max": "max",
        f"{limited}/memory.max": 600 * 2**20,
        f"{limited}/memory.current": 500 * 2**20,
        f"{limited}/memory.stat": f"anon 5\ninactive_file {200 * 2**20}\nactive_file 7",
        f"{limited}/cpu.max": "150000 100000",
    }
    memory = usable_memory(_tree(tmp_path, files))
    assert (memory.limit, memory.available) == (600 * 2**20, 300 * 2**20)
    assert usable_processors(tmp_path) == min(2, _affine())


def test_a_container_sees_its_own_part_of_the_tree_under_its_root(tmp_path: Path) -> None:
    files = _version_2("/", within="/../..") | {
        "sys/fs/cgroup/memory.max": GIB,
        "sys/fs/cgroup/memory.current": 2 * GIB,
    }
    memory = usable_memory(_tree(tmp_path, files | {"sys/fs/cgroup/cpu.max": "20000 100000"}))
    assert (memory.limit, memory.available) == (GIB, 0)
    assert usable_processors(tmp_path) == 1


@pytest.mark.parametrize(("path", "within"), [("/docker/1", "/docker/1"), ("/docker/1", "/kubepods/x"), ("/", "/")])
def test_version_1_is_read_where_its_mount_shows_only_a_part(tmp_path: Path, path: str, within: str) -> None:
    files = _version_1(path, within) | {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": GIB,
        "sys/fs/cgroup/memory/memory.usage_in_bytes": GIB // 2,
        "sys/fs/cgroup/memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB // 4}",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": 50_000,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": 100_000,
    }
    memory = usable_memory(_tree(tmp_path, files))
    assert (memory.limit, memory.available) == (GIB, GIB // 4 * 3)
    assert usable_processors(tmp_path) == 1


def test_version_1_takes_the_least_of_own_and_parents_and_no_limit_for_none(tmp_path: Path) -> None:
    files = _version_1("/jobs/7") | {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": UNLIMITED,
        "sys/fs/cgroup/memory/memory.usage_in_bytes": 3 * GIB,
        "sys/fs/cgroup/memory/jobs/memory.limit_in_bytes": 2 * GIB,
        "sys/fs/cgroup/memory/jobs/memory.usage_in_bytes": GIB,
        "sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes": UNLIMITED,
        "sys/fs/cgroup/memory/jobs/7/memory.usage_in_bytes": 5,
        "sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_quota_us": -1,
        "sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_period_us": 100_000,
    }
    memory = usable_memory(_tree(tmp_path, files))
    assert (memory.limit, memory.available) == (2 * GIB, GIB)
    assert usable_processors(tmp_path) == _affine()


def test_a_mount_point_with_a_space_is_read_and_nonsense_limits_nothing(tmp_path: Path) -> None:
    files = _version_2("/", mount="/c\\040groups") | {"c groups/memory.max": GIB, "c groups/cpu.max": "0 0"}
    assert usable_memory(_tree(tmp_path, files)).limit == GIB
    assert usable_processors(tmp_path) == _affine()
    odd = {"proc/self/cgroup": "x\n::\n0:", "proc/self/mountinfo": "y - z\n1 2 - cgroup2 c rw", "proc/meminfo": "none"}
    assert usable_memory(_tree(tmp_path / "odd", odd)).limit > 0
    assert usable_processors(tmp_path / "odd") == _affine()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_the_limit_of_open_files_is_raised_to_what_the_system_allows():
    code = (
        "import resource; from soulsgraph_envs.core.machine import raise_open_files\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))\n"
        "assert raise_open_files() == hard\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_input_that_was_taken_is_read_apart_from_the_standard_one() -> None:
    code = "import os; from soulsgraph_envs.core.machine import take_input; print(take_input().read(), os.read(0, 9))"
    done = subprocess.run([sys.executable, "-P", "-c", code], input=b"order", capture_output=True, check=True)
    assert done.stdout == b"b'order' b''\n"
