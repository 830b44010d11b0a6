"""The folder in which a PC's games keep their chunks: who has it, and whether a person paused the games."""

from __future__ import annotations

from pathlib import Path

from soulsgraph_clusters.fleet.protocol.settings import FleetError, InUseError
from soulsgraph_clusters.fleet.store import FILE, Spool
from soulsgraph_envs.core import files


def in_use(folder: Path) -> bool:
    """Return whether a process keeps chunks in a game's folder; raises WriteError if it cannot be written."""
    if not (folder / FILE).exists():
        return False
    try:
        Spool(folder).close()
    except InUseError:
        return True
    except FleetError:
        return False  # No game plays with a file that cannot be read.
    return False


#: When the games stop.
AT_ONCE, AFTER_FIGHT = "at once", "after the fight"
_PAUSE_FILE = "paused"


def pause_file(spool: Path) -> Path:
    """Return the file that pauses the games which spool there."""
    return spool / _PAUSE_FILE


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
        raise FleetError(
            f"{spool}: expected the spool of this PC's games, found no such folder; start a host or name its folder."
        )
    files.write_text(pause_file(spool), f"{when}\n")


def resume(spool: Path) -> bool:
    """Let the games play again, and return whether they were paused.

    Raises:
        WriteError: if the file cannot be removed.
    """
    paused = pause_file(spool).exists()
    with files.writing(pause_file(spool)):
        pause_file(spool).unlink(missing_ok=True)
    return paused
