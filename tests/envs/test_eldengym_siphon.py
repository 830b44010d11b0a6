"""EldenGym's environments over a Siphon server: a stand-in game plays Elden Ring."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("pysiphon")
pytest.importorskip("Xlib")

from soulsgraph_envs import eldengym
from soulsgraph_envs.eldengym import EldenGymEnv
from soulsgraph_envs.errors import GameError, UnknownNameError
from soulsgraph_envs.keys.testing import virtual_screen
from soulsgraph_envs.siphon.lasting_stand_in import LastingStandIn
from soulsgraph_envs.siphon.server import SiphonServer
from soulsgraph_envs.siphon.serving import Serving
from soulsgraph_envs.standin.options import StandInOptions

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with (
        virtual_screen() as display,
        LastingStandIn(StandInOptions(map="elden-ring-1.16.1", at="bonfire", display=display)) as game,
    ):
        server = SiphonServer(Serving("127.0.0.1:0", display=display), game.pid, captured_slots=True)
        yield server.address
        server.close()


def test_a_fight_begins_behind_the_fog_wall_again_after_a_death(host: str) -> None:
    env = EldenGymEnv(host=host, max_step=500)
    for _ in range(2):
        observation, info = env.reset(seed=0)
        assert not info["simulated"]
        assert info["player_hp"] == info["player_max_hp"]
        assert info["boss_hp"] == info["target_max_hp"] > 0
        assert info["distance"] < 25.0
        assert env.observation_space.contains(observation)
        env.world.write({"HeroHp": 0.0})
        assert env.step(0)[2]
    env.close()


def test_the_same_agent_walks_rolls_and_sees_itself_do_it(host: str) -> None:
    env = EldenGymEnv(host=host, freeze_game=True)
    env.reset(seed=0)
    idle = env.step(0)[4]
    observation, _, _, _, walked = env.step(3)
    *_, rolled = env.step(9)
    assert rolled["player_animation_id"] not in (idle["player_animation_id"], walked["player_animation_id"])
    assert isinstance(observation, dict)
    assert observation["frame"].std() > 0
    env.close()


def test_a_frozen_game_stands_still_between_steps(host: str) -> None:
    env = EldenGymEnv(host=host, freeze_game=True)
    env.reset(seed=0)
    env.step(1)
    places = []
    for _ in range(2):
        places.append(env.world.read(["HeroGlobalPosX", "HeroGlobalPosY", "NpcGlobalPosX", "NpcGlobalPosY"]))
        env.world.wait(0.5)
    assert list(places[0].values()) == pytest.approx(list(places[1].values()), abs=0.01)
    env.close()


def test_keys_are_held_and_let_go_at_the_end(host: str) -> None:
    env = eldengym.make("Margit-v0", host=host, actions=["move_left", "skill"])
    observation, _ = env.reset(seed=0)
    start = np.array([observation["player_x"], observation["player_y"]])
    for _ in range(40):
        observation, *_ = env.step(np.array([1, 0]))
    assert np.hypot(*(np.array([observation["player_x"], observation["player_y"]]) - start)) > 0.5
    env.close()
    again = eldengym.make("Margit-v0", host=host)
    still = [again.reset(seed=0)[0]]
    for _ in range(20):
        still.append(again.step(np.zeros(13, np.int8))[0])
    assert still[-1]["player_x"] == pytest.approx(still[5]["player_x"], abs=0.2)
    again.close()


def test_only_what_is_listed_is_written_and_a_dry_run_writes_nothing(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    env = EldenGymEnv(host=host)
    env.reset(seed=0)
    with pytest.raises(GameError, match="operation set_attribute: expected fields of HeroHp"):
        env.client.set_attribute("HeroMaxHp", 1.0)
    env.client.set_attribute("HeroHp", 300.0)
    assert env.client.player_hp == 300
    env.close()
    dry = EldenGymEnv(host=host, dry_run=True)
    dry.reset(seed=0)
    dry.client.set_attribute("HeroHp", 200.0)
    assert dry.client.player_hp > 200
    assert "dry run: fill_hp" in caplog.text
    assert "dry run: set_attribute" in caplog.text
    dry.close()


def test_what_the_server_or_its_map_lacks_is_refused(host: str) -> None:
    with pytest.raises(UnknownNameError, match="fight of Elden Ring"):
        EldenGymEnv("radahn", host=host)
    with pytest.raises(UnknownNameError, match="memory attribute"):
        eldengym.make("Margit-v0", host=host, memory_attributes=["Flasks"])
    env = EldenGymEnv(host=host)
    env.close()
    with pytest.raises(GameError):
        env.reset(seed=0)
