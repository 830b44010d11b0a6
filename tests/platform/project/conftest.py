"""A project as `init` begins it, loaded for one test."""

import sys

import pytest

from fakes.projects import forget_project
from soulsgraph.project import begin_project
from soulsgraph_policies.agents.projects import load_project, loaded_projects


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """The folder of a new project that is not loaded; what a test loads is forgotten at its end."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    begin_project(tmp_path / "fencing")
    yield tmp_path / "fencing"
    for name in loaded_projects():
        forget_project(name)
    for module in [name for name in sys.modules if name.partition(".")[0] == "fencing"]:
        del sys.modules[module]


@pytest.fixture
def fencing(begun):
    """A new project that is loaded."""
    return load_project(begun)


@pytest.fixture
def duel(begun):
    """The scenario of a new project."""
    return str(begun / "fencing" / "data" / "scenarios" / "duel.toml")
