"""Train, evaluate and record by the oldest of each dependency that pyproject.toml admits; not part of the suite.

    python tests/oldest_dependencies.py    # as `make oldest` does

An environment of its own below `build` gets them all at once from PyPI, by pip, which refuses those that conflict.
PyTorch, what is optional and the sources come from the environment that runs this: its one version is both.
"""

import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
_FOLDER = ROOT / "build" / "oldest"
#: Several hundred megabytes, and its oldest is what the tests run with.
_TAKEN_FROM_HERE = ("torch",)
_SOULSGRAPH = ("-P", "-c", "from soulsgraph.cli import main; main()")
#: In an empty folder, one after the other.
_COMMANDS = (
    ("curriculum", "--run", "run", "--scale", "0.02", "--episodes", "4"),
    ("train", "camera", "--run", "apart", "--scale", "0.01", "--env-runners", "1"),
    ("evaluate", "iudex-phase1-best-0", "--episodes", "2"),
    ("data", "record", "iudex-phase1-best-0", "--out", "fights", "--episodes", "2"),
    ("clone", "fights", "--run", "clones", "--skills", "camera"),
    ("report", "run", "--html", "run.html"),
    ("doctor",),
)


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
    found = [str(one) for one in (*project["dependencies"], *extras["data"], *extras["train"])]
    return [one for one in found if Requirement(one).name != project["name"]]


def _install(pins: list[str]) -> Path:
    """Make the environment anew, and return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(_FOLDER)], check=True)
    python = _FOLDER / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *pins], check=True)
    # Behind its own packages come those from here; their .pth files bring the sources.
    own = sysconfig.get_path("purelib", vars={"base": str(_FOLDER)})
    rest = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (Path(own) / "zz-from-here.pth").write_text(rest, encoding="utf-8")
    return python


def _check_versions(python: Path, pins: list[str]) -> None:
    names = [canonicalize_name(Requirement(pin).name) for pin in pins]
    call = f"from importlib.metadata import version; print(*map(version, {names}))"
    found = subprocess.run([python, "-P", "-c", call], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    pairs = zip(map(Requirement, pins), found, strict=True)
    wrong = [f"{pin}, found {version}" for pin, version in pairs if version not in pin.specifier]
    if wrong:
        sys.exit(f"expected {'; '.join(wrong)}")


def main() -> None:
    """Install, look at the versions, and run every command."""
    pins = [pin for pin in oldest(dependencies()) if Requirement(pin).name not in _TAKEN_FROM_HERE]
    print("installing", *pins, flush=True)
    python = _install(pins)
    _check_versions(python, pins)
    with tempfile.TemporaryDirectory() as folder:
        for words in _COMMANDS:
            print("soulsgraph", *words, flush=True)
            if code := subprocess.run([python, *_SOULSGRAPH, *words], cwd=folder).returncode:
                sys.exit(
                    f"soulsgraph {words[0]}: expected the exit code 0, found {code}; raise the bound of what failed"
                )


if __name__ == "__main__":
    main()
