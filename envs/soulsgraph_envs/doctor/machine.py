"""What the machine itself allows: its Python, other programs' memory, its clock."""

from __future__ import annotations

import platform
import struct
import subprocess
import sys
import time
from pathlib import Path

from soulsgraph_envs.doctor.check import Check, Checks
from soulsgraph_envs.errors import GameError
from soulsgraph_envs.live.cycle_timer import CycleTimer

_STATUS = Path("/proc/self/status")
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
#: The value of ptrace_scope that lets nobody look, and cannot be taken back.
_NOBODY = 3
_RIGHTS = "rights to read memory"
#: Bit of CAP_SYS_PTRACE in a process's capabilities, linux/capability.h.
_CAP_SYS_PTRACE = 19
#: p99 lateness that a control loop of 10 Hz may have.
_MOST_LATE_MS = 5.0
_CLOCK_HZ, _CLOCK_S = 60.0, 2.0
#: Run in a process of its own: on a bad day the import ends it without a word.
_PROBE = """
from soulsgraph_envs.errors import GameError
from soulsgraph_envs.memory.pymeow_reader import load_pymeow
try:
    load_pymeow()
except GameError as error:
    print(error)
"""
_PYMEOW_REMEDY = "install the archive of github.com/qb-0/pyMeow/releases with pip; PyPI's pymeow is another package"


def check_machine(reads_memory: bool) -> list[Check]:
    """Check what every driver needs, and what reading another program's memory takes."""
    checks = Checks("This machine")
    bits = 8 * struct.calcsize("P")
    found = f"{platform.python_version()}, {bits} bits, {platform.system()} {platform.release()}"
    if bits == 64 and sys.version_info >= (3, 11):
        checks.ok("Python", found)
    else:
        checks.fail("Python", found, "install Python 3.11 of 64 bits, the games' own width")
    _check_clock(checks)
    if reads_memory:
        _check_rights(checks)
        _check_pymeow(checks)
    return checks.made


def _check_clock(checks: Checks) -> None:
    timer, end_s = CycleTimer(1 / _CLOCK_HZ), time.perf_counter() + _CLOCK_S
    while time.perf_counter() < end_s:
        timer.wait()
    report = timer.report()
    checks.judge(
        "clock rate",
        report.lateness.p99_ms < _MOST_LATE_MS and not report.overruns,
        f"{report.rate_hz:.1f} of {_CLOCK_HZ:g} Hz, {report.overruns} overruns, late by {report.lateness}",
        f"end programs that keep the processor busy, until p99 is under {_MOST_LATE_MS:g} ms",
    )


def _check_rights(checks: Checks) -> None:
    if sys.platform == "linux":
        status = dict(line.split(":\t", 1) for line in _STATUS.read_text().splitlines() if ":\t" in line)
        scope = int(_PTRACE_SCOPE.read_text()) if _PTRACE_SCOPE.exists() else 0
        judge_rights(checks, scope, int(status["CapEff"], 16))
    elif sys.platform == "win32":
        from soulsgraph_envs.keys.user32 import is_administrator

        checks.judge(
            _RIGHTS,
            is_administrator(),
            "administrator" if is_administrator() else "an ordinary user",
            "enough unless the game runs as administrator; then start this terminal as administrator too",
        )
    else:
        checks.fail(_RIGHTS, f"{sys.platform}: no reader", "use Windows or Linux, or the driver siphon")


def judge_rights(checks: Checks, scope: int, capabilities: int) -> None:
    """Return by Yama's rule, 0 to 3, who may look into processes that are not their own children."""
    if capabilities >> _CAP_SYS_PTRACE & 1 and scope < _NOBODY:
        checks.ok(_RIGHTS, "every process (CAP_SYS_PTRACE)")
    elif scope == 0:
        checks.ok(_RIGHTS, "every process of this user (ptrace_scope 0)")
    elif scope < _NOBODY:
        remedy = "allow more until the next start: sudo sysctl kernel.yama.ptrace_scope=0"
        checks.warn(_RIGHTS, f"own child processes, and those that allow it (ptrace_scope {scope})", remedy)
    else:
        remedy = "set kernel.yama.ptrace_scope = 0 in /etc/sysctl.d and start the machine anew"
        checks.fail(_RIGHTS, f"none (ptrace_scope {scope})", remedy)


def _check_pymeow(checks: Checks) -> None:
    if sys.platform != "win32":
        checks.skip("pyMeow", "not needed here: Linux itself shows a process's memory")
        return
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True)
    with checks.failing("pyMeow", _PYMEOW_REMEDY):
        if probe.returncode:
            last = (probe.stderr.strip().splitlines() or ["without a word"])[-1]
            raise GameError(f"pyMeow: expected its import to succeed, found it ended: {last}")
        if probe.stdout:
            raise GameError(probe.stdout.strip())
        checks.ok("pyMeow", "the one that reads memory")
