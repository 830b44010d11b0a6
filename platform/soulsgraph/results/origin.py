"""Record the origin of results: commit, versions, machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[3]


def describe_origin() -> dict[str, Any]:
    """Return what a result depends on besides its plan: commit, versions and machine."""
    versions = {"python": platform.python_version(), **package_versions()}
    return {"commit": source_commit(), "versions": versions, "machine": describe_machine()}


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that training depends on, of those that are installed."""
    found = {}
    for name in ("soulsgraph", "numba", "numpy", "ray", "torch"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def describe_run() -> dict[str, Any]:
    """Return what figures depend on: commit, versions, machine, bits of its vectors, load of the last minute."""
    # Imported here: nothing else of this needs LLVM.
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    vector_bits = 512 if features.get("avx512f") else 256 if features.get("avx2") else 128
    load = os.getloadavg()[0] if sys.platform != "win32" else None
    return {**describe_origin(), "vector_bits": vector_bits, "load": load}


@cache
def source_commit() -> str | None:
    """Return the commit of the tree that this package runs from, None outside a git checkout.

    `-modified` follows where tracked files differ from the commit.
    """
    commit = _git("rev-parse", "HEAD") if (_ROOT / ".git").exists() else ""
    if not commit:
        return None
    return f"{commit}-modified" if _git("status", "--porcelain", "--untracked-files=no") else commit


def describe_machine() -> dict[str, Any]:
    """Return the processor, its cores, and the system, as far as they are known."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {"processor": model, "cores": os.cpu_count() or 1, "system": platform.platform()}


def _git(*arguments: str) -> str:
    """Return what git prints of the source tree; nothing where git is missing or refuses."""
    # In a hook these name the repository that is committed to, which comes before the folder's own.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ("git", "-C", str(_ROOT), *arguments)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=20.0, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
