"""`soulsgraph`: find the command, parse, run, and print errors that a user can cause as one line."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

from soulsgraph.cli.commands import COMMANDS, GROUPS, help_text, make_app, named, version
from soulsgraph.runs.progress import Interruption, silence_advice, terminable
from soulsgraph_envs.core.errors import SoulsGraphError, UnavailableError, shown
from soulsgraph_envs.core.extras import PROJECTS, missing_module
from soulsgraph_envs.core.machine import compute_on_one_thread
from soulsgraph_envs.core.terminal import keep_streams

_BAD_INPUT, _UNAVAILABLE, _INTERRUPTED = 2, 69, 130
_AGAIN = "the same command goes on with what is saved"

#: Commands that know no skills, or load the projects by themselves.
_WITHOUT_PROJECTS = {"doctor", "game", "host", "pause", "supervise"}
_SHELLS = ("bash", "zsh", "fish")


def main() -> None:
    """Run the command line; exit 2 on bad input, 130 when interrupted, 141 when nobody reads a text that it prints.

    It exits 69 where something is not there that may come by itself: a cluster, a place on it, room on a disk.
    """
    keep_streams()
    # RLlib and gymnasium advise on things this project decided long ago.
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    # A head that comes back knows nothing of its drivers, and one that found it again would wait there for minutes:
    # Ray's own limit is a minute, and no head starts within this one.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "10")
    # What gRPC refuses is in our own lines.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    compute_on_one_thread(later=True)
    silence_advice()
    # What torch and Ray load stays to the end: to look through it again and again takes seconds.
    gc.set_threshold(100_000, 20, 20)
    atexit.register(gc.freeze)
    threading.excepthook = _forget_refused_write
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    try:
        with terminable():
            _run(sys.argv[1:])
    except Interruption as stop:
        _leave(f"{stop}; {_AGAIN}", _INTERRUPTED)
    except SoulsGraphError as error:
        _leave(f"error: {error}", _UNAVAILABLE if isinstance(error, UnavailableError) else _BAD_INPUT)
    except ModuleNotFoundError as error:
        if (refusal := missing_module(command, error.name or "")) is None:
            raise
        _leave(f"error: {refusal}", _BAD_INPUT)
    except OSError as error:
        # A full, read-only or forbidden place can show anywhere; any other refusal of the system is a defect.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        _leave(f"error: {error.filename or 'a file'}: {error.strerror}.", _UNAVAILABLE if full else _BAD_INPUT)
    except SystemExit as leaving:
        # From its start on Ray answers a termination by this, without a word.
        if leaving.code != signal.SIGTERM:
            raise
        _leave(f"terminated; {_AGAIN}", _INTERRUPTED)
    except KeyboardInterrupt:
        _leave(f"interrupted; {_AGAIN}", _INTERRUPTED)


def _load_installed_projects() -> None:
    """Import the projects that are installed, before anything is read: nothing that is read decides about it."""
    if not entry_points(group=PROJECTS):
        return
    from soulsgraph_policies.agents.projects import load_installed

    for problem in load_installed():
        print(f"warning: {problem}", file=sys.stderr)


def _run(words: Sequence[str]) -> None:
    """Run the command and write out what it printed; an error in a project's code is cut to the author's frames."""
    name = named(words)
    if words[:1] == ["--completion"]:
        _print_completion(words[1:])
    elif not name and words[:1] in ([], ["-h"], ["--help"]):
        print(help_text())
    elif not name and words[0] == "--version":
        print(version())
    elif not name:
        raise SoulsGraphError(f"expected a command first, found {shown(words[0])}; see soulsgraph --help.")
    elif name in GROUPS:
        print(help_text(name))
    else:
        if _WITHOUT_PROJECTS.isdisjoint(name.split()):
            _load_installed_projects()
        _call(name, words)
    sys.stdout.flush()
    if not words:
        sys.exit(_BAD_INPUT)


def _call(name: str, words: Sequence[str]) -> None:
    # Imported here: the list of commands is printed without it.
    from cyclopts import CycloptsError

    # Takes up to a second, in which a user may think better of it.
    app = make_app([name])
    try:
        app(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        raise SoulsGraphError(" ".join(str(error).split())) from error
    except SoulsGraphError:
        raise
    except Exception as error:
        # Where nothing loaded a project, nothing of it can have failed.
        projects = sys.modules.get("soulsgraph_policies.agents.projects")
        if projects is not None and (cut := projects.authors_traceback(error)).startswith("Traceback"):
            _leave(cut, _BAD_INPUT)
        raise


def _print_completion(words: Sequence[str]) -> None:
    """Print the script by which a shell completes words."""
    if len(words) != 1 or words[0] not in _SHELLS:
        raise SoulsGraphError(f"--completion: expected one of {', '.join(_SHELLS)}, found {' '.join(words) or 'none'}.")
    shell: Any = words[0]
    print(make_app(COMMANDS).generate_completion(shell=shell))


def _forget_refused_write(failure: threading.ExceptHookArgs) -> None:
    # TensorBoard writes in a thread of its own; the same refusal reaches us at the next flush.
    if not issubclass(failure.exc_type, OSError):
        threading.__excepthook__(failure)


def _leave(message: str, code: int) -> None:
    print(message, file=sys.stderr)
    sys.exit(code)
