"""The results of scripts in a scenario: many fights from fixed seeds, to compare with expected ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from soulsgraph_envs.episodes import Episodes
from soulsgraph_envs.oracles import Script, Uniform, engaging, scripted_fights
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.skills import SKILL_NAMES, make_skill
from soulsgraph_envs.streams import derive_seeds

#: Caps in ticks of 0.1 s: survival is measured over 90 s, a win may take five minutes.
SURVIVAL_TICKS, FIGHT_TICKS = 900, 3000


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

    def chance(self, skill: str) -> Script:
        """Return the script of uniform random actions for one of the skills."""
        return Uniform(make_skill(skill), self.episodes, stream=SKILL_NAMES.index(skill))
