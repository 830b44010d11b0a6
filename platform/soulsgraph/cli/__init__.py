"""`soulsgraph`: parse, run, and print errors that a user can cause as one line."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import threading

from soulsgraph.cli.remedies import in_commands, stopped
from soulsgraph.progress import Interrupted, terminable
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.atomic import AccessError, WriteError

_DESCRIPTION = "Train, compose, evaluate and adapt agents made of skills for Souls games."
_BAD_INPUT, _INTERRUPTED, _UNREAD = 2, 130, 141


def main() -> None:
    """Run the command line; exit 2 on bad input, 130 when interrupted, 141 when nobody reads a text that it prints."""
    # RLlib and gymnasium advise on things this project decided long ago.
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    threading.excepthook = _forget_refused_write
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    try:
        with terminable():
            from soulsgraph.cli.app import make_app

            # Takes more than a second, in which a user may think better of it.
            app = make_app(sys.argv[1:])
            try:
                app.cli(prog="soulsgraph", description=_DESCRIPTION)
            except SystemExit:  # As after a help text.
                _write_out()
                raise
            _write_out()
    except Interrupted as stop:
        _leave(stopped(str(stop), command), _INTERRUPTED)
    except SoulsGraphError as error:
        _leave(f"error: {in_commands(str(error), command)}", _BAD_INPUT)
    except BrokenPipeError:
        if not _unread():
            raise
        sys.exit(_UNREAD)
    except OSError as error:
        # A full, read-only or forbidden place can show anywhere; any other refusal of the system is a defect.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        refusal = AccessError if error.errno == errno.EACCES else WriteError
        _leave(f"error: {refusal(error.filename or 'a file', error)}", _BAD_INPUT)
    except SystemExit as leaving:
        # From its start on Ray answers a termination by this, without a word.
        if leaving.code != signal.SIGTERM:
            raise
        _leave(stopped("terminated", command), _INTERRUPTED)
    except KeyboardInterrupt:
        _leave(stopped("interrupted", command), _INTERRUPTED)


def _forget_refused_write(failure: threading.ExceptHookArgs) -> None:
    # TensorBoard writes in a thread of its own; the same refusal reaches us at the next flush.
    if not issubclass(failure.exc_type, OSError):
        threading.__excepthook__(failure)


def _write_out() -> None:
    # Standard output may be closed.
    if sys.stdout is not None:
        sys.stdout.flush()


def _unread() -> bool:
    """Return whether nobody reads what is printed, as in `soulsgraph --help | head`; what is left is dropped then."""
    if sys.stdout is None:
        return False
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    unread = any(event & select.POLLERR for _, event in output.poll(0))
    if unread:
        # Python would fail once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return unread


def _leave(message: str, code: int) -> None:
    print(message, file=sys.stderr)
    sys.exit(code)
