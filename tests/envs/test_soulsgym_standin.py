"""SoulsGym's environment over a real program: memory read, keys pressed, its clock stopped between steps."""

import sys

import gymnasium
import numpy as np
import pytest

import soulsgraph_envs.soulsgym  # noqa: F401 - registers the environments
from soulsgraph_envs.keys.testing import virtual_screen
from soulsgraph_envs.soulsgym.data import DATA
from soulsgraph_envs.standin.options import StandInOptions
from soulsgraph_envs.standin.process import StandInProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads another process's memory as Linux gives it"),
]


def test_an_agent_plays_the_stand_in_through_memory_and_keys(tmp_path):
    games = tmp_path / "games.toml"
    scenario = str(DATA / "scenarios" / "iudex-full.toml")
    with virtual_screen() as display:
        options = StandInOptions(map="stand-in", scenario=scenario, display=display, settings=games)
        with StandInProcess(options):
            env = gymnasium.make("soulsgraph/SoulsGymIudex-v0", driver="memory", games=games, game_speed=2.0)
            shown, info = env.reset(seed=0)
            assert (shown["lock_on"], shown["boss_hp"][0]) == (1, 1037)
            seen = set()
            rng = np.random.default_rng(0)
            for _ in range(80):
                action = rng.choice([0, 0, *info["allowed_actions"]])
                shown, _, terminated, _, info = env.step(action)
                assert env.observation_space.contains(shown)
                seen.add(env.unwrapped.game_state.player_animation)
                if terminated:
                    break
            env.close()
    assert len(seen & {"Move", "RollingMedium", "AttackRightLight1", "AttackRightHeavy1Sta", "ParryLeftStart"}) > 2
