"""The benchmark of resets, with a stand-in of its own."""

import sys

import pytest

from fakes.waiting import undisturbed
from games import GAMES_OWN, bench_resets, describe


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the stand-in runs on Linux")
def test_resets_are_measured_by_phase_and_without_what_the_game_decides():
    result = undisturbed(lambda: bench_resets(1.0, 3))
    phases = {name: one["mean"] for name, one in result["phases_s"].items()}
    assert {"reach", "rest", "place"} <= phases.keys()
    assert sum(phases.values()) == pytest.approx(result["whole_s"]["mean"])
    own = sum(seconds for name, seconds in phases.items() if name in GAMES_OWN)
    assert result["whole_s"]["mean"] - own == pytest.approx(result["ours_s"]["mean"])
    assert describe(result)
