"""Presets: the vanilla ones stay vanilla, and single options are changed by name."""

from typing import Any

import pytest

from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.skills import SKILL_NAMES, SkillOptions, make_skill
from soulsgraph_policies.learning.hyperparameters import OPTION_NAMES, PRESETS, preset_with, skill_hyperparameters


def test_no_preset_lets_more_than_128_decisions_pass_between_updates() -> None:
    assert {name: preset.lanes for name, preset in PRESETS.items()} == {
        "paper": 1,
        "fast": 32,
        "best": 32,
        "pqn": 32,
        "best-1": 32,
        "extended": 32,
    }
    assert max(preset.steps_per_round for preset in PRESETS.values()) == 128


@pytest.mark.parametrize("name", ["paper", "fast"])
def test_paper_and_fast_change_nothing_of_the_papers_method(name: str) -> None:
    paper, options = skill_hyperparameters(90_000), SkillOptions()
    assert PRESETS[name].hyperparameters(paper) == paper
    assert PRESETS[name].skill_options(options) == options


def test_best_observes_what_table_2_has_and_extended_more() -> None:
    for name in SKILL_NAMES:
        columns = {
            preset: set(make_skill(name, PRESETS[preset].skill_options(SkillOptions())).observation.columns)
            for preset in PRESETS
        }
        assert columns["best"] == columns["paper"]
        assert columns["extended"] > columns["paper"]


def test_single_options_are_changed_by_name_and_the_others_stay() -> None:
    changed = preset_with(PRESETS["best"], {"n_step": 3, "animations": "scalar", "lanes": 8})
    numbers = changed.hyperparameters(skill_hyperparameters(20_000))
    assert (numbers.n_step, numbers.double, numbers.budget) == (3, True, 20_000)
    assert changed.skill_options(SkillOptions()).animations == "scalar"
    assert (changed.lanes, changed.steps_per_round) == (8, 128)
    assert preset_with(PRESETS["fast"], {}) == PRESETS["fast"]


@pytest.mark.parametrize("sizes", [[32, 16], (32, 16)])
def test_layer_sizes_may_come_as_the_list_that_json_knows(sizes: Any) -> None:
    numbers = preset_with(PRESETS["fast"], {"hidden_sizes": sizes}).hyperparameters(skill_hyperparameters(20_000))
    assert numbers.hidden_sizes == (32, 16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_sizes": [64, "64"]}, r"hidden_sizes\[1\]: expected a whole number from 1 to 4096, found '64'"),
        ({"hidden_sizes": [4_097]}, r"hidden_sizes\[0\]: expected a whole number from 1 to 4096, found 4097"),
        ({"hidden_sizes": [8] * 17}, "hidden_sizes: expected at most 16 layers"),
        ({"hidden_sizes": 64}, "hidden_sizes: expected a list of whole numbers, found 64"),
        ({"hidden_sizes": []}, "hidden_sizes: expected a list of at least one entry"),
        ({"hidden_sizes": [8, 1], "dueling": True}, "hidden_sizes: .*the last of at least 2 units"),
        ({"batch_size": 65_537}, "batch_size: expected a whole number from 1 to 65536, found 65537"),
        ({"batch_size": 10**400}, "batch_size: expected a whole number from 1 to 65536, found a whole number of"),
        ({"learning_rate": float("inf")}, "learning_rate: expected a number from .*, found inf"),
        ({"learning_rate": 10**400}, "learning_rate: expected a number from .*, found a whole number of"),
        ({"gamma": float("nan")}, "gamma: expected a number from 0 to 1, found nan"),
        ({"lanes": 10**6, "steps_per_round": 10**6}, "lanes: expected a whole number from 1 to 65536"),
        ({"lanes": 2.0}, "lanes: expected a whole number from 1 to 65536, found 2.0"),
        ({"dobule": True}, "double"),
        ({"double": 1}, "option double: expected true or false, found 1"),
        ({"n_step": 2.5}, "option n_step: expected a whole number from 1 to 1000, found 2.5"),
        ({"n_step": 0}, "n_step: expected a whole number from 1 to 1000, found 0"),
        ({"n_step": True}, "option n_step: expected a whole number from 1 to 1000, found True"),
        ({"gamma": "most"}, "option gamma: expected a number from 0 to 1, found 'most'"),
        ({"budget": 5}, "found 'budget'"),
        ({"animations": "onehot"}, "scalar, one_hot"),
        ({"lanes": 256}, "expected 1 to 128 lanes"),
    ],
)
def test_wrong_option_is_told_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SoulsGraphError, match=message):
        preset_with(PRESETS["fast"], options)


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_every_option_tells_in_words_what_it_expects(name: str) -> None:
    with pytest.raises(SoulsGraphError, match=r"expected (?!a bool|a int|a float|a str)"):
        preset_with(PRESETS["fast"], {name: None})


def test_an_unknown_option_is_told_with_the_names_most_like_it_and_how_many_there_are() -> None:
    with pytest.raises(UnknownNameError) as caught:
        preset_with(PRESETS["fast"], {"qwzx": 1})
    listed, _, rest = str(caught.value).removeprefix("unknown option: expected one of ").partition(" and ")
    shown = listed.split(", ")
    assert set(shown) < set(OPTION_NAMES)
    assert rest == f"{len(OPTION_NAMES) - len(shown)} more; found 'qwzx'."
    assert len(str(caught.value)) < 200


def test_option_names_are_of_one_thing_each() -> None:
    assert len(set(OPTION_NAMES)) == len(OPTION_NAMES)
    assert {"double", "animations", "lanes"} < set(OPTION_NAMES)
