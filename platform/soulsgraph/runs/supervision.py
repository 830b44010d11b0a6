"""A training and the process that supervises it: the one ends with the other, and is ended before its successor.

The supervisor makes one attempt at it after another: a process of this machine, or a job of a Ray cluster.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from soulsgraph_envs.core.errors import SoulsGraphError, UnavailableError
from soulsgraph_envs.core.machine import APART, boot_id

if TYPE_CHECKING:
    import psutil
    from ray.job_submission import JobDetails

    from soulsgraph_clusters.sessions.jobs import JobLog, JobServer


#: A training that was asked to stop has this time to leave a checkpoint.
STOP_WITHIN_S = 120.0
#: One that was killed ends within this time, however large it is.
_KILLED_WITHIN_S = 60.0
#: Exit codes: what was needed is not there now, and may come by itself; a stop that was asked for.
UNAVAILABLE, INTERRUPTED = 69, 130
#: What a supervisor writes to a training's standard input to interrupt it: Windows has no such signal.
INTERRUPT = b"interrupt\n"
#: A process's begin by the clock; two that differ by no more seconds are the same.
_CLOCKED, _CLOCK_S = re.compile(r"\d+\.\d+"), 5.0
_BEGIN = "from soulsgraph.runs.supervision import begin; begin({}); from soulsgraph.cli import main; main()"
_supervisor: int | None = None
#: After a command's end the errors that its processes still print are passed on for this time.
_ERRORS_WITHIN_S = 2.0
_LONGEST_LINE = 300
_LOOK_EVERY_S = 1.0
#: Ray kills a job that did not stop in its own time, two minutes where a supervisor started the head.
_JOB_ENDS_WITHIN_S = STOP_WITHIN_S + 30.0
#: A head that comes back knows nothing of its drivers, and one that found it again would wait there for minutes. Ray's
#: own limit is a minute; no head starts within this one.
_ENVIRONMENT = {"RAY_gcs_rpc_server_reconnect_timeout_s": "10"}
Stopped = Callable[[], bool]
_logger = logging.getLogger("soulsgraph")


def supervised_command(words: Sequence[str]) -> list[str]:
    """Return the command line of a training under this process, which holds its standard input open."""
    # -P: what lies in the present folder is none of our modules.
    return [sys.executable, "-P", "-c", _BEGIN.format(os.getpid()), *words]


def present_supervisor() -> int | None:
    """Return the id of the process that this one is a training under, its parent; None without"""
    return _supervisor


def describe_process() -> str:
    """Return what names this process among all of all machines, for `has_ended`."""
    return f"{socket.gethostname()} {os.getpid()} {_began(os.getpid())}"


def has_ended(description: str) -> bool:
    """Return whether a process described by `describe_process` has ended; False if it ran on another machine."""
    match = re.fullmatch(r"(\S+) (\d+) (\S+)", description)
    if match is None or match[1] != socket.gethostname():
        return False
    began = _began(int(match[2]))
    if _CLOCKED.fullmatch(match[3]) and _CLOCKED.fullmatch(began):
        return abs(float(began) - float(match[3])) > _CLOCK_S
    return began != match[3]


def _began(pid: int) -> str:
    """Return when a process began; empty if there is none.

    Linux counts it from the boot, and so it stays when the clock is set; elsewhere it is the clock's time.
    """
    import psutil

    with suppress(OSError):
        # The name in parentheses may hold anything; the begin is the twentieth word behind it (proc(5)).
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return f"{boot_id()}/{fields[19]}"
    with suppress(psutil.NoSuchProcess):
        return f"{psutil.Process(pid).create_time():.2f}"
    return ""


def begin_job() -> None:
    """Note that this process is a supervised training in a Ray job; its parent is the process of Ray's for that job.

    Ray ends it with that process.
    """
    global _supervisor
    _supervisor = os.getppid()


def begin(supervisor: int) -> None:
    """Interrupt this process when its supervisor asks for it, and stop it, in order, when that ends.

    `supervisor` is that process's id, which holds standard input open.
    """
    global _supervisor
    _supervisor = supervisor
    # On Windows whoever only looks at what another thread reads would wait with it.
    orders, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(target=_obey, args=[orders], name=f"supervisor {supervisor}", daemon=True).start()


def _obey(orders: int) -> None:
    while words := os.read(orders, 4096):
        for _ in range(words.count(INTERRUPT)):
            _signal_itself(signal.SIGINT)
    # The supervisor passed on what this process prints as errors: to print on would be an error itself.
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    _signal_itself(signal.SIGTERM)


def _signal_itself(number: signal.Signals) -> None:
    if sys.platform == "win32":
        signal.raise_signal(number)  # There os.kill ends a process at once.
    else:
        # By it the system wakes the main thread, which alone handles signals.
        os.kill(os.getpid(), number)


def lock_owner() -> str:
    """Return what is said of this process beside a lock that it holds: its id, and its supervisor's if it has one."""
    return f"{os.getpid()}" if _supervisor is None else f"{os.getpid()} {_supervisor}"


