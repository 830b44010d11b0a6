"""EldenGym's environments over a Siphon server, whose game is a simulated boss."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from math import dist

import pytest

pytest.importorskip("pysiphon")

from pysiphon import SiphonClient

from fakes.elden_ring import FakeEldenRing
from fakes.siphon import serving
from fakes.waiting import until
from soulsgraph_envs.compat.eldengym import EldenClient, EldenGymEnv
from soulsgraph_envs.compat.eldengym.world import axes, load_fight
from soulsgraph_envs.core.errors import GameError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with serving(FakeEldenRing()) as address:
        yield address


def is_at_title(client: SiphonClient) -> bool:
    return not client.get_attribute("HeroHp")["success"]


def is_behind_the_gate(client: SiphonClient) -> bool:
    place = [client.get_attribute(name)["value"] for name in axes("HeroGlobal")[:2]]
    return 1.5 < dist(place, load_fight("margit").fog_wall_m[:2]) < 9


def test_a_fight_begins_behind_the_fog_wall_again_after_a_death(host: str) -> None:
    with closing(EldenGymEnv(host=host, freeze_game=True)) as env:
        for _ in range(2):
            observation, info = env.reset(seed=0)
            assert not info["simulated"]
            assert info["player_hp"] == info["player_max_hp"]
            assert info["boss_hp"] == info["target_max_hp"] > 0
            assert info["distance"] < 25.0
            assert env.observation_space.contains(observation)
            *_, walked = env.step(3)
            observation, *_, rolled = env.step(9)
            assert rolled["player_animation_id"] != walked["player_animation_id"]
            assert observation["frame"].std() > 0

            def dies() -> bool:
                env.world.write({"HeroHp": 0.0})
                return bool(env.step(0)[2])

            # On a busy machine the player may live again when this looks.
            until(dies)


def test_only_what_is_listed_is_written_and_a_dry_run_writes_nothing(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(EldenGymEnv(host=host, freeze_game=True)) as env:
        env.reset(seed=0)
        with pytest.raises(GameError, match="HeroMaxHp"):
            env.client.set_attribute("HeroMaxHp", 1.0)
        env.client.set_attribute("HeroHp", 300.0)
        assert env.client.player_hp == 300
    with closing(EldenGymEnv(host=host, dry_run=True)) as dry:
        dry.reset(seed=0)
        dry.client.set_attribute("HeroHp", 7.0)
        assert dry.client.player_hp != 7
    assert {"fill_hp", "set_attribute"} <= {word.strip(":,") for word in caplog.text.split()}


class Hurried(EldenClient):
    """A client that waits a third of the time, and may have to retry on a slow machine."""

    def quits(self) -> bool:
        if not is_at_title(self):
            self.set_player_hp(self.player_max_hp)
            self.quit_to_title()
        return is_at_title(self)

    def enters(self) -> bool:
        self.start_scenario("Margit-v0")
        return is_behind_the_gate(self)

    def wait(self, seconds: float) -> None:
        super().wait(seconds / 3)


def test_the_client_of_a_server_has_the_names_of_the_original(host: str) -> None:
    with Hurried(host) as client:
        assert client.load_config_from_file("ER_1_16_1.toml")["capture"]["success"]
        client.set_target_hp(1500)
        until(lambda: client.target_hp <= 1500)
        client.set_game_speed(2.0)
        assert client.get_attribute("gameSpeedVal")["value"] == 2.0
        until(client.enters)
        assert client.get_frame().shape == (450, 800, 3)
        until(client.quits)
        with pytest.raises(GameError, match="HeroHp"):
            _ = client.player_hp
        # A reset waits for a game that loads.
        with closing(EldenGymEnv(host=host)) as env, ThreadPoolExecutor(1) as threads:
            entering = threads.submit(client.enter_menu)
            _, info = env.reset(seed=0)
            entering.result()
        assert info["player_hp"] == info["player_max_hp"]
        assert info["boss_hp"] == info["target_max_hp"] > 1500
