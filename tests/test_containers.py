"""The Dockerfile and the development container name what is there; images are built where an engine answers."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from fakes.waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
CONTAINER = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))


def test_the_images_have_a_python_that_the_package_runs_on():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    for text in (DOCKERFILE, CONTAINER["image"]):
        (version,) = re.findall(r"python:(3\.\d+)-", text)
        assert version in SpecifierSet(wanted)


@pytest.mark.release
@pytest.mark.parametrize("target", ["core", "train"])
def test_the_image_is_built_and_plays(target):
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        pytest.skip("needs a Docker engine that answers")
    build = ["docker", "build", "--target", target, "--tag", f"soulsgraph-{target}", "."]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=3 * PATIENCE_S)
    if "failed to resolve" in done.stderr or "pull access denied" in done.stderr:
        pytest.skip(f"needs the registry of the base image: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    words = ("evaluate", "iudex-phase1-best-0", "--episodes", "4")
    played = subprocess.run(
        ["docker", "run", "--rm", f"soulsgraph-{target}", *words], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert "/4" in played.stdout, played.stderr
