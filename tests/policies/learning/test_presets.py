"""Presets: the vanilla ones stay vanilla, and single options are changed by name."""

from dataclasses import replace
from typing import Any

import pytest

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import SKILL_NAMES, SkillOptions
from soulsgraph_policies.learning.hyperparameters import PRESETS, changed, preset_with, skill_hyperparameters

PAPER = skill_hyperparameters(BUDGET := 90_000)


def test_the_paper_plays_in_one_lane_and_no_preset_lets_more_than_128_decisions_pass_between_updates() -> None:
    assert (PRESETS["paper"].lanes, PRESETS["paper"].steps_per_round) == (1, 4)
    assert {(one.lanes, one.steps_per_round) for name, one in PRESETS.items() if name != "paper"} == {(32, 128)}


@pytest.mark.parametrize("name", ["paper", "fast"])
def test_paper_and_fast_change_nothing_of_the_papers_method(name: str) -> None:
    assert PRESETS[name].hyperparameters(BUDGET) == PAPER
    assert PRESETS[name].skill_options(SkillOptions()) == SkillOptions()
    assert PRESETS["best"].vanilla.hyperparameters(BUDGET) == PAPER


def test_single_options_are_changed_by_name_and_the_others_stay() -> None:
    options = {"n_step": 3, "animations": "scalar", "lanes": 8, "fcnet_hiddens": [32, 16]}
    preset = preset_with(PRESETS["best"], options)
    numbers = preset.hyperparameters(20_000)
    assert (numbers.n_step, numbers.double_q, numbers.budget, numbers.fcnet_hiddens) == (3, True, 20_000, (32, 16))
    assert preset.skill_options(SkillOptions()).animations == "scalar"
    assert (preset.lanes, preset.steps_per_round) == (8, 128)
    assert preset_with(PRESETS["fast"], {}) == PRESETS["fast"]
    assert changed(numbers, {"gamma": 0.5}).gamma == 0.5


def test_what_a_preset_has_for_one_skill_is_that_skills_until_it_is_asked_for_otherwise() -> None:
    whole = PRESETS["whole"]
    gammas = {name: whole.hyperparameters(BUDGET, name).gamma for name in ("dodge", "heal_attack")}
    assert gammas == {"dodge": 0.98, "heal_attack": 0.995}
    asked = preset_with(whole, {"gamma": 0.9})
    assert {asked.hyperparameters(BUDGET, name).gamma for name in SKILL_NAMES} == {0.9}
    heal = SkillOptions().heal_attack
    assert whole.skill_options(SkillOptions()).heal_attack == replace(heal, damage=15.0, dead=15.0)
    own = SkillOptions(heal_attack=replace(heal, hit=1.0))
    assert whole.skill_options(own).heal_attack == own.heal_attack


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("fcnet_hiddens", [[64, "64"], [4_097], 64, []]),
        ("train_batch_size_per_learner", [65_537, 10**400]),
        ("lr", [0.0, float("inf"), 10**400]),
        ("gamma", [float("nan"), 1.1, "most"]),
        ("lanes", [10**6, 2.0, 256]),
        ("double_q", [1]),
        ("n_step", [2.5, 0, True]),
        ("epsilon", [1.5, True, [], [[5, 0.5]], [[0, 2.0]], [[0, 1.0], [0, 0.5]]]),
        ("grad_clip", [10**400]),
        ("alpha", [-0.1]),
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
