"""`soulsgraph`: parse, run, and print errors that a user can cause as one line."""

from __future__ import annotations

import os
import sys

from soulsgraph.cli.commands import app
from soulsgraph.interruption import Interrupted
from soulsgraph_envs.errors import SoulsGraphError

_DESCRIPTION = "Train, compose, judge and adapt agents made of skills for Souls games."
_BAD_INPUT, _INTERRUPTED = 2, 130


def main() -> None:
    """Run the command line; exit 2 on bad input, 130 when interrupted."""
    # RLlib and gymnasium advise on things this project decided long ago.
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    try:
        app.cli(prog="soulsgraph", description=_DESCRIPTION)
    except Interrupted as stop:
        _leave(str(stop), _INTERRUPTED)
    except SoulsGraphError as error:
        _leave(f"error: {error}", _BAD_INPUT)
    except KeyboardInterrupt:
        _leave("interrupted; a run goes on from its last checkpoint with --resume", _INTERRUPTED)


def _leave(message: str, code: int) -> None:
    print(message, file=sys.stderr)
    sys.exit(code)
