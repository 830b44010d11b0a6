"""Checks of this machine: keys, windows, the right to read memory, the port; and what a check reports."""

from __future__ import annotations

import platform
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from soulsgraph_envs.core.errors import GameError, SoulsGraphError
from soulsgraph_envs.games.keyboard.device import KeyDevice, load_bindings
from soulsgraph_envs.games.keyboard.guarded_device import HeldKeys, keyboard_layout, open_key_device
from soulsgraph_envs.games.keyboard.user32 import is_administrator, is_key_down
from soulsgraph_envs.games.keyboard.x11 import XTestDevice
from soulsgraph_envs.games.realtime.cycle_timer import CycleTimer

Status = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True)
class Check:
    """What was checked, what was found, and the remedy if there is one."""

    topic: str
    name: str
    status: Status
    found: str
    remedy: str = ""

    @property
    def passed(self) -> bool:
        """Return whether nothing fails."""
        return self.status != "fail"


class Checks:
    """The checks of one topic, in the order they were made."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.made: list[Check] = []

    def ok(self, name: str, found: str) -> None:
        """Record a success."""
        self._note(name, "ok", found, "")

    def warn(self, name: str, found: str, remedy: str) -> None:
        """Record a warning."""
        self._note(name, "warn", found, remedy)

    def fail(self, name: str, found: str, remedy: str) -> None:
        """Record a failure."""
        self._note(name, "fail", found, remedy)

    def skip(self, why: str, *names: str) -> None:
        """Record what was not checked."""
        for name in names:
            self._note(name, "skip", why, "")

    def expect(self, name: str, good: bool, found: str, remedy: str, otherwise: Status = "warn") -> None:
        """Record a success, or something else with its remedy."""
        self._note(name, "ok" if good else otherwise, found, "" if good else remedy)

    @contextmanager
    def failing(self, name: str, remedy: str) -> Iterator[None]:
        """Record an error of the block as the failure of a check; `remedy` is used if the error names none."""
        try:
            yield
        except SoulsGraphError as error:
            found, _, named = str(error).rpartition("; ")
            if not found or named.startswith("found "):
                found, named = str(error), remedy
            self.fail(name, found, named)

    def _note(self, name: str, status: Status, found: str, remedy: str) -> None:
        self.made.append(Check(self.topic, name, status, found, remedy))


_STATUS = Path("/proc/self/status")
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
#: The value of ptrace_scope that allows nobody, until the next start of the machine.
_NOBODY = 3
_RIGHTS = "rights to read memory"
#: Bit of CAP_SYS_PTRACE in a process's capabilities, linux/capability.h.
_CAP_SYS_PTRACE = 19
#: p99 lateness that a control loop of 10 Hz may have.
_MOST_LATE_MS = 5.0
_CLOCK_HZ, _CLOCK_S = 60.0, 2.0
#: Run in a process of its own: on a bad day the import ends it without a word.
_PROBE = "from soulsgraph_envs.games.memory.pymeow_reader import load_pymeow; load_pymeow()"
_PYMEOW_REMEDY = "install the archive of github.com/qb-0/pyMeow/releases with pip; PyPI's pymeow is another package"
#: No game binds it by default, and it types nothing; with its virtual-key code of winuser.h.
HARMLESS, _CODE = "right_shift", 0xA1
_HELD_S = 0.05
_SCREEN_REMEDY = "start it in the session of the game's window, or name its display in the games file"
_BINDINGS, _ROUND_TRIP, _LAYOUT = "key bindings", "key round trip", "keyboard layout"


def check_machine(reads_memory: bool) -> list[Check]:
    """Check what every driver needs, and what reading another program's memory takes."""
    checks = Checks("This machine")
    bits = 8 * struct.calcsize("P")
    found = f"{platform.python_version()}, {bits} bits, {platform.system()} {platform.release()}"
    fits = bits == 64 and sys.version_info >= (3, 11)
    checks.expect("Python", fits, found, "install Python 3.11 of 64 bits, the games' own width", "fail")
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
    checks.expect(
        "clock rate",
        report.lateness.p99_ms < _MOST_LATE_MS and not report.overruns,
        f"{report.rate_hz:.1f} of {_CLOCK_HZ:g} Hz, {report.overruns} overruns, late by {report.lateness}",
        f"end programs that keep the processor busy, until p99 is under {_MOST_LATE_MS:g} ms",
    )


