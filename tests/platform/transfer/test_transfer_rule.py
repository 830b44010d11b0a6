"""What animations predict, home and shifted, and the rule that recommends by a skill's own decision problem."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph.transfer.rule import CHANGED_DECISIONS, Cue, Effect, Evidence, compare_cues, recommend
from soulsgraph_envs.combat.rollout import DecisionColumns
from soulsgraph_envs.core.state import STATE_SIZE, Column
from soulsgraph_envs.skills import make_skill

UNCHANGED = Effect(home=1.0, shifted=1.0, home_errors=50.0, change_errors=0.0)
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
    none, whole = np.zeros(count, bool), np.zeros(count, int)
    episodes = np.repeat(np.arange(EPISODES), length)
    return DecisionColumns(episodes, rows.reshape(count, STATE_SIZE), whole, np.zeros(count), whole + 1, none)


def verdict_of(home: DecisionColumns, shifted: DecisionColumns, skill="dodge"):
    evidence = Evidence(UNCHANGED, compare_cues(make_skill(skill), home, shifted))
    return recommend({skill: evidence})[skill]


def test_the_same_cues_ask_for_nothing():
    verdict = verdict_of(fight(), fight(seed=1))
    assert (verdict.adapt, dict(verdict.changed_cues), verdict.changed_decisions) == (False, {}, 0.0)
    # Seen more often they are the same; and a skill that sees no animation has none.
    assert not verdict_of(fight(numbers=(3, 3, 3, 4)), fight(numbers=(3, 4, 4, 4), seed=1)).adapt
    assert compare_cues(make_skill("movement"), fight(), fight(numbers=(9,))) == ()


@pytest.mark.parametrize("factor", [0.5, 0.94, 1.08])
def test_another_tempo_is_told_by_its_factor(factor):
    verdict = verdict_of(fight(), fight(rate=0.1 * factor, seed=1))
    assert verdict.adapt
    assert verdict.changed_cues == dict.fromkeys(("boss_animation 3", "boss_animation 4"), f"tempo x{factor:.2f}")


def test_dearer_blows_are_told_by_their_cost():
    cues = compare_cues(make_skill("dodge"), fight(), fight(cost=0.3, seed=1))
    assert [cue.cost for cue in cues] == pytest.approx([1.5, 1.5], rel=0.05)
    assert verdict_of(fight(), fight(cost=0.3, seed=1)).adapt


def test_an_animation_never_seen_at_home_is_new():
    verdict = verdict_of(fight(), fight(numbers=(3, 9), seed=1))
    assert verdict.changed_cues == {"boss_animation 9": "new"}
    assert verdict.changed_decisions == pytest.approx(0.5)
    assert verdict.adapt


@given(share=st.floats(0.0, 1.0))
def test_changed_cues_count_from_a_material_share_of_decisions_on(share):
    cues = (Cue(Column.BOSS_ANIMATION, 9, 0.0, share), Cue(Column.BOSS_ANIMATION, 3, 1.0, 1.0 - share))
    assert recommend({"dodge": Evidence(UNCHANGED, cues)})["dodge"].adapt == (share >= CHANGED_DECISIONS)


@pytest.mark.parametrize(
    ("shifted", "home_errors", "change_errors", "expected"),
    [
        (0.6, 50.0, -10.0, True),
        (1.5, 50.0, 10.0, True),
        (0.96, 50.0, -10.0, False),
        (0.6, 50.0, -3.0, False),
        (0.6, 2.0, -10.0, False),
    ],
)
def test_an_effect_counts_if_its_change_is_material_and_certain(shifted, home_errors, change_errors, expected):
    evidence = Evidence(Effect(1.0, shifted, home_errors, change_errors), ())
    verdict = recommend({"camera": evidence})["camera"]
    assert verdict.adapt == verdict.effect_changed == expected
