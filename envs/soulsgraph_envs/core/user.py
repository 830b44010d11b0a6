"""Who runs this and where programs keep that user's files; on some machines the user has no name and no home."""

from __future__ import annotations

import getpass
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Literal

#: What a folder is for: the variable that names it, and where it lies below the home folder.
_FOLDERS = {"cache": ("XDG_CACHE_HOME", ".cache"), "state": ("XDG_STATE_HOME", ".local/state")}


#: The folder that others' libraries take for the home of a user who has none.
_STAND_IN = "soulsgraph-home"


def home_folder() -> Path | None:
    """Return the user's home folder; None where neither the environment nor the system knows one."""
    # An empty HOME would be the working folder.
    if "HOME" in os.environ and not os.path.isabs(os.environ["HOME"]):
        return None
    with suppress(RuntimeError):
        home = Path.home()
        return None if home.name.startswith(_STAND_IN) else home
    return None


def stand_in_for_home() -> None:
    """Let others' libraries, as Ray and RLlib, be imported by a user without a home or a name.

    They look for both while they are imported, and fail. The home is a private temporary folder, for this process and
    those it starts; `home_folder` does not return it.
    """
    if os.name != "posix":
        return
    if home_folder() is None and (folder := private_temporary_folder(_STAND_IN)) is not None:
        os.environ["HOME"] = str(folder)
    try:
        getpass.getuser()
    except (KeyError, OSError):  # OSError from Python 3.13 on.
        os.environ["USER"] = f"uid-{os.getuid()}"


def user_folder(purpose: Literal["cache", "state"]) -> Path | None:
    """Return where a user's programs keep what can be made again (cache) or must outlive them (state).

    None where the user has no home; the folder need not exist, nor be writable.
    """
    name, below = _FOLDERS[purpose]
    chosen = os.environ.get("LOCALAPPDATA" if os.name == "nt" else name, "")
    # A relative path means nothing here, as the standard says.
    if os.path.isabs(chosen):
        return Path(chosen)
    home = home_folder()
    return None if home is None else home / below


def private_temporary_folder(name: str) -> Path | None:
    """Return a folder for temporary files that this user's processes share and no other user can write.

    It is made if need be, of mode 0700; None where that fails, or somebody else made it.
    """
    owner = os.geteuid() if hasattr(os, "geteuid") else None
    with suppress(OSError):
        folder = Path(tempfile.gettempdir()) / (name if owner is None else f"{name}-{owner}")
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if owner is None or (stat.S_ISDIR(found.st_mode) and found.st_uid == owner and not found.st_mode & 0o022):
            return folder
    return None


def is_writable(folder: Path) -> bool:
    """Return whether files can be made in a folder, which is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
