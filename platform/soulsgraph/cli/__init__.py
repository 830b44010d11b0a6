"""`soulsgraph`: find the command, parse, run, and print errors that a user can cause as one line."""

from __future__ import annotations

import atexit
import errno
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib.metadata import entry_points
from itertools import takewhile
from typing import TYPE_CHECKING

from soulsgraph.cli.front import COMMANDS, DESCRIPTION, MODULE_OF, front_page, load, suggestions
from soulsgraph.runs.progress import Interruption, silence_advice, terminable
from soulsgraph_envs.core.errors import SoulsGraphError, UnavailableError, UnknownNameError
from soulsgraph_envs.core.extras import PROJECTS, missing_module
from soulsgraph_envs.core.files import AccessError, EncodingError, WriteError
from soulsgraph_envs.core.machine import compute_on_one_thread
from soulsgraph_envs.core.terminal import keep_streams

if TYPE_CHECKING:
    from tyro.extras import SubcommandApp

_BAD_INPUT, _UNAVAILABLE, _INTERRUPTED = 2, 69, 130
_AGAIN = "the same command goes on with what is saved"

#: Modules of commands that know no skills, or load the projects by themselves.
_WITHOUT_PROJECTS = ("games", "host")
#: Commands with options of a plan, whose flags can be given either way.
_PLANNING = ("train", "curriculum", "baseline", "compare", "reproduce", "import-sb3", "clone")


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
            _announce_job()
            if (page := front_page(sys.argv[1:])) is not None:
                print(page)
                sys.stdout.flush()
                sys.exit(0 if sys.argv[1:] else _BAD_INPUT)
            _load_installed_projects(command)
            # Takes up to a second, in which a user may think better of it.
            _run(make_app(sys.argv[1:]))
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
        kind = AccessError if error.errno == errno.EACCES else WriteError
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        _leave(f"error: {kind(error.filename or 'a file', error)}", _UNAVAILABLE if full else _BAD_INPUT)
    except UnicodeEncodeError as error:
        if not any("\udc80" <= letter <= "\udcff" for letter in error.object):
            raise
        # A library that takes text alone has got a path of other bytes, in one of many places.
        _leave(f"error: {EncodingError(error.object)}", _BAD_INPUT)
    except SystemExit as leaving:
        # From its start on Ray answers a termination by this, without a word.
        if leaving.code != signal.SIGTERM:
            raise
        _leave(f"terminated; {_AGAIN}", _INTERRUPTED)
    except KeyboardInterrupt:
        _leave(f"interrupted; {_AGAIN}", _INTERRUPTED)


def make_app(words: Sequence[str]) -> SubcommandApp:
    """Return the command line with the command that is the first of `words` alone, or with all: for completion.

    What a command needs takes up to a second to import, for which no other command need wait.

    Raises:
        UnknownNameError: if the command is one of several actions, and the next word is none of them.
    """
    # Imported here: the list of commands and the version are printed without it.
    from tyro.conf import DisallowNone, FlagCreatePairsOff, OmitArgPrefixes, configure
    from tyro.extras import SubcommandApp

    from soulsgraph.cli.output import with_placeholders

    app, asked = SubcommandApp(), words[0].replace("_", "-") if words else ""
    for name in COMMANDS if asked not in COMMANDS else (asked,):
        function, actions = load(name)
        if name == asked and actions and words[1:] and not words[1].startswith("-") and words[1] not in actions:
            raise UnknownNameError(f"action of {name}", words[1], actions)
        flags = () if name in _PLANNING else (FlagCreatePairsOff,)
        app.command(configure(OmitArgPrefixes, DisallowNone, *flags)(with_placeholders(function, name)))
    return app


def _announce_job() -> None:
    """Print which code a submitted job runs, and refuse one that brought other code along, which would not run."""
    if "RAY_JOB_CONFIG_JSON_ENV_VAR" not in os.environ:
        return
    from soulsgraph.results.origin import source_commit
    from soulsgraph_clusters.sessions.jobs import Job, describe_source

    if job := Job.present():
        commit = source_commit() or "unknown: no git checkout"
        print(f"job {job.id}: {describe_source()} runs, commit {commit}", file=sys.stderr, flush=True)
        job.check()
        # Imported here, as the job itself: without one a command need not wait for it.
        from soulsgraph.cli.output import JobFolder

        JobFolder.unpacked = job.uploaded


def _load_installed_projects(command: str) -> None:
    """Import the projects that are installed, before anything is read: nothing that is read decides about it."""
    module = MODULE_OF.get(command.replace("_", "-"))
    if module is None or module in _WITHOUT_PROJECTS or not entry_points(group=PROJECTS):
        return
    from soulsgraph_policies.agents.projects import load_installed

    for problem in load_installed():
        print(f"warning: {problem}", file=sys.stderr)


def _run(app: SubcommandApp) -> None:
    """Run the command and write out what it printed; an error in a project's code is cut to the author's frames."""
    from soulsgraph.cli.output import registry

    try:
        app.cli(prog="soulsgraph", description=DESCRIPTION, registry=registry())
    except SystemExit as leaving:
        if leaving.code == _BAD_INPUT:
            _suggest(app)
        sys.stdout.flush()  # As after a help text.
        raise
    except SoulsGraphError:
        raise
    except Exception as error:
        # Where nothing loaded a project, nothing of it can have failed.
        projects = sys.modules.get("soulsgraph_policies.agents.projects")
        if projects is not None and (cut := projects.authors_traceback(error)).startswith("Traceback"):
            _leave(cut, _BAD_INPUT)
        raise
    sys.stdout.flush()


def _suggest(app: SubcommandApp) -> None:
    """Print which options or choices are meant by words that nearly are some, where a command was refused."""
    from soulsgraph.cli.output import registry

    # What follows is another command's, which has said what is wrong with it.
    words, shown = [*takewhile(lambda word: word != "--", sys.argv[1:])], io.StringIO()
    # The second word may be an action, which has a help of its own, or an argument, which has none.
    for command in (words[:2], words[:1]):
        with redirect_stdout(shown), redirect_stderr(io.StringIO()), suppress(SystemExit):
            if not shown.getvalue():
                app.cli(prog="soulsgraph", args=[*command, "--help"], registry=registry())
    for line in suggestions(words[1:], shown.getvalue()):
        print(line, file=sys.stderr)


def _forget_refused_write(failure: threading.ExceptHookArgs) -> None:
    # TensorBoard writes in a thread of its own; the same refusal reaches us at the next flush.
    if not issubclass(failure.exc_type, OSError):
        threading.__excepthook__(failure)


def _leave(message: str, code: int) -> None:
    print(message, file=sys.stderr)
    sys.exit(code)
