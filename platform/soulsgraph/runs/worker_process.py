"""A process of this machine that does work while training goes on; it needs neither Ray nor torch."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from soulsgraph_policies.agents.projects import carried_by_value

_SERVE = "from soulsgraph.runs.worker_process import serve; import soulsgraph.runs.evaluate; serve({})"


class WorkerLostError(Exception):
    """The process ended before it answered."""


class WorkerProcess:
    """Call functions in a process of its own, one after another; it ends on leaving."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        #: Calls without an answer so far.
        self._open = 0

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, prepare: Callable[[], object] | None = None) -> None:
        """Start the process if it does not run: it takes seconds to load, which a first call need not wait for.

        It begins with a call of `prepare`, whose outcome nobody asks for.
        """
        if self._connection is not None:
            return
        self._connection, theirs = Pipe()
        with theirs, suppress(OSError):  # Where there is no memory for it, `result` says that it is lost.
            number = theirs.fileno()
            # -P: what lies in the present folder is none of our modules.
            command = [sys.executable, "-P", "-c", _SERVE.format(number)]
            # A session of its own: an interrupt from the keyboard is for the process that trains.
            self._process = subprocess.Popen(command, pass_fds=[number], start_new_session=True)
        with suppress(OSError):
            self._connection.send_bytes(cloudpickle.dumps(prepare))

    def submit(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function of a module; `result` returns the answers in this order."""
        self.start()
        assert self._connection is not None
        self._open += 1
        # It may have died: so says `result`. Skills hold functions made at run time, which plain pickle refuses.
        with suppress(OSError), carried_by_value(cloudpickle):
            self._connection.send_bytes(cloudpickle.dumps((function, arguments)))

    @property
    def running(self) -> bool:
        """Whether the process was started and not found to have ended."""
        return self._connection is not None

    @property
    def answered(self) -> bool:
        """Whether `result` returns at once."""
        return self._open > 0 and self._connection is not None and self._connection.poll()

    def result(self) -> Any:
        """Wait for the next answer and return it, or raise what the function raised.

        Raises:
            WorkerLostError: if the process ended; what was submitted is lost, and the next call starts another.
        """
        assert self._connection is not None, "`submit` comes before `result`"
        try:
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self.close()
            raise WorkerLostError from error
        self._open -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def cpu_s(self) -> float:
        """CPU seconds that the process took so far, 0 where none runs."""
        if self._process is None or self._process.poll() is not None:
            return 0.0
        # Imported here: a game PC does without.
        import psutil

        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def forget(self) -> None:
        """End the process if it owes answers: whoever asked is gone."""
        if self._open:
            self.close()

    def close(self) -> None:
        """End the process, whatever it does."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._connection, self._process, self._open = None, None, 0


def serve(descriptor: int) -> None:
    """Answer calls until the other process ends or hangs up."""
    with Connection(descriptor) as connection, suppress(EOFError, OSError):
        if (prepare := pickle.loads(connection.recv_bytes())) is not None:
            _answer(prepare, ())
        while True:
            function, arguments = pickle.loads(connection.recv_bytes())
            connection.send(_answer(function, arguments))


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        return error
    except (SystemExit, KeyboardInterrupt) as leaving:
        # Where nothing loaded a project, nothing of it can have left.
        projects = sys.modules.get("soulsgraph_policies.agents.projects")
        if projects is None or (authors := projects.authors_error(leaving)) is None:
            raise
        return authors
