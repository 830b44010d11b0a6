"""What a boss can do by its data alone: charge, breathe, build up a status, rage, reach to its side."""

from __future__ import annotations

import re
from math import floor
from pathlib import Path

import numpy as np
import pytest

from fakes.simulator import Course, open_fight, press
from soulsgraph_envs.core import config
from soulsgraph_envs.core.errors import DataError
from soulsgraph_envs.core.scenario import HitWindow, Scenario, load_boss, load_player, load_scenario
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.layout import NO_MOVE, PlayerPose, frames

SCENARIO, BOSS, PLAYER = load_scenario("vordt"), load_boss("vordt"), load_player("knight")
CENTRE = SCENARIO.arena.centre_m
CONTACT_M = BOSS.radius_m + PLAYER.body.radius_m
HP = PLAYER.body.hp


def fight(lanes: int = 1, scenario: Scenario = SCENARIO, **fields: object) -> Simulator:
    """Open a fight frame by frame: the boss 6 m south of the player, both at rest; `fields` set."""
    return open_fight(scenario, lanes, **fields)


def wait(sim: Simulator, count: int) -> Course:
    """Let frames pass; raw values (frames, lanes, 25)."""
    return press(sim, Control.NONE, count)


def lane(sim: Simulator, field: str) -> float:
    return float(sim.get_state()["fights"][field][0])


def move(title: str) -> int:
    return [m.title for m in BOSS.moves].index(title)


def window(title: str) -> HitWindow:
    return BOSS.moves[move(title)].windows[0]


def stretched(seconds: float) -> int:
    return frames(seconds * BOSS.time_factor)


def about(to_strike: str, **fields: object) -> Simulator:
    """Open a fight in the frame in which a move's first window opens."""
    return fight(move=move(to_strike), move_frame=stretched(window(to_strike).time_s[0]), **fields)


class TestCharge:
    def charging(self, **fields: object) -> Simulator:
        return fight(move=move("charge"), move_frame=stretched(BOSS.moves[move("charge")].lunge_s[0]), **fields)

    def length_frames(self) -> int:
        start, end = BOSS.moves[move("charge")].lunge_s
        return stretched(end) - stretched(start)

    def test_it_runs_straight_through_where_the_player_stood(self) -> None:
        sim = self.charging(invulnerable=1000)
        course = wait(sim, self.length_frames())[:, 0]
        ran = BOSS.moves[move("charge")].lunge_m_s * self.length_frames() / 60
        assert course[-1, Raw.BOSS_Y] == pytest.approx(CENTRE[1] - 6.0 + ran)
        assert course[-1, Raw.BOSS_Y] > CENTRE[1] + CONTACT_M
        assert course[:, Raw.BOSS_X] == pytest.approx(CENTRE[0])
        assert (course[:, Raw.PLAYER_Y] == CENTRE[1]).all()

    def test_it_does_not_turn_after_a_player_who_steps_aside(self) -> None:
        course = wait(self.charging(player_x=CENTRE[0] + 4.0), self.length_frames())[:, 0]
        assert course[:, Raw.BOSS_X] == pytest.approx(CENTRE[0])
        assert (course[:, Raw.PLAYER_HP] == HP).all()

    def test_it_hits_once_on_its_way(self, tmp_path: Path) -> None:
        frail = tmp_path / "frail.toml"
        hurt = "[hurt]\ninvulnerable_s = [0.0, 0.0]\npush_m_s = [0.0, 0.0]"
        frail.write_text(f'based_on = "knight"\nname = "Frail"\n{hurt}', encoding="utf-8")
        scenario = tmp_path / "frail-vordt.toml"
        scenario.write_text('based_on = "vordt"\nname = "frail"\nplayer = "frail.toml"', encoding="utf-8")
        hp = wait(self.charging(scenario=load_scenario(scenario)), self.length_frames())[:, 0, Raw.PLAYER_HP]
        hits = np.flatnonzero(np.diff(hp, prepend=HP) < 0)
        assert len(hits) == 1
        assert HP - hp[-1] == pytest.approx(window("charge").damage * BOSS.damage_factor, rel=BOSS.damage_spread, abs=1)

    def test_a_lunge_stops_at_the_body(self) -> None:
        thrust = BOSS.moves[move("thrust")]
        sim = fight(
            move=move("thrust"), move_frame=stretched(thrust.lunge_s[0]), boss_y=CENTRE[1] - 2.5, invulnerable=1000
        )
        course = wait(sim, stretched(thrust.lunge_s[1]) - stretched(thrust.lunge_s[0]))[:, 0]
        gaps = course[:, Raw.PLAYER_Y] - course[:, Raw.BOSS_Y]
        assert gaps.min() >= CONTACT_M - 1e-9


