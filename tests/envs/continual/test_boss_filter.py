"""The filter lets pass what can be won by looking ahead, not by random play, and not without dodging."""

from __future__ import annotations

from pathlib import Path

from soulsgraph_envs.continual.boss_filter import check_boss, filter_result


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
