"""Which files of our packages Python would run: here, on a node of a cluster, or in what a job brought along.

A node may lack our packages, so its functions are sent to it whole: this module imports nothing of ours.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

PACKAGES = ("soulsgraph", "soulsgraph_clusters", "soulsgraph_policies", "soulsgraph_envs")
_DISTRIBUTION = "soulsgraph"
#: The extras that training needs.
_TRAINING = ("train", "data")
_SUFFIXES = (".py", ".toml")
#: Distributions of others whose version may change a result, in its last bits at least.
_DECIDING = ("numpy", "numba", "llvmlite", "torch", "ray", "gymnasium")
#: Folders below an uploaded one that are searched for a copy: deeper ones are environments and their like.
_MOST_LEVELS = 4


class Installation(TypedDict):
    """What one Python would run: its version, each package's folder, digests by file, what is not installed.

    `versions` are those on which results depend: of Python, and of distributions by name.
    """

    python: str
    version: str
    folders: dict[str, str]
    files: dict[str, str]
    missing: list[str]
    versions: dict[str, str]


def find_source(needed: Sequence[str] = ()) -> Installation:
    """Return what this Python would run, and which of the distributions that are needed it lacks."""
    folders = package_folders()
    files = {name: digest for folder in folders.values() for name, digest in file_digests(Path(folder)).items()}
    return Installation(
        python=sys.executable,
        version=_version_of(_DISTRIBUTION) or "unknown",
        folders=folders,
        files=files,
        missing=[name for name in needed if not _version_of(name)],
        versions={"Python": platform.python_version()} | {name: _version_of(name) for name in _DECIDING},
    )


def package_folders() -> dict[str, str]:
    """Return the folder of each of our packages that Python finds; none is imported."""
    specs = {name: find_spec(name) for name in PACKAGES}
    return {name: os.path.dirname(spec.origin) for name, spec in specs.items() if spec and spec.origin}


def file_digests(folder: Path) -> dict[str, str]:
    """Return the digest of each file of a package by its path, package included; ends of lines do not count."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES and path.is_file())
    return {f"{folder.name}/{path.relative_to(folder).as_posix()}": _digest(path) for path in files}


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes().replace(b"\r\n", b"\n"), digest_size=8).hexdigest()


def _version_of(distribution: str) -> str:
    """Return a distribution's version, empty where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def needed_distributions() -> tuple[str, ...]:
    """Return the names of the distributions that training with ours needs; none where it is not installed."""
    try:
        lines = requires(_DISTRIBUTION) or []
    except PackageNotFoundError:
        return ()
    names = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        extra, name = re.search(r"extra == ['\"](.+?)['\"]", marker), re.match(r"[\w.-]+", requirement)
        if name and name[0] != _DISTRIBUTION and (extra is None or extra[1] in _TRAINING):
            names.append(name[0])
    return tuple(names)


def differing(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """Return the names of the files that are not the same in both, or in one only."""
    return sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))


def copies_below(folder: Path) -> Iterator[Path]:
    """Yield the folders named as one of our packages, and packages, at most some levels below a folder."""
    for place, folders, _ in os.walk(folder):
        at = Path(place)
        yield from (at / name for name in sorted(folders) if name in PACKAGES and (at / name / "__init__.py").is_file())
        deep = len(at.relative_to(folder).parts) >= _MOST_LEVELS - 1
        folders[:] = [] if deep else [name for name in folders if name not in PACKAGES and not name.startswith(".")]
