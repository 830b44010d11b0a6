"""The world of a fight loads nothing that only training, recording or drawing figures needs."""

import subprocess
import sys

import pytest

#: numba looks for scipy itself, and loads no part of it.
_HEAVY = (
    "torch",
    "ray",
    "pandas",
    "pyarrow",
    "matplotlib",
    "scipy.special",
    "scipy.stats",
    "filelock",
    "grpc",
    "pygame",
)
_FACES = (
    "import soulsgraph_envs, soulsgraph_envs.gym.skill_env",
    "import soulsgraph_envs.soulsgym, soulsgraph_envs.eldengym",
    "import gymnasium, soulsgraph_envs; gymnasium.make('soulsgraph/EndToEnd-v0').reset(seed=0)",
)


@pytest.mark.parametrize("program", _FACES)
def test_the_faces_load_no_heavy_library(program):
    listing = f"{program}\nimport sys\nprint(*(name for name in {_HEAVY} if name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, timeout=600, check=True)
    assert loaded.stdout.split() == []
