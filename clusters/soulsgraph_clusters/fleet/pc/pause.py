"""A person pauses a PC's games: a file in the folder of its spool, which every game's process looks at."""

from __future__ import annotations

from pathlib import Path

from soulsgraph_clusters.fleet.settings import FleetError
from soulsgraph_policies.atomic import whole_file, writing

#: When the games stop.
AT_ONCE, AFTER_FIGHT = "at once", "after the fight"
_FILE = "paused"


def pause_file(spool: Path) -> Path:
    """Return the file that pauses the games which spool there."""
    return spool / _FILE


def read_pause(file: Path) -> str:
    """Return when the games are to stop; empty if they may play."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return AT_ONCE  # Whatever it says, a person wants a pause.
    return AFTER_FIGHT if text == AFTER_FIGHT else AT_ONCE


def pause(spool: Path, when: str) -> None:
    """Pause the games that spool in a folder, `AT_ONCE` or `AFTER_FIGHT`.

    Raises:
        FleetError: if no game has a spool there.
        WriteError: if the file cannot be written.
    """
    if not spool.is_dir():
        raise FleetError(f"{spool}: expected the spool of this PC's games, found no such folder; name theirs.")
    with whole_file(pause_file(spool)) as temporary:
        temporary.write_text(f"{when}\n", encoding="utf-8")


def resume(spool: Path) -> bool:
    """Let the games play again, and return whether they were paused.

    Raises:
        WriteError: if the file cannot be removed.
    """
    paused = pause_file(spool).exists()
    with writing(pause_file(spool)):
        pause_file(spool).unlink(missing_ok=True)
    return paused
