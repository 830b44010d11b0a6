"""What Windows' Python lacks, or has in another sense, is named only where a reason says what Windows gets instead."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Modules that are not there.
_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
#: Names of modules that are not there, or mean something else: `os.kill` ends a process, `select` knows sockets alone.
_NAMES = {
    "os": (
        "O_DIRECTORY O_NOFOLLOW WNOHANG chown fchmod fchown fork forkpty getegid geteuid getgid getloadavg getpgid "
        "getpgrp getsid getuid kill killpg link memfd_create mkfifo mknod nice pidfd_open pread preadv pwrite pwritev "
        "readlink sched_getaffinity sched_setaffinity setpgid setpgrp setsid setuid statvfs symlink sysconf umask "
        "uname wait3 wait4 waitpid"
    ),
    "select": "epoll poll select",
    "signal": (
        "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 alarm pause "
        "pthread_kill pthread_sigmask setitimer sigwait"
    ),
    "socket": "AF_UNIX socketpair",
}
_QUALIFIED = {f"{module}.{name}" for module, names in _NAMES.items() for name in names.split()}
#: Methods of any object, and arguments of `subprocess.Popen`.
_METHODS = {"chmod", "hardlink_to", "readlink", "send_signal", "symlink_to"}
_ARGUMENTS = {"pass_fds", "preexec_fn", "start_new_session"}
_SIGNALS = {name for name in _NAMES["signal"].split() if name.startswith("SIG")}
#: Folders that are not there, in texts other than docstrings.
_FOLDER = re.compile(r"(?<![\w.])/(?:proc|dev|sys|tmp|etc|usr|var)\b")

_PRIVATE_RAY = "no private Ray is started on Windows, which is said"
_STAND_IN = "the stand-in game is Linux's"
_READER = "Linux' reader of memory; Windows has pyMeow"
ALLOWED = {
    "clusters/soulsgraph_clusters/sessions/head.py": ("os.getsid os.pread", "a head that `supervise` starts: Ray's"),
    "clusters/soulsgraph_clusters/sessions/local_ray.py": ("/tmp os.getloadavg select.select", _PRIVATE_RAY),
    "envs/soulsgraph_envs/core/machine.py": (
        "/proc os.geteuid os.getloadavg os.getuid os.sched_getaffinity resource start_new_session",
        "the one place for what a machine is asked; each has Windows' answer beside it",
    ),
    "envs/soulsgraph_envs/core/terminal.py": ("SIGHUP", "SIGBREAK takes its place"),
    "envs/soulsgraph_envs/games/doctor.py": ("/etc /proc", "what Linux is asked, and its remedy"),
    "envs/soulsgraph_envs/games/guarded_device.py": (
        "SIGHUP os.fork os.pidfd_open select.select start_new_session",
        "each asked for by name; on Windows the guard reads the end of a pipe",
    ),
    "envs/soulsgraph_envs/games/x11.py": ("/proc", "X's keys; Windows has user32"),
    "envs/soulsgraph_envs/games/memory_reader.py": ("/proc os.pread os.pwrite", _READER),
    "envs/soulsgraph_envs/games/live_game.py": ("SIGKILL os.kill", "Windows' os.kill ends a process, as is meant"),
    "envs/soulsgraph_envs/games/standin/program.py": ("os.kill resource", _STAND_IN),
    "envs/soulsgraph_envs/games/standin/siphon_server.py": ("os.killpg signal.SIGKILL start_new_session", _STAND_IN),
    "platform/soulsgraph/bench/commands.py": ("os.WNOHANG os.getloadavg os.wait4", "measures on Linux alone"),
    "platform/soulsgraph/results/origin.py": ("/proc", "the processor's name; elsewhere `platform` knows it"),
    "platform/soulsgraph/runs/supervision.py": ("/proc os.kill", "Windows calls the handler, and asks the clock"),
    "platform/soulsgraph/runs/workers.py": ("pass_fds", "Windows gets a list of handles"),
    "policies/soulsgraph_policies/learning/checkpoint.py": (
        "hardlink_to",
        "NTFS has links; where there are none, the file is written",
    ),
}


def _names(file):
    """Yield every name in a file that only POSIX has."""
    nodes = [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from _MODULES & {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            yield from _MODULES & {node.module}
            yield from _QUALIFIED & {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            yield from (_QUALIFIED & {f"{owner}.{node.attr}"}) or (_METHODS & {node.attr})
        elif isinstance(node, ast.keyword):
            yield from _ARGUMENTS & {node.arg}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from (_ARGUMENTS | _SIGNALS) & {node.value}
            yield from _FOLDER.findall(node.value)


def test_names_that_windows_lacks_are_where_a_reason_allows_them():
    found = {}
    for root in ("envs", "policies", "clusters", "platform"):
        for file in sorted((ROOT / root).rglob("*.py")):
            if names := {*_names(file)}:
                found[file.relative_to(ROOT).as_posix()] = " ".join(sorted(names))
    assert found == {path: names for path, (names, _) in ALLOWED.items()}


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import fcntl, os\nos.fork()", {"fcntl", "os.fork"}),
        ("from os import pread as read", {"os.pread"}),
        ("Popen([], pass_fds=[3])\nPopen([], **{'pass_fds': [3]})", {"pass_fds"}),
        ("getattr(signal, 'SIGKILL')\nprocess.send_signal(2)", {"SIGKILL", "send_signal"}),
        ("path = f'/proc/{pid}/stat'\nbinding = 'w/dev'", {"/proc"}),
        ('def one():\n    """See /proc/meminfo."""', set()),
    ],
)
def test_each_way_to_name_one_is_seen(tmp_path, code, names):
    (tmp_path / "module.py").write_text(code)
    assert {*_names(tmp_path / "module.py")} == names
