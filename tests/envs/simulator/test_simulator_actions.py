"""Parry and riposte of a simulated player; its other further actions are held by the golden fights."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from fakes.simulator import Course, move_of, open_fight, opens_at, press
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario, supported_controls
from soulsgraph_envs.core.state import ALL_CONTROLS, Control, Raw
from soulsgraph_envs.simulator.layout import PlayerPose, Stance, frames

SCENARIO = load_scenario("iudex-phase1-whole")
PLAYER, BOSS = load_player("knight-full"), load_boss("iudex-phase1")
CENTRE = SCENARIO.arena.centre_m
move, first_frame = partial(move_of, BOSS), partial(opens_at, BOSS)


def met(title: str, lanes: int = 1, **fields: object) -> Course:
    """Return the frames in which a move's first window opens on the player 2 m ahead."""
    sim = open_fight(
        SCENARIO, lanes, boss_y=CENTRE[1] - 2.0, move=move(title), move_frame=first_frame(title) - 1, **fields
    )
    return press(sim, Control.NONE, 4)


def test_players_say_which_controls_they_answer_to() -> None:
    further = Control.HEAVY_ATTACK | Control.PARRY | Control.JUMP | Control.WEAPON_ART
    assert supported_controls(load_player("knight")) == ALL_CONTROLS & ~further
    assert supported_controls(PLAYER) == supported_controls(load_player("tarnished")) == ALL_CONTROLS


class TestParry:
    def test_a_blow_within_the_window_leaves_the_boss_open(self) -> None:
        assert PLAYER.parry is not None
        first, last = (frames(time_s) for time_s in PLAYER.parry.window_s)
        course = met("fast sweep", lanes=60, animation=PlayerPose.PARRY, animation_frame=np.arange(60))
        assert BOSS.animations.parried is not None
        unhurt = course[-1, :, Raw.PLAYER_HP] == 454
        assert (unhurt == (course[-1, :, Raw.BOSS_ANIMATION] == BOSS.animations.parried.id)).all()
        # The window opens in the second frame, by when the animation is one frame on.
        assert np.flatnonzero(unhurt).tolist() == list(range(first - 1, last - 1))

    @pytest.mark.parametrize(("title", "heading"), [("grab", 0.0), ("fast sweep", 1.5)])
    def test_neither_a_grab_nor_a_blow_from_the_side_is_parried(self, title: str, heading: float) -> None:
        course = met(title, animation=PlayerPose.PARRY, animation_frame=12, player_heading=heading)
        assert course[-1, 0, Raw.PLAYER_HP] < 454


class TestRiposte:
    def test_a_light_attack_on_an_open_boss_throws_it(self) -> None:
        assert PLAYER.parry is not None
        sim = open_fight(SCENARIO, boss_y=CENTRE[1] - 2.0, stance=Stance.PARRIED)
        course = press(sim, Control.LIGHT_ATTACK, 300)[:, 0]
        riposte = PLAYER.animations.known()["riposte"]
        assert (course[:, Raw.PLAYER_ANIMATION] == riposte.id).sum() == frames(riposte.length_s) - 1
        damage = -np.diff(course[:, Raw.BOSS_HP], prepend=1037.0)
        assert np.flatnonzero(damage)[0] == frames(riposte.hit_s)
        assert PLAYER.parry.damage[0] <= damage.max() <= PLAYER.parry.damage[1]
        assert BOSS.animations.thrown is not None
        assert (course[: frames(riposte.length_s), Raw.BOSS_ANIMATION] == BOSS.animations.thrown.id).all()
        assert course[:260, Raw.PLAYER_HP].min() == 454