def _check_rights(checks: Checks) -> None:
    if sys.platform == "linux":
        status = dict(line.split(":\t", 1) for line in _STATUS.read_text().splitlines() if ":\t" in line)
        scope = int(_PTRACE_SCOPE.read_text()) if _PTRACE_SCOPE.exists() else 0
        check_rights(checks, scope, int(status["CapEff"], 16))
    elif sys.platform == "win32":
        found = "administrator" if is_administrator() else "an ordinary user"
        remedy = "enough unless the game runs as administrator; then start this terminal as administrator too"
        checks.expect(_RIGHTS, is_administrator(), found, remedy)
    else:
        checks.fail(_RIGHTS, f"{sys.platform}: no reader", "use Windows or Linux, or the driver siphon")


def check_rights(checks: Checks, scope: int, capabilities: int) -> None:
    """Check by Yama's ptrace_scope, 0 to 3, which processes may be read besides own children."""
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
        checks.skip("not needed here: Linux itself shows a process's memory", "pyMeow")
        return
    probe = subprocess.run([sys.executable, "-P", "-c", _PROBE], capture_output=True, text=True)
    with checks.failing("pyMeow", _PYMEOW_REMEDY):
        if probe.returncode:
            last = (probe.stderr.strip().splitlines() or ["without a word"])[-1]
            kind, _, told = last.partition(": ")
            ours = kind.endswith(f".{GameError.__name__}")
            raise GameError(told if ours else f"pyMeow: expected its import to succeed, found it ended: {last}")
        checks.ok("pyMeow", "the one that reads memory")


def check_keyboard(display: str, bindings: str) -> list[Check]:
    """Check the keys of a display ("" is the environment's) against bindings by name or path."""
    checks = Checks("Keys")
    with checks.failing("key device", _SCREEN_REMEDY), closing(open_key_device(display)) as device:
        checks.ok("key device", "presses keys, and a guard lets them up whatever happens")
        check_bindings(checks, device, bindings)
        with checks.failing(_ROUND_TRIP, _SCREEN_REMEDY):
            _check_round_trip(checks, device, display)
        with checks.failing(_LAYOUT, _SCREEN_REMEDY):
            layout = keyboard_layout(display)
            named = ", ".join(layout.names) or "not told"
            remedy = "make an English layout the only one: others, even unused, send games wrong keys"
            checks.expect(_LAYOUT, layout.english, named, remedy)
        return checks.made
    checks.skip("needs the key device", _BINDINGS, _ROUND_TRIP, _LAYOUT)
    return checks.made


def check_bindings(checks: Checks, device: KeyDevice, bindings: str) -> None:
    """Check that a device has every key of bindings, and name the controls without one; "" stands for no bindings."""
    if not bindings:
        checks.skip("needs the address map", _BINDINGS)
        return
    with checks.failing(_BINDINGS, "choose shipped bindings in the games file"):
        loaded = load_bindings(bindings)
        for key in loaded.keys:
            device.check(key)
        unbound = ", ".join(str(control.name).lower() for control in loaded.unbound)
        found = f"{loaded.name}: {len(loaded.keys)} keys to be set in the game as well"
        checks.ok(_BINDINGS, f"{found}; none for {unbound}" if unbound else found)


def _check_round_trip(checks: Checks, device: KeyDevice, display: str) -> None:
    began_s = time.perf_counter()
    with HeldKeys(device) as held:
        held.hold((HARMLESS,))
        pressed_ms = 1000 * (time.perf_counter() - began_s)
        time.sleep(_HELD_S)
        arrived = _is_down(display)
    came_up = not _is_down(display)
    happened = f"went down, in {pressed_ms:.1f} ms, and came up" if came_up else "stayed down"
    found = f"{HARMLESS} {happened if arrived else 'never went down'}"
    remedy = "let no other program hold the keyboard, and run this in the session of the game's window"
    checks.expect(_ROUND_TRIP, arrived and came_up, found, remedy, "fail")


def _is_down(display: str) -> bool:
    if sys.platform == "win32":
        return is_key_down(_CODE)
    with closing(XTestDevice(display)) as observer:
        return HARMLESS in observer.down()
