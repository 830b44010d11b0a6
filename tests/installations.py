"""Install soulsgraph in several ways, each into a fresh environment, then play or train there; not part of the suite.

    python tests/installations.py                  # every way, as `make installs` does
    python tests/installations.py oldest           # as `make oldest` does
    python tests/installations.py newest --python python3.13 --whole

| way | what is installed |
|---|---|
| core | the wheel without an extra by pip, by the versions of constraints.txt |
| constraints | the wheel for training by pip, by the versions of constraints.txt |
| newest | the same without constraints: the newest of everything, but for torch |
| oldest | the oldest of each dependency that pyproject.toml admits, all at once |
| uv | the newest by `uv pip install` into an environment of uv's |
| uv-run | nothing: `uv run --with WHEEL` runs every command |
| pipx | the core by `pipx install` |

torch is the build that `pip download` takes for the version in constraints.txt: the CPU's where an index or a folder of
wheels that pip is set up for has it, else CUDA's. Only the core is timed with every package downloaded before.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from soulsgraph.results.origin import describe_origin
from soulsgraph_envs.core.files import write_json

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
_FOLDER = ROOT / "build" / "installations"
#: Several hundred megabytes, and its oldest is what the tests run with.
_TAKEN_FROM_HERE = ("torch",)
_AGENT = "iudex-phase1-best-0"
#: In an empty folder, one after the other.
_PLAYS = (("watch", _AGENT, "--only-fight", "--file", "fight.gif"), ("evaluate", _AGENT, "--episodes", "20"), ("zoo",))
_TRAINS = (
    ("curriculum", "--run", "run", "--scale", "0.02", "--episodes", "4"),
    ("train", "camera", "--run", "apart", "--scale", "0.01", "--env-runners", "1"),
    ("evaluate", _AGENT, "--episodes", "2"),
    ("data", "record", _AGENT, "--out", "fights", "--episodes", "2"),
    ("data", "clone", "fights", "--run", "clones", "--skills", "camera"),
    ("report", "run", "--out", "run.html"),
    ("doctor",),
)
_WHOLE = (("curriculum", "--run", "whole", "--preset", "best"),)


@dataclass(frozen=True)
class Call:
    """A command that succeeded: what it printed, and its seconds by the clock and of all processors."""

    command: str
    printed: str
    seconds: float
    cpu_s: float

    def times(self) -> dict[str, Any]:
        """Return what is kept of it."""
        return {"command": self.command, "seconds": round(self.seconds, 1), "cpu_s": round(self.cpu_s, 1)}


def call(*command: str | Path, folder: Path = ROOT, shown: str = "") -> Call:
    """Run a command without Python's variables in its environment; `shown` is its kept name.

    Raises:
        SystemExit: if it fails, with the end of what it printed.
    """
    shown = shown or " ".join(map(str, command))
    print(shown, flush=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    began = time.monotonic(), _cpu_s()
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        sys.exit(f"{done.stdout[-4000:]}\n{shown}: expected the exit code 0, found {done.returncode}")
    return Call(shown, done.stdout, time.monotonic() - began[0], _cpu_s() - began[1])


def _cpu_s() -> float:
    """Return the CPU seconds, user's and system's, of all ended children."""
    times = os.times()
    return times.children_user + times.children_system


@dataclass(frozen=True)
class Asked:
    """What to install and how: a way, an interpreter with its version as in `3.13`, and the wheel."""

    way: str
    python: Path
    version: str
    wheel: Path

    def torch(self) -> str:
        """Return the file of torch for this interpreter, which is downloaded where it is not there yet."""
        folder = _FOLDER / "torch"
        (pin,) = re.findall(r"^torch<=(.+)$", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
        pattern = f"torch-{pin}*-cp{self.version.replace('.', '')}-*.whl"
        if not [*folder.glob(pattern)]:
            call(self.python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, f"torch=={pin}")
        (file,) = folder.glob(pattern)
        return str(file)

    def tool(self, name: str) -> Path:
        """Return uv or pipx: what is on the PATH, or one from PyPI in an environment of its own."""
        if found := shutil.which(name):
            return Path(found)
        tools = _FOLDER / "tools" / "bin"
        if not (tools / name).exists():
            call(sys.executable, "-m", "venv", tools.parent)
            call(tools / "python", "-m", "pip", "install", "--quiet", "uv", "pipx")
        return tools / name

    @property
    def folder(self) -> Path:
        """Where its environment is made."""
        return _FOLDER / f"{self.way}-{self.version}"

    def environment(self) -> Path:
        """Make an environment without packages anew, and return its interpreter."""
        call(self.python, "-m", "venv", "--clear", self.folder)
        return self.folder / "bin" / "python"


@dataclass(frozen=True)
class Installed:
    """What a way made: how it calls soulsgraph, the interpreter there if one stays, and what the installation took."""

    soulsgraph: tuple[str | Path, ...]
    python: Path | None = None
    took: Call | None = None


def _by_pip(asked: Asked, *wanted: str | Path) -> Installed:
    python = asked.environment()
    took = call(python, "-m", "pip", "install", "--quiet", *wanted)
    call(python, "-m", "pip", "check")
    return Installed((python.with_name("soulsgraph"),), python, took)


def _core(asked: Asked) -> Installed:
    """Install the core, which was downloaded before: from here until a fight is a picture is what a newcomer waits."""
    wanted = ("-c", CONSTRAINTS, asked.wheel)
    with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
        call(asked.python, "-m", "pip", "download", "--quiet", "--dest", folder, *wanted)
    installed = _by_pip(asked, *wanted)
    assert installed.python is not None
    if heavy := {"torch", "ray", "pandas", "scipy", "pyarrow"} & _versions(installed.python).keys():
        sys.exit(f"expected a core that only plays, found {', '.join(heavy)} with it")
    return installed


def _constraints(asked: Asked) -> Installed:
    return _by_pip(asked, "-c", CONSTRAINTS, f"{asked.wheel}[train]", asked.torch())


def _newest(asked: Asked) -> Installed:
    return _by_pip(asked, f"{asked.wheel}[train]", asked.torch())


def _uv(asked: Asked) -> Installed:
    uv, folder = asked.tool("uv"), asked.folder
    call(uv, "venv", "--quiet", "--clear", "--python", asked.python, folder)
    python = folder / "bin" / "python"
    took = call(uv, "pip", "install", "--quiet", "--python", python, f"{asked.wheel}[train]", asked.torch())
    call(uv, "pip", "check", "--python", python)
    return Installed((folder / "bin" / "soulsgraph",), python, took)


def _uv_run(asked: Asked) -> Installed:
    words = ("run", "--quiet", "--no-project", "--python", asked.python, "--with", asked.wheel)
    return Installed((asked.tool("uv"), *words, "soulsgraph"))


def _pipx(asked: Asked) -> Installed:
    # Where its environments and its commands lie, in place of the user's own.
    home = asked.folder
    shutil.rmtree(home, ignore_errors=True)
    os.environ |= {"PIPX_HOME": str(home), "PIPX_BIN_DIR": str(home / "bin"), "PIPX_MAN_DIR": str(home / "man")}
    took = call(asked.tool("pipx"), "install", "--quiet", "--python", asked.python, asked.wheel)
    return Installed((home / "bin" / "soulsgraph",), home / "venvs" / "soulsgraph" / "bin" / "python", took)


def oldest(dependencies: list[str]) -> list[str]:
    """Return each dependency pinned to the oldest version that it admits, with its extras.

    Raises:
        ValueError: for one that admits any version.
    """
    pinned = []
    for line in dependencies:
        wanted = Requirement(line)
        bounds = [one.version.removesuffix(".*") for one in wanted.specifier if one.operator in (">=", "==", "~=")]
        if len(bounds) != 1:
            raise ValueError(f"{line}: expected one lower bound, found {len(bounds)}")
        extras = f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else ""
        pinned.append(f"{wanted.name}{extras}=={bounds[0]}")
    return pinned


def dependencies() -> list[str]:
    """Return what pyproject.toml demands for playing, for recordings and for training."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [str(one) for one in (*project["dependencies"], *extras["data"], *extras["train"])]
    return [one for one in lines if Requirement(one).name != project["name"]]


