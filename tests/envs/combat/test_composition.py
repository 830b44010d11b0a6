"""Eq. 1: the composition operator."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph_envs.combat.loop import merge_controls, pack_actions
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.skills import SKILL_NAMES, make_skill

SKILLS = tuple(make_skill(name) for name in SKILL_NAMES)
TABLES = pack_actions(SKILLS)
ACTIONS = st.tuples(*(st.integers(-1, len(skill.actions) - 1) for skill in SKILLS))
FRESH = st.tuples(*(st.booleans() for _ in SKILLS))


def compose(actions, fresh, tables=TABLES) -> Control:
    out = np.zeros(1, np.uint32)
    merge_controls(np.array([actions]), np.array([fresh]), tables, out)
    return Control(int(out[0]))


def test_dodge_takes_its_direction_from_movement_and_precedes_attack_and_heal():
    for heal_or_attack in (0, 1):
        assert compose((4, 1, 1, 0, heal_or_attack), (True,) * 5) == Control.ROLL | Control.BACK


CONTROLS = st.sets(st.sampled_from([*Control]), max_size=4).map(lambda some: Control(sum(some)))


@given(ACTIONS, FRESH, st.tuples(*(CONTROLS for _ in SKILLS)))
def test_what_a_skill_precedes_is_taken_from_the_others_and_never_from_itself(actions, fresh, precedence_over):
    skills = [replace(skill, precedence_over=over) for skill, over in zip(SKILLS, precedence_over, strict=True)]
    sent = [
        Control.NONE
        if action < 0
        else skill.actions[action].holds | (skill.actions[action].presses if is_fresh else Control.NONE)
        for skill, action, is_fresh in zip(skills, actions, fresh, strict=True)
    ]
    expected, taken = Control.NONE, Control.NONE
    # Each skill from the last to the first sends what no later one took, and takes from all others what it precedes.
    for skill, own in reversed([*zip(skills, sent, strict=True)]):
        left = own & ~taken
        if left:
            expected = (expected & ~skill.precedence_over) | left
            taken |= skill.precedence_over
    assert compose(actions, fresh, pack_actions(skills)) == expected