class TestBreath:
    every = stretched(window("frost breath").every_s)
    open_frames = stretched(window("frost breath").time_s[1]) - stretched(window("frost breath").time_s[0])

    def breathing(self, **fields: object) -> Simulator:
        return about("frost breath", **{"boss_y": CENTRE[1] - 4.0, **fields})

    def test_it_strikes_at_its_interval_while_it_is_open(self) -> None:
        hp = wait(self.breathing(), self.open_frames + 2 * self.every)[:, 0, Raw.PLAYER_HP]
        hits = np.flatnonzero(np.diff(hp, prepend=HP) < 0)
        assert hits.tolist() == list(range(0, self.open_frames, self.every))

    def test_it_costs_little_and_staggers_nobody(self) -> None:
        course = wait(self.breathing(), self.every)[:, 0]
        assert HP - course[0, Raw.PLAYER_HP] == pytest.approx(window("frost breath").damage, rel=0.15, abs=1)
        assert (course[:, Raw.PLAYER_ANIMATION] == PLAYER.animations.idle.id).all()

    @pytest.mark.parametrize(("aside", "reached"), [(0.9, True), (-0.9, True), (1.1, False), (-1.1, False)])
    def test_it_strikes_within_its_cone_only(self, aside: float, reached: bool) -> None:
        heading = np.pi + aside * window("frost breath").half_arc_rad
        sim = self.breathing(boss_heading=np.arctan2(np.sin(heading), np.cos(heading)))
        assert (wait(sim, self.open_frames)[-1, 0, Raw.PLAYER_HP] < HP) == reached

    def test_it_has_a_reach(self) -> None:
        for beyond, reached in ((-0.1, True), (0.1, False)):
            sim = self.breathing(boss_y=CENTRE[1] - window("frost breath").reach_m - beyond)
            assert (wait(sim, self.open_frames)[-1, 0, Raw.PLAYER_HP] < HP) == reached

    def test_a_roll_passes_the_strikes_of_its_invulnerable_time(self) -> None:
        hp = wait(self.breathing(animation=PlayerPose.ROLL, animation_frame=0), 2 * self.every + 1)[:, 0, Raw.PLAYER_HP]
        immune = frames(PLAYER.roll.invulnerable_s)
        hits = np.flatnonzero(np.diff(hp, prepend=HP) < 0)
        assert hits.tolist() == [frame for frame in range(0, 2 * self.every + 1, self.every) if frame >= immune]


