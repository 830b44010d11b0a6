"""Presets: the vanilla ones stay vanilla, and single options are changed by name."""

from dataclasses import replace
from typing import Any

import pytest

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import SKILL_NAMES, SkillOptions, make_skill
from soulsgraph_policies.learning.hyperparameters import (
    PRESETS,
    DQNHyperparameters,
    changed,
    preset_with,
    skill_hyperparameters,
)

PAPER = skill_hyperparameters(90_000)


def test_the_paper_plays_in_one_lane_and_no_preset_lets_more_than_128_decisions_pass_between_updates() -> None:
    assert (PRESETS["paper"].lanes, PRESETS["paper"].steps_per_round) == (1, 4)
    assert {(one.lanes, one.steps_per_round) for name, one in PRESETS.items() if name != "paper"} == {(32, 128)}


@pytest.mark.parametrize("name", ["paper", "fast"])
def test_paper_and_fast_change_nothing_of_the_papers_method(name: str) -> None:
    assert PRESETS[name].hyperparameters(PAPER) == PAPER
    assert PRESETS[name].skill_options(SkillOptions()) == SkillOptions()
    assert PRESETS["best"].vanilla.hyperparameters(PAPER) == PAPER


def test_best_observes_what_table_2_has_and_more_where_it_is_asked_for() -> None:
    asked = {"paper": PRESETS["paper"], "best": PRESETS["best"]}
    asked["extended"] = preset_with(PRESETS["best"], {"observations": "extended"})
    for name in SKILL_NAMES:
        columns = {
            how: set(make_skill(name, preset.skill_options(SkillOptions())).observation.columns)
            for how, preset in asked.items()
        }
        assert columns["best"] == columns["paper"]
        assert columns["extended"] > columns["paper"]


def test_single_options_are_changed_by_name_and_the_others_stay() -> None:
    options = {"n_step": 3, "animations": "scalar", "lanes": 8, "hidden_sizes": [32, 16]}
    preset = preset_with(PRESETS["best"], options)
    numbers = preset.hyperparameters(skill_hyperparameters(20_000))
    assert (numbers.n_step, numbers.double, numbers.budget, numbers.hidden_sizes) == (3, True, 20_000, (32, 16))
    assert preset.skill_options(SkillOptions()).animations == "scalar"
    assert (preset.lanes, preset.steps_per_round) == (8, 128)
    assert preset_with(PRESETS["fast"], {}) == PRESETS["fast"]
    assert changed(numbers, {"gamma": 0.5}).gamma == 0.5


def test_what_a_preset_has_for_one_skill_is_that_skills_until_it_is_asked_for_otherwise() -> None:
    whole = PRESETS["whole"]
    gammas = {name: whole.hyperparameters(PAPER, name).gamma for name in ("dodge", "heal_attack")}
    assert gammas == {"dodge": 0.98, "heal_attack": 0.995}
    asked = preset_with(whole, {"gamma": 0.9})
    assert {asked.hyperparameters(PAPER, name).gamma for name in SKILL_NAMES} == {0.9}
    heal = SkillOptions().heal_attack
    assert whole.skill_options(SkillOptions()).heal_attack == replace(heal, damage=15.0, dead=15.0)
    own = SkillOptions(heal_attack=replace(heal, hit=1.0))
    assert whole.skill_options(own).heal_attack == own.heal_attack


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("hidden_sizes", [[64, "64"], [4_097], [8] * 17, 64, []]),
        ("batch_size", [65_537, 10**400]),
        ("learning_rate", [0.0, float("inf"), 10**400]),
        ("gamma", [float("nan"), 1.1, "most"]),
        ("lanes", [10**6, 2.0, 256]),
        ("double", [1]),
        ("n_step", [2.5, 0, True]),
        ("epsilon_fraction", [0.0]),
        ("max_grad_norm", [10**400]),
        ("priority_exponent", [-0.1]),
        ("averaged_fraction", [2.0]),
        ("animations", ["onehot"]),
        # Those of a stage, and unknown ones.
        ("budget", [5]),
        ("dobule", [True]),
    ],
)
def test_a_wrong_option_is_refused_by_name(name: str, wrong: list[Any]) -> None:
    for value in wrong:
        with pytest.raises(SoulsGraphError, match=name):
            preset_with(PRESETS["fast"], {name: value})


def test_what_does_not_go_together_or_is_no_skills_own_is_refused() -> None:
    with pytest.raises(SoulsGraphError, match="hidden_sizes"):
        changed(PAPER, {"hidden_sizes": (8,)})
    for wrong in ({"budget": 0}, {"budget": 2.0}, {"buffer_size": 10**8 + 1}):
        with pytest.raises(SoulsGraphError, match=next(iter(wrong))):
            DQNHyperparameters(**{"budget": 100, "buffer_size": 10, **wrong})
