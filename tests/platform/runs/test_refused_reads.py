"""A read that is refused is reported as one, not as a missing file or a refused write."""

import os
import re

import pytest

from soulsgraph.results.tables import read_rows
from soulsgraph.runs.evaluate import load_checkpoint
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.core.errors import ReadError
from soulsgraph_policies.agents.library import SkillLibrary
from soulsgraph_policies.agents.projects import PAPER_GRAPH
from soulsgraph_policies.learning.checkpoint import read_training_state

_NOBODY = 65534


@pytest.fixture
def forbidden(tmp_path):
    """A folder that this process may not read."""
    user = os.geteuid()
    (tmp_path / "run").mkdir()
    tmp_path.chmod(0)
    if user == 0:
        os.seteuid(_NOBODY)
    yield tmp_path / "run"
    os.seteuid(user)
    tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    "read",
    [
        RunFolder.open,
        lambda folder: RunFolder.create(folder, Plan()),
        lambda folder: read_rows(folder / "rows.parquet"),
        lambda folder: load_checkpoint(folder / "step-000001000.safetensors"),
        lambda folder: SkillLibrary(folder, PAPER_GRAPH).versions("camera"),
        lambda folder: SkillLibrary(folder, PAPER_GRAPH).card("camera", 1),
        read_training_state,
    ],
)
def test_a_refused_read_is_reported_as_one(forbidden, read):
    with pytest.raises(ReadError, match=re.escape(str(forbidden))):
        read(forbidden)
