"""Where results come from: the commit of the source tree, the packages and the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from soulsgraph_policies.artifact import package_versions

_ROOT = Path(__file__).resolve().parents[2]
_GIT_TIMEOUT_S = 20.0


def describe_origin() -> dict[str, Any]:
    """Return what a result depends on besides its plan: commit, versions and machine."""
    versions = {"python": platform.python_version(), **package_versions()}
    return {"commit": source_commit(), "versions": versions, "machine": describe_machine()}


@cache
def source_commit() -> str | None:
    """Return the commit of the tree that this package runs from, None outside a git checkout.

    `-modified` follows where tracked files differ from the commit.
    """
    if not (_ROOT / ".git").exists():
        return None
    commit = _git("rev-parse", "HEAD")
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
    try:
        done = subprocess.run(
            ("git", "-C", str(_ROOT), *arguments), capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