def owner_file(lock: Path) -> Path:
    """Return the file beside a lock that says who holds it."""
    return lock.with_name(f"{lock.name}-owner")


def end_orphan(lock: Path, owner: str, within_s: float = STOP_WITHIN_S) -> bool:
    """End the process that holds a lock file, if it is a training whose supervisor is gone; return whether it ended.

    `owner` is what the file beside it says (`lock_owner`). The process is asked to stop, on Windows ended at once, and
    killed after a while. Nothing is done to any other process, nor if this one is under no supervision itself.
    """
    # Imported here: a game PC needs nothing of it.
    import psutil

    match = re.fullmatch(r"(\d+) (\d+)", owner)
    if _supervisor is None or match is None:
        return False
    holder, supervisor = map(int, match.groups())
    try:
        process = psutil.Process(holder)
        # A process whose parent ended has another, on Windows none.
        parent = process.parent()
        if not _holds(process, lock) or (parent is not None and parent.pid == supervisor):
            return False
        _logger.warning("process %d trains in %s, and its supervisor is gone: it is ended first", holder, lock.parent)
        # psutil refuses to signal another process that got the same id meanwhile.
        process.terminate()
        if not _ends(process, within_s):
            _logger.warning("process %d did not stop within %g s: it is killed", holder, within_s)
            process.kill()
        return _ends(process, _KILLED_WITHIN_S)
    except (psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
        return True
    except psutil.AccessDenied:
        return False


def _ends(process: psutil.Process, within_s: float) -> bool:
    """Wait for a process's end; where nobody collects it, it stays on the system's list as a zombie."""
    until_s = time.monotonic() + within_s
    while process.is_running() and process.status() != "zombie":
        if time.monotonic() > until_s:
            return False
        time.sleep(0.1)
    return True


def _holds(process: psutil.Process, lock: Path) -> bool:
    """Return whether a process has a lock file open, by the file and not by its name."""
    if not sys.platform.startswith("linux"):
        # Whoever got the id of a holder that ended began after that one had written who it is.
        return process.create_time() < owner_file(lock).stat().st_mtime
    for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):
            if descriptor.samefile(lock):
                return True
    return False


@dataclass(frozen=True)
class SupervisedCommand:
    """A command line: its program, and its words, the first of which says what it does."""

    program: str
    words: Sequence[str]

    @property
    def title(self) -> str:
        """What lines for a reader call it."""
        return f"{self.program} {self.words[0]}"


@dataclass(frozen=True)
class AttemptEnd:
    """How an attempt ended: its exit code, negative for a signal, a sentence, and how many seconds the command ran.

    `last_line` is the last that it printed as an error, if known.
    """

    code: int
    why: str
    ran_s: float = 0.0
    last_line: str = ""


class Attempts(Protocol):
    """A command that can be run again and again."""

    def run(self, stopped: Stopped) -> AttemptEnd:
        """Run the command to its end, or until `stopped`."""
        ...

    def close(self) -> None:
        """Leave nothing running."""
        ...


