"""What animations announce, at home and in another fight."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph.continual.cues import CHANGED_DECISIONS, Cue, changed_cues, compare_cues
from soulsgraph_envs.combat.rollout import DecisionColumns
from soulsgraph_envs.core.state import STATE_SIZE, Column
from soulsgraph_envs.skills import make_skill

EPISODES, MOVE = 40, 10


def fight(numbers=(3, 4), rate=0.1, cost=0.2, seed=0) -> DecisionColumns:
    """Episodes of boss moves of ten decisions, each with a blow of about the cost in its middle."""
    random = np.random.default_rng(seed)
    length = MOVE * len(numbers)
    rows = np.zeros((EPISODES, length, STATE_SIZE), np.float32)
    rows[..., Column.BOSS_ANIMATION] = np.repeat(numbers, MOVE)
    rows[..., Column.BOSS_PROGRESS] = np.tile(np.arange(MOVE) * rate, len(numbers))
    blows = np.zeros((EPISODES, length))
    blows[:, MOVE // 2 :: MOVE] = cost * random.uniform(0.9, 1.1, (EPISODES, len(numbers)))
    rows[..., Column.PLAYER_HP] = 1.0 - np.cumsum(blows, axis=1)
    count = EPISODES * length
    whole = np.zeros(count, int)
    episodes = np.repeat(np.arange(EPISODES), length)
    return DecisionColumns(episodes, rows.reshape(count, STATE_SIZE), whole, np.zeros(count), whole + 1)


def cues_of(home: DecisionColumns, shifted: DecisionColumns, skill="dodge") -> dict[str, str]:
    return {cue.name: cue.change for cue in compare_cues(make_skill(skill), home, shifted)}


def test_the_same_cues_ask_for_nothing():
    assert cues_of(fight(), fight(seed=1)) == {"boss_animation 3": "", "boss_animation 4": ""}
    # Seen more often they are the same; and a skill that sees no animation has none.
    assert not any(cues_of(fight(numbers=(3, 3, 3, 4)), fight(numbers=(3, 4, 4, 4), seed=1)).values())
    assert cues_of(fight(), fight(numbers=(9,)), skill="movement") == {}


@pytest.mark.parametrize("factor", [0.5, 0.94, 1.08])
def test_another_tempo_is_told_by_its_factor(factor):
    cues = cues_of(fight(), fight(rate=0.1 * factor, seed=1))
    assert cues == dict.fromkeys(("boss_animation 3", "boss_animation 4"), f"tempo x{factor:.2f}")


def test_dearer_blows_are_told_by_their_cost():
    cues = compare_cues(make_skill("dodge"), fight(), fight(cost=0.3, seed=1))
    factors = [float(cue.change.removeprefix("cost x")) for cue in cues]
    assert factors == pytest.approx([1.5, 1.5], rel=0.05)
    assert changed_cues(cues)


def test_an_animation_never_seen_at_home_is_new():
    cues = compare_cues(make_skill("dodge"), fight(), fight(numbers=(3, 9), seed=1))
    assert {cue.name: (cue.change, cue.share) for cue in cues} == {
        "boss_animation 3": ("", 0.5),
        "boss_animation 9": ("new", 0.5),
    }
    assert changed_cues(cues)


@given(share=st.floats(0.0, 1.0))
def test_changed_cues_count_from_a_material_share_of_decisions_on(share):
    cues = (Cue(Column.BOSS_ANIMATION, 9, share, "new"), Cue(Column.BOSS_ANIMATION, 3, 1.0 - share))
    assert bool(changed_cues(cues)) == (share >= CHANGED_DECISIONS)
