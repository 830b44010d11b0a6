"""Judge an agent: greedy, whole episodes, the same seeds for every setting.

An episode ends at a win, at death, or after the horizon of the judged skill (1,024 heal-attack
decisions). Not winning is losing, and so is a win and a death on one tick. A randomised skill
keeps its own step durations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from soulsgraph.plan import check_range
from soulsgraph_envs.combat import Combat, Controller, Horizon
from soulsgraph_envs.errors import UnknownNameError
from soulsgraph_envs.games import make_game
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.skills import Skill
from soulsgraph_envs.streams import Seeds, derive_seeds, episode_seeds
from soulsgraph_policies.controllers import Agent, NetworkController, RandomController
from soulsgraph_policies.episodes import Episodes
from soulsgraph_policies.inference import FrozenNetwork, FusedNetworks
from soulsgraph_policies.play import EpisodePlayer

#: Told how many episodes ended since it was last called.
OnFinished = Callable[[int], None]

#: Lanes played at once: more gain nothing, the simulator and the networks are compiled.
LANES = 256

_EVALUATION_STREAM = 20


def check_judging(seed: int, episodes: int) -> None:
    """Refuse a seed or a number of evaluation episodes out of range.

    Raises:
        SoulsGraphError: naming the option, the range and the value.
    """
    check_range("episodes", episodes, 1, 1_000_000)
    check_range("seed", seed, 0, 2**63 - 1)


def evaluation_seeds(seed: int, episodes: int) -> Seeds:
    """Give the seeds of `episodes` evaluation episodes, disjoint from every training stream.

    Raises:
        SoulsGraphError: if there is no episode, or the seed is out of range.
    """
    check_judging(seed, episodes)
    return episode_seeds(int(derive_seeds(seed, _EVALUATION_STREAM)[0]), 0, np.arange(episodes))


@dataclass(frozen=True)
class Match:
    """Who plays what: a scenario, the skills in it, their networks, and those replaced by random.

    The last of `skills` is the one whose return, length and horizon count.

    Raises:
        UnknownNameError: if a skill to randomise takes no part.
    """

    scenario: Scenario
    skills: tuple[Skill, ...]
    networks: tuple[FrozenNetwork, ...]
    randomize: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [skill.name for skill in self.skills]
        for name in self.randomize:
            if name not in names:
                raise UnknownNameError("skill to randomize", name, names)

    def controller(self, lanes: int) -> Controller:
        """Make the agent for so many lanes."""
        names = [skill.name for skill in self.skills]
        played = {network.skill: network for network in self.networks if network.skill not in self.randomize}
        plays = [list(played).index(name) if name in played else -1 for name in names]
        chance = [RandomController(self.skills[names.index(name)], names.index(name), lanes) for name in self.randomize]
        return Agent([NetworkController(FusedNetworks(list(played.values()), plays)), *chance])


def play_match(match: Match, seeds: Seeds, on_finished: OnFinished | None = None) -> Episodes:
    """Play one episode a seed and give them in the order of the seeds."""
    return play_agent(match.scenario, match.skills, match.controller, seeds, on_finished)


def play_agent(
    scenario: Scenario,
    skills: Sequence[Skill],
    controller: Callable[[int], Controller],
    seeds: Seeds,
    on_finished: OnFinished | None = None,
) -> Episodes:
    """Play as `play_match` does with any agent, which `controller` makes for so many lanes."""
    lanes = min(LANES, len(seeds))
    combat = Combat(make_game(lanes=lanes), skills, scenario, Horizon(skills[-1].name, skills[-1].horizon))
    return EpisodePlayer(combat, controller(lanes)).play(seeds, on_finished)
