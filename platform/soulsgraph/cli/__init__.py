"""`soulsgraph`: find the command, parse, run, and print errors that a user can cause as one line."""

from __future__ import annotations

import ast
import atexit
import errno
import gc
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Collection
from importlib import import_module
from pathlib import Path

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, configure
from tyro.extras import SubcommandApp

from soulsgraph.cli.remedies import in_commands, stopped
from soulsgraph.progress import Interrupted, silence_advice, terminable
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.atomic import AccessError, WriteError

_DESCRIPTION = "Train, compose, evaluate and adapt agents made of skills for Souls games."
_BAD_INPUT, _INTERRUPTED, _UNREAD = 2, 130, 141

#: The module of this package in which every command is a function, in the order of the help.
COMMANDS = {
    **dict.fromkeys(("adapt", "transfer", "recovery", "retention"), "adapting"),
    "report": "commands",
    **dict.fromkeys(("standin", "doctor", "serve-siphon"), "games"),
    "reproduce": "commands",
    **dict.fromkeys(("curriculum", "train", "baseline", "evaluate", "table", "skills", "bench"), "commands"),
}


def main() -> None:
    """Run the command line; exit 2 on bad input, 130 when interrupted, 141 when nobody reads a text that it prints."""
    # RLlib and gymnasium advise on things this project decided long ago.
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    silence_advice()
    # What torch and Ray load stays to the end: to look through it again and again takes seconds.
    gc.set_threshold(100_000, 20, 20)
    atexit.register(gc.freeze)
    threading.excepthook = _forget_refused_write
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    try:
        with terminable():
            # Takes more than a second, in which a user may think better of it.
            _run(make_app(sys.argv[1:]))
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


def make_app(words: Collection[str]) -> SubcommandApp:
    """Return the command line; only commands among `words` can be run, or all if none is: the others have no options.

    What a command needs takes a second or more to import, for which a list of commands need not wait.
    """
    app = SubcommandApp()
    asked = {word.replace("_", "-") for word in words}
    if asked.isdisjoint(COMMANDS) and not asked <= {"-h", "--help"}:
        asked = set(COMMANDS)  # For completion in a shell, and for options whose command is missing.
    for name, module in COMMANDS.items():
        if name in asked:
            function: Callable[..., None] = getattr(import_module(f"{__name__}.{module}"), name.replace("-", "_"))
            # A flag of a study's plan can be given either way.
            flags = () if name == "reproduce" else (FlagCreatePairsOff,)
            app.command(configure(OmitArgPrefixes, *flags)(function))
        else:
            app.command(name=name, help=_description(module, name))(_not_asked_for)
    return app


def _not_asked_for() -> None:
    raise AssertionError("a command that was not among the words of the command line")


def _description(module: str, name: str) -> str:
    """Return a command's description from its source, which is not imported."""
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    doc = next(ast.get_docstring(function) for function in functions if function.name == name.replace("-", "_"))
    return (doc or "").partition("\n\nArgs:")[0]


def _run(app: SubcommandApp) -> None:
    """Run the command and write out what it printed."""
    try:
        app.cli(prog="soulsgraph", description=_DESCRIPTION)
    except SystemExit:  # As after a help text.
        _write_out()
        raise
    _write_out()


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
