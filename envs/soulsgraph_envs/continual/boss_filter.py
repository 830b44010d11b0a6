"""Whether a fight is worth learning: scripted play that sees ahead wins it, random play does not, nor does not dodging.

Labelled shifts change what other skills deal with, so they need only the first two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated
from zlib import crc32

import numpy as np

from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.rollout import Rollout
from soulsgraph_envs.combat.scripted import (
    DODGE_IDLE,
    ConstantScript,
    OracleFight,
    Script,
    ScriptedPlay,
    TakeLock,
    Uniform,
    references,
)
from soulsgraph_envs.continual.generator import shift_of
from soulsgraph_envs.core.config import Between
from soulsgraph_envs.core.scenario import Scenario, load_player, load_scenario
from soulsgraph_envs.core.seeds import Seeds, derive_seeds
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import SKILL_NAMES, Skill, make_skill

#: Fights of each way of playing.
FIGHTS = 100
#: Least win rate of the oracle, most of random play, and least points by which the oracle is above itself not dodging.
LEAST_ORACLE, MOST_RANDOM, LEAST_BY_DODGING = 0.90, 0.05, 0.40

#: A win rate.
Share = Annotated[float, Between(0.0, 1.0)]


@dataclass(frozen=True)
class FilterResult:
    """Win rates by which a fight passed or failed; `undodged` is None where dodging is not asked for.

    `reason` names what failed, and is empty for a fight that passed.
    """

    oracle: Share
    random: Share
    undodged: Share | None
    passed: bool
    reason: str = ""


def check_boss(name: str) -> FilterResult:
    """Play the filter of a scenario, by its name or file: the same result for the same name.

    Raises:
        UnknownNameError: if no scenario has that name.
        DataError: for a file that cannot be read, or holds something else.
    """
    scenario = load_scenario(name)
    skills = tuple(make_skill(skill) for skill in SKILL_NAMES)
    trained = skills[-1]
    combat = Combat(make_game(FIGHTS), skills, scenario, Horizon(trained.name, trained.horizon))
    seeds = derive_seeds(crc32(name.encode()), 0, np.arange(FIGHTS))
    oracle = _oracle(scenario)
    played = [oracle, _random(skills)]
    if shift_of(name) is None:
        played.append({**oracle, "dodge": ConstantScript(DODGE_IDLE)})
    try:
        rates = [_win_rate(combat, scripts, seeds) for scripts in played]
    finally:
        combat.game.close()
    return filter_result(name, *rates)


def _oracle(scenario: Scenario) -> dict[str, Script]:
    """Return the scripted references, who know from where the player's lock and blow reach.

    They strike sooner and drink later than the reference: of the bosses so fought the shipped sequences are made.
    """
    player = load_player(scenario.player)
    lock, fight = TakeLock(), OracleFight(clear_s=0.9, drink_below=0.45)
    margin_rad, margin_m = 0.05, 0.15
    lock.within_rad = min(lock.within_rad, player.camera.lock_view_rad - margin_rad)
    fight.reach_m = min(fight.reach_m, player.attack.reach_m - margin_m)
    return {**references(SKILL_NAMES, scenario), "lock_on": lock, "heal_attack": fight}


def _random(skills: Sequence[Skill]) -> dict[str, Script]:
    return {skill.name: Uniform(skill, FIGHTS, stream) for stream, skill in enumerate(skills)}


def _win_rate(combat: Combat, scripts: Mapping[str, Script], seeds: Seeds) -> float:
    return Rollout(combat, ScriptedPlay(scripts)).play(seeds).win_rate


def filter_result(name: str, oracle: float, random: float, undodged: float | None = None) -> FilterResult:
    """Return whether a scenario passes by its win rates."""
    shift = shift_of(name)
    least, reasons = LEAST_ORACLE if shift is None else shift[1].least_oracle, []
    if oracle < least:
        reasons.append(f"an oracle that wins {100.0 * oracle:.0f} %, less than {100.0 * least:.0f} %")
    if random > MOST_RANDOM:
        reasons.append(f"random play that wins {100.0 * random:.0f} %, more than {100.0 * MOST_RANDOM:.0f} %")
    # Win rates are hundredths: what is 40 points apart must not fail by a rounded difference.
    if undodged is not None and round(oracle - undodged, 6) < LEAST_BY_DODGING:
        reasons.append(f"an oracle that wins {100.0 * oracle:.0f} %, and {100.0 * undodged:.0f} % without ever dodging")
    return FilterResult(oracle, random, undodged, not reasons, " and ".join(reasons))
