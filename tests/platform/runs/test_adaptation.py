"""Adaptation: which versions it continues, further versions, and chains of scenarios."""

import numpy as np
import pytest

from fakes.runs import pretend_run, pretend_training
from soulsgraph.runs.evaluate import Setting, evaluate
from soulsgraph.runs.lineage import (
    adaptation_stages,
    check_target,
    domain_chain,
    finished_versions,
    named_skills,
    stage_key,
    version_in_play,
)
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.core.errors import DataError, SoulsGraphError, UnknownNameError
from soulsgraph_envs.skills import SKILL_NAMES

HOME, SECOND, THIRD = "iudex-phase1", "iudex-phase2", "vordt"
BOTH = ("dodge", "heal_attack")


@pytest.fixture
def run(tmp_path):
    return pretend_run(tmp_path / "run", Plan(scale=0.01))


def adapt(run, scenario, skills=BOTH, budget=None, after=None):
    stages = adaptation_stages(run, scenario, skills, budget, after)
    missing = [stage for stage in stages if not finished_versions(run, stage)]
    return pretend_training(run, missing)


def test_a_chain_continues_the_adapted_versions(run):
    adapt(run, SECOND)
    cards = adapt(run, THIRD)
    assert [(card.skill, card.version, card.parent) for card in cards] == [("dodge", 3, 2), ("heal_attack", 3, 2)]
    assert domain_chain(run) == (HOME, SECOND, THIRD)
    assert {u.skill: u.version for u in cards[1].upstream} == {"camera": 1, "lock_on": 1, "movement": 1, "dodge": 3}


def test_a_skill_not_adapted_to_the_last_domain_plays_as_the_one_before_left_it(run):
    adapt(run, SECOND)
    (card,) = adapt(run, THIRD, ("camera",))
    assert (card.skill, card.parent) == ("camera", 1)
    in_play = {skill: version_in_play(run, skill, THIRD) for skill in SKILL_NAMES}
    assert in_play == {"camera": 2, "lock_on": 1, "movement": 1, "dodge": 2, "heal_attack": 2}
    assert {version_in_play(run, skill, HOME) for skill in SKILL_NAMES} == {1}


def test_another_budget_makes_a_further_version_of_the_same_parent(run):
    adapt(run, SECOND, ("dodge",))
    (further,) = adapt(run, SECOND, ("dodge",), budget=77)
    assert (further.version, further.parent, further.training.budget) == (3, 1, 77)
    assert adapt(run, SECOND, ("dodge",), budget=77) == [], "done already"
    keys = {
        stage_key(run, stage)
        for budget in (None, 77, 78)
        for stage in adaptation_stages(run, SECOND, ("dodge",), budget)
    }
    assert len(keys) == 3, "no stage goes on from the checkpoint of another budget"


def test_a_skill_is_adapted_again_once_another_version_plays_upstream(run):
    adapt(run, SECOND)
    adapt(run, SECOND, ("dodge",), budget=77)
    (again,) = adapt(run, SECOND, ("heal_attack",))
    assert {u.skill: u.version for u in again.upstream}["dodge"] == 3


def test_earlier_versions_play_exactly_as_before_an_adaptation(run):
    before = evaluate(run, Setting(HOME, HOME), 10, 3).episodes
    adapt(run, SECOND, SKILL_NAMES)
    after = evaluate(run, Setting(HOME, HOME), 10, 3).episodes
    for name, values in vars(before).items():
        np.testing.assert_array_equal(values, getattr(after, name))
    adapted = evaluate(run, Setting(HOME, SECOND), 10, 3).episodes
    assert not np.array_equal(before.terms, adapted.terms), "the adapted versions are others"


def test_skills_are_named_one_by_one_or_all_or_left_to_the_recommendation(run):
    assert named_skills(run, "heal_attack, dodge") == ("heal_attack", "dodge")
    assert named_skills(run, "all") == SKILL_NAMES
    assert named_skills(run, "auto") is None
    with pytest.raises(SoulsGraphError):
        named_skills(run, "dodge, all")


def test_a_circle_is_refused_until_another_one_is_continued(run):
    adapt(run, SECOND)
    adapt(run, THIRD)
    with pytest.raises(SoulsGraphError):
        check_target(run, SECOND, THIRD)
    assert check_target(run, SECOND, HOME) == HOME
    with pytest.raises(UnknownNameError):
        check_target(run, "controls-blows", "controls-lock-range")


def test_a_scenario_counts_from_its_first_trained_version_on(run):
    adapt(run, SECOND)
    first, second = adaptation_stages(run, THIRD, BOTH)
    assert domain_chain(run) == (HOME, SECOND), "planned is not trained"
    with pytest.raises(UnknownNameError, match=THIRD):
        check_target(run, "controls-blows", THIRD)
    pretend_training(run, [first])
    assert domain_chain(run) == (HOME, SECOND, THIRD)
    assert finished_versions(run, first)
    assert not finished_versions(run, second)


def test_the_lineage_is_in_the_versions_and_nowhere_else(run):
    adapt(run, SECOND)
    assert adapt(run, THIRD, ("dodge",), after=HOME)[0].parent == 1
    assert domain_chain(run, THIRD) == (HOME, THIRD)
    assert domain_chain(RunFolder.open(run.path), SECOND) == (HOME, SECOND)
    assert run.library.inputs("dodge", 3)["after"] == run.fight


def test_damaged_inputs_of_a_version_are_refused(run):
    adapt(run, SECOND)
    (run.library.folder / "dodge" / "v2" / "inputs.json").write_text('["vordt"]')
    with pytest.raises(DataError, match=r"inputs\.json"):
        domain_chain(run)


def test_skills_that_adapt_jointly_are_one_stage_and_other_versions_than_one_after_another(run):
    (stage,) = adaptation_stages(run, SECOND, BOTH, jointly=True)
    alone = adaptation_stages(run, SECOND, BOTH)
    assert (stage.name, stage.skills) == (f"dodge+heal_attack@{SECOND}", BOTH)
    assert stage.steps == sum(one.budget for one in alone)
    assert not finished_versions(run, stage)
    dodge, heal = pretend_training(run, [stage])
    assert finished_versions(run, stage) == [dodge, heal]
    assert {one.skill: one.version for one in heal.upstream}["dodge"] == dodge.version == 2
    assert run.library.card("heal_attack", 2) == heal
    assert not any(finished_versions(run, one) for one in adaptation_stages(run, SECOND, BOTH))
    key = stage_key(run, stage)
    adapt(run, SECOND)
    (again,) = adaptation_stages(run, SECOND, BOTH, jointly=True)
    assert not finished_versions(run, again)
    assert stage_key(run, again) == key, "it goes on from what the same stage left"
