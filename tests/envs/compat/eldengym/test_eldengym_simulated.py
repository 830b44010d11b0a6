"""EldenGym's environment on the simulated Margit: the effect of keys, and repeatable fights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from soulsgraph_envs.compat.eldengym import EldenGymEnv
from soulsgraph_envs.compat.eldengym.world import SimulatedFight, load_keys

pytestmark = pytest.mark.filterwarnings("ignore::soulsgraph_envs.compat.eldengym.env.SimulatedGameWarning")


def make(**options: Any) -> EldenGymEnv:
    return EldenGymEnv(**{"driver": "simulator", **options})


def action_named(name: str) -> int:
    return list(load_keys().discrete).index(name)


def fight(env: Any, actions: list[Any], seed: int = 5) -> list[Any]:
    env.reset(seed=seed)
    return [env.step(action) for action in actions]


def test_same_seed_gives_the_same_fights_and_another_seed_others() -> None:
    actions = [int(action) for action in np.random.default_rng(0).integers(0, 14, 25)]
    courses = [[step[4] for step in fight(make(), actions, seed)] for seed in (5, 5, 6)]
    assert courses[0] == courses[1]
    assert courses[0] != courses[2]


def test_half_the_speed_lets_half_the_time_pass() -> None:
    def metres_walked(speed: float) -> float:
        env = make(game_speed=speed)
        env.reset(seed=1)
        before = env.world.read(["HeroGlobalPosX", "HeroGlobalPosY"])
        env.step(action_named("left"))
        after = env.world.read(["HeroGlobalPosX", "HeroGlobalPosY"])
        return float(np.hypot(*(after[name] - before[name] for name in before)))

    whole, half = metres_walked(1.0), metres_walked(0.5)
    assert whole > 1.0
    assert half == pytest.approx(whole / 2, rel=0.15)


def test_every_key_does_something_but_those_that_are_told() -> None:
    world = SimulatedFight("margit", (36, 36))

    def course(*keys: str) -> dict[str, float]:
        world.begin(1)
        world.input_key_tap(keys, 500, 0)
        return world.read(sorted(world.attributes))

    keys = ("W", "A", "S", "D", "SPACE", "LEFT_SHIFT", "E", "LEFT_ALT", "R", "F", "LEFT", "P", "L", "B", "C")
    idle = course()
    assert [key for key in keys if course(key) == idle] == ["E", "LEFT_ALT", "C"]
    # A heavy attack in place of a light one.
    assert course("LEFT_ALT", "LEFT") != course("LEFT")


def test_what_is_written_into_the_fight_is_read_back() -> None:
    world = SimulatedFight("margit", (36, 36))
    world.begin(1)
    world.write({"HeroHp": 100.0, "NpcHp": 500.0})
    place = world.global_player_coords
    world.teleport(place[0] + 2.0, place[1] - 1.0, place[2])
    assert (world.player_hp, world.target_hp) == (100, 500)
    assert world.global_player_coords[:2] == pytest.approx((place[0] + 2.0, place[1] - 1.0))
