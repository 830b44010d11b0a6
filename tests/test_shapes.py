"""Arrays are held to the shapes that docstrings state, in every test."""

import numpy as np
import pytest

from soulsgraph_envs.combat.loop import Combat
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agents.inference import FusedNetworks


def pick(rows, lanes, *, out=None):
    """Return the `rows` (n, 2) of some `lanes` (lanes,), (lanes, 2); `out` (lanes,) is left alone."""
    return rows[lanes]


def test_a_call_as_the_docstring_states_it_passes(shapes_checked):
    checked = shapes_checked(pick)
    assert checked(np.zeros((3, 2)), np.arange(2), out=np.zeros(2)).shape == (2, 2)
    assert checked.__doc__ == pick.__doc__


@pytest.mark.parametrize(
    ("rows", "lanes", "keywords", "wrong"),
    [
        (np.zeros((3, 5)), np.arange(2), {}, "rows"),
        (np.zeros((3, 2, 1)), np.arange(2), {}, "rows"),
        (np.zeros((3, 2)), np.zeros((1, 2), np.int64), {}, "lanes"),
        (np.zeros((3, 2)), np.ones(3, np.bool_) & [True, False, True], {}, "return"),
        (np.zeros((3, 2)), np.arange(2), {"out": np.zeros(1)}, "out"),
    ],
)
def test_a_wrong_shape_is_found_and_named(shapes_checked, rows, lanes, keywords, wrong):
    with pytest.raises(AssertionError, match=rf"pick: expected {wrong} of shape \("):
        shapes_checked(pick)(rows, lanes, **keywords)


def test_a_functions_own_error_goes_before(shapes_checked):
    with pytest.raises(IndexError):
        shapes_checked(pick)(np.zeros((3, 5)), np.arange(4))


def test_the_packages_functions_are_checked():
    assert hasattr(Combat.step, "__wrapped__")
    assert hasattr(FusedNetworks.act, "__wrapped__")
    skill = make_skill("dodge")
    observe = skill.observation.bind(load_scenario("iudex-phase1"))
    assert len(observe(np.zeros((4, 25), np.float32))) == 4
    with pytest.raises(AssertionError, match=r"expected rows of shape \(n, 25\), found \(4, 26\)"):
        observe(np.zeros((4, 26), np.float32))
