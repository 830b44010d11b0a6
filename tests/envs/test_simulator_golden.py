"""The fights that skills are trained in stay what they were: a checksum of their courses, from before the
player's further actions.

Values are rounded to a tenth of a millimetre, so that the last bits of another processor's sine do not count.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.streams import derive_seeds
from soulsgraph_envs.testing import play

_FIRST_CONTROLS = 12


@pytest.mark.parametrize(
    ("name", "checksum"), [("iudex-phase1", 3489175763), ("iudex-phase2", 1043783831), ("vordt", 3976742796)]
)
def test_a_fight_of_the_skills_is_what_it_was(name: str, checksum: int) -> None:
    controls = np.random.default_rng(4).integers(0, 1 << _FIRST_CONTROLS, (400, 8), dtype=np.uint32)
    course = play(Simulator(8), load_scenario(name), derive_seeds(np.arange(8), 4), controls)
    # Adding 0 makes -0 the same as 0.
    assert zlib.crc32((course.round(4) + 0.0).tobytes()) == checksum


def test_a_knight_without_further_actions_takes_no_notice_of_their_controls() -> None:
    controls = np.random.default_rng(4).integers(0, 1 << 17, (400, 8), dtype=np.uint32)
    seeds, scenario = derive_seeds(np.arange(8), 4), load_scenario("iudex-phase1")
    first = controls & np.uint32((1 << _FIRST_CONTROLS) - 1)
    assert (play(Simulator(8), scenario, seeds, controls) == play(Simulator(8), scenario, seeds, first)).all()
