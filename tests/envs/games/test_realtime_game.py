"""A driver of a real-time game, against the stand-in's world on a clock of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fakes.realtime import FakeLink, FakeTable, FakeTime
from soulsgraph_envs.core.errors import EpisodeLostError, GameError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.games.episode_start import draw_start
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.games.live_game import LiveGame
from soulsgraph_envs.testing import check_game

SCENARIO = load_scenario("iudex-phase1")


def test_live_game_is_seen_where_its_link_sees_it() -> None:
    time = FakeTime()
    game = LiveGame(FakeLink(time), GameSettings(), time.clock)
    with pytest.raises(GameError, match="reset"):
        game.render()
    check_game(lambda _: game, lanes=1)
    assert game.capabilities.can_render


#: A player whose camera keys turn it the other way.
REVERSED = 'based_on = "knight"\nname = "x"\nscaled.camera.yaw_rad_s = -1.0\n'


@pytest.mark.parametrize(("start", "player"), [("mid", ""), ("scattered", ""), ("scattered", REVERSED)])
def test_an_episode_after_a_fight_begins_where_the_simulator_begins_it(tmp_path: Path, start: str, player: str) -> None:
    (tmp_path / "player.toml").write_text(player or 'based_on = "knight"\nname = "x"\n')
    fight = tmp_path / "fight.toml"
    fight.write_text(f'based_on = "iudex-phase1"\nname = "x"\nplayer = "player.toml"\nstart = "{start}"\n')
    scenario, table = load_scenario(fight), FakeTable(scenario=str(fight))
    table.reset(scenario)
    table.play(Control.FORWARD | Control.LIGHT_ATTACK | Control.USE_ITEM, 40)
    raw, drawn = table.reset(scenario, seed=1)[0], draw_start(scenario, derive_seeds(np.array([1]), 1))
    places = [Raw[f"{who}_{axis}"] for who in ("PLAYER", "BOSS") for axis in "XY"]
    np.testing.assert_allclose(raw[places], drawn[places], atol=0.2)
    np.testing.assert_allclose(raw[Raw.CAMERA_X : Raw.CAMERA_Z + 1], drawn[Raw.CAMERA_X : Raw.CAMERA_Z + 1], atol=0.16)
    assert raw[Raw.PLAYER_HP] == raw[Raw.PLAYER_HP_MAX]
    assert (raw[Raw.BOSS_HP], raw[Raw.FLASKS], raw[Raw.LOCKED]) == (1037.0, 1.0, 0.0)


def test_a_tick_is_a_tenth_of_a_game_second_at_any_speed() -> None:
    for speed in (1.0, 3.0):
        table = FakeTable(GameSettings(speed=speed))
        table.reset()
        here_s, frames = table.time.now_s, table.link.world.frames
        for _ in range(30):
            table.step()
        assert table.time.now_s - here_s == pytest.approx(3.0 / speed, rel=0.01)
        assert table.link.world.frames - frames == pytest.approx(180, abs=2)


def test_boss_is_held_at_its_floor_but_shown_below_and_a_player_kept_alive_by_a_point_counts_as_dead(
    table: FakeTable,
) -> None:
    table.link.world.write({"boss_hp": 600.0, "player_hp": 1.0})
    raw = table.step()[0]
    assert (raw[Raw.BOSS_HP], raw[Raw.PLAYER_HP]) == (600.0, 0.0)
    assert table.link.read()["boss_hp"] == 622.0


def test_phases_are_entered_by_the_transition_and_left_by_a_reload() -> None:
    table = FakeTable(scenario="iudex-full")
    phase_and_loads = []
    # Twice, for from the second phase the boss need not be brought back.
    for name in ("iudex-phase2", "iudex-phase2", "iudex-phase1", "iudex-full"):
        hp = table.reset(load_scenario(name))[0, Raw.BOSS_HP]
        phase_and_loads.append((int(table.link.world.simulator.phases()[0]), table.link.world.loads, hp))
    assert phase_and_loads == [(2, 0, 560.0), (2, 0, 560.0), (1, 1, 1037.0), (1, 1, 1037.0)]
    table.link.world.write({"boss_hp": 400.0})
    seen = {int(table.step()[0, Raw.BOSS_ANIMATION]) for _ in range(120)}
    assert 20 in seen
    assert table.link.world.simulator.phases()[0] == 2


def test_a_phase_that_the_scenario_does_not_have_ends_the_episode() -> None:
    table = FakeTable(scenario="iudex-full")
    table.reset(SCENARIO)
    table.link.world.write({"boss_hp": 300.0})
    with pytest.raises(EpisodeLostError, match="phase"):
        table.play(Control.NONE, 80)
    table.reset(SCENARIO)
    assert table.link.world.loads == 1


@pytest.mark.parametrize("at_bonfire", [True, False])
def test_a_boss_that_was_never_met_is_woken(at_bonfire: bool) -> None:
    table = FakeTable(at_bonfire=at_bonfire, met=False)
    table.reset()
    assert table.link.world.fighting
    table.reset(seed=1)
    assert table.link.world.loads == 1


def test_a_beaten_boss_is_brought_back(table: FakeTable) -> None:
    table.link.world.write({"no_death": 0.0, "boss_hp": 0.0})
    table.play(Control.NONE, 1)
    table.reset()
    assert (table.link.world.loads, table.link.read()["boss_hp"]) == (1, 1037.0)


def test_dry_run_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    table = FakeTable(GameSettings(dry_run=True))
    table.reset()
    table.step()
    assert table.link.writes_log == []
    assert "would write" in caplog.text


def test_keys_come_up_and_the_game_gets_its_own_rules_back_when_it_is_closed() -> None:
    table = FakeTable(GameSettings(speed=3.0))
    table.reset()
    table.step(Control.FORWARD | Control.CAMERA_LEFT)
    assert table.link.keys.down
    table.game.close()
    assert table.link.keys.down == set()
    rules = ("no_death", "no_attack", "no_move", "no_damage", "game_speed")
    assert [table.link.world.switches[rule] for rule in rules] == [0.0, 0.0, 0.0, 0.0, 1.0]


def test_game_whose_factor_counts_only_when_switched_on_stands_still(table: FakeTable) -> None:
    table.link.world.switches["game_speed_on"] = 0.0
    table.game.stand_still(True)
    assert table.link.world.speed == 0.0
    table.game.stand_still(False)
    assert table.link.world.speed == 1.0


@pytest.mark.parametrize(
    ("stray", "named"),
    [({"boss_name": "c2240"}, "c2240"), ({"boss_hp_max": 3561.0}, "3561"), ({"online": 1.0}, "offline")],
)
def test_another_game_than_the_scenarios_is_refused_and_nothing_is_written(
    stray: dict[str, float | str], named: str
) -> None:
    table = FakeTable()
    table.link.stray.update(stray)
    with pytest.raises(GameError, match=named):
        table.reset()
    written = {name for values in table.link.writes_log for name in values}
    assert written <= (set() if "online" in stray else {"game_speed", "game_speed_on"})


@pytest.mark.parametrize("field", ["boss_x", "player_angle"])
def test_a_map_that_cannot_place_anyone_is_refused(field: str) -> None:
    time = FakeTime()
    with pytest.raises(GameError, match=field):
        LiveGame(FakeLink(time, without=frozenset({field})), GameSettings(), time.clock)


def test_a_step_needs_an_episode_and_controls_with_a_key() -> None:
    table = FakeTable()
    with pytest.raises(GameError, match="reset"):
        table.step()
    table.reset()
    assert Control.JUMP not in table.game.capabilities.controls
    with pytest.raises(GameError, match="controls"):
        table.step(Control.JUMP)
    table.link.crashed = True
    with pytest.raises(EpisodeLostError):
        table.step()
    with pytest.raises(GameError, match="reset"):
        table.step()


def test_what_a_reading_says_beside_its_raw_values_is_kept_before_a_refill() -> None:
    table = FakeTable(scenario="iudex-phase1")
    assert table.game.measurement is None
    table.reset(replace(SCENARIO, refill=True))
    measured = [table.game.measurement]
    table.link.world.write({"boss_hp": 700.0})
    assert table.step()[0, Raw.BOSS_HP] == table.link.read()["boss_hp"] == 1037.0
    measured.append(table.game.measurement)
    for _ in range(120):
        assert table.step(Control.FORWARD)[0, Raw.PLAYER_HP] == 454.0
        measured.append(table.game.measurement)
    first = measured[0]
    assert (first.elapsed_s, first.phase, first.player_hp) == (0.0, 1, 454.0)
    assert first.boss_animation
    hp = [each.player_hp for each in measured[1:]]
    assert 0.0 <= min(hp) < 454.0 == max(hp)
    times = np.array([(each.elapsed_s, each.game_s) for each in measured])
    np.testing.assert_allclose(np.diff(times, axis=0), 0.1, atol=1 / 59)
    assert table.game.unknown_animations() == {}
