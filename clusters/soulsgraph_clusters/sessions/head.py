"""A Ray head: whether it answers, and one that this process starts where none does."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from signal import Signals
from typing import IO

import psutil

from soulsgraph_envs.core.access import join_address, split_address
from soulsgraph_envs.core.errors import SoulsGraphError, UnavailableError
from soulsgraph_envs.core.machine import APART

PROBE_TIMEOUT_S = 5.0
#: Ray's own wait for a cluster that refuses the token is longer than anyone wants to look at it.
HEALTH_CHECK_TIMEOUT_S = 30.0
#: A start takes some seconds of an idle processor.
_START_WITHIN_S, _END_WITHIN_S, _LOOK_EVERY_S = 120.0, 15.0, 0.5
#: `ray start --block` looks at its servers every second, and one that was lost may be noticed here first.
_SEES_ITS_END_WITHIN_S = 5.0
#: A head of ours that listens is ended when this many health checks in a row fail: one may be slow on a busy machine.
_FAILED_CHECKS = 3
_LONGEST_LINE, _MOST_BYTES, _COLOUR = 300, 4096, re.compile(r"\x1b\[[0-9;]*m")
#: Of Ray's own limits those that can be set: a busy machine exceeds the defaults, ours hold.
PATIENT = {"RAY_agent_register_timeout_ms": "300000", "RAY_gcs_server_port_wait_time_s": "60"}
#: Unless set: a stopped job has time to write its checkpoint.
_ENVIRONMENT = {"RAY_JOB_STOP_WAIT_TIME_S": "120", **PATIENT}


class ClusterError(SoulsGraphError):
    """A cluster could not be joined, or lacks resources."""


class ClusterAwayError(ClusterError, UnavailableError):
    """A cluster does not answer, or has no free place: both may be over by themselves."""


def listens(address: str) -> bool:
    """Return whether something listens at an address, host:port; True as well where that cannot be asked."""
    try:
        _probe(address)
    except ClusterAwayError:
        return False
    except ClusterError:
        return True
    return True


def check_cluster(address: str, source: str = "`address`") -> None:
    """Check that a cluster of this Ray version answers within seconds and accepts our token.

    `source` is what an error asks to correct.

    Raises:
        ClusterError: otherwise, with the check that failed.
    """
    if address != "auto":
        _probe(address, source)
    command = [sys.executable, "-P", "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=HEALTH_CHECK_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ClusterAwayError(
            f"{address}: expected a Ray cluster to answer within {HEALTH_CHECK_TIMEOUT_S:g} s, found silence; "
            "check that the port is that of `ray start --head`."
        ) from error
    if answer.returncode:
        raise _refusal(address, answer.stderr, source)


def _probe(address: str, source: str = "`address`") -> None:
    try:
        place = split_address(address, least_port=1)
    except ValueError as error:
        raise ClusterError(
            f"Ray address: expected host:port, 'auto' or 'local', found {address!r}; correct {source}."
        ) from error
    try:
        socket.create_connection(place, PROBE_TIMEOUT_S).close()
    # A host that cannot be encoded is a UnicodeError.
    except (OSError, UnicodeError) as error:
        raise ClusterAwayError(
            f"{address}: expected a Ray cluster to answer within {PROBE_TIMEOUT_S:g} s, found: {error}; "
            f"start it with `ray start --head` or correct {source}."
        ) from error


def _refusal(address: str, output: str, source: str) -> ClusterError:
    if "AuthenticationError" in output:
        return refused_token(address)
    lines = [line for line in output.splitlines() if line.strip()]
    return ClusterAwayError(
        f"{address}: expected a healthy cluster of Ray {version('ray')}, found: "
        f"{lines[-1].strip() if lines else 'no answer'}; start one with `ray start --head` or correct {source}."
    )


def refused_token(address: str) -> ClusterError:
    """Return the error for a cluster that does not take our token."""
    return ClusterError(
        f"{address}: expected the cluster to take our token, found that it is missing or another; "
        "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to the file the cluster was started with."
    )


class RayHead:
    """A head by a command of `ray start --head`: started where no head answers at its address, ended by `close`.

    A head that was there already is used and left alone. The command runs without a shell, in the foreground
    (`--block`), so that its end is seen at once and ends all of it. `report` gets a line for each start.

    Raises:
        SoulsGraphError: if the command starts no head, or one at a port that is not known before.
    """

    def __init__(self, command: str, report: Callable[[str], None]) -> None:
        self._words, self.address = _parsed(command)
        self._report, self._failed_checks = report, 0
        self._process: subprocess.Popen[bytes] | None = None
        #: What it prints: a file without a name.
        self._output: IO[bytes] | None = None

    def listens(self) -> bool:
        """Return whether anything listens where the head does."""
        return listens(self.address)

    def ensure(self, stopped: Callable[[], bool]) -> str:
        """Return an empty text when a healthy head answers, started here if need be; else what was found.

        Raises:
            ClusterError: if a head answers that does not take our token.
        """
        ended = self._collect()
        try:
            check_cluster(self.address, "the head's command")
        except ClusterAwayError as error:
            found = str(error)
        else:
            self._failed_checks = 0
            return ""
        self._failed_checks += 1
        listening = self.listens()
        until_s = time.monotonic() + (0.0 if listening else _SEES_ITS_END_WITHIN_S)
        while not (ended := ended or self._collect()) and time.monotonic() < until_s and not stopped():
            time.sleep(_LOOK_EVERY_S)
        ours = self._process is not None
        if listening and (not ours or self._failed_checks < _FAILED_CHECKS):
            return f"{found} No other head is started while something listens there"
        why = found.rstrip(".") if ours else ended or f"{self.address}: no Ray head answers"
        self._report(f"{why}; a Ray head is started there")
        self.close()
        return self._start(stopped)

    def _collect(self) -> str:
        """Return how the head that was started here ended, empty if it did not; what it left behind is killed."""
        if self._process is None or (code := self._process.poll()) is None:
            return ""
        how = describe_end(code, self._last_line())
        self.close()
        return f"{self.address}: the Ray head {how}"

    def _start(self, stopped: Callable[[], bool]) -> str:
        places = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        # Jobs find our command on the PATH that the head was started with.
        environment = _ENVIRONMENT | os.environ | {"PATH": os.pathsep.join(places)}
        program = shutil.which(self._words[0], path=environment["PATH"])
        if program is None:
            raise SoulsGraphError(f"`head_command`: expected a program, found no {self._words[0]!r}; correct it.")
        self._output, self._failed_checks = tempfile.TemporaryFile(), 0  # noqa: SIM115 - closed with the head
        self._process = subprocess.Popen(
            [program, *self._words[1:]],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            # Ctrl-C is for the supervisor, which ends the head last.
            **APART,
        )
        return self._await_answer(stopped)

    def _await_answer(self, stopped: Callable[[], bool]) -> str:
        until_s = time.monotonic() + _START_WITHIN_S
        while time.monotonic() < until_s and not stopped():
            if ended := self._collect():
                return f"{ended} as it started"
            if self.listens():
                with suppress(ClusterAwayError):
                    check_cluster(self.address, "the head's command")
                    return ""
            time.sleep(_LOOK_EVERY_S)
        self.close()
        return f"{self.address}: the Ray head did not answer within {_START_WITHIN_S:g} s"

    def _last_line(self) -> str:
        if self._output is None:
            return ""
        # The head writes where this file's position is, so that stays.
        size = os.fstat(self._output.fileno()).st_size
        text = os.pread(self._output.fileno(), _MOST_BYTES, max(size - _MOST_BYTES, 0)).decode(errors="replace")
        lines = [line for coloured in text.splitlines() if (line := _COLOUR.sub("", coloured).strip())]
        return lines[-1][:_LONGEST_LINE] if lines else ""

    def close(self) -> None:
        """End what was started here, in order; what is left of it after some seconds is killed."""
        if self._process is None:
            return
        left = _descendants(self._process.pid) if self._process.poll() is None else []
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_WITHIN_S)
        self._process.kill()
        self._process.wait()
        # What a killed head left behind keeps its session.
        for pid in processes_of_session(self._process.pid):
            with suppress(psutil.NoSuchProcess):
                left.append(psutil.Process(pid))
        for process in left:
            # psutil refuses to signal another process that got the same id meanwhile.
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=_END_WITHIN_S)
        if self._output is not None:
            self._output.close()
        self._process = self._output = None


def describe_end(code: int, last_line: str = "") -> str:
    """Return how a process ended in words: by its exit code, negative for a signal, and its last line if not empty."""
    # Real-time signals have no name.
    names = {one.value: one.name for one in Signals}
    how = f"was ended by {names.get(-code, f'signal {-code}')}" if code < 0 else f"ended with code {code}"
    return f"{how} (its last line: {last_line})" if last_line else how


def processes_of_session(leader: int) -> list[int]:
    """Return the ids of the processes in the session that a process began, those still alive."""
    return [pid for pid in psutil.pids() if _session_of(pid) == leader]


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def _descendants(pid: int) -> list[psutil.Process]:
    """Return what a process started and that started; jobs have sessions of their own."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _parsed(command: str) -> tuple[list[str], str]:
    """Return the words of a command that starts a head in the foreground, and the head's address."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise SoulsGraphError(f"`head_command`: expected a command, found {error} in it; correct it.") from error
    if "start" not in words or "--head" not in words:
        raise SoulsGraphError(f"`head_command`: expected `ray start --head ...`, found {command!r}; correct it.")
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--port", default="6379")
    parser.add_argument("--node-ip-address", default="127.0.0.1")
    parser.add_argument("--block", action="store_true")
    options, _ = parser.parse_known_args(words)
    if not options.port.isdecimal() or not 0 < int(options.port) < 65536:
        raise SoulsGraphError(
            f"`head_command`: expected `--port` with a number from 1 to 65535, found {options.port!r}; correct it."
        )
    return words if options.block else [*words, "--block"], join_address(options.node_ip_address, int(options.port))
