"""The examples: the one-file version learns and is repeatable, and comparisons are written."""

import ast
import importlib.util
import json
import shutil
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


@pytest.mark.slow
def test_a_seed_is_trained_with_a_fleet_and_without_and_only_once(tmp_path, monkeypatch):
    out, work = tmp_path / "fleet", tmp_path / "work"
    small = ("--first", "3", "--seeds", "2", "--scale", "0.01", "--speed", "50", "--work", work, "--out", out)
    monkeypatch.setattr("sys.argv", ["compare_fleet", *map(str, small)])
    example("compare_fleet").main()
    found = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    assert (found["seeds"], found["lanes"]) == ([3, 4], 8)
    assert {row.label for row in TABLE_1[:4]} <= found["percent"].keys()
    assert "attic/1 joined" in (work / "3" / "log.txt").read_text(encoding="utf-8")
    written = (work / "3" / "log.txt").stat().st_mtime_ns
    example("compare_fleet").main()
    assert (work / "3" / "log.txt").stat().st_mtime_ns == written


@pytest.mark.slow
def test_clones_and_agents_from_nothing_are_trained_once_and_compared(tmp_path, monkeypatch):
    out, work = tmp_path / "cloning", tmp_path / "work"
    small = ("--first", 3, "--seeds", 2, "--fights", 2, "--scale", 0.01, "--small", 150, "--episodes", 8)
    monkeypatch.setattr("sys.argv", ["compare_cloning", *map(str, (*small, "--work", work, "--out", out))])
    monkeypatch.setattr(cloning, "UPDATES", 50)
    example("compare_cloning").main()
    found = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    rates = found["percent"]
    assert found["seeds"] == [3, 4]
    assert {f"{kind}, {budget}" for kind in ("cloned", "scratch") for budget in ("0", "150", "full")} < rates.keys()
    for seed in ("3", "4"):
        difference = rates["cloned, 150"]["by_seed"][seed] - rates["scratch, 150"]["by_seed"][seed]
        assert rates["cloned, 150 less scratch, 150"]["by_seed"][seed] == pytest.approx(difference)
    written = (work / "3" / "rates.json").stat().st_mtime_ns
    example("compare_cloning").main()
    assert (work / "3" / "rates.json").stat().st_mtime_ns == written


def test_a_fleets_difference_is_paired_by_seed():
    found = example("compare_fleet").compared({1: 90.0, 2: 60.0, 3: 30.0}, {1: 86.0, 2: 58.0, 3: 30.0})
    assert found["difference"]["by_seed"] == {1: 4.0, 2: 2.0, 3: 0.0}
    # t(0.975, 2) = 4.3027, standard error 2 / sqrt(3)
    assert found["difference"]["low"] == pytest.approx(2.0 - 4.3027 * 2 / 3**0.5, abs=1e-3)


@pytest.mark.slow
def test_weights_of_several_ages_are_played_by_and_newest_ones_train_as_without_delays(tmp_path, monkeypatch):
    out, work = tmp_path / "stale", tmp_path / "work"
    small = ("--first", "3", "--seeds", "2", "--delays", "20", "--scale", "0.02", "--work", work, "--out", out)
    monkeypatch.setattr("sys.argv", ["compare_staleness", *map(str, small)])
    compare = example("compare_staleness")
    compare.main()
    newest, delayed = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))["results"]
    assert newest["difference"]["by_seed"] == {"3": 0.0, "4": 0.0}
    for skill in compare.DELAYED:
        assert 0.0 < newest["age"][skill] < 20.0 <= delayed["age"][skill] < 40.0
    alone = work / "3" / "alone"
    shutil.copytree(work / "3" / "upstream", alone)
    compare.call(work / "3", "train", "dodge", "--run", alone.name)
    cards = {run: RunFolder.open(work / "3" / run).library.load("dodge", 1).card for run in ("delay-0", "alone")}
    assert cards["delay-0"].sha256 == cards["alone"].sha256
    written = (work / "3" / "log.txt").stat().st_mtime_ns
    compare.main()
    assert (work / "3" / "log.txt").stat().st_mtime_ns == written


@pytest.mark.slow
def test_an_own_learner_trains_dodge_beside_the_others(tmp_path, monkeypatch, capsys):
    module = example("own_learner")
    words = ["own_learner.py", str(tmp_path / "run"), "--scale", "0.02", "--episodes", "4"]
    monkeypatch.setattr(sys, "argv", words)
    module.main()
    run = RunFolder.open(tmp_path / "run")
    assert run.plan.learners == {"dodge": "own_learner:DoubleDQN"}
    assert "dodge: v1, 1,600 decisions" in capsys.readouterr().out
    dodge = run.library.load("dodge", 1)
    assert dodge.card.layer_sizes == (24, 64, 64, 2)
    assert {one.skill for one in run.library.card("heal_attack", 1).upstream} >= {"dodge"}
