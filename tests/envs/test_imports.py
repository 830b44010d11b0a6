"""The world of a fight loads nothing that only training, recording or drawing figures needs."""

import subprocess
import sys

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
    "pysiphon",
    "pygame",
)
_FACES = """
import gymnasium, soulsgraph_envs, soulsgraph_envs.soulsgym, soulsgraph_envs.eldengym, sys
env = gymnasium.make("soulsgraph/EndToEnd-v0", render_mode="rgb_array")
env.reset(seed=0)
"""
#: What only pictures need.
_DRAWING = ("PIL.ImageFont", "PIL.ImageDraw")


def test_the_faces_load_no_heavy_library_and_draw_without_pygame():
    listing = f"{_FACES}\nprint(*(name for name in {_HEAVY + _DRAWING} if name in sys.modules))"
    listing += "\nsys.modules['pygame'] = None\nassert env.render().shape == (360, 640, 3)"
    loaded = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, timeout=600, check=True)
    assert loaded.stdout.split() == []