def pause(seconds: float, stopped: Stopped) -> None:
    """Wait, but not on when stopped."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s and not stopped():
        time.sleep(0.1)


class Processes:
    """Attempts at a command as processes of this machine, which end with this one."""

    def __init__(self, command: SupervisedCommand) -> None:
        self._command = command

    def run(self, stopped: Stopped) -> AttemptEnd:
        """Run the command, and pass on what it prints as errors."""
        # The standard input stays open until this process ends, however it does: then the command ends too. Ctrl-C
        # reaches this process, which asks the command once.
        pipe, environment = subprocess.PIPE, _ENVIRONMENT | os.environ
        line = supervised_command(self._command.words)
        process = subprocess.Popen(line, stdin=pipe, stderr=pipe, env=environment, **APART)
        assert process.stdin is not None, "a pipe"
        assert process.stderr is not None, "a pipe"
        with process.stdin:
            errors = _Errors(process.stderr)
            began_s, code = time.monotonic(), _wait(process, stopped)
            ran_s, last_line = time.monotonic() - began_s, errors.last_line()
            return _ended(code, self._command.title, ran_s, last_line)

    def close(self) -> None:
        """Do nothing: a process that `run` started has ended."""


def _wait(process: subprocess.Popen[bytes], stopped: Stopped) -> int:
    while process.poll() is None:
        if stopped():
            assert process.stdin is not None, "a pipe"
            with suppress(OSError):  # It has just ended.
                os.write(process.stdin.fileno(), INTERRUPT)
            try:
                return process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
        time.sleep(0.1)
    return process.returncode


class _Errors:
    """Pass on the lines that a command prints as errors, and keep the last."""

    def __init__(self, lines: IO[bytes]) -> None:
        self._lines, self._last = lines, b""
        self._thread = threading.Thread(target=self._pass_on, name="errors", daemon=True)
        self._thread.start()

    def _pass_on(self) -> None:
        # They end when the last process that the command left behind does.
        with self._lines, suppress(OSError):
            for line in self._lines:
                self._last = line if line.strip() else self._last
                sys.stderr.buffer.write(line)
                sys.stderr.flush()

    def last_line(self) -> str:
        """Return the last line that was not empty, when the command has ended."""
        self._thread.join(_ERRORS_WITHIN_S)
        return self._last.decode(errors="replace").strip()[:_LONGEST_LINE]


class Jobs:
    """Attempts at a command as jobs of a cluster, one at a time; `folder` is what the command writes, if known.

    A job of an earlier supervisor that is gone is ended first. `report` gets a line for what is done.
    """

    def __init__(
        self, server: JobServer, command: SupervisedCommand, folder: str, report: Callable[[str], None]
    ) -> None:
        self._server, self._command, self._report = server, command, report
        self._folder = folder or shlex.join(command.words)
        self._name, self._began_s = "", 0.0
        self._log: JobLog | None = None

    def run(self, stopped: Stopped) -> AttemptEnd:
        """Submit the command, or go on with its job where a cluster was away for a while, and pass on its log."""
        try:
            if not self._name:
                self._submit(stopped)
            return self._follow(stopped)
        except UnavailableError as error:
            return AttemptEnd(UNAVAILABLE, str(error))

    def _submit(self, stopped: Stopped) -> None:
        # Imported here: without jobs a supervisor needs nothing of Ray.
        from soulsgraph_clusters.sessions.jobs import FOLDER, SUPERVISOR, JobLog

        for job in self._server.unfinished():
            about = job.metadata or {}
            if about.get(FOLDER) == self._folder and has_ended(about.get(SUPERVISOR, "")):
                self._report(f"job {job.submission_id} writes {self._folder}, and its supervisor is gone: it is ended")
                self._end(job.submission_id, stopped)
        self._name, self._began_s = f"{self._command.words[0]}-{secrets.token_hex(4)}", time.monotonic()
        about = {SUPERVISOR: describe_process(), FOLDER: self._folder}
        # It waits for the job, which may be there even where the answer to its submission is lost.
        self._log = JobLog(self._server, self._name, _print)
        self._server.submit(self._name, [self._command.program, *self._command.words], about, _ENVIRONMENT)
        self._report(f"job {self._name}: submitted to {self._server.address}")

    def _follow(self, stopped: Stopped) -> AttemptEnd:
        while not stopped():
            name, job, ran_s = self._name, self._server.find(self._name), time.monotonic() - self._began_s
            if job is None:
                self._forget()
                why = f"job {name} is unknown to {self._server.address}: the head that ran it was lost"
                return AttemptEnd(1, why, ran_s)
            if job.status.is_terminal():
                return _end_of_job(f"job {name} of {self._command.title}", job, self._forget(), ran_s)
            pause(_LOOK_EVERY_S, stopped)
        self.close()
        return AttemptEnd(INTERRUPTED, "it was interrupted")

    def _end(self, name: str, stopped: Stopped = lambda: False) -> None:
        """Stop a job, if it is there, and wait for its end."""
        until_s, asked = time.monotonic() + _JOB_ENDS_WITHIN_S, False
        while (job := self._server.find(name)) is not None and not job.status.is_terminal():
            if not asked:
                self._server.stop(name)
                asked = True
            elif time.monotonic() > until_s or stopped():
                found = f"expected its end within {_JOB_ENDS_WITHIN_S:g} s, found {job.status}"
                raise UnavailableError(f"job {name}: {found}; stop it by Ray's own command.")
            else:
                pause(_LOOK_EVERY_S, stopped)

    def _forget(self) -> str:
        """Forget the job, which has ended; return the last line of its log."""
        log, self._name, self._log = self._log, "", None
        if log is None:
            return ""
        log.close()
        return log.last_line

    def close(self) -> None:
        """Stop the job, if there is one: it leaves a checkpoint."""
        if not self._name:
            return
        self._report(f"job {self._name} is stopped")
        try:
            self._end(self._name)
        except SoulsGraphError as error:
            self._report(f"job {self._name} may still run: {error}")
        self._forget()


def _ended(code: int, what: str, ran_s: float, last_line: str) -> AttemptEnd:
    """Return how a command ended, by its exit code."""
    # Imported here: whoever supervises nothing need not load it.
    from soulsgraph_clusters.sessions.head import describe_end

    return AttemptEnd(code, f"{what} {describe_end(code, last_line)}", ran_s, last_line)


def _end_of_job(what: str, job: JobDetails, last_line: str, ran_s: float) -> AttemptEnd:
    """Return how a job ended: by its command's exit code where there is one."""
    if job.status == "SUCCEEDED":
        return AttemptEnd(0, f"{what} succeeded", ran_s)
    if job.status == "STOPPED":
        return AttemptEnd(INTERRUPTED, f"{what} was stopped", ran_s)
    if job.driver_exit_code is not None:
        return _ended(job.driver_exit_code, what, ran_s, last_line)
    message = (job.message or "no message").strip().splitlines()[0]
    return AttemptEnd(1, f"{what} failed: {message[:_LONGEST_LINE]}", ran_s)


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
