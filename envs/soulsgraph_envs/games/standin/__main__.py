"""`python -m soulsgraph_envs.games.standin`: the stand-in alone, without what `soulsgraph` loads beside it."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import App, Parameter

from soulsgraph_envs.core.config import to_json
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.games.standin.launch import DEFAULT_STAND_IN, StandInOptions
from soulsgraph_envs.games.standin.program import run

app = App("python -m soulsgraph_envs.games.standin", default_parameter=Parameter(negative=()))


@app.default
def standin(*, options: Annotated[StandInOptions, Parameter(name="*")] = DEFAULT_STAND_IN) -> None:
    """Run the stand-in game; it prints a line of JSON once a driver can attach."""
    run(options, lambda ready: print(to_json(ready), flush=True))


if __name__ == "__main__":
    try:
        app()
    except SoulsGraphError as failure:
        print(f"error: {failure}", file=sys.stderr)
        sys.exit(2)
