"""The player of a simulated fight keeps the times, costs and rules that its data give, as does the camera."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fakes.simulator import Course, move_of, open_fight, opens_at, press
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.simulator.layout import PlayerPose, frames

SCENARIO = load_scenario("iudex-phase1")
FIVE_SKILLS = load_scenario("five-skills")
PLAYER = load_player("knight")
BOSS = load_boss("iudex-phase1")
CENTRE = SCENARIO.arena.centre_m
ACTIONS = PLAYER.animations
#: The boss stands 6 m south of the player, both at rest, but for the fields that are set.
fight, move, first_frame = partial(open_fight, SCENARIO), partial(move_of, BOSS), partial(opens_at, BOSS)


class TestPlayer:
    def test_roll_lasts_three_quarters_of_a_second_and_costs_stamina(self) -> None:
        course = press(fight(), Control.ROLL | Control.FORWARD, 60)
        rolling = course[:, 0, Raw.PLAYER_ANIMATION] == ACTIONS.roll.id
        assert rolling.sum() == 44  # the 45th frame ends it
        assert course[0, 0, Raw.STAMINA] == 95 - PLAYER.roll.cost
        moved = CENTRE[1] - course[-1, 0, Raw.PLAYER_Y]
        fast, slow = PLAYER.roll.slow_after_s, ACTIONS.roll.length_s - PLAYER.roll.slow_after_s
        assert moved == pytest.approx(4.2 * (fast + slow * PLAYER.roll.slow_factor), abs=1e-6)

    def test_roll_is_invulnerable_for_its_first_27_frames(self) -> None:
        spun = {"boss_y": CENTRE[1] - 2.0, "move": move("spin"), "move_frame": 60}
        sim = fight(lanes=44, animation=PlayerPose.ROLL, animation_frame=np.arange(44), **spun)
        unhurt = press(sim, Control.NONE)[0, :, Raw.PLAYER_HP] == 454
        assert np.flatnonzero(unhurt).tolist() == list(range(27))

    def test_roll_without_direction_is_a_backstep_that_can_be_hit(self) -> None:
        sim = fight(boss_y=CENTRE[1] - 2.0, move=move("spin"), move_frame=60)
        course = press(sim, Control.ROLL)
        assert course[0, 0, Raw.PLAYER_HP] < 454
        back = press(fight(), Control.ROLL, 30)
        assert back[0, 0, Raw.PLAYER_ANIMATION] == ACTIONS.backstep.id
        assert back[-1, 0, Raw.PLAYER_Y] > CENTRE[1] + 0.5

    def test_stamina_comes_back_after_a_quarter_second_until_full(self) -> None:
        sim = fight(stamina=10.0, regeneration_wait=frames(PLAYER.body.regeneration_delay_s))
        course = press(sim, Control.NONE, 120)[:, 0, Raw.STAMINA]
        assert (course[:15] == 10.0).all()
        assert course[74] == pytest.approx(10.0 + 60 * PLAYER.body.regeneration_per_s / 60)
        assert course[119] == PLAYER.body.stamina

    def test_nothing_starts_without_stamina_but_one_point_is_enough(self) -> None:
        for control, animation in (
            (Control.ROLL | Control.LEFT, ACTIONS.roll),
            (Control.LIGHT_ATTACK, ACTIONS.light_1),
        ):
            empty = press(fight(stamina=0.0, regeneration_wait=60), control)
            assert empty[0, 0, Raw.PLAYER_ANIMATION] != animation.id
            enough = press(fight(stamina=1.0, regeneration_wait=60), control)
            assert enough[0, 0, Raw.PLAYER_ANIMATION] == animation.id
            assert enough[0, 0, Raw.STAMINA] < 0

    def test_three_blows_chain_and_land_at_their_moments(self) -> None:
        sim = fight(boss_y=CENTRE[1] - 2.0, turn_frames=300)  # a turning boss does not back off
        attacks = [press(sim, Control.LIGHT_ATTACK, 40) for _ in range(3)]
        course = np.concatenate(attacks)[:, 0]
        order = list(dict.fromkeys(course[:, Raw.PLAYER_ANIMATION].astype(int)))
        assert order == [ACTIONS.light_1.id, ACTIONS.light_2.id, ACTIONS.light_3.id]
        hits = np.flatnonzero(np.diff(course[:, Raw.BOSS_HP], prepend=1037.0) < 0)
        moments = [frames(action.hit_s) for action in (ACTIONS.light_1, ACTIONS.light_2, ACTIONS.light_3)]
        assert hits.tolist() == [40 * i + moment for i, moment in enumerate(moments)]
        damage = -np.diff(course[:, Raw.BOSS_HP], prepend=1037.0)[hits]
        assert ((damage >= 30) & (damage <= 50)).all()

    @pytest.mark.parametrize(
        ("distance", "heading", "lands"), [(2.45, 0.0, True), (2.55, 0.0, False), (2.0, 0.6, False)]
    )
    def test_blow_needs_reach_and_facing(self, distance: float, heading: float, lands: bool) -> None:
        sim = fight(
            boss_y=CENTRE[1] - distance,
            player_heading=heading,
            animation=PlayerPose.LIGHT_1,
            animation_frame=frames(ACTIONS.light_1.hit_s),
        )
        assert (press(sim, Control.NONE)[0, 0, Raw.BOSS_HP] < 1037) == lands

    def test_drink_heals_250_at_its_moment_and_takes_a_flask(self) -> None:
        course = press(fight(player_hp=100.0), Control.USE_ITEM, 110)[:, 0]
        moment = frames(ACTIONS.estus.hit_s)
        assert (course[:moment, Raw.PLAYER_HP] == 100).all()
        assert course[moment, Raw.PLAYER_HP] == 350
        assert (course[moment - 1, Raw.FLASKS], course[moment, Raw.FLASKS]) == (1, 0)
        assert (course[:, Raw.PLAYER_ANIMATION] == ACTIONS.estus.id).sum() == 101

    def test_buffer_holds_a_press_for_a_fifth_of_a_second(self) -> None:
        ready = frames(ACTIONS.light_1.roll_s)
        for early, rolls in ((11, True), (12, False)):
            sim = fight(animation=PlayerPose.LIGHT_1, animation_frame=ready - early, boss_y=CENTRE[1] - 6)
            course = press(sim, Control.ROLL | Control.FORWARD, 14, Control.FORWARD)
            assert (ACTIONS.roll.id in course[:, 0, Raw.PLAYER_ANIMATION]) == rolls

    def test_a_press_held_through_a_tick_counts_once(self) -> None:
        sim = fight(tick_s=0.1)
        raw = press(sim, Control.LIGHT_ATTACK, 8)
        assert raw[0, 0, Raw.STAMINA] == 95 - PLAYER.attack.cost
        assert (raw[:, 0, Raw.PLAYER_ANIMATION] == ACTIONS.light_1.id).all()


class TestHurt:
    def struck(self, title: str, **fields: object) -> tuple[Course, float]:
        sim = fight(boss_y=CENTRE[1] - 2.0, move=move(title), move_frame=first_frame(title), **fields)
        return press(sim, Control.NONE, 130)[:, 0], BOSS.moves[move(title)].windows[0].damage * BOSS.damage_factor

    def test_sweep_staggers_and_a_ram_knocks_down_once(self) -> None:
        for title, animation in (("fast sweep", ACTIONS.stagger), ("shoulder ram", ACTIONS.knockdown)):
            course, _ = self.struck(title)
            assert (course[:, Raw.PLAYER_ANIMATION] == animation.id).sum() == frames(animation.length_s)
            assert (np.diff(course[:, Raw.PLAYER_HP]) >= 0).all()

    @pytest.mark.parametrize("animation", [PlayerPose.LIGHT_1, PlayerPose.ESTUS, PlayerPose.ESTUS_EMPTY])
    def test_counter_hit_hurts_more_by_its_factor(self, animation: int) -> None:
        plain, damage = self.struck("fast sweep")
        counter, _ = self.struck("fast sweep", animation=animation, animation_frame=5)
        spread = BOSS.damage_spread
        assert 454 - plain[0, Raw.PLAYER_HP] == pytest.approx(damage, rel=spread, abs=1)
        ratio = (454 - counter[0, Raw.PLAYER_HP]) / (454 - plain[0, Raw.PLAYER_HP])
        assert ratio == pytest.approx(PLAYER.hurt.counter_factor, abs=0.03)  # same stream, so the same spread

    def test_refill_makes_both_whole_and_leaves_stamina(self) -> None:
        practice = replace(SCENARIO, refill=True)
        sim = open_fight(practice, boss_y=CENTRE[1] - 2.0, move=move("spin"), move_frame=60, stamina=20.0)
        raw = press(sim, Control.NONE)[0, 0]
        assert raw[Raw.PLAYER_HP] == 454
        assert raw[Raw.PLAYER_ANIMATION] == ACTIONS.stagger.id
        assert raw[Raw.STAMINA] < 25


class TestCamera:
    def test_lock_takes_within_view_and_range_only(self) -> None:
        north = CENTRE[1] + 9.0
        for yaw, pitch, distance, takes in (
            *((0.55, 0.0, 6.0, 1), (0.65, 0.0, 6.0, 0), (0.0, 0.65, 6.0, 0)),
            *((0.0, 0.0, 15.9, 1), (0.0, 0.0, 16.1, 0)),
        ):
            sim = fight(camera_yaw=yaw, camera_pitch=pitch, player_y=north, boss_y=north - distance)
            assert press(sim, Control.LOCK_ON)[0, 0, Raw.LOCKED] == takes

    def test_second_toggle_releases(self) -> None:
        sim = fight()
        locked = [press(sim, Control.LOCK_ON)[0, 0, Raw.LOCKED] for _ in range(3)]
        assert locked == [1, 0, 1]

    def test_a_released_lock_is_not_taken_again_before_its_time_and_its_key_does_nothing_meanwhile(self) -> None:
        waits = frames(load_player(FIVE_SKILLS.player).camera.relock_s)
        assert waits > 1
        for since, takes in ((waits - 1, 0), (waits, 1)):
            sim = open_fight(FIVE_SKILLS, locked=1)
            press(sim, Control.LOCK_ON)
            assert not press(sim, Control.NONE, since - 1)[:, 0, Raw.LOCKED].any()
            assert press(sim, Control.LOCK_ON)[0, 0, Raw.LOCKED] == takes
        # Nor does it turn the view to where the player faces.
        sim = open_fight(FIVE_SKILLS, locked=1, camera_yaw=0.5, player_heading=2.0)
        before = press(sim, Control.LOCK_ON)[0, 0, Raw.CAMERA_X : Raw.CAMERA_Z + 1]
        after = press(sim, Control.LOCK_ON)[0, 0, Raw.CAMERA_X : Raw.CAMERA_Z + 1]
        assert after.tolist() == before.tolist()

    def test_lock_breaks_beyond_18_m_and_may_be_taken_again_at_once(self) -> None:
        sim = open_fight(FIVE_SKILLS, locked=1, player_y=CENTRE[1] + 9.1, boss_y=CENTRE[1] - 9.0)
        assert press(sim, Control.NONE)[0, 0, Raw.LOCKED] == 0
        assert sim.values(0)["relock_frames"] == 0

    def test_camera_keys_turn_at_their_speeds(self) -> None:
        right = press(fight(), Control.CAMERA_RIGHT, 30, Control.CAMERA_RIGHT)[-1, 0]
        assert np.arctan2(-right[Raw.CAMERA_X], -right[Raw.CAMERA_Y]) == pytest.approx(1.2)
        up = press(fight(), Control.CAMERA_UP, 120, Control.CAMERA_UP)[-1, 0]
        assert up[Raw.CAMERA_Z] == pytest.approx(np.sin(PLAYER.camera.pitch_limit_rad))
