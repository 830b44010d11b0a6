"""Adaptation: which versions it continues, further versions, and chains of scenarios."""

import numpy as np
import pytest

from fakes.runs import pretend_run, pretend_training
from soulsgraph.runs.evaluate import Setting, evaluate
from soulsgraph.runs.lineage import (
    adaptation_stages,
    check_target,
    continued_domain,
    domain_chain,
    finished_versions,
    half_saved,
    named_skills,
    stage_key,
    version_in_play,
)
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.core.errors import DataError, SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.files import remove_folder
from soulsgraph_envs.skills import SKILL_NAMES
from soulsgraph_policies.agents.library import LibraryError

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
    with pytest.raises(UnknownNameError, match="doge"):
        adaptation_stages(run, SECOND, ("doge",))
    for text in ("auto,dodge", "dodge, all"):
        with pytest.raises(SoulsGraphError, match="skills"):
            named_skills(run, text)
    with pytest.raises(SoulsGraphError, match="skills"):
        adaptation_stages(run, SECOND, ())


def test_a_circle_is_refused_until_another_one_is_continued(run):
    adapt(run, SECOND)
    adapt(run, THIRD)
    with pytest.raises(SoulsGraphError, match=f"{HOME}.*after"):
        continued_domain(run, SECOND, THIRD)
    assert continued_domain(run, SECOND, HOME) == HOME
    with pytest.raises(SoulsGraphError, match="scenario"):
        check_target(run, HOME)
    with pytest.raises(UnknownNameError, match="controls-"):
        check_target(run, "controls-blows", "controls-lock-range")


def test_a_scenario_counts_from_its_first_trained_version_on(run):
    adapt(run, SECOND)
    first, second = adaptation_stages(run, THIRD, BOTH)
    assert domain_chain(run) == (HOME, SECOND), "planned is not trained"
    pretend_training(run, [first])
    assert domain_chain(run) == (HOME, SECOND, THIRD)
    assert finished_versions(run, first)
    assert not finished_versions(run, second)


def test_the_lineage_is_in_the_versions_and_nowhere_else(run):
    adapt(run, SECOND)
    adaptation_stages(run, THIRD, BOTH)  # planned, and never trained
    assert domain_chain(run) == (HOME, SECOND)
    with pytest.raises(UnknownNameError, match=THIRD):
        continued_domain(run, "controls-blows", THIRD)
    assert adapt(run, THIRD, ("dodge",), after=HOME)[0].parent == 1
    assert domain_chain(run, THIRD) == (HOME, THIRD)
    assert domain_chain(RunFolder.open(run.path), SECOND) == (HOME, SECOND)
    assert run.library.inputs("dodge", 3)["after"] == run.fight


def test_what_continues_another_version_goes_on_from_no_foreign_checkpoint(run):
    adapt(run, SECOND)
    stages = [adaptation_stages(run, THIRD, ("dodge",), after=after)[0] for after in (HOME, SECOND)]
    assert [stage.parent for stage in stages] == [1, 2]
    assert len({stage_key(run, stage) for stage in stages}) == 2


@pytest.mark.parametrize("text", ['["vordt"]', "[" * 100_000, "{"])
def test_damaged_inputs_of_a_version_are_refused(run, text):
    adapt(run, SECOND)
    (run.library.folder / "dodge" / "v2" / "inputs.json").write_text(text)
    with pytest.raises(DataError, match=r"inputs\.json"):
        domain_chain(run)


def test_an_untrained_skill_is_refused_with_the_first_to_train_in_this_run(tmp_path):
    run = RunFolder.create(tmp_path / "empty", Plan(scale=0.01))
    with pytest.raises(LibraryError, match="camera"):
        adaptation_stages(run, SECOND, ("dodge",))


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


def test_a_stage_whose_upstream_adapts_first_has_checkpoints_of_its_own(run):
    (alone,) = adaptation_stages(run, SECOND, ("heal_attack",))
    key = stage_key(run, alone)
    pretend_training(run, [alone])
    dodge, again = adaptation_stages(run, SECOND, BOTH)  # planned before dodge adapts, which it is to learn on top of
    pretend_training(run, [dodge])
    assert stage_key(run, again) != key


def test_of_a_joint_stage_what_it_saved_before_it_was_killed_is_found_again(run):
    (stage,) = adaptation_stages(run, SECOND, BOTH, jointly=True)
    dodge, _ = pretend_training(run, [stage])
    remove_folder(run.library.folder / "heal_attack" / "v2")
    (again,) = adaptation_stages(run, SECOND, BOTH, jointly=True)
    assert (half_saved(run, again), finished_versions(run, again)) == ({"dodge": dodge}, [])
    pretend_training(run, [run.plan.stage("dodge", SECOND, 1)])
    assert not half_saved(run, again), "another one plays by now"
