"""`soulsgraph supervise`: keep a training going, whatever ends it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from tyro.conf import Positional, arg

from soulsgraph.cli.output import DEFAULT_OUTPUT, OutputOptions
from soulsgraph.cli.remedies import REPEATED, RESUMED, command_of, folder_of, option_of
from soulsgraph.runs.progress import interruptible
from soulsgraph.runs.supervision import (
    INTERRUPTED,
    UNAVAILABLE,
    AttemptEnd,
    Attempts,
    Jobs,
    Processes,
    Stopped,
    SupervisedCommand,
    pause,
)
from soulsgraph_clusters.sessions.head import RayHead, listens
from soulsgraph_envs.core.access import join_address, split_address
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.terminal import UNREAD

#: Waits before a command or a head is started again: doubled each time, up to the second.
RESTART_AFTER_S = 1.0, 60.0
#: A command that ran at least this long is started again after the shortest wait.
_STEADY_S = 300.0
#: Bad input, a stop that was asked for, and a text for nobody: to start again would change nothing.
_FINAL = (0, 2, INTERRUPTED, UNREAD)
#: Nor where a command ends by the same error, as its last line says, this often in a row and each time this soon.
_SAME_ENDS, _SOON_S = 5, 60.0
#: Between two looks whether a cluster answers again; between two starts of a command where that cannot be seen; lines.
_LOOK_EVERY_S, _TRY_EVERY_S, _LINE_EVERY_S = 1.0, 15.0, 60.0
_PORTS = {"http": 80, "https": 443}


def supervise(
    words: Annotated[Positional[tuple[str, ...]], arg(metavar="COMMAND ...")],
    output: OutputOptions = DEFAULT_OUTPUT,
    most_restarts: int = 1000,
    cluster_within: float = 60.0,
    head_command: str | None = None,
    job: str | None = None,
) -> None:
    """Run a training command, and resume its run when it crashes or is killed: soulsgraph supervise -- curriculum.

    It exits with the command's code when the command succeeds, refuses its input, is interrupted, or ends at once with
    the same error five times in a row. Games of a fleet keep what they play meanwhile. When this process is killed the
    command stops too, with a checkpoint; what is left of it, or a job that goes on, is ended by the next supervisor of
    the run, before it begins.

    Args:
        words: The command with its options, after `--`.
        most_restarts: Restarts after which it gives up.
        cluster_within: Minutes to wait for a cluster that does not answer or has no free place, as after its head died,
            for game PCs, or for room on a full disk. Such a wait does not count as a restart.
        head_command: Command that starts the cluster's head, as "ray start --head --port=6379": it is run if no head
            answers and whenever the head is lost; the head is ended at the end.
        job: Dashboard of a cluster, as http://127.0.0.1:8265: the command is submitted there as a job, and submitted
            again when the job fails or its head is lost.
    """
    known = (*RESUMED, *REPEATED)
    if command_of(words) not in known:
        raise UnknownNameError("command to supervise", " ".join(words[:1]), known)
    report = output.console.print
    address = _address(words) if job is None else _dashboard(job)
    head = None if head_command is None else RayHead(head_command, report)
    if head is not None and job is None:
        _check_joins(address, head)
    command = SupervisedCommand("soulsgraph", words)
    attempts = Processes(command) if job is None else _jobs(job, command, report)
    cluster = _Cluster(address, head, cluster_within, report)
    # The head is ended last.
    with interruptible() as stopped, closing(cluster), closing(attempts):
        code = _keep_going(attempts, most_restarts, cluster, stopped, report)
    sys.exit(code if code >= 0 else 128 - code)


def _keep_going(
    attempts: Attempts, most_restarts: int, cluster: _Cluster, stopped: Stopped, report: Callable[[str], None]
) -> int:
    """Run a command until it is done for good; return its exit code."""
    waits, restarts, ends = _waits(), 0, _Ends()
    while cluster.has_head(stopped):
        ended = attempts.run(stopped)
        if stopped() or ended.code in _FINAL:
            return INTERRUPTED if ended.code == UNAVAILABLE else ended.code
        steady = ended.ran_s > _STEADY_S
        if steady or ended.code != UNAVAILABLE:
            cluster.there()
        if ended.code == UNAVAILABLE:
            if not cluster.wait(ended, stopped):
                report(f"{ended.why.rstrip('.')}; it is not waited for any longer")
                break
            continue
        if ends.repeated(ended):
            report(f"{ended.why}, {_SAME_ENDS} times in a row; it is not begun again")
            return ended.code
        if restarts == most_restarts:
            report(f"{ended.why}; it was begun again {restarts} times, and is not any more")
            return ended.code
        restarts += 1
        waits = _waits() if steady else waits
        wait_s = next(waits)
        report(f"{ended.why}; it restarts in {wait_s:g} s ({restarts} of {most_restarts})")
        pause(wait_s, stopped)
    return INTERRUPTED if stopped() else UNAVAILABLE


class _Ends:
    """Count how often in a row a command ended soon by the same error."""

    def __init__(self) -> None:
        self._last, self._count = (0, ""), 0

    def repeated(self, ended: AttemptEnd) -> bool:
        """Return whether that was often enough for a cause that stays; a signal has come from somebody else."""
        found = ended.code, ended.last_line
        counts = ended.code > 0 and ended.last_line and ended.ran_s < _SOON_S
        self._count = 0 if not counts else self._count + 1 if found == self._last else 1
        self._last = found
        return self._count >= _SAME_ENDS


def _waits() -> Iterator[float]:
    wait_s, longest_s = RESTART_AFTER_S
    while True:
        yield wait_s
        wait_s = min(2 * wait_s, longest_s)


def _check_joins(address: str, head: RayHead) -> None:
    """Refuse a head that the command would not use."""
    if address != "auto" and _port(address) != _port(head.address):
        raise SoulsGraphError(
            f"--head-command: expected a command that joins the head at {head.address}, found {address!r} as its "
            f"address; add to the command: --address {head.address}."
        )


def _jobs(address: str, command: SupervisedCommand, report: Callable[[str], None]) -> Jobs:
    # Imported here: it takes seconds, and only jobs need it.
    from soulsgraph_clusters.sessions.jobs import JobServer

    folder = folder_of(command.words)
    if folder and not Path(folder).is_absolute():
        raise SoulsGraphError(
            f"--job: expected the absolute path of a folder on the head, found {folder!r}, which is another folder "
            "where another head runs; name it from / on."
        )
    return Jobs(JobServer(address.rstrip("/")), command, folder, report)


def _dashboard(job: str) -> str:
    """Return host and port of a dashboard's address."""
    try:
        parts = urlsplit(job)
        port = parts.port or _PORTS[parts.scheme]
        more = parts.username, parts.password, parts.path.strip("/"), parts.query, parts.fragment
        if not parts.hostname or any(more):
            raise ValueError
    except (ValueError, KeyError):
        # What was given is not repeated: it may hold a password.
        raise SoulsGraphError("--job: expected http://HOST:PORT of a cluster's dashboard, found another.") from None
    return join_address(parts.hostname, port)


