"""Ray jobs: what a submitted one runs, the installed package or a copy in its uploaded working directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from soulsgraph_clusters.sessions import nodes
from soulsgraph_envs.core.config import Where, parse
from soulsgraph_envs.core.errors import SoulsGraphError

#: Set by Ray for the command of a job: JSON with the job's runtime environment and metadata.
JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
#: The folder in which Ray unpacks working directories, each in one of its own.
_UNPACKED = "working_dir_files"


class JobError(SoulsGraphError):
    """A job brought a copy of our packages that would not run."""


@dataclass(frozen=True)
class Job:
    """A job as Ray started it.

    `uploaded` is its working directory on this machine, if it brought one.
    """

    id: str
    uploaded: Path | None

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
        return cls(str(metadata.get("job_submission_id", "unknown")), unpacked)

    def check(self) -> None:
        """Refuse a working directory that holds another copy of our packages than the one that runs.

        Raises:
            JobError: naming both copies and a file in which they differ.
        """
        if self.uploaded is None:
            return
        running = {name: Path(folder).resolve() for name, folder in nodes.package_folders().items()}
        for copy in nodes.copies_below(self.uploaded):
            self._check_copy(copy, running.get(copy.name))
        inside = [name for name in nodes.PACKAGES if name in running and running[name].is_relative_to(self.uploaded)]
        if inside and len(inside) < len(running):
            outside = next(name for name in running if name not in inside)
            raise JobError(
                f"job {self.id}: expected packages of one tree, found {inside[0]} of the job's working directory and "
                f"{outside} of {running[outside].parent}; {_REMEDY}."
            )

    def _check_copy(self, copy: Path, running: Path | None) -> None:
        if running is None or copy.resolve() == running:
            return
        if others := nodes.differing(nodes.file_digests(running), nodes.file_digests(copy)):
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
    found = nodes.find_source()
    return f"soulsgraph {found['version']} of {found['folders']['soulsgraph']}"
