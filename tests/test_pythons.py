"""The core passes its tests on every Python that the package says it runs on; pins cover every dependency."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fakes.waiting import PATIENCE_S
from soulsgraph_clusters.fleet.protocol.settings import deciding_files
from soulsgraph_envs.core.meaning import meaning

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSIONS = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
#: What a file of tests imports that needs more than the core.
_BEYOND_THE_CORE = re.compile(
    r"^(?:from|import) (?:ray|torch|stable_baselines3|soulsgraph_envs\.gym\.rllib)\b", re.MULTILINE
)


def test_every_direct_dependency_has_a_newest_tested_version_and_none_is_pinned():
    bounds = dict(line.split("<=") for line in CONSTRAINTS if not line.startswith("#"))
    extras = PROJECT["optional-dependencies"].values()
    wanted = [Requirement(line) for lines in (PROJECT["dependencies"], *extras) for line in lines]
    names = {canonicalize_name(one.name) for one in wanted} - {PROJECT["name"]}
    assert names <= {canonicalize_name(name) for name in bounds}


def _interpreter(version):
    """Return the path of a Python: on the PATH by its name, as pyenv's, or this one."""
    folders = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(f"{version}.*"))
    for candidate in (shutil.which(f"python{version}"), *(folder / "bin" / "python" for folder in folders)):
        if candidate and _call(candidate, "-c", "import sys; print(*sys.version_info[:2], sep='.')") == f"{version}\n":
            return candidate
    pytest.skip(f"needs Python {version} as python{version}, or below pyenv's versions")


def _call(*command):
    """Return what a command prints, "" where it fails to start, without this environment's variables."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    words = [*map(str, command)]
    done = subprocess.run(words, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=3 * PATIENCE_S)
    return done.stdout if done.returncode == 0 else f"{words} ended with {done.returncode}\n{done.stdout}{done.stderr}"


#: What one of the Pythons writes into a syntax tree otherwise than the others.
_ODD = """'A docstring.'
class Empty: 'Nothing.'
async def f(x, *, y=None, **more):
    match x:
        case None | {**rest}: pass
    return f"{x}" f"{x = :>{y}}" u"" f"{y!r:{x}{y}}{x:}", -1, 1e5, b"\\0", "\U0001fae8", ..., {**more}
"""
_DIGEST = """import hashlib, pathlib, runpy, sys
meaning = runpy.run_path(sys.argv[1])["meaning"]
print(*(hashlib.sha256(meaning(pathlib.Path(file).read_bytes()).encode()).hexdigest() for file in sys.argv[2:]))
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_what_code_means_is_the_same_text_on_every_python(version, tmp_path):
    odd = tmp_path / "odd.py"
    odd.write_text(_ODD, encoding="utf-8")
    files = [odd, *(file for file in deciding_files().values() if file.suffix == ".py")]
    found = _call(_interpreter(version), "-c", _DIGEST, meaning.__code__.co_filename, *files).split()
    assert found == [sha256(meaning(file.read_bytes()).encode()).hexdigest() for file in files]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    assert _call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT) == ""
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.mark.release
@pytest.mark.skipif(sys.platform != "linux", reason="other Pythons are tried on Linux alone")
@pytest.mark.parametrize("version", [one for one in VERSIONS if one != "{}.{}".format(*sys.version_info)])
def test_the_core_passes_the_environments_tests_on_other_pythons(version, wheel, tmp_path):
    bin = tmp_path / "venv" / "bin"
    assert _call(_interpreter(version), "-m", "venv", bin.parent) == ""
    wanted = ("-c", ROOT / "constraints.txt", f"{wheel}[siphon,standin,video]", "pytest", "hypothesis")
    # pip compiles it all: a test that imports moviepy first would fail by the warning of compiling it.
    assert _call(bin / "python", "-m", "pip", "install", "--quiet", *wanted) == ""
    files = ROOT.glob("tests/envs/**/test_*.py")
    ignored = [f"--ignore={file}" for file in files if _BEYOND_THE_CORE.search(file.read_text(encoding="utf-8"))]
    words = ("-m", "not slow", "-q", "-p", "no:cacheprovider", "--ignore=tests/envs/games", *ignored)
    printed = _call(bin / "pytest", *words, "tests/envs")
    ending = printed.strip().splitlines()[-1]
    last = re.fullmatch(r"(\d+) passed(?:, \d+ (?:skipped|deselected|xfailed))* in .*", ending)
    assert last, printed
    assert int(last[1]) > 500
