"""For tests: what scripted play achieves in the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.rollout import Episodes, Rollout
from soulsgraph_envs.combat.scripted import OracleEndToEnd, Script, ScriptedPlay, Uniform, engaging
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.seeds import Seeds, derive_seeds
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES, make_skill, skill_names

#: Caps in ticks of 0.1 s: survival is measured over 90 s, a win may take five minutes.
SURVIVAL_TICKS, FIGHT_TICKS = 900, 3000


def scripted_fights(
    scenario: Scenario,
    scripts: Mapping[str, Script],
    seeds: Seeds,
    most_ticks: int | None = 900,
    horizon: Horizon | None = None,
) -> Episodes:
    """Fight once from each seed (n,), to the end, the given number of ticks or the horizon if there is one."""
    skills = [make_skill(name) for name in skill_names() if name in scripts]
    combat = Combat(Simulator(len(seeds)), skills, scenario, horizon or Horizon(skills[0].name, 10**9))
    return Rollout(combat, ScriptedPlay(scripts)).play(seeds, most_ticks=most_ticks)


def end_to_end_oracle_fights(scenario: Scenario, seeds: Seeds) -> Episodes:
    """Let the oracle play the baseline's task once from each seed (n,), within the baseline's horizon."""
    skill = make_skill(END_TO_END)
    scripts = {END_TO_END: OracleEndToEnd(scenario)}
    return scripted_fights(scenario, scripts, seeds, None, Horizon(skill.name, skill.horizon))


@dataclass(frozen=True)
class ScriptedTrials:
    """A number of fights of a scenario, the same for every set of scripts; camera, lock-on and movement engage."""

    scenario: Scenario
    episodes: int
    first_seed: int

    def fights(self, scripts: Mapping[str, Script], ticks: int = FIGHT_TICKS) -> Episodes:
        """Fight once from each seed, for the given ticks at most."""
        seeds = derive_seeds(np.arange(self.first_seed, self.first_seed + self.episodes), 1)
        return scripted_fights(self.scenario, {**engaging(), **scripts}, seeds, ticks)

    def survival_s(self, dodge: Script) -> float:
        """Return the mean seconds, 90 at most, that the player lives without striking."""
        return float(self.fights({"dodge": dodge}, SURVIVAL_TICKS).seconds.mean())

    def win_percent(self, dodge: Script, heal_attack: Script, **others: Script) -> float:
        """Return the percentage of fights won."""
        return 100.0 * self.fights({"dodge": dodge, "heal_attack": heal_attack, **others}).win_rate

    def random(self, skill: str) -> Script:
        """Return the script of uniform random actions for one of the skills."""
        return Uniform(make_skill(skill), self.episodes, stream=SKILL_NAMES.index(skill))
