"""The filter lets pass what can be won by looking ahead, not by random play, and not without dodging."""

from __future__ import annotations

from pathlib import Path

import pytest

from soulsgraph_envs.continual.boss_filter import check_boss, expect_playable, filter_result, passing
from soulsgraph_envs.core.errors import SoulsGraphError


def written(folder: Path, boss: str) -> str:
    (folder / "boss.toml").write_text(f'based_on = "iudex-phase1"\nname = "Boss"\n{boss}')
    (folder / "fight.toml").write_text('based_on = "iudex-phase1"\nname = "fight"\nboss = "boss.toml"\n')
    return str(folder / "fight.toml")


def test_a_boss_that_does_no_harm_is_won_without_dodging(tmp_path: Path) -> None:
    result = check_boss(written(tmp_path, "damage_factor = 0.01\n"))
    assert not result.passed
    assert result.oracle >= 0.9
    assert result.undodged is not None
    assert result.undodged > result.oracle - 0.4
    with pytest.raises(SoulsGraphError, match="a boss"):
        expect_playable("a boss", result)


def test_a_boss_that_kills_at_once_is_lost_by_looking_ahead_too(tmp_path: Path) -> None:
    result = check_boss(written(tmp_path, "damage_factor = 10.0\ntime_factor = 0.2\n"))
    assert not result.passed
    assert result.oracle < 0.9


def test_the_bounds_themselves_pass_and_a_hundredth_beyond_does_not() -> None:
    assert filter_result("vordt", 0.90, 0.05, 0.50).passed
    assert not filter_result("vordt", 0.90, 0.05, 0.50).reason
    for rates in ((0.89, 0.05, 0.4), (0.90, 0.06, 0.5), (0.90, 0.05, 0.51)):
        result = filter_result("vordt", *rates)
        assert not result.passed
        assert result.reason


def test_a_labelled_shift_is_not_asked_to_need_dodging_and_a_costly_one_passes_with_less() -> None:
    result = check_boss("generated/labelled-run-speed/3")
    assert result.undodged is None
    assert result.passed
    assert filter_result("generated/labelled-camera-speed/3", 0.5, 0.0).passed
    assert not filter_result("generated/labelled-lock-view/3", 0.5, 0.0).passed


def test_the_first_bosses_that_pass_are_named_with_their_win_rates() -> None:
    (name, result), *others = passing("timing", 10_001, 1)
    assert (name, others) == ("generated/timing/10002", [])
    assert result == check_boss(name)
    assert not check_boss("generated/timing/10001").passed
