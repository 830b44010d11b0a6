"""Helpers of a stand-in's run: a clean end, settings for clients."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from soulsgraph_envs.live.settings import GameSettings
from soulsgraph_envs.standin.options import StandInOptions


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the program normally."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(0)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def settings_of(options: StandInOptions, window: str) -> GameSettings:
    """Return the settings with which clients find this stand-in.

    Their launch command starts it again with the same options, but without misbehaviours.
    """
    again = replace(
        options,
        map=_lasting(options.map),
        encounter=_lasting(options.encounter),
        scenario=_lasting(options.scenario),
        display=options.display or os.environ.get("DISPLAY", ""),
        misbehave=(),
        until_eof=False,
    )
    return GameSettings(
        map=again.map,
        pid=os.getpid(),
        display=again.display,
        window=window,
        speed=options.speed,
        launch=(sys.executable, "-m", "soulsgraph_envs.standin", *again.arguments()),
    )


def _lasting(name_or_path: str) -> str:
    """Return a name unchanged, a path as an absolute one."""
    return str(Path(name_or_path).resolve()) if name_or_path.endswith(".toml") else name_or_path
