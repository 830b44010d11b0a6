"""What a submitted Ray job runs: the installed package, or a copy in its uploaded working directory.

And which files of our packages Python would run: here, on a node of a cluster, or in what a job brought along.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

from soulsgraph_envs.core.config import Where, parse
from soulsgraph_envs.core.errors import SoulsGraphError

#: Set by Ray for the command of a job: JSON with the job's runtime environment and metadata.
JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
#: Metadata of a job under supervision: the process that supervises it, and the folder that it writes.
SUPERVISOR, FOLDER = "soulsgraph_supervisor", "soulsgraph_folder"
#: The folder in which Ray unpacks working directories, each in one of its own.
_UNPACKED = "working_dir_files"


class JobError(SoulsGraphError):
    """A job brought a copy of our packages that would not run."""


@dataclass(frozen=True)
class Job:
    """A job as Ray started it.

    `uploaded` is its working directory on this machine, if it brought one; `supervisor` the process that supervises it,
    empty if none does.
    """

    id: str
    uploaded: Path | None
    supervisor: str = ""

    @classmethod
    def present(cls, environment: Mapping[str, str] = os.environ, folder: Path | None = None) -> Job | None:
        """Return the job that this process belongs to by its environment and folder; None outside a job."""
        if JOB not in environment:
            return None
        settings = parse(environment[JOB], "JSON", Where(None, JOB, "submit the job by Ray's own command"))
        metadata = settings.get("metadata") or {}
        places = [str(folder or Path.cwd()), *environment.get("PYTHONPATH", "").split(os.pathsep)]
        brought = (settings.get("runtime_env") or {}).get("working_dir")
        unpacked = next(filter(None, map(_unpacked, places)), None) if brought else None
        return cls(str(metadata.get("job_submission_id", "unknown")), unpacked, str(metadata.get(SUPERVISOR, "")))

    def check(self) -> None:
        """Refuse a working directory that holds another copy of our packages than the one that runs.

        Raises:
            JobError: naming both copies and a file in which they differ.
        """
        if self.uploaded is None:
            return
        running = {name: Path(folder).resolve() for name, folder in package_folders().items()}
        for copy in copies_below(self.uploaded):
            self._check_copy(copy, running.get(copy.name))
        inside = [name for name in PACKAGES if name in running and running[name].is_relative_to(self.uploaded)]
        if inside and len(inside) < len(running):
            outside = next(name for name in running if name not in inside)
            raise JobError(
                f"job {self.id}: expected packages of one tree, found {inside[0]} of the job's working directory and "
                f"{outside} of {running[outside].parent}; {_REMEDY}."
            )

    def _check_copy(self, copy: Path, running: Path | None) -> None:
        if running is None or copy.resolve() == running:
            return
        if others := differing(file_digests(running), file_digests(copy)):
            place = copy.relative_to(self.uploaded or copy)
            raise JobError(
                f"job {self.id}: expected the uploaded {place} to be what runs, found that {running} runs, which "
                f"differs from it in {len(others)} files, among them {others[0]}; {_REMEDY}."
            )


_REMEDY = "install that tree on every machine of the cluster, or submit the job without a working directory"


def _unpacked(place: str) -> Path | None:
    """Return the folder that Ray unpacked, if a place is in one."""
    path = Path(place).resolve()
    return next((one for one in (path, *path.parents) if one.parent.name == _UNPACKED), None)


def describe_source() -> str:
    """Return the version of our package that runs, and its folder."""
    found = find_source()
    return f"soulsgraph {found['version']} of {found['folders']['soulsgraph']}"


PACKAGES = ("soulsgraph", "soulsgraph_clusters", "soulsgraph_policies", "soulsgraph_envs")
_DISTRIBUTION = "soulsgraph"
_SUFFIXES = (".py", ".toml")
#: Folders below an uploaded one that are searched for a copy: deeper ones are environments and their like.
_MOST_LEVELS = 4


class Source(TypedDict):
    """What one Python would run: its version, each package's folder, digests by file, what is not installed."""

    python: str
    version: str
    folders: dict[str, str]
    files: dict[str, str]
    missing: list[str]


def find_source(needed: Sequence[str] = ()) -> Source:
    """Return what this Python would run, and which of the distributions that are needed it lacks."""
    folders = package_folders()
    try:
        found = version(_DISTRIBUTION)
    except PackageNotFoundError:
        found = "unknown"
    files = {name: digest for folder in folders.values() for name, digest in file_digests(Path(folder)).items()}
    return Source(
        python=sys.executable,
        version=found,
        folders=folders,
        files=files,
        missing=[name for name in needed if not _is_installed(name)],
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


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def needed_distributions() -> tuple[str, ...]:
    """Return the names of the distributions that ours needs, extras left out; none where it is not installed."""
    try:
        lines = requires(_DISTRIBUTION) or []
    except PackageNotFoundError:
        return ()
    names = [re.match(r"[\w.-]+", line) for line in lines if "extra ==" not in line]
    return tuple(name[0] for name in names if name)


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
