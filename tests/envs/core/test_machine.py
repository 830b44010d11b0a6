import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from soulsgraph_envs.core.machine import usable_memory, usable_processors

#: Less than any machine has that runs this.
MIB = 2**20


def _tree(root: Path, path: str, files: dict[str, object]) -> Path:
    for name, content in ({"proc/self/cgroup": f"1:name=systemd:/x\n0::{path}"} | files).items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")
    return root


def _affine() -> int:
    return len(os.sched_getaffinity(0))


def test_without_control_groups_the_machine_is_what_may_be_used(tmp_path: Path) -> None:
    machine = usable_memory(tmp_path)
    assert 0 < machine.available <= machine.limit == psutil.virtual_memory().total
    assert usable_processors(tmp_path) == _affine()
    here = usable_memory()
    assert 0 < here.available <= here.limit


@pytest.mark.parametrize("limited", ["sys/fs/cgroup", "sys/fs/cgroup/a.slice", "sys/fs/cgroup/a.slice/b.scope"])
def test_the_own_group_limits_and_those_around_it(tmp_path: Path, limited: str) -> None:
    files = {
        "sys/fs/cgroup/a.slice/memory.max": "max",
        "sys/fs/cgroup/a.slice/b.scope/memory.max": "max",
        "sys/fs/cgroup/a.slice/b.scope/cpu.max": "max 100000",
        f"{limited}/memory.max": 60 * MIB,
        f"{limited}/memory.current": 50 * MIB,
        f"{limited}/memory.stat": f"anon 5\ninactive_file {20 * MIB}\nactive_file 7",
        f"{limited}/cpu.max": "150000 100000",
    }
    memory = usable_memory(_tree(tmp_path, "/a.slice/b.scope", files))
    assert (memory.limit, memory.available) == (60 * MIB, 30 * MIB)
    assert usable_processors(tmp_path) == min(2, _affine())


def test_blas_computes_on_one_thread_from_then_on() -> None:
    code = (
        "import numpy, threadpoolctl; from soulsgraph_envs.core.machine import compute_on_one_thread\n"
        "compute_on_one_thread()\n"
        "print(*{library['num_threads'] for library in threadpoolctl.threadpool_info()})"
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


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
