"""Trials, distances and values behind a transfer, and its report."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fakes.runs import pretend_run, pretend_training
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.evaluate import Setting, evaluate
from soulsgraph.runs.plan import Plan
from soulsgraph.transfer.report import (
    CONTROLS,
    Laboratory,
    Question,
    column_distances,
    discounted_returns,
    energy_coefficient,
    measure,
    run_controls,
    save_transfer,
    saved_recommendation,
    transfer,
)
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import SKILL_NAMES, make_skill

HOME, EPISODES, SEED = "iudex-phase1", 12, 7


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return pretend_run(tmp_path_factory.mktemp("transfer") / "run", Plan(scale=0.01))


@pytest.fixture(scope="module")
def laboratory(run):
    return Laboratory(run, Question(HOME, home=HOME, episodes=EPISODES, seed=SEED), HOME)


def test_the_last_skills_own_task_is_the_whole_fight(run, laboratory):
    played = laboratory.play("heal_attack")
    evaluated = evaluate(run, Setting(HOME, HOME), EPISODES, SEED).episodes
    np.testing.assert_array_equal(played.won, evaluated.won)
    np.testing.assert_array_equal(played.lengths, evaluated.lengths)
    np.testing.assert_array_equal(played.terms, evaluated.terms)


def test_stand_ins_and_grounds_are_those_of_the_skills(laboratory):
    unharmed = laboratory.play("movement")
    assert unharmed.cut.all()
    assert (unharmed.lengths == make_skill("movement").horizon).all()
    idle = laboratory.play("dodge", {"dodge": "idle"})
    assert set(idle.taken.ticks.tolist()) == {1}
    taken = laboratory.play("dodge").taken
    assert set(taken.ticks.tolist()) <= {1, 5}
    assert (np.diff(taken.episodes) >= 0).all()


def test_a_discounted_return_goes_to_the_end_of_its_own_episode():
    episodes, rewards = np.array([0, 0, 1, 1, 1]), np.array([1.0, 2.0, 0.0, 0.0, 4.0])
    returns = discounted_returns(episodes, rewards, np.full(5, 0.5), np.array([8.0, 0.0]))
    assert returns.tolist() == [1.0 + 0.5 * 6.0, 2.0 + 0.5 * 8.0, 1.0, 2.0, 4.0]
    # A long decision discounts more where time counts.
    returns = discounted_returns(np.array([0, 0]), np.array([0.0, 1.0]), np.array([0.25, 0.5]), np.zeros(1))
    assert returns.tolist() == [0.25, 1.0]


def test_distances_are_0_for_equal_samples_and_1_for_samples_apart():
    sample = np.random.default_rng(0).normal(size=(300, 2))
    assert column_distances(sample, sample).tolist() == [0.0, 0.0]
    assert energy_coefficient(sample, sample) == pytest.approx(0.0, abs=1e-12)
    apart = sample + np.array([100.0, 0.0])
    assert column_distances(sample, apart).tolist() == [1.0, 0.0]
    assert energy_coefficient(sample, apart) > 0.95
    constant = np.zeros((5, 1))
    assert energy_coefficient(constant, constant) == 0.0
    assert energy_coefficient(constant, constant + 1.0) == 1.0
    # Below 2.5 lie 2 of 4 and 1 of 4, below 3.5 3 of 4 and 1 of 4: the largest gap is a half.
    assert column_distances([[1.0], [2.0], [3.0], [4.0]], [[1.5], [4.0], [5.0], [6.0]]).tolist() == [0.5]


def test_without_a_shift_nothing_moves_and_nothing_is_recommended(run):
    report = transfer(run, Question("controls-no-shift", home=HOME, episodes=EPISODES, seed=SEED), "silent")
    assert report.recommended == ()
    for figures in report.figures.values():
        assert figures["home"] == figures["shifted"]
        assert set(figures["input_distances"].values()) == {0.0}
    assert [found.effect.kept for found in report.evidence.values()] == pytest.approx([1.0] * 5)
    assert not any(verdict.changed_cues for verdict in report.verdicts.values())


def test_a_report_is_written_and_serves_only_the_versions_it_was_made_of(run):
    question = Question("iudex-phase2", home=HOME, episodes=EPISODES, seed=SEED)
    report = transfer(run, question, "silent")
    path = save_transfer(run, report)
    assert json.loads(path.read_text())["recommended"] == list(report.recommended)
    rows = read_rows(run.results("transfer-iudex-phase2"))
    assert [row["skill"] for row in rows] == list(SKILL_NAMES)
    rates = read_rows(run.results("transfer-iudex-phase2-win-rates"))
    assert len(rates) == 2 * (1 + 2 * len(SKILL_NAMES))
    assert len(read_rows(run.results("transfer-iudex-phase2-inputs"))) == sum(
        make_skill(name, run.plan.options).observation.size for name in SKILL_NAMES
    )
    cues = read_rows(run.results("transfer-iudex-phase2-animations"))
    assert {row["skill"] for row in cues} == {"dodge", "heal_attack"}
    assert saved_recommendation(run, question) == (report.recommended, report.decisions)
    assert saved_recommendation(run, replace(question, scenario="controls-blows")) is None
    pretend_training(run, [run.plan.stage("camera", parent=1)])
    assert saved_recommendation(run, question) is None, "another camera plays now"


def test_a_boss_that_strikes_harder_asks_for_the_skills_that_see_it(run, tmp_path):
    (tmp_path / "boss.toml").write_text('based_on = "iudex-phase1"\nname = "Harder"\n[scaled]\ndamage_factor = 1.4\n')
    shifted = tmp_path / "harder.toml"
    shifted.write_text(f'based_on = "iudex-phase1"\nname = "harder"\nboss = "{tmp_path / "boss.toml"}"\n')
    report = transfer(run, Question(str(shifted), home=HOME, episodes=40, seed=SEED), "silent")
    assert report.recommended == ("dodge", "heal_attack")
    assert any(change.startswith("cost x1.4") for change in report.verdicts["dodge"].changed_cues.values())
    assert 0 < report.rule_decisions < report.decisions
    assert report.to_dict()["decisions"] == report.decisions


def test_a_home_without_versions_of_its_own_is_refused(run):
    question = Question(HOME, home="vordt", episodes=2, seed=SEED)
    for ask in (lambda: measure(run, question), lambda: run_controls(run, question, CONTROLS, "silent")):
        with pytest.raises(SoulsGraphError, match="trained"):
            ask()
    with pytest.raises(SoulsGraphError, match="episodes"):
        Question(HOME, home=HOME, episodes=0)
