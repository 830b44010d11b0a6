"""The examples: the one-file version learns and is repeatable, and a fight is recorded."""

import ast
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.stats import ttest_ind

from soulsgraph.evaluate import TABLE_1
from soulsgraph.paper.testing import pretend_run
from soulsgraph.plan import Plan

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


@pytest.mark.slow
def test_the_one_file_and_a_preset_are_trained_and_written_beside_each_other(tmp_path, monkeypatch):
    out = tmp_path / "one-file"
    small = ("--first", "3", "--seeds", "2", "--scale", "0.01", "--episodes", "8")
    monkeypatch.setattr("sys.argv", ["compare_one_file", *small, "--out", str(out)])
    compare = example("compare_one_file")
    compare.main()
    found = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    assert (found["seeds"], found["episodes"]) == ([3, 4], 8)
    assert {"commit", "machine", "versions"} <= found.keys()
    assert list(found["percent"]) == list(compare.ROWS) == [row.label for row in TABLE_1[:4]]
    mine = found["percent"]["heal-attack trained, dodge trained"]["one_file"]["by_seed"]
    assert mine[0] == compare.one_file(3, 0.01, 8)["heal-attack trained, dodge trained"]
    assert out.with_suffix(".md").read_text(encoding="utf-8").count("\n") == 2 + len(compare.ROWS)


def test_means_over_seeds_have_their_intervals():
    compared = example("compare_one_file").compared
    found = compared([40.0, 44.0, 48.0], [30.0, 30.0, 36.0])
    assert found["one_file"]["mean"] == 44.0
    # t(0.975, 2) = 4.3027, standard error 4 / sqrt(3)
    assert found["one_file"]["high"] == pytest.approx(44.0 + 4.3027 * 4 / 3**0.5, abs=1e-3)
    # Welch: difference 12, standard error sqrt(16/3 + 12/3), 3.92 degrees of freedom, t = 2.7995
    assert found["difference"]["mean"] == 12.0
    assert found["difference"]["low"] == pytest.approx(12.0 - 2.7995 * (28 / 3) ** 0.5, abs=0.01)
    alone = compared([40.0], [30.0])["difference"]
    assert alone == {"mean": 10.0, "low": None, "high": None}


def test_a_fight_is_recorded(tmp_path, monkeypatch, capsys):
    run = pretend_run(tmp_path / "run", Plan(scale=0.01))
    out = tmp_path / "fight.gif"
    monkeypatch.setattr("sys.argv", ["record_fight", str(run.path), "--out", str(out), "--seconds", "1.5"])
    example("record_fight").main()
    assert "fight.gif: 1.5 s, won: False" in capsys.readouterr().out
    with Image.open(out) as picture:
        assert picture.n_frames == 15
        assert picture.size == (480, 270)
