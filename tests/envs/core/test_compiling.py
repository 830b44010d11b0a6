"""Compiled code is kept where it can be read again, and compiled anew where it cannot."""

import pickle
import subprocess
import sys
from pathlib import Path

import numba
import pytest

_ADDING = """
from soulsgraph_envs.core.compiling import cached
@cached()
def add(a, b):
    return a + b
assert add(2, 3) == 5
print(sum(add.stats.cache_hits.values()))
"""


def _hits(folder):
    """Run a function whose compiled code is kept in `folder`; return how often it was found there."""
    script = folder / "adding.py"
    script.write_text(_ADDING)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "NUMBA_CACHE_DIR": str(folder / "kept")}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


class Renamed:
    """A class that an index names and that is gone when it is read."""


def _of_a_class_that_is_gone(index: Path) -> None:
    index.write_bytes(pickle.dumps(numba.__version__) + pickle.dumps(Renamed).replace(b"Renamed", b"Unknown"))


def _cut_short(index: Path) -> None:
    index.write_bytes(index.read_bytes()[:-9])


@pytest.mark.slow
def test_kept_code_that_cannot_be_read_is_compiled_anew(tmp_path):
    assert _hits(tmp_path) == 0
    assert _hits(tmp_path) == 1
    for damage in (_of_a_class_that_is_gone, _cut_short):
        (index,) = (tmp_path / "kept").rglob("*.nbi")
        damage(index)
        assert _hits(tmp_path) == 0
    assert _hits(tmp_path) == 1