def _port(address: str) -> int:
    """Return the port of an address, 0 where it is none."""
    try:
        return split_address(address)[1]
    except ValueError:
        return 0


def _address(words: Sequence[str]) -> str:
    """Return the address of the cluster that a command joins."""
    return option_of(words, "--address", os.environ.get("RAY_ADDRESS") or "local")


class _Cluster:
    """Wait for a cluster, at most for some minutes in all until `there` is called; a line is printed every minute.

    Its head is started where none answers, if it is ours to start.
    """

    def __init__(self, address: str, head: RayHead | None, minutes: float, report: Callable[[str], None]) -> None:
        self._address, self._head, self._minutes, self._report = address, head, minutes, report
        self._since_s: float | None = None
        self._next_line_s = 0.0

    def has_head(self, stopped: Stopped) -> bool:
        """Start the head if need be; return False at the end of the patience or when stopped."""
        waits, until_s = _waits(), time.monotonic() + 60.0 * self._minutes
        while not stopped():
            found = self._head.ensure(stopped) if self._head else ""
            if not found:
                return True
            if time.monotonic() > until_s:
                return False
            wait_s = next(waits)
            self._report(f"{found.rstrip('.')}; it is looked at again in {wait_s:g} s")
            pause(wait_s, stopped)
        return False

    def there(self) -> None:
        """Begin a later wait anew: a command found what it needs."""
        self._since_s = None

    def wait(self, ended: AttemptEnd, stopped: Stopped) -> bool:
        """Wait until a command may be tried again; return False at the end of the patience or when stopped."""
        if self._since_s is None:
            self._since_s = self._next_line_s = time.monotonic()
        until_s, answered = self._since_s + 60.0 * self._minutes, listens(self._address)
        # It answered to a command that ended soon as well: another try at once would end no better.
        try_s = time.monotonic() + max(RESTART_AFTER_S[0], _TRY_EVERY_S - ended.ran_s)
        while not stopped() and time.monotonic() < until_s:
            self._print_line(ended.why)
            lost = self._head is not None and not self._head.listens()
            if lost or (time.monotonic() >= try_s if answered else listens(self._address)):
                return True
            pause(_LOOK_EVERY_S, stopped)
        return False

    def _print_line(self, why: str) -> None:
        assert self._since_s is not None, "`wait` began"
        if (now_s := time.monotonic()) < self._next_line_s:
            return
        self._next_line_s = now_s + _LINE_EVERY_S
        waited = f"{(now_s - self._since_s) / 60.0:.0f} of {self._minutes:g} min"
        self._report(f"waiting until it can run, {waited}: {why}")

    def close(self) -> None:
        """End a head that was started here."""
        if self._head is not None:
            self._head.close()
