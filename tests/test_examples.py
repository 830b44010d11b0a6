"""The examples: the one-file version learns and is repeatable, and a fight is recorded."""

import ast
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.stats import ttest_ind

from soulsgraph.plan import Plan
from soulsgraph.transfer.testing import pretend_run

ROOT = Path(__file__).parents[1]


def example(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_one_file_is_short_and_needs_nothing_of_ours_but_the_environments():
    text = (ROOT / "examples" / "one_file.py").read_text(encoding="utf-8")
    assert text.count("\n") <= 300
    found = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [getattr(node, "module", None) or ""]
        )
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert found - set(sys.stdlib_module_names) == {"numpy", "gymnasium", "soulsgraph_envs"}


@pytest.mark.slow
def test_the_one_file_trains_a_camera_that_beats_chance_and_every_skill_in_turn():
    """At a tenth of the budget; a camera that learned nothing passes once in a million (one-sided t-test)."""
    one_file = example("one_file")
    trained = []
    policies = one_file.curriculum(seed=0, scale=0.1, report=trained.append)
    assert trained == list(policies) == one_file.CHAIN
    returns, _ = one_file.play("camera", policies, episodes=100)
    chance, _ = one_file.play("camera", policies | {"camera": None}, episodes=100)
    assert ttest_ind(returns, chance, alternative="greater", equal_var=False).pvalue < 1e-6
    returns, won = one_file.play("heal_attack", policies, episodes=20)
    assert returns.shape == won.shape == (20,)


def test_the_one_file_repeats_itself():
    one_file = example("one_file")
    first, second = (one_file.curriculum(seed=3, scale=0.02, skills=["camera", "lock_on"]) for _ in range(2))
    for skill, policy in first.items():
        for mine, theirs in zip(policy.network.parameters, second[skill].network.parameters, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_a_fight_is_recorded(tmp_path, monkeypatch, capsys):
    run = pretend_run(tmp_path / "run", Plan(scale=0.01))
    out = tmp_path / "fight.gif"
    monkeypatch.setattr("sys.argv", ["record_fight", str(run.path), "--out", str(out), "--seconds", "1.5"])
    example("record_fight").main()
    assert "fight.gif: 1.5 s, won: False" in capsys.readouterr().out
    with Image.open(out) as picture:
        assert picture.n_frames == 15
        assert picture.size == (480, 270)