def _oldest(asked: Asked) -> Installed:
    """Install every lower bound by pip, which refuses those that conflict.

    PyTorch, what is optional and the sources come from the environment that runs this: its one version is both.
    """
    pins = [pin for pin in oldest(dependencies()) if Requirement(pin).name not in _TAKEN_FROM_HERE]
    python = asked.environment()
    took = call(python, "-m", "pip", "install", "--quiet", *pins)
    # Behind its own packages come those from here; their .pth files bring the sources.
    own = sysconfig.get_path("purelib", vars={"base": str(python.parents[1])})
    rest = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (Path(own) / "zz-from-here.pth").write_text(rest, encoding="utf-8")
    versions = _versions(python)
    pairs = [(pin, versions[canonicalize_name(Requirement(pin).name)]) for pin in pins]
    if wrong := [f"{pin}, found {version}" for pin, version in pairs if version not in Requirement(pin).specifier]:
        sys.exit(f"expected {'; '.join(wrong)}")
    return Installed((python, "-P", "-c", "from soulsgraph.cli import main; main()"), python, took)


def _versions(python: Path) -> dict[str, str]:
    """Return the version of every dependency of the product that an environment has."""
    names = [canonicalize_name(Requirement(line).name) for line in dependencies()]
    code = (
        "from importlib.metadata import distributions as found\nimport re\n"
        # Of several of a name Python imports the first.
        "versions = {}\nfor one in found(): versions.setdefault(re.sub('[-_.]+', '-', one.name).lower(), one.version)\n"
        f"print(*(f'{{name}}=={{versions[name]}}' for name in {names} if name in versions))"
    )
    pairs = call(python, "-P", "-c", code, shown="looking at the versions").printed.split()
    return dict(pair.split("==") for pair in pairs)


