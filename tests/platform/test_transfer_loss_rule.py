"""The first rule: what counts as lost, what upstream explains, and what is left to adapt."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soulsgraph.transfer.loss_rule import MATERIAL_DROP, Evidence, recommend

N = 200
NOISE = np.random.default_rng(5).normal(0.0, 0.5, N)


def evidence(shifted=10.0, depends=None, moved=0.0, explained=0.0, optimism=0.0) -> Evidence:
    """A skill that gains 10 over chance at home; `depends` says what chance upstream leaves of its return."""
    upstream = depends or {}
    return Evidence(
        home=10.0 + NOISE,
        chance=NOISE,
        shifted=shifted + NOISE,
        dependent={name: left + NOISE for name, left in upstream.items()},
        moved={"distance": moved},
        moved_by={name: {"distance": explained} for name in upstream},
        home_bias=NOISE / 10,
        shifted_bias=optimism + NOISE / 10,
    )


def recommended(**found: Evidence) -> list[str]:
    return [name for name, verdict in recommend(found).items() if verdict.adapt]


def test_without_a_shift_no_skill_is_named():
    assert recommended(camera=evidence(), lock_on=evidence(depends={"camera": 2.0})) == []


def test_a_loss_is_measured_in_units_of_the_gain_over_chance():
    verdict = recommend({"camera": evidence(shifted=6.0)})["camera"]
    assert verdict.gain == pytest.approx(10.0)
    assert verdict.drop == pytest.approx(0.4)
    assert verdict.direct == pytest.approx(0.4)
    assert verdict.adapt


def test_a_loss_that_upstream_hands_down_is_not_the_skills_own():
    # The camera lost half; chance camera costs the lock 6 of 10, so half of that is expected: 3.
    found = {"camera": evidence(shifted=5.0), "lock_on": evidence(shifted=7.0, depends={"camera": 4.0})}
    verdict = recommend(found)["lock_on"]
    assert verdict.drop == pytest.approx(0.3)
    assert verdict.explained_by["camera"] == pytest.approx(0.3)
    assert verdict.direct == pytest.approx(0.0, abs=1e-9)
    assert recommended(**found) == ["camera"]


def test_a_loss_beyond_what_upstream_hands_down_is_the_skills_own():
    found = {"camera": evidence(shifted=5.0), "lock_on": evidence(shifted=3.0, depends={"camera": 4.0})}
    assert recommend(found)["lock_on"].direct == pytest.approx(0.4)
    assert recommended(**found) == ["camera", "lock_on"]


def test_upstream_that_got_better_excuses_nothing():
    found = {"camera": evidence(shifted=12.0), "lock_on": evidence(shifted=5.0, depends={"camera": 2.0})}
    assert recommend(found)["lock_on"].direct == pytest.approx(0.5)


def test_a_small_loss_counts_where_unknown_inputs_mislead_the_values():
    lost = {"shifted": 9.0}
    assert recommended(dodge=evidence(**lost, moved=0.5, optimism=1.0)) == ["dodge"]
    assert recommended(dodge=evidence(**lost, moved=0.5)) == [], "the values still hold"
    assert recommended(dodge=evidence(**lost, optimism=1.0)) == [], "the inputs are known"
    assert recommended(dodge=evidence(moved=0.5, optimism=1.0)) == [], "nothing was lost"


@pytest.mark.parametrize(("explained", "expected"), [(0.1, ["camera", "dodge"]), (0.45, ["camera"])])
def test_inputs_that_an_affected_upstream_skill_moves_are_known(explained, expected):
    dodge = evidence(shifted=9.0, depends={"camera": 10.0}, moved=0.5, explained=explained, optimism=1.0)
    assert recommended(camera=evidence(shifted=5.0), dodge=dodge) == expected


def test_a_skill_no_better_than_chance_has_nothing_to_transfer():
    useless = Evidence(
        home=NOISE,
        chance=NOISE[::-1],
        shifted=NOISE - 5.0,
        dependent={},
        moved={"distance": 0.9},
        moved_by={},
        home_bias=NOISE,
        shifted_bias=NOISE + 5.0,
    )
    verdict = recommend({"movement": useless})["movement"]
    assert not verdict.adapt
    assert "no better than chance" in verdict.reason


@given(lost=st.floats(0.0, 20.0))
@settings(max_examples=25)
def test_the_first_skill_is_named_exactly_from_a_material_loss_on(lost):
    named = recommended(camera=evidence(shifted=10.0 - lost)) == ["camera"]
    assert named == (lost / 10.0 >= MATERIAL_DROP) or abs(lost / 10.0 - MATERIAL_DROP) < 1e-6
