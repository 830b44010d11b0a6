"""One small training of each preset, whose weights are kept: what is learned changes only where it is meant to.

On kinds of processors that `golden.json` knows they are the same to the bit. Another one may round otherwise, which
changes the last bits: there what the networks value is as kept, within a tolerance. After a change that is meant to
change what is learned, `PYTHONPATH=tests .venv/bin/python tests/platform/runs/test_golden.py` writes the file anew.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from fakes.learning import q_values
from fakes.runs import pretend_training
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.core.compiling import processor_kind
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, weights_digest
from soulsgraph_policies.learning.hyperparameters import PRESETS

KEPT = Path(__file__).with_name("golden.json")
#: Without vectors and fused multiply-add values differ by 5e-7 at most; by another step size or discount by 0.03.
TOLERANCE = 1e-4


def trained(preset: str, folder: Path) -> tuple[str, Any]:
    """Train the last skill for a little, on others that never were; return its weights' digest, and what it values."""
    plan = Plan(preset=preset, seed=7, scale=0.01)
    run = RunFolder.create(folder / preset, plan)
    *upstream, last = plan.stages()
    pretend_training(run, upstream)
    algorithm = StageSetup(run, last).build(Session(local=True))
    while not algorithm.finished:
        algorithm.train()
    weights = algorithm.weights(last.skill)
    algorithm.stop()
    drawn = np.random.default_rng(0).standard_normal((8, len(weights[MEAN])))
    values = q_values(weights, weights[MEAN] + drawn * weights[DEVIATION], clip=10.0)
    return weights_digest({last.skill: weights}).hex(), values


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_learns_what_it_learned(preset: str, tmp_path: Path) -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))[preset]
    digest, values = trained(preset, tmp_path)
    np.testing.assert_allclose(values, kept["values"], atol=TOLERANCE)
    assert kept["digests"].get(processor_kind(), digest) == digest


def write() -> None:
    """Keep what is learned now; of other kinds of processors nobody knows it."""
    lines = []
    with TemporaryDirectory() as folder:
        for preset in PRESETS:
            digest, values = trained(preset, Path(folder))
            kept = {"digests": {processor_kind(): digest}, "values": np.round(values.astype(float), 6).tolist()}
            lines.append(f"{json.dumps(preset)}: {json.dumps(kept)}")
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write()
