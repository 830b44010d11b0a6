"""The further actions of a simulated player: heavy attacks, parry and riposte, weapon art and jump."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from fakes.simulator import Course, move_of, open_fight, opens_at, press
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario, supported_controls
from soulsgraph_envs.core.state import ALL_CONTROLS, Control, Raw
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.layout import PlayerPose, Stance, frames

SCENARIO = load_scenario("iudex-phase1-whole")
PLAYER, BOSS = load_player("knight-full"), load_boss("iudex-phase1")
CENTRE = SCENARIO.arena.centre_m
ACTIONS = {key: action.id for key, action in PLAYER.animations.known().items()}
MARGIT = load_scenario("margit")
move, first_frame = partial(move_of, BOSS), partial(opens_at, BOSS)


def near(distance: float = 2.0, **fields: object) -> Simulator:
    """Open a fight with a boss that stands still in front of the player."""
    return open_fight(SCENARIO, **{"boss_y": CENTRE[1] - distance, "turn_frames": 600, **fields})


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

    def test_a_boss_that_cannot_be_parried_strikes_through(self) -> None:
        vordt, data = load_scenario("vordt-whole"), load_boss("vordt")
        swing = {"move": move_of(data, "mace swing"), "move_frame": opens_at(data, "mace swing") - 1}
        sim = open_fight(vordt, boss_y=CENTRE[1] - 2.5, animation=PlayerPose.PARRY, animation_frame=12, **swing)
        assert press(sim, Control.NONE, 4)[-1, 0, Raw.PLAYER_HP] < 454


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

    @pytest.mark.parametrize(
        ("distance", "heading", "stance"),
        [(3.5, 0.0, Stance.PARRIED), (2.0, 2.0, Stance.PARRIED), (2.0, 0.0, Stance.STAND), (2.0, 0.0, Stance.THROWN)],
    )
    def test_elsewhere_it_is_a_light_attack(self, distance: float, heading: float, stance: int) -> None:
        sim = near(distance, stance=stance, player_heading=heading)
        assert press(sim, Control.LIGHT_ATTACK)[0, 0, Raw.PLAYER_ANIMATION] == ACTIONS["light_1"]

    def test_nothing_hurts_meanwhile(self) -> None:
        course = met("grab", animation=PlayerPose.RIPOSTE, animation_frame=10)
        assert (course[:, 0, Raw.PLAYER_HP] == 454).all()


class TestWeaponArt:
    def test_without_enough_fp_it_does_not_begin(self) -> None:
        assert PLAYER.weapon_art is not None
        for fp, begins in ((PLAYER.weapon_art.fp_cost, True), (PLAYER.weapon_art.fp_cost - 1.0, False)):
            sim = near(fp=fp)
            raw = press(sim, Control.WEAPON_ART)[0, 0]
            assert (raw[Raw.PLAYER_ANIMATION] == ACTIONS["weapon_art"]) == begins
            assert (raw[Raw.STAMINA] < 95) == begins


class TestJump:
    @pytest.mark.parametrize(("title", "low"), [("staff sweep", True), ("staff thrust", False)])
    def test_only_low_blows_pass_below_it(self, title: str, low: bool) -> None:
        data = load_boss("margit")
        blow = {"move": move_of(data, title), "move_frame": opens_at(data, title)}
        for frame, airborne in ((5, False), (15, True), (45, False)):
            fields = {**blow, "animation": PlayerPose.JUMP, "animation_frame": frame}
            raw = press(open_fight(MARGIT, boss_y=-2.5, **fields), Control.NONE)[0, 0]
            assert (raw[Raw.PLAYER_HP] == raw[Raw.PLAYER_HP_MAX]) == (low and airborne)
