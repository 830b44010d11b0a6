"""SoulsGym's environment of Vordt: its public figures, on the simulator and on a running game."""

import gymnasium
import numpy as np
import pytest

from fakes.realtime import FakeLink, FakeTime
from fakes.soulsgym import standing
from soulsgraph_envs.compat.soulsgym import IudexEnv, VordtEnv
from soulsgraph_envs.compat.soulsgym.fight import DATA, NOTHING
from soulsgraph_envs.compat.soulsgym.worlds import LiveWorld
from soulsgraph_envs.core.scenario import load_boss
from soulsgraph_envs.games.link import GameSettings


class VordtLink(FakeLink):
    """A game with Vordt, at his place."""

    encounter = "vordt-in-place"


def test_vordts_shape_is_soulsgyms():
    spaces = VordtEnv().observation_space.spaces
    assert set(spaces) - set(IudexEnv().observation_space.spaces) == {"frost_resistance", "frost_effect"}
    assert spaces["boss_animation"] == gymnasium.spaces.Discrete(28, start=-1)
    assert spaces["boss_max_hp"] == gymnasium.spaces.Discrete(1, start=1328)
    assert spaces["frost_resistance"] == spaces["frost_effect"] == gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    assert spaces["player_pose"].low[:3] == pytest.approx([13, -7, -27])


def test_vordts_blows_use_up_the_share_of_the_resistance_that_is_left():
    env = VordtEnv()
    shown, _ = env.reset(seed=0)
    assert [*shown["player_pose"][:2], *shown["boss_pose"][:2]] == pytest.approx([28.24, 37.0, 27.0, 2.0])
    assert (shown["lock_on"], shown["boss_hp"][0], shown["frost_resistance"][0]) == (1, 1328, 1)
    env.world.game.override(0, boss_x=28.0, boss_y=34.0)
    threshold, left = load_boss("vordt").status.threshold, []
    for _ in range(150):
        env.world.game.override(0, player_hp=454.0)
        env.step(NOTHING)
        left.append(env.obs["frost_resistance"][0])
        assert left[-1] == pytest.approx(1 - env.world.game.values(0)["build_up"] / threshold)
    assert min(left) < 0.9


def test_vordts_reward_has_no_term_for_the_place():
    near, far = (standing(player_pose=np.array([27.5, y, -26.0, 0.0])) for y in (19.5, 37.0))
    assert VordtEnv.compute_reward(far, near) == 0
    assert IudexEnv.compute_reward(far, near) != 0
    assert VordtEnv.compute_reward(near, standing(boss_hp=0.0)) == pytest.approx(1.1)


def test_vordt_is_fought_at_his_own_place_with_his_own_numbers():
    time = FakeTime()
    link = VordtLink(time, scenario=str(DATA / "scenarios" / "vordt-phase1.toml"))
    env = VordtEnv(world=LiveWorld(link, GameSettings(), refills=True, clock=time.clock))
    shown, _ = env.reset(seed=0)
    assert [*shown["player_pose"][:3], *shown["boss_pose"][:2]] == pytest.approx([28.24, 37, -26, 27, 2], abs=0.6)
    assert (shown["boss_hp"][0], shown["frost_resistance"][0]) == (1328, 1)
    numbers, attacks = set(), set(range(14))
    while not numbers & attacks:
        numbers.add(int(env.step(0)[0]["boss_animation"]))
    assert -1 not in numbers
    link.stray = {"frost_resistance": 20.0, "frost_resistance_max": 80.0}
    assert env.step(NOTHING)[0]["frost_resistance"] == [0.25]
