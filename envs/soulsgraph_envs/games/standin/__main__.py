"""`python -m soulsgraph_envs.games.standin`: the stand-in alone, without what `soulsgraph` loads beside it."""

from __future__ import annotations

import sys

import tyro

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.games.standin.launch import StandInOptions
from soulsgraph_envs.games.standin.program import run

try:
    run(tyro.cli(StandInOptions, prog="python -m soulsgraph_envs.games.standin"))
except SoulsGraphError as failure:
    print(f"error: {failure}", file=sys.stderr)
    sys.exit(2)
