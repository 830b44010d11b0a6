"""`soulsgraph list` shows what may be named, as a table, as JSON and as Markdown."""

import json

import pytest

from soulsgraph.continual.methods import METHODS
from soulsgraph_envs.continual.sequences import sequence_names
from soulsgraph_envs.core.config import shipped_names
from soulsgraph_envs.skills import skill_names
from soulsgraph_policies.agents.projects import graph_names
from soulsgraph_policies.learning.hyperparameters import OPTION_NAMES, PRESETS

NAMES = {
    "scenarios": shipped_names("scenario"),
    "presets": PRESETS,
    "options": OPTION_NAMES,
    "skills": skill_names(),
    "graphs": graph_names(),
    "sequences": sequence_names(),
    "methods": METHODS,
}


@pytest.mark.parametrize("what", NAMES)
def test_everything_that_may_be_named_is_listed(printed, monkeypatch, what):
    monkeypatch.setenv("COLUMNS", "300")  # wide enough that no name is broken
    found = json.loads(printed("list", what, "--json"))
    # Options are two tables, those of presets first; so are methods, their coefficients second.
    rows = next(iter(found.values())) if what in ("options", "methods") else found
    assert [next(iter(row.values())) for row in rows] == list(NAMES[what])
    assert all(isinstance(value, str) and value for row in rows for value in row.values())
    markdown, table = printed("list", what, "--markdown"), printed("list", what)
    for name in NAMES[what]:
        assert f"| {name} |" in markdown
        assert name in table
