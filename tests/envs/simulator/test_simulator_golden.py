"""The fights that skills are trained in do not change.

`golden_fights.npz` holds moments of their courses from before the player's further actions. Values are compared
with a tolerance: another processor's sine differs in its last bits. Run this file as a program to write it again,
after a change that is meant to change the fights.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Raw, RawValues
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.testing import play

_GOLDEN = Path(__file__).with_name("golden_fights.npz")
_FIGHTS = ("iudex-phase1", "iudex-phase2", "vordt")
_FIRST_CONTROLS, _EVERY_TICKS = 12, 20
_ANGLES = [Raw.PLAYER_ANGLE, Raw.BOSS_ANGLE]


def moments(name: str) -> RawValues:
    """Return every 20th tick of eight fights of 400 ticks with drawn controls, (21, 8, 25)."""
    controls = np.random.default_rng(4).integers(0, 1 << _FIRST_CONTROLS, (400, 8), dtype=np.uint32)
    return play(Simulator(8), load_scenario(name), derive_seeds(np.arange(8), 4), controls)[::_EVERY_TICKS]


@pytest.mark.parametrize("name", _FIGHTS)
def test_a_fight_of_the_skills_is_what_it_was(name: str) -> None:
    with np.load(_GOLDEN) as golden:
        difference = moments(name) - golden[name]
    difference[:, :, _ANGLES] = np.remainder(difference[:, :, _ANGLES] + np.pi, 2 * np.pi) - np.pi
    np.testing.assert_allclose(difference, 0.0, atol=1e-3)


def test_a_knight_without_further_actions_takes_no_notice_of_their_controls() -> None:
    controls = np.random.default_rng(4).integers(0, 1 << 17, (400, 8), dtype=np.uint32)
    seeds, scenario = derive_seeds(np.arange(8), 4), load_scenario("iudex-phase1")
    first = controls & np.uint32((1 << _FIRST_CONTROLS) - 1)
    assert (play(Simulator(8), scenario, seeds, controls) == play(Simulator(8), scenario, seeds, first)).all()


if __name__ == "__main__":
    np.savez_compressed(_GOLDEN, **{name: moments(name).round(5) for name in _FIGHTS})
