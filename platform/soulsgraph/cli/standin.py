"""`soulsgraph standin`: the stand-in game, a thin command over `soulsgraph_envs.standin`."""

from __future__ import annotations

from soulsgraph_envs.standin.options import DEFAULT_STAND_IN, StandInOptions


def standin(options: StandInOptions = DEFAULT_STAND_IN) -> None:
    """Run the stand-in game: the simulator as a program with a window, keys and a memory like the real game's.

    Once it can be attached it prints a line that begins with "ready". On standard input it takes
    commands, one a line: crash, move, hang [S], freeze [S], stall [S], drop [S], pause, speed N, die,
    state, quit.
    """
    from soulsgraph_envs.standin.program import run

    run(options)
