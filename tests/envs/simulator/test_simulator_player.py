"""The player of a simulated fight keeps the times, costs and rules that its data give, as does the camera."""

from __future__ import annotations

from functools import partial

import numpy as np

from fakes.simulator import move_of, open_fight, press
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
fight, move = partial(open_fight, SCENARIO), partial(move_of, BOSS)


class TestPlayer:
    def test_roll_is_invulnerable_for_its_first_27_frames(self) -> None:
        spun = {"boss_y": CENTRE[1] - 2.0, "move": move("spin"), "move_frame": 60}
        sim = fight(lanes=44, animation=PlayerPose.ROLL, animation_frame=np.arange(44), **spun)
        unhurt = press(sim, Control.NONE)[0, :, Raw.PLAYER_HP] == 454
        assert np.flatnonzero(unhurt).tolist() == list(range(27))

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


class TestCamera:
    def test_lock_takes_within_view_and_range_only(self) -> None:
        north = CENTRE[1] + 9.0
        for yaw, pitch, distance, takes in (
            *((0.55, 0.0, 6.0, 1), (0.65, 0.0, 6.0, 0), (0.0, 0.65, 6.0, 0)),
            *((0.0, 0.0, 15.9, 1), (0.0, 0.0, 16.1, 0)),
        ):
            sim = fight(camera_yaw=yaw, camera_pitch=pitch, player_y=north, boss_y=north - distance)
            assert press(sim, Control.LOCK_ON)[0, 0, Raw.LOCKED] == takes

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
