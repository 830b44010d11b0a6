"""What the fights demand, measured without learning: wide ranges around the calibrated behaviour.

Fights of fixed seeds, so that a row is exactly reproducible and fails only when the fight changes. Were the seeds
redrawn, every band lies at least three standard errors of its row away. The bands of Iudex are those of the feasibility
study that the boss data were calibrated against.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fakes.scripted import ScriptedTrials, end_to_end_oracle_fights, scripted_fights
from soulsgraph_envs.combat.scripted import (
    DODGE_IDLE,
    STRIKE,
    ConstantScript,
    OracleDodge,
    OracleFight,
    Script,
    engaging,
)
from soulsgraph_envs.core.scenario import load_boss, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds

PHASE_1, PHASE_2 = load_scenario("iudex-phase1"), load_scenario("iudex-phase2")


def trials_of(scenario: str, episodes: int) -> ScriptedTrials:
    return ScriptedTrials(load_scenario(scenario), episodes, first_seed=90_000)


def dodging(trials: ScriptedTrials, how: str) -> Script:
    return {"perfect": OracleDodge(), "never": ConstantScript(DODGE_IDLE)}.get(how) or trials.random("dodge")


def fighting(trials: ScriptedTrials, how: str) -> Script:
    """Return how it strikes; who never dodges needs only the time to land a blow."""
    scripts = {"perfect": OracleFight(), "landing": OracleFight(clear_s=0.4), "spam": ConstantScript(STRIKE)}
    return scripts.get(how) or trials.random("heal_attack")


_ROWS = [
    ("iudex-phase1", "perfect", "perfect", 90, 100),
    ("iudex-phase1", "never", "landing", 2, 25),
    ("iudex-phase1", "random", "random", 0, 3),
    ("iudex-phase1", "perfect", "random", 0, 10),
    ("iudex-phase2", "perfect", "perfect", 90, 100),
    ("vordt", "perfect", "perfect", 94, 100),
    ("vordt", "never", "landing", 0, 25),
    ("margit", "perfect", "perfect", 90, 100),
    ("margit", "never", "spam", 0, 3),
]
_WHOLE = ("iudex-full", "vordt-whole")
_ROWS += [(name, how, how, *band) for name in _WHOLE for how, band in (("perfect", (90, 100)), ("random", (0, 3)))]


@pytest.mark.parametrize(("scenario", "dodge", "fight", "least", "most"), _ROWS)
def test_a_way_to_play_wins_so_many_percent(scenario: str, dodge: str, fight: str, least: int, most: int) -> None:
    trials = trials_of(scenario, 60 if scenario in _WHOLE else 100)
    assert least <= trials.win_percent(dodging(trials, dodge), fighting(trials, fight)) <= most


@pytest.mark.parametrize("scenario", ["iudex-phase1", "vordt", "margit"])
def test_dodging_pays(scenario: str) -> None:
    trials = trials_of(scenario, 100)
    random_s, never_s, perfect_s = (trials.survival_s(dodging(trials, how)) for how in ("random", "never", "perfect"))
    assert 15 <= random_s <= 45
    assert 8 <= never_s <= 20
    assert never_s <= 0.9 * random_s
    assert perfect_s >= 3 * random_s


def test_phase_2_opens_harder_from_long_range() -> None:
    seeds, scripts = derive_seeds(np.arange(60_000, 62_000), 1), {**engaging(), "dodge": ConstantScript(DODGE_IDLE)}
    mid, long = (
        scripted_fights(replace(PHASE_2, start=start), scripts, seeds, most_ticks=50) for start in ("mid", "long")
    )
    assert long.player_hp.mean() < mid.player_hp.mean()


def test_the_baselines_own_actions_are_enough_to_win() -> None:
    # Acceptance bound: an oracle restricted to the 16 actions wins at least 60 % in the baseline's horizon. It wins
    # above 90 %.
    assert end_to_end_oracle_fights(PHASE_1, derive_seeds(np.arange(70_000, 70_150), 1)).win_rate >= 0.6


@pytest.mark.parametrize("boss", ["iudex-phase1", "iudex-phase2", "vordt", "margit"])
def test_ids_of_moves_share_the_scale_of_the_first_boss(boss: str) -> None:
    """An id is how early in its move the first blow falls, so that what a skill learned of it goes for another boss."""

    def ratios(name: str) -> dict[int, float]:
        moves = sorted(load_boss(name).moves, key=lambda move: move.id)
        return {move.id: move.windows[0].time_s[0] / move.length_s for move in moves}

    first, own = ratios("iudex-phase2") | ratios("iudex-phase1"), ratios(boss)
    assert [*own.values()] == sorted(own.values())
    assert own == {number: pytest.approx(first[number], abs=0.05) for number in own}


def test_vordt_begins_and_is_won_as_far_from_his_rage_and_margit_has_the_published_hp() -> None:
    vordt, (start, end) = load_boss("vordt"), load_scenario("vordt").boss_hp
    assert start - vordt.enraged.below_hp_ratio * vordt.hp_max == vordt.enraged.below_hp_ratio * vordt.hp_max - end > 0
    assert load_boss("margit").hp_max == load_scenario("margit").boss_hp[0] == 4174.0
