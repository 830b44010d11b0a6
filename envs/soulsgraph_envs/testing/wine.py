"""Windows programs on Linux, by Wine: a prefix of a test's own, and what must be installed for it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMPILER, RESOURCES = "x86_64-w64-mingw32-gcc", "x86_64-w64-mingw32-windres"
#: On a busy machine a new prefix takes its time.
PATIENCE_S = 300.0
_TOOLS = ("wine", "wineboot", "wineserver", "Xvfb", COMPILER, RESOURCES)


def missing_for_wine() -> str:
    """Return why no Windows program can be built and run here, with the remedy; empty if one can."""
    missing = [tool for tool in _TOOLS if not shutil.which(tool)]
    packages = "wine wine64 gcc-mingw-w64-x86-64-win32 xvfb"
    return f"needs {', '.join(missing)}: on Debian apt-get install {packages}" if missing else ""


@contextmanager
def wine(folder: Path, display: str) -> Iterator[dict[str, str]]:
    """Make a Wine prefix, `prefix` in a folder, and yield the environment that selects it.

    At the end every program in it is killed, and the prefix is removed.

    Raises:
        subprocess.SubprocessError: if no prefix can be made.
    """
    prefix = folder / "prefix"
    environment = os.environ | {
        "HOME": str(folder),
        "DISPLAY": display,
        "WINEPREFIX": str(prefix),
        "WINEARCH": "win64",
        "WINEDEBUG": "-all",
        "WINEDLLOVERRIDES": "mscoree,mshtml=,winemenubuilder.exe=d",
    }
    try:
        subprocess.run(["wineboot", "-i"], env=environment, check=True, timeout=PATIENCE_S)
        yield environment
    finally:
        for option in ("-k", "-w"):
            subprocess.run(["wineserver", option], env=environment, timeout=PATIENCE_S)
        # 0.7 GB that pytest would keep.
        shutil.rmtree(prefix, ignore_errors=True)
