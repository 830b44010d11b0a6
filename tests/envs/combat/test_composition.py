"""Eq. 1: the composition operator."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph_envs.combat.loop import merge_controls, pack_actions
from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.skills import SKILL_NAMES, make_skill

SKILLS = tuple(make_skill(name) for name in SKILL_NAMES)
HOLDS, PRESSES, *_ = pack_actions(SKILLS)
ACTIONS = st.tuples(*(st.integers(-1, len(skill.actions) - 1) for skill in SKILLS))
FRESH = st.tuples(*(st.booleans() for _ in SKILLS))


def compose(actions, fresh) -> Control:
    out = np.zeros(1, np.uint32)
    merge_controls(np.array([actions]), np.array([fresh]), HOLDS, PRESSES, out)
    return Control(int(out[0]))


def test_distinct_subspaces_are_merged():
    everything_fresh = (True,) * 5
    # camera left, toggle, forward-left, no dodge, attack
    assert compose((2, 0, 4, 1, 0), everything_fresh) == (
        Control.CAMERA_LEFT | Control.LOCK_ON | Control.FORWARD | Control.LEFT | Control.LIGHT_ATTACK
    )


def test_dodge_takes_its_direction_from_movement_and_wins_over_attack_and_heal():
    for heal_or_attack in (0, 1):
        assert compose((4, 1, 1, 0, heal_or_attack), (True,) * 5) == Control.ROLL | Control.BACK


def test_a_press_is_tapped_in_the_first_tick_only_while_a_hold_lasts():
    later = (False,) * 5
    assert compose((0, 0, 0, 0, 0), later) == Control.CAMERA_UP | Control.FORWARD


@given(ACTIONS, FRESH)
def test_composition_is_the_union_of_its_parts_but_for_the_roll(actions, fresh):
    union = Control.NONE
    for skill, action, is_fresh in zip(SKILLS, actions, fresh, strict=True):
        if action >= 0:
            union |= skill.actions[action].holds | (skill.actions[action].presses if is_fresh else Control.NONE)
    if union & Control.ROLL:
        union &= ~(Control.LIGHT_ATTACK | Control.USE_ITEM)
    assert compose(actions, fresh) == union
