"""What a boss can do by its data alone: build up a status, rage, reach to its side."""

from __future__ import annotations

from functools import partial
from math import floor

import numpy as np
import pytest

from fakes.simulator import Course, move_of, open_fight, opens_at, press
from soulsgraph_envs.core.scenario import HitWindow, load_boss, load_player, load_scenario
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.layout import NO_MOVE, frames

SCENARIO, BOSS, PLAYER = load_scenario("vordt"), load_boss("vordt"), load_player("knight")
CENTRE = SCENARIO.arena.centre_m
CONTACT_M = BOSS.radius_m + PLAYER.body.radius_m
HP = PLAYER.body.hp
#: The boss stands 6 m south of the player, both at rest, but for the fields that are set.
fight, move = partial(open_fight, SCENARIO), partial(move_of, BOSS)


def about(to_strike: str, **fields: object) -> Simulator:
    """Open a fight in the frame in which a move's first window opens."""
    return fight(move=move(to_strike), move_frame=opens_at(BOSS, to_strike), **fields)


def window(title: str) -> HitWindow:
    return BOSS.moves[move(title)].windows[0]


def stretched(seconds: float) -> int:
    return frames(seconds * BOSS.time_factor)


def wait(sim: Simulator, count: int) -> Course:
    """Let frames pass; raw values (frames, lanes, 25)."""
    return press(sim, Control.NONE, count)


def lane(sim: Simulator, field: str) -> float:
    return float(sim.get_state()["fights"][field][0])


class TestStatus:
    burst = floor(BOSS.status.burst_hp_ratio * HP + 0.5)

    @pytest.mark.parametrize(("before", "bursts"), [(-0.1, False), (0.0, True), (30.0, True)])
    def test_it_bursts_at_the_threshold_and_begins_again(self, before: float, bursts: bool) -> None:
        decayed, added = BOSS.status.decay_per_s / 60, window("frost breath").build_up
        start = BOSS.status.threshold - added + before + decayed
        sim = about("frost breath", boss_y=CENTRE[1] - 4.0, build_up=start)
        lost = HP - wait(sim, 1)[0, 0, Raw.PLAYER_HP]
        plain = HP - wait(about("frost breath", boss_y=CENTRE[1] - 4.0), 1)[0, 0, Raw.PLAYER_HP]
        assert lost - plain == (self.burst if bursts else 0)  # same stream, so the same blow
        assert lane(sim, "build_up") == pytest.approx(0.0 if bursts else BOSS.status.threshold + before)
        assert (lane(sim, "slowed_frames") == frames(BOSS.status.slowed_s)) == bursts


class TestEnraged:
    switch_hp = BOSS.enraged.below_hp_ratio * BOSS.hp_max

    def test_moves_are_weighted_by_the_mood(self) -> None:
        lanes, distance_m = 6000, 6.0
        sim = fight(lanes, boss_hp=self.switch_hp - 1.0, wait=0, boss_y=CENTRE[1] - distance_m)
        shown = wait(sim, 1)[0, :, Raw.BOSS_ANIMATION]
        weights = {
            m.id: m.weight if m.enraged_weight < 0 else m.enraged_weight
            for m in BOSS.moves
            if m.distance_m[0] <= distance_m <= m.distance_m[1]
        }
        for key, weight in weights.items():
            share = weight / sum(weights.values())
            assert (shown == key).mean() == pytest.approx(share, abs=0.03)  # 4.5 standard errors

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


class TestOffset:
    def spared(self, title: str, bearing: float, boss_heading: float) -> bool:
        """Return whether a player touching the boss, `bearing` off its heading, stays unhurt."""
        away = boss_heading + bearing
        x, y = CENTRE[0] + np.sin(away) * CONTACT_M, CENTRE[1] + np.cos(away) * CONTACT_M
        sim = about(title, boss_x=x, boss_y=y, boss_heading=boss_heading)
        return bool(wait(sim, 1)[0, 0, Raw.PLAYER_HP] == HP)

    @pytest.mark.parametrize("heading", [0.0, 1.0, -np.pi / 2])
    def test_a_slam_behind_spares_the_front_and_a_pound_ahead_the_flanks(self, heading: float) -> None:
        ahead, left, right, behind = 0.0, -np.pi / 2, np.pi / 2, np.pi
        spared_by_pound = [self.spared("mace pound", bearing, heading) for bearing in (ahead, left, right, behind)]
        spared_by_slam = [self.spared("hind slam", bearing, heading) for bearing in (ahead, left, right, behind)]
        assert spared_by_pound == [False, True, True, True]
        assert spared_by_slam == [True, True, True, False]
