"""Playing an agent: the same episodes for every setting, whatever the number of lanes."""

import numpy as np
import pytest

from soulsgraph.runs import evaluate as evaluation
from soulsgraph.runs.evaluate import evaluation_seeds, play
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import SKILL_NAMES, make_skill
from soulsgraph_policies.agents.agent import Agent
from speed import untrained_network

PHASE_1 = load_scenario("iudex-phase1")
SKILLS = tuple(make_skill(name) for name in SKILL_NAMES)


def agent(randomize=(), seed=0) -> Agent:
    random = np.random.default_rng(seed)
    networks = {skill.name: untrained_network(skill, PHASE_1, random) for skill in SKILLS}
    return Agent(PHASE_1, SKILLS, networks, dict.fromkeys(randomize, "random"))


@pytest.mark.parametrize("randomize", [(), ("dodge",), ("heal_attack", "dodge")])
def test_episodes_do_not_depend_on_the_number_of_lanes(monkeypatch, randomize):
    seeds = evaluation_seeds(7, 20)
    together = play(agent(randomize), seeds)
    monkeypatch.setattr(evaluation, "LANES", 3)
    apart = play(agent(randomize), seeds)
    for name in ("lengths", "seconds", "won", "died", "boss_hp", "player_hp", "terms"):
        assert np.array_equal(getattr(together, name), getattr(apart, name)), name