_Commands = Sequence[tuple[str, ...]]
WAYS: dict[str, tuple[Callable[[Asked], Installed], _Commands]] = {
    "core": (_core, _PLAYS),
    "constraints": (_constraints, (*_PLAYS, *_TRAINS)),
    "newest": (_newest, (*_PLAYS, *_TRAINS)),
    "oldest": (_oldest, _TRAINS),
    "uv": (_uv, (*_PLAYS, *_TRAINS)),
    "uv-run": (_uv_run, _PLAYS),
    "pipx": (_pipx, _PLAYS),
}


def take(asked: Asked, whole: bool) -> dict[str, Any]:
    """Install in a way and run its commands, or a whole curriculum for the trainings; return what is kept of it."""
    install, commands = WAYS[asked.way]
    load = os.getloadavg()[0]
    installed = install(asked)
    with tempfile.TemporaryDirectory() as folder:
        calls = [
            call(*installed.soulsgraph, *words, folder=Path(folder), shown=" ".join(("soulsgraph", *words)))
            for words in ((*_PLAYS, *_WHOLE) if whole else commands)
        ]
    won = {
        one.command: re.findall(r"(?<![\d,])\d+/\d+(?![\d,])", one.printed)
        for one in calls
        if re.search("evaluate|--preset", one.command)
    }
    kept = {"way": asked.way, "python": asked.version, "load_average": round(load, 1), "installed": None}
    if installed.took:
        kept["installed"] = {"seconds": round(installed.took.seconds, 1), "cpu_s": round(installed.took.cpu_s, 1)}
    if installed.python:
        kept["versions"] = _versions(installed.python)
    return {**kept, "commands": [one.times() for one in calls], "won": won}


def main() -> None:
    """Take every way, or those that are named, and keep what came out where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", help=f"of {', '.join(WAYS)}; all if none is named")
    parser.add_argument("--python", default=sys.executable, help="the interpreter, by path or name")
    parser.add_argument(
        "--whole", action="store_true", help="train a whole curriculum in place of samples of everything"
    )
    parser.add_argument("--out", type=Path, help="a folder that gets a file for each way")
    words = parser.parse_args()
    if unknown := {*words.ways} - WAYS.keys():
        parser.error(f"expected ways of {', '.join(WAYS)}, found {', '.join(sorted(unknown))}")
    if (found := shutil.which(words.python)) is None:
        parser.error(f"expected an interpreter, found none as {words.python}")
    _FOLDER.mkdir(parents=True, exist_ok=True)
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", _FOLDER / "dist", ROOT)
    (wheel,) = (_FOLDER / "dist").glob("*.whl")
    version = call(found, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").printed.strip()
    origin = {name: value for name, value in describe_origin().items() if name in ("commit", "machine")}
    for way in words.ways or WAYS:
        kept = take(Asked(way, Path(found).absolute(), version, wheel), words.whole)
        # A training's is gigabytes.
        shutil.rmtree(_FOLDER / f"{way}-{version}", ignore_errors=True)
        print(kept)
        if words.out:
            write_json(words.out / f"{way}-{kept['python']}.json", {**origin, **kept})


if __name__ == "__main__":
    main()
