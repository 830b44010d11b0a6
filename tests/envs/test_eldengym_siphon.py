"""EldenGym's environments over a Siphon server: a stand-in game plays Elden Ring."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("pysiphon")
pytest.importorskip("Xlib")

from soulsgraph_envs import eldengym
from soulsgraph_envs.eldengym import EldenGymEnv
from soulsgraph_envs.eldengym.fights import load_fight
from soulsgraph_envs.errors import GameError, UnknownNameError
from soulsgraph_envs.keys.testing import virtual_screen
from soulsgraph_envs.siphon.server import SiphonServer
from soulsgraph_envs.siphon.serving import Serving
from soulsgraph_envs.siphon.stand_in_process import StandInProcess
from soulsgraph_envs.standin.options import StandInOptions

pytestmark = pytest.mark.slow

#: The arena of the shipped encounter, its fog gate where EldenGym says that Margit's is.
ENCOUNTER = """
name = "margit at his gate"
based_on = "margit"

[places]
bonfire = [60.0, -36.0, -8.0, 3.1]
gate_outside = [{x}, {y}, -1.0, 3.1]
gate_inside = [{inside_x}, {inside_y}, -1.0, 3.1]
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    x, y, _ = load_fight("margit").fog_wall_m
    encounter = tmp_path_factory.mktemp("encounter") / "margit.toml"
    encounter.write_text(ENCOUNTER.format(x=x, y=y, inside_x=0.8 * x, inside_y=0.8 * y))
    with virtual_screen() as display:
        options = StandInOptions(map="elden-ring-1.16.1", encounter=str(encounter), at="bonfire", display=display)
        with StandInProcess(options) as game:
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


def test_what_the_server_or_its_map_lacks_is_refused(host: str) -> None:
    with pytest.raises(UnknownNameError, match="fight of Elden Ring"):
        EldenGymEnv("radahn", host=host)
    with pytest.raises(UnknownNameError, match="memory attribute"):
        eldengym.make("Margit-v0", host=host, memory_attributes=["Flasks"])
    env = EldenGymEnv(host=host)
    env.close()
    with pytest.raises(GameError):
        env.reset(seed=0)
