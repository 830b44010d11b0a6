"""The fights that skills are trained in do not change, nor do their pictures.

`golden_fights.npz` holds moments of their courses, `golden_pictures.npz` pictures of drawn scenes, of which each number
is the mean of eight by eight pixels. Values are compared with a tolerance: another processor's sine differs in its last
bits, another version of pillow draws letters a little otherwise. Run this file as a program to write both again, after
a change that is meant to change them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fakes.simulator import move_of, open_fight, opens_at, press
from soulsgraph_envs.core.scenario import load_boss, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control, Raw, RawValues
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.layout import PlayerPose
from soulsgraph_envs.simulator.render import render
from soulsgraph_envs.simulator.scene import Change, Goal, Scene
from soulsgraph_envs.testing import play

_GOLDEN, _PICTURES = (Path(__file__).with_name(f"golden_{name}.npz") for name in ("fights", "pictures"))
_FIRST_CONTROLS, _EVERY_TICKS, _BLOCK = 12, 20, 8
#: The fights of the skills, and those of players with further actions, who press less often.
_FIGHTS = ("iudex-phase1", "iudex-phase2", "vordt", "iudex-full", "margit")
_ANGLES = [Raw.PLAYER_ANGLE, Raw.BOSS_ANGLE]


def drawn_controls(name: str) -> npt.NDArray[np.uint32]:
    """Return drawn controls of eight lanes, (400, 8)."""
    random = np.random.default_rng(4)
    if name in _FIGHTS[:3]:
        return random.integers(0, 1 << _FIRST_CONTROLS, (400, 8), dtype=np.uint32)
    pressed = random.random((400, 8, len(Control))) < 0.1
    return (pressed * np.array([int(control) for control in Control])).sum(axis=2).astype(np.uint32)


def moments(name: str) -> RawValues:
    """Return every 20th tick of eight fights of 400 ticks with drawn controls, (21, 8, 25)."""
    scenario = load_scenario(name)
    # Near the boss's change of phase.
    scenario = replace(scenario, boss_hp=(600.0, 0.5)) if scenario.transition else scenario
    return play(Simulator(8), scenario, derive_seeds(np.arange(8), 4), drawn_controls(name))[::_EVERY_TICKS]


@pytest.mark.parametrize("name", _FIGHTS)
def test_a_fight_is_what_it_was(name: str) -> None:
    with np.load(_GOLDEN) as golden:
        difference = moments(name) - golden[name]
    difference[:, :, _ANGLES] = np.remainder(difference[:, :, _ANGLES] + np.pi, 2 * np.pi) - np.pi
    np.testing.assert_allclose(difference, 0.0, atol=1e-3)


def test_a_knight_without_further_actions_takes_no_notice_of_their_controls() -> None:
    controls = np.random.default_rng(4).integers(0, 1 << 17, (400, 8), dtype=np.uint32)
    seeds, scenario = derive_seeds(np.arange(8), 4), load_scenario("iudex-phase1")
    first = controls & np.uint32((1 << _FIRST_CONTROLS) - 1)
    assert (play(Simulator(8), scenario, seeds, controls) == play(Simulator(8), scenario, seeds, first)).all()


def _scene(scenario: str, boss: str, title: str, offset: int, pose: PlayerPose, frame: int, **fields: Any) -> Scene:
    """Return a moment of a fight 3 m apart: a move, frames away from its first window, and what the player does."""
    data, fought = load_boss(boss), load_scenario(scenario)
    sim = open_fight(
        fought,
        move=move_of(data, title),
        move_frame=opens_at(data, title) + offset,
        animation=int(pose),
        animation_frame=frame,
        **{"boss_y": fought.arena.centre_m[1] - 3.0, "locked": 1, "camera_yaw": 0.3, "boss_heading": 2.8, **fields},
    )
    press(sim, Control.NONE)
    return sim.scene()


def _scenes() -> dict[str, Scene]:
    """Return scenes in which everything is drawn that there is."""
    iudex = ("iudex-full", "iudex-phase1")
    sweep = _scene(*iudex, "fast sweep", -12, PlayerPose.LIGHT_1, 20, flasks=3)
    strikes = _scene(*iudex, "delayed sweep", 3, PlayerPose.ROLL, 12, player_x=sweep.raw[Raw.PLAYER_X] + 9.0)
    x, y = sweep.arena.centre_m
    breath = _scene("vordt", "vordt", "frost breath", 4, PlayerPose.ESTUS, 30, build_up=40.0, player_hp=90.0)
    pound = _scene("vordt", "vordt", "mace pound", -8, PlayerPose.RUN, 3, locked=0, boss_x=x + 4.0, camera_pitch=0.3)
    ways = (((x, y - 1.0), (x + 0.5, y)), ((x + 1.0, y - 4.0), (x, y - 3.5)))
    ended = replace(pound, banner="YOU DIED", hint="Enter: another fight", goal=Goal(x + 2.0, y - 2.0, "fog"))
    return {
        "winds up": replace(sweep, ways=ways, boss_change=Change(-40.0, 0.2), goal=Goal(x + 60.0, y, "gate")),
        "strikes": replace(strikes, player_change=Change(250.0, 0.6), hint="Space: begin"),
        "thrusts": _scene(*iudex, "thrust", 2, PlayerPose.STAGGER, 5),
        "raises a thrust": _scene(*iudex, "thrust", -5, PlayerPose.IDLE, 0, boss_y=y + 3.0),
        "breathes": replace(breath, player_change=Change(-30.0, 0.1)),
        "ended": ended,
        "won": replace(strikes, banner="VICTORY", areas=()),
    }


#: The smallest has no letters.
_SIZES = ((360, 640), (180, 320), (90, 160))


def _blocks(scene: Scene, size: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Return a picture's mean colours by blocks of pixels, (rows, columns, 3)."""
    picture = render(scene, size)
    rows, columns = (side // _BLOCK for side in size)
    blocks = picture[: rows * _BLOCK, : columns * _BLOCK].reshape(rows, _BLOCK, columns, _BLOCK, 3)
    return blocks.mean(axis=(1, 3))


@pytest.mark.parametrize("size", _SIZES)
def test_pictures_are_what_they_were(size: tuple[int, int]) -> None:
    with np.load(_PICTURES) as golden:
        for name, scene in _scenes().items():
            expected, tolerance = golden[f"{name} {size[0]}"], 2.0 if size == _SIZES[-1] else 12.0
            np.testing.assert_allclose(_blocks(scene, size), expected, atol=tolerance, err_msg=name)


if __name__ == "__main__":
    np.savez_compressed(_GOLDEN, **{name: moments(name).round(5) for name in _FIGHTS})
    drawn = {f"{name} {size[0]}": _blocks(scene, size) for name, scene in _scenes().items() for size in _SIZES}
    np.savez_compressed(_PICTURES, **{name: blocks.round().astype(np.uint8) for name, blocks in drawn.items()})
