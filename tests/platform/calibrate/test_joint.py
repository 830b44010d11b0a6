"""The joint fit: bounded values alone move, towards what replays show, and only where held-out fights get likelier."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from soulsgraph.calibrate.boss_file import write_fitted
from soulsgraph.calibrate.calibration import Calibration, calibrate
from soulsgraph.calibrate.joint import JointOptions, MoveSearch, joint_fit, joint_moves, searched_values
from soulsgraph.calibrate.rows import FightSet
from soulsgraph.calibrate.values import ValueFit, joint_cell
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_boss, load_player

_BOSS, _PLAYER = load_boss("iudex-phase1"), load_player("knight-full")
#: 3.2 m in the altered boss, 3.8 m in the shipped one.
_REACH = "moves.fast sweep.windows.0.reach_m"
_BRIEF = JointOptions(evaluations=36)


def _value(found: Calibration, key: str = _REACH) -> ValueFit:
    return next(value for value in found.boss if value.key == key)


def _doubted(found: Calibration) -> Calibration:
    """Return a calibration in which that reach alone is bounded, so widely that the file has the shipped one."""
    reach = replace(_value(found), estimate=3.6, low=2.4, high=4.4, verdict="bounded")
    sure = [value for value in found.boss if value.verdict == "determined" and value.key != _REACH]
    return replace(found, boss=[*sure, reach])


@pytest.fixture(scope="module")
def found(fought: FightSet) -> Calibration:
    return _doubted(calibrate(fought, _BOSS, _PLAYER))


@pytest.fixture(scope="module")
def fitted(fought: FightSet, found: Calibration, altered: Path) -> Calibration:
    return joint_fit(fought, found, "iudex-phase1", altered, _BRIEF)


def test_a_bounded_value_comes_nearer_to_the_truth_and_no_other_moves(found: Calibration, fitted: Calibration) -> None:
    reach = _value(fitted)
    assert reach.joint_kept
    assert reach.joint == pytest.approx(3.2, abs=0.15)
    assert [value for value in fitted.boss if value.key != _REACH] == [one for one in found.boss if one.key != _REACH]
    assert fitted.joint is not None
    assert fitted.joint.fitted_fights + fitted.joint.held_out_fights == found.fights
    (move,) = fitted.joint.moves
    assert (move.move, move.values, move.kept) == ("fast sweep", 1, True)
    assert min(move.fitted_gain, move.held_out_gain) > 1.0


def test_what_was_kept_is_in_the_file_with_its_verdict(fitted: Calibration, altered: Path, tmp_path: Path) -> None:
    path, _ = write_fitted(tmp_path / "mine.toml", fitted, "iudex-phase1", altered, _BOSS)
    moves = {move.title: move for move in load_boss(path).moves}
    reach = _value(fitted)
    assert moves["fast sweep"].windows[0].reach_m == pytest.approx(reach.joint, abs=1e-4)
    (line,) = [one for one in path.read_text(encoding="utf-8").splitlines() if "joint fit 3" in one]
    assert "bounded" in line
    assert line.endswith(f"joint fit {joint_cell(reach)}")
    assert joint_cell(reach).endswith(", kept")


def test_the_same_seed_searches_the_same_way_within_the_interval(found: Calibration) -> None:
    once, again, other = (MoveSearch([_value(found)], np.random.default_rng(seed)).ask() for seed in (3, 3, 4))
    assert once == again != other
    assert all(2.4 <= candidate[_REACH] <= 4.4 for candidate in once)


def test_a_change_that_makes_held_out_fights_less_likely_is_refused(
    found: Calibration, altered: Path, tmp_path: Path
) -> None:
    searched = {title: {_REACH: _value(found)} for title in ("likelier", "as likely", "less likely")}
    moves = joint_moves(searched, np.array([[9.0, 9.0, 9.0], [4.6, 1e-13, -4.6]]))
    assert [(move.move, move.kept) for move in moves] == [
        ("likelier", True),
        ("as likely", False),
        ("less likely", False),
    ]
    refused = replace(found, boss=[replace(_value(found), joint=3.2)])
    assert joint_cell(_value(refused)) == "3.2, not kept"
    path, _ = write_fitted(tmp_path / "mine.toml", refused, "iudex-phase1", altered, _BOSS)
    reaches = {one.title: one.windows[0].reach_m for one in load_boss(path).moves}
    assert reaches["fast sweep"] == 3.8


def test_bounded_values_that_a_replayed_move_shows_are_searched(found: Calibration) -> None:
    kinds = {
        "moves.a.b.windows.0.reach_m": "reach",
        "moves.a.b.lunge_s.0": "lunge times",
        "moves.thrust.tracks_s": "tracking",
        "moves.thrust.weight": "weights",
        "aggression.wait_s.0": "wait low",
    }
    wide = [ValueFit(key, kind, 1.0, 1.0, 0.5, 1.5, 3, "bounded") for key, kind in kinds.items()]
    open_ended = replace(wide[2], key="moves.thrust.leap_s", kind="leap", high=None)
    searched = searched_values(replace(found, boss=[*wide, open_ended, replace(wide[0], verdict="determined")]))
    assert {title: [*values] for title, values in searched.items()} == {
        "a.b": ["moves.a.b.windows.0.reach_m", "moves.a.b.lunge_s.0"],
        "thrust": ["moves.thrust.tracks_s"],
    }


def test_where_nothing_is_bounded_nothing_is_searched(fought: FightSet, found: Calibration, altered: Path) -> None:
    sure = replace(found, boss=[value for value in found.boss if value.key != _REACH])
    fitted = joint_fit(fought, sure, "iudex-phase1", altered)
    assert fitted.boss == sure.boss
    assert fitted.joint is not None
    assert fitted.joint.moves == ()


def test_what_it_needs_is_said_in_one_line(
    fought: FightSet, found: Calibration, altered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SoulsGraphError, match="evaluations"):
        JointOptions(5)
    monkeypatch.setattr("soulsgraph_envs.core.extras.find_spec", lambda module: None)
    with pytest.raises(SoulsGraphError, match=r"soulsgraph\[calibrate\]"):
        joint_fit(fought, found, "iudex-phase1", altered)
