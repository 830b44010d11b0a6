"""The examples: the one-file version learns and is repeatable, and comparisons are written."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_ind

from soulsgraph.runs.evaluate import TABLE_1
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_policies.learning import cloning

ROOT = Path(__file__).parents[1]


def example(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_one_file_trains_a_camera_that_beats_random_play_and_every_skill_in_turn():
    """At a tenth of the budget; a camera that learned nothing passes once in a million (one-sided t-test)."""
    one_file = example("one_file")
    trained = []
    policies = one_file.curriculum(seed=0, scale=0.1, report=trained.append)
    assert trained == list(policies) == one_file.CHAIN
    returns, _ = one_file.play("camera", policies, episodes=100)
    random, _ = one_file.play("camera", policies | {"camera": None}, episodes=100)
    assert ttest_ind(returns, random, alternative="greater", equal_var=False).pvalue < 1e-6
    returns, won = one_file.play("heal_attack", policies, episodes=20)
    assert returns.shape == won.shape == (20,)


def test_the_one_file_repeats_itself():
    one_file = example("one_file")
    first, second = (one_file.curriculum(seed=3, scale=0.02, skills=["camera", "lock_on"]) for _ in range(2))
    for skill, policy in first.items():
        for mine, theirs in zip(policy.network.parameters, second[skill].network.parameters, strict=True):
            np.testing.assert_array_equal(mine, theirs)


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


@pytest.mark.slow
def test_an_own_learner_trains_dodge_beside_the_others(tmp_path, monkeypatch, capsys):
    module = example("own_learner")
    words = ["own_learner.py", str(tmp_path / "run"), "--scale", "0.02", "--episodes", "4"]
    monkeypatch.setattr(sys, "argv", words)
    module.main()
    run = RunFolder.open(tmp_path / "run")
    assert run.plan.learners["dodge"].partition("#")[0] == "own_learner:DoubleDQN"
    assert "1,600" in capsys.readouterr().out
    dodge = run.library.load("dodge", 1)
    assert dodge.card.layer_sizes == (24, 64, 64, 2)
    assert {one.skill for one in run.library.card("heal_attack", 1).upstream} >= {"dodge"}


#: What makes each comparison small, and what its results have: seeds, or rows.
_SMALL = {
    "measure_options": "--rounds 2 --seconds 0.01 --decisions 600",
    "compare_one_file": "--first 3 --seeds 2 --scale 0.01 --episodes 8",
    "compare_fleet": "--first 3 --seeds 1 --scale 0.01 --speed 50 --work work",
    "compare_cloning": "--first 3 --seeds 1 --fights 2 --scale 0.01 --small 150 --episodes 8 --work work",
    "compare_staleness": "--first 3 --seeds 1 --delays 20 --scale 0.02 --work work",
}


def compared(name, tmp_path, monkeypatch):
    """Run a comparison at a small scale, and return what it wrote."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [name, *_SMALL[name].split(), "--out", "out/found"])
    example(name).main()
    assert (tmp_path / "out" / "found.md").stat().st_size > 0
    return json.loads((tmp_path / "out" / "found.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_cost_of_every_option_is_measured(tmp_path, monkeypatch):
    found = compared("measure_options", tmp_path, monkeypatch)["results"]
    assert list(found) == list(example("measure_options").OPTIONS)
    assert all(one["sample_us"] > 0.0 < one["update_us"] for one in found.values())


@pytest.mark.slow
def test_the_one_file_and_a_preset_are_compared_by_seed(tmp_path, monkeypatch):
    found = compared("compare_one_file", tmp_path, monkeypatch)["percent"]
    mine = found["heal-attack trained, dodge trained"]["one_file"]["by_seed"]
    assert mine[0] == example("compare_one_file").one_file(3, 0.01, 8)["heal-attack trained, dodge trained"]


@pytest.mark.release
def test_an_agent_of_a_fleet_is_compared_with_one_without(tmp_path, monkeypatch):
    found = compared("compare_fleet", tmp_path, monkeypatch)
    assert found["seeds"] == [3]
    assert {row.label for row in TABLE_1[:4]} <= found["percent"].keys()


@pytest.mark.release
def test_clones_are_compared_with_agents_from_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(cloning, "UPDATES", 50)
    rates = compared("compare_cloning", tmp_path, monkeypatch)["percent"]
    difference = rates["cloned, 150"]["by_seed"]["3"] - rates["scratch, 150"]["by_seed"]["3"]
    assert rates["cloned, 150 less scratch, 150"]["by_seed"]["3"] == pytest.approx(difference)


@pytest.mark.release
def test_weights_without_a_delay_are_the_newest(tmp_path, monkeypatch):
    newest, delayed = compared("compare_staleness", tmp_path, monkeypatch)["results"]
    assert newest["difference"]["by_seed"] == {"3": 0.0}
    for skill in example("compare_staleness").DELAYED:
        assert 0.0 < newest["age"][skill] < 20.0 <= delayed["age"][skill] < 40.0
