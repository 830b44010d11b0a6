"""EldenGym's environments over a Siphon server: a stand-in game plays Elden Ring."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from math import dist

import numpy as np
import pytest

pytest.importorskip("pysiphon")
pytest.importorskip("Xlib")

from pysiphon import SiphonClient

from fakes.served_stand_in import served_stand_in
from fakes.waiting import until
from soulsgraph_envs.compat import eldengym
from soulsgraph_envs.compat.eldengym import EldenClient, EldenGymEnv
from soulsgraph_envs.compat.eldengym.env import OptionError
from soulsgraph_envs.compat.eldengym.world import axes, load_fight
from soulsgraph_envs.core.config import find
from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.games.standin.launch import ServingOptions, StandInOptions
from soulsgraph_envs.games.x11 import XTestDevice

pytestmark = pytest.mark.slow
MAP = "elden-ring-1.16.1"


@pytest.fixture(scope="module")
def host(screen: str) -> Iterator[str]:
    serving, options = (
        ServingOptions("127.0.0.1:0", display=screen),
        StandInOptions(map=MAP, at="bonfire", display=screen),
    )
    with served_stand_in(serving, options) as served:
        yield served.server.address


def is_at_title(client: SiphonClient) -> bool:
    return not client.get_attribute("HeroHp")["success"]


def is_behind_the_gate(client: SiphonClient) -> bool:
    place = [client.get_attribute(name)["value"] for name in axes("HeroGlobal")[:2]]
    return 1.5 < dist(place, load_fight("margit").fog_wall_m[:2]) < 9


def test_a_fight_begins_behind_the_fog_wall_again_after_a_death(host: str) -> None:
    env = EldenGymEnv(host=host, max_step=500)
    for _ in range(2):
        observation, info = env.reset(seed=0)
        assert not info["simulated"]
        assert info["player_hp"] == info["player_max_hp"]
        assert info["boss_hp"] == info["target_max_hp"] > 0
        assert info["distance"] < 25.0
        assert env.observation_space.contains(observation)

        def dies() -> bool:
            env.world.write({"HeroHp": 0.0})
            return bool(env.step(0)[2])

        # On a busy machine the player may live again when this looks.
        until(dies)
    env.close()


def test_who_walks_away_from_the_fog_wall_tries_again(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(EldenGymEnv(host=host)) as env:
        enter, tries = env.world.start_scenario, []

        def start_scenario(name: str) -> None:
            tries.append(name)
            enter(name)
            if len(tries) == 1:
                x, y, z = load_fight("margit").fog_wall_m
                env.world.teleport(x + 3.0, y - 2.0, z)

        env.world.teleport(60.0, -36.0, -8.0)
        monkeypatch.setattr(env.world, "start_scenario", start_scenario)
        assert env.reset(seed=0)[1]["distance"] < 25.0
        assert len(tries) >= 2


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


def test_keys_are_held_and_let_go_at_the_end(host: str, screen: str) -> None:
    with closing(XTestDevice(screen)) as keyboard:
        # A key left down would lead the fights after this one astray.
        with closing(eldengym.make("Margit-v0", host=host, actions=["move_left", "skill"])) as env:
            observation, _ = env.reset(seed=0)
            start = np.array([observation["player_x"], observation["player_y"]])
            for _ in range(40):
                observation, *_ = env.step(np.array([1, 0]))
            assert np.hypot(*(np.array([observation["player_x"], observation["player_y"]]) - start)) > 0.5
            assert keyboard.down() == ("a",)
        assert keyboard.down() == ()


def test_only_what_is_listed_is_written_and_a_dry_run_writes_nothing(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    env = EldenGymEnv(host=host, freeze_game=True)
    env.reset(seed=0)
    with pytest.raises(GameError, match="operation set_attribute: expected fields of HeroHp"):
        env.client.set_attribute("HeroMaxHp", 1.0)
    env.client.set_attribute("HeroHp", 300.0)
    assert env.client.player_hp == 300
    env.close()
    dry = EldenGymEnv(host=host, dry_run=True)
    dry.reset(seed=0)
    dry.client.set_attribute("HeroHp", 7.0)
    assert dry.client.player_hp != 7
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


def test_the_calls_of_a_stock_reset_restart_the_fight_and_a_step_after_death_has_readings(host: str) -> None:
    """Make version 0.6.0's calls by Siphon's own client, with shorter waits between them."""
    observed = ("HeroHp", "HeroMaxHp", "NpcHp", "NpcMaxHp", "HeroAnimId", "NpcAnimId")
    observed += (*axes("HeroGlobal"), *axes("HeroLocal"), *axes("NpcGlobal"))
    with SiphonClient(host) as client:

        def read(name: str) -> float:
            answer = client.get_attribute(name)
            return float(answer["value"]) if answer["success"] else -1.0

        def place(who: str) -> list[float]:
            return [read(name) for name in axes(who)]

        def tap(*keys: str, hold_ms: int = 50, delay_ms: int = 0) -> None:
            assert client.input_key_tap(list(keys), hold_ms, delay_ms)["success"]
            time.sleep(0.2)

        assert client.init_all(str(find("attribute file", MAP)), wait_time=0.0)

        def quits() -> bool:
            for key in ("ESC", "UP_ARROW", "E", "Z", "E", "LEFT_ARROW", "E"):
                client.set_attribute("HeroHp", int(read("HeroMaxHp")), "int")
                tap(key)
            return is_at_title(client)

        def enters() -> bool:
            fog, here = load_fight("Margit-v0").fog_wall_m, place("HeroGlobal")
            for name, local, now, there in zip(axes("HeroLocal"), place("HeroLocal"), here, fog, strict=True):
                assert client.set_attribute(name, local + there - now, "float")["success"]
            assert client.move_mouse(1000, 0, 1)["success"]
            tap("W", "E", hold_ms=200, delay_ms=200)
            time.sleep(3.0)
            return is_behind_the_gate(client)

        until(lambda: client.set_attribute("NpcHp", 1500, "int")["success"] and 0 < read("NpcHp") <= 1500)
        # More than once: whoever is rising, or played by a slow machine, does not hear of keys yet.
        until(quits)
        for _ in range(3):
            tap("ENTER", hold_ms=200)
        until(lambda: read("NpcHp") == read("NpcMaxHp") > 0)
        until(enters)
        tap("B", hold_ms=200)
        assert read("HeroHp") > 0

        client.set_attribute("HeroHp", 0, "int")
        until(lambda: read("HeroHp") == 0)
        seen: set[float] = {0}
        while len(seen) < 2:
            answers = [client.get_attribute(name) for name in observed]
            assert all(answer["success"] for answer in answers), [answer["message"] for answer in answers]
            seen.add(answers[0]["value"])
        assert seen == {0, read("HeroMaxHp")}


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
        assert client.target_player_distance == pytest.approx(
            float(np.linalg.norm(np.subtract(client.local_player_coords, client.global_target_coords))), abs=3.0
        )
        client.set_target_hp(1500)
        until(lambda: client.target_hp <= 1500)
        client.set_game_speed(2.0)
        assert client.get_attribute("gameSpeedVal")["value"] == 2.0
        until(client.quits)
        with pytest.raises(GameError, match="HeroHp failed"):
            _ = client.player_hp
        client.enter_menu()
        until(lambda: not is_at_title(client))
        assert client.target_hp == client.target_max_hp > 1500
        until(client.enters)
        assert client.get_frame().shape == (450, 800, 3)
        for refused in (client.launch_game, lambda: client.copy_save_file("margit.sl2")):
            with pytest.raises(GameError, match="by hand"):
                refused()


def test_a_reset_waits_for_a_game_that_loads(host: str) -> None:
    env = EldenGymEnv(host=host)
    with Hurried(host) as client:
        until(client.quits)
        with ThreadPoolExecutor(1) as threads:
            entering = threads.submit(client.enter_menu)
            _, info = env.reset(seed=0)
            entering.result()
    assert info["player_hp"] == info["player_max_hp"]
    assert info["boss_hp"] == info["target_max_hp"]
    env.close()


@pytest.mark.filterwarnings("ignore::soulsgraph_envs.compat.eldengym.env.SimulatedGameWarning")
def test_the_documentations_attack_by_mouse_is_one_in_the_stand_in(host: str) -> None:
    simulated, served = EldenGymEnv(driver="simulator"), EldenGymEnv(host=host)
    simulated.reset(seed=0)
    heavy_attack = simulated.step(11)[4]["player_animation_id"]
    assert heavy_attack != simulated.reset(seed=0)[1]["player_animation_id"]
    served.reset(seed=0)
    # The mouse turns the camera on the way to a fight, and is pressed in the window all the same.
    assert heavy_attack in [served.step(11)[4]["player_animation_id"] for _ in range(5)]
    served.close()


def test_options_that_a_server_cannot_have_are_refused(host: str) -> None:
    with pytest.raises(OptionError, match="save_file_name: expected None"):
        eldengym.make("Margit-v0", host=host, save_file_name="margit.sl2")