class TestStatus:
    burst = floor(BOSS.status.burst_hp_ratio * HP + 0.5)

    def test_strikes_add_up(self) -> None:
        sim = about("frost breath", boss_y=CENTRE[1] - 4.0)
        wait(sim, 1)
        assert lane(sim, "build_up") == window("frost breath").build_up

    def test_it_decays_to_nothing(self) -> None:
        sim = fight(build_up=6.0)
        wait(sim, 60)
        assert lane(sim, "build_up") == pytest.approx(6.0 - BOSS.status.decay_per_s)
        wait(sim, 120)
        assert lane(sim, "build_up") == 0.0

    @pytest.mark.parametrize(("before", "bursts"), [(-0.1, False), (0.0, True), (30.0, True)])
    def test_it_bursts_at_the_threshold_and_begins_again(self, before: float, bursts: bool) -> None:
        decayed = BOSS.status.decay_per_s / 60
        start = BOSS.status.threshold - window("frost breath").build_up + before + decayed
        sim = about("frost breath", boss_y=CENTRE[1] - 4.0, build_up=start)
        lost = HP - wait(sim, 1)[0, 0, Raw.PLAYER_HP]
        plain = HP - wait(about("frost breath", boss_y=CENTRE[1] - 4.0), 1)[0, 0, Raw.PLAYER_HP]
        assert lost - plain == (self.burst if bursts else 0)  # same stream, so the same blow
        assert (lane(sim, "build_up") == 0.0) == bursts
        assert (lane(sim, "slowed_frames") == frames(BOSS.status.slowed_s)) == bursts

    def test_stamina_comes_back_slowly_for_its_time_only(self) -> None:
        factor, rate = BOSS.status.regeneration_factor, PLAYER.body.regeneration_per_s / 60
        sim = fight(stamina=1.0, slowed_frames=30, slowed_factor=factor)
        stamina = wait(sim, 60)[:, 0, Raw.STAMINA]
        assert stamina[29] == pytest.approx(1.0 + 30 * rate * factor)
        assert stamina[59] == pytest.approx(stamina[29] + 30 * rate)

    def test_a_new_episode_begins_without_it(self) -> None:
        sim = fight(build_up=50.0, slowed_frames=100)
        sim.reset(np.arange(1), SCENARIO, np.zeros(1, np.uint64))
        assert (lane(sim, "build_up"), lane(sim, "slowed_frames")) == (0.0, 0.0)

    def test_it_can_kill_but_not_below_zero(self) -> None:
        sim = about("frost breath", boss_y=CENTRE[1] - 4.0, build_up=BOSS.status.threshold, player_hp=20.0)
        assert wait(sim, 1)[0, 0, Raw.PLAYER_HP] == 0.0


class TestEnraged:
    switch_hp = BOSS.enraged.below_hp_ratio * BOSS.hp_max

    @pytest.mark.parametrize("rages", [False, True])
    def test_moves_are_weighted_by_the_mood(self, rages: bool) -> None:
        lanes, distance_m = 6000, 6.0
        sim = fight(lanes, boss_hp=self.switch_hp - rages, wait=0, boss_y=CENTRE[1] - distance_m)
        shown = wait(sim, 1)[0, :, Raw.BOSS_ANIMATION]
        weights = {
            m.id: m.weight if not rages or m.enraged_weight < 0 else m.enraged_weight
            for m in BOSS.moves
            if m.distance_m[0] <= distance_m <= m.distance_m[1]
        }
        total = sum(weights.values())
        assert set(shown) == {key for key, weight in weights.items() if weight > 0}
        for key, weight in weights.items():
            assert (shown == key).mean() == pytest.approx(weight / total, abs=0.03)  # 4.5 standard errors

    def test_it_hits_harder_below_the_share_and_not_at_it(self) -> None:
        lost = {}
        for hp in (self.switch_hp, self.switch_hp - 1.0):
            sim = about("mace swing", boss_y=CENTRE[1] - 3.0, boss_hp=hp)
            lost[hp] = HP - wait(sim, 1)[0, 0, Raw.PLAYER_HP]
        factor = lost[self.switch_hp - 1.0] / lost[self.switch_hp]
        assert factor == pytest.approx(BOSS.enraged.damage_factor, abs=0.02)  # same stream, whole points

    def test_it_chains_more_often_and_waits_less(self) -> None:
        ending = stretched(BOSS.moves[move("mace swing")].length_s) - 1
        for rages, chance in ((False, BOSS.aggression.chain_chance), (True, BOSS.enraged.chain_chance)):
            sim = fight(
                2000, move=move("mace swing"), move_frame=ending, chain_left=1, boss_hp=self.switch_hp - rages, wait=0
            )
            wait(sim, 1)
            after = sim.get_state()["fights"]
            rests = after["move"] == NO_MOVE
            factor = BOSS.enraged.wait_factor if rages else 1.0
            low, high = (frames(seconds) * factor for seconds in BOSS.aggression.wait_s)
            assert 1 - rests.mean() == pytest.approx(chance, abs=0.05)  # 4.5 standard errors
            assert low - 1 <= after["wait"][rests].min() <= low + 3
            assert high - 3 <= after["wait"][rests].max() <= high + 1

    def test_a_boss_without_a_rage_is_the_same_to_the_end(self) -> None:
        plain = load_scenario("iudex-phase1")
        orders = [wait(fight(64, plain, boss_hp=hp, wait=0), 200)[:, :, Raw.BOSS_ANIMATION] for hp in (1037.0, 1.0)]
        assert (orders[0] == orders[1]).all()


