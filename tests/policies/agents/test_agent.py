"""An agent, and what may play in place of a skill's network."""

from dataclasses import replace

import pytest

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agents.agent import Agent


def test_a_skill_is_left_idle_only_if_it_has_an_action_that_does_nothing():
    scenario, camera = load_scenario("iudex-phase1"), make_skill("camera")
    busy = replace(camera, actions=tuple(action for action in camera.actions if action.holds | action.presses))
    for skill, replaced in ((busy, "random"), (camera, "idle")):
        Agent(scenario, (skill,), replaced={"camera": replaced}).rollout(make_game())
    agent = Agent(scenario, (busy,), replaced={"camera": "idle"})
    with pytest.raises(SoulsGraphError, match="camera"):
        agent.rollout(make_game())
