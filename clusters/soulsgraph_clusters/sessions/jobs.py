"""Ray jobs: what a submitted one runs, and from outside Ray how one is submitted, followed, found and stopped.

A job runs the installed package, or a copy in its uploaded working directory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobSubmissionClient

from soulsgraph_clusters.sessions import nodes
from soulsgraph_clusters.sessions.head import ClusterAwayError, ClusterError, refused_token
from soulsgraph_envs.core.access import by_proxy, request_proxies
from soulsgraph_envs.core.config import Where, parse
from soulsgraph_envs.core.errors import SoulsGraphError

#: It reports each log that ends.
logging.getLogger("ray.dashboard.modules.job.sdk").setLevel(logging.ERROR)
_ANSWER_WITHIN_S = 30.0
#: A log that broke off is followed again after this time; after a job's end its last lines may take so long.
_FOLLOW_AGAIN_S, _REST_WITHIN_S = 1.0, 10.0
_LONGEST_LINE = 300
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


class _Client(JobSubmissionClient):
    """Ray's client, which sets no limit to the wait for an answer, and takes the environment's proxies."""

    def _do_request(self, method: str, endpoint: str, **settings: Any) -> Any:
        own = {"timeout": _ANSWER_WITHIN_S, "proxies": request_proxies(_place(self._address))}
        return super()._do_request(method, endpoint, **own | settings)


class JobServer:
    """The jobs of a cluster at its dashboard's address, `http://HOST:PORT`; the token is Ray's own.

    Every method raises ClusterAwayError where no cluster answers, and ClusterError where it refuses.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._client: _Client | None = None

    def submit(
        self, name: str, words: Sequence[str], metadata: Mapping[str, str], environment: Mapping[str, str]
    ) -> None:
        """Submit a command by a name that no other job has; its first word is a program on the head's PATH."""
        with self._asked() as client:
            client.submit_job(
                # By `exec` the command, and no shell, is the child of Ray's process for the job.
                entrypoint=f"exec {shlex.join(words)}",
                submission_id=name,
                metadata=dict(metadata),
                runtime_env={"env_vars": dict(environment)},
            )

    def find(self, name: str) -> JobDetails | None:
        """Return what the cluster knows of a job; None if it does not know it, as after its head was lost."""
        with self._asked() as client:
            try:
                return client.get_job_info(name)
            except RuntimeError as error:
                if _status(error) == 404:
                    return None
                raise

    def unfinished(self) -> list[JobDetails]:
        """Return the submitted jobs that have not ended."""
        with self._asked() as client:
            return [job for job in client.list_jobs() if job.submission_id and not job.status.is_terminal()]

    def stop(self, name: str) -> None:
        """Ask a job to stop; it ends later."""
        with self._asked() as client:
            client.stop_job(name)

    async def lines(self, name: str, write: Callable[[str], None]) -> None:
        """Write a job's log from its beginning until the job ends."""
        with self._asked() as client:
            async for text in client.tail_job_logs(name):
                write(text)

    @contextmanager
    def _asked(self) -> Iterator[JobSubmissionClient]:
        # Ray lets this variable replace the address that it is called with.
        os.environ["RAY_API_SERVER_ADDRESS"] = self.address
        try:
            self._client = self._client or _Client(self.address)
            yield self._client
        except AuthenticationError as error:
            raise refused_token(self.address) from error
        except (OSError, RuntimeError, aiohttp.ClientError) as error:
            # Of what could not be reached, the type says more than many words about connections.
            silent = isinstance(error, OSError)
            found = f"no answer, {type(error).__name__}" if silent else str(error).partition("\n")[0].strip(" .")
            kind = ClusterError if 400 <= _status(error) < 500 else ClusterAwayError
            by = by_proxy(_place(self.address), "http", "all")
            raise kind(
                f"{self.address}{by}: expected that the jobs of a Ray cluster can be managed there, found: {found}; "
                "start it with `ray start --head`, or correct the address."
            ) from error


def _place(url: str) -> str:
    """Return host and port of a dashboard's address."""
    return urlsplit(url).netloc


def _status(error: Exception) -> int:
    found = re.search(r"status code (\d+)", str(error))
    return int(found[1]) if found else 0


class JobLog:
    """Pass on a job's log as it grows, in a thread of its own, until `close`."""

    def __init__(self, server: JobServer, name: str, write: Callable[[str], None]) -> None:
        self._server, self._name, self._write = server, name, write
        self._seen, self._at, self._last, self._over = 0, 0, "", threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"log of {name}", daemon=True)
        self._thread.start()

    @property
    def last_line(self) -> str:
        """The last line so far that is not empty."""
        return self._last[:_LONGEST_LINE]

    def close(self) -> None:
        """Stop when the rest is there, or after some seconds."""
        self._over.set()
        self._thread.join(_REST_WITHIN_S)

    def _follow(self) -> None:
        while True:
            self._at, over = 0, self._over.is_set()
            # Who submitted the job asks for it as well, and reports what is wrong.
            with suppress(ClusterError):
                asyncio.run(self._server.lines(self._name, self._pass_on))
                return
            if over:
                return
            self._over.wait(_FOLLOW_AGAIN_S)

    def _pass_on(self, text: str) -> None:
        """Write what is new: a log that is followed again comes from its beginning."""
        new = text[max(self._seen - self._at, 0) :]
        self._at += len(text)
        if self._at > self._seen:
            self._seen = self._at
            self._write(new)
            self._last = next((line.strip() for line in reversed(new.splitlines()) if line.strip()), self._last)