class TestOffset:
    def spared(self, title: str, bearing: float, boss_heading: float) -> bool:
        """Return whether a player touching the boss, `bearing` off its heading, stays unhurt."""
        away = boss_heading + bearing
        x, y = CENTRE[0] + np.sin(away) * CONTACT_M, CENTRE[1] + np.cos(away) * CONTACT_M
        sim = about(title, boss_x=x, boss_y=y, boss_heading=boss_heading)
        return bool(wait(sim, 1)[0, 0, Raw.PLAYER_HP] == HP)

    @pytest.mark.parametrize("heading", [0.0, 1.0, np.pi / 2, -np.pi / 2, np.pi])
    def test_a_slam_behind_spares_the_front_and_a_pound_ahead_the_flanks(self, heading: float) -> None:
        ahead, left, right, behind = 0.0, -np.pi / 2, np.pi / 2, np.pi
        spared_by_pound = [self.spared("mace pound", bearing, heading) for bearing in (ahead, left, right, behind)]
        spared_by_slam = [self.spared("hind slam", bearing, heading) for bearing in (ahead, left, right, behind)]
        assert spared_by_pound == [False, True, True, True]
        assert spared_by_slam == [True, True, True, False]


def test_peeked_hits_come_true() -> None:
    sim = fight(lanes=96, wait=0, boss_y=CENTRE[1] - 3.0, boss_hp=TestEnraged.switch_hp - 1.0)
    wait(sim, 1)
    begins = sim.hits_ahead_s()[:, 0]
    chosen = set(sim.get_state()["fights"]["move"][np.isfinite(begins)])
    assert {move("charge"), move("frost breath")} <= chosen
    hp = wait(sim, 240)[:, :, Raw.PLAYER_HP]
    for struck in np.flatnonzero(np.isfinite(begins)):
        assert np.flatnonzero(hp[:, struck] < HP)[0] == round(begins[struck] * 60)


@pytest.mark.parametrize(
    ("pattern", "replacement", "told"),
    [
        (r"tracks_s = 1\.05", "tracks_s = 1.2", r"moves\[5\]\.runs_through: expected a lunge that begins"),
        (r"lunge_m_s = 10\.0", "lunge_m_s = 0.0", r"moves\[5\]\.runs_through: expected a lunge"),
        (r"every_s = 0\.2", "every_s = 0.02", r"moves\[0\]\.windows\[0\]\.every_s: expected 0, or at least 0\.05"),
        (r"every_s = 0\.2", "every = 0.2", r"moves\[0\]\.windows\[0\]\.every: expected 'every_s'"),
        (r"knockdown = true }", "knockdown = true, staggers = false }", r"staggers: expected true in a window"),
        (r"^below_hp_ratio = .*", "below_hp_ratio = 50", r"enraged\.below_hp_ratio: .*from 0 to 1, found 50"),
        (r"^below_hp_ratio = .*", "below_hp_ratio = 0", r"moves\[0\]\.enraged_weight: expected an enraged boss"),
        (r"^wait_factor = .*", "", r"enraged\.wait_factor: expected a number.*no such key"),
        (r"^threshold = .*", "threshold = 0", r"status\.threshold: .*found 0"),
        (r"^burst_hp_ratio = .*", 'burst_hp_ratio = "all"', r"status\.burst_hp_ratio: expected a number"),
        (r"^\[status\](\n.+)+", "", r"moves\[0\]\.windows\[0\]\.build_up: expected a \[status\] table.*found 15"),
    ],
)
def test_bad_primitive_is_told(tmp_path: Path, pattern: str, replacement: str, told: str) -> None:
    text = config.find("boss", "vordt").read_text(encoding="utf-8")
    changed, count = re.subn(pattern, replacement, text, count=1, flags=re.MULTILINE)
    assert count == 1
    path = tmp_path / "spoilt.toml"
    path.write_text(changed, encoding="utf-8")
    with pytest.raises(DataError, match=told) as caught:
        load_boss(path)
    assert str(path) in str(caught.value)
