"""`soulsgraph calibrate`: fights in, a boss and a scenario out that other commands take, and refusals in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from soulsgraph_envs.core.scenario import load_scenario

Run = Callable[..., str]


@pytest.mark.slow
def test_fights_become_a_boss_and_a_scenario(printed: Run, refuse: Run, tmp_path: Path) -> None:
    printed("data", "record", "oracle", "--episodes", 3, "--out", "fights")
    assert "of the simulator itself" in refuse("calibrate", "fights", "--boss", "iudex-phase1", "--out", "mine.toml")
    words = ("calibrate", "fights", "--boss", "iudex-phase1", "--simulated")
    found = json.loads(printed(*words, "--out", "mine.toml", "--json"))
    assert found["fights"] == 3
    assert found["counts"]["determined"] > 5
    walk = next(value for value in found["boss"] if value["key"] == "motion.walk_m_s")
    assert walk["shipped"] == 4.2
    assert [Path(path).name for path in found["files"]] == ["mine.toml", "mine-scenario.toml"]
    assert load_scenario(found["files"][1]).player == "knight"
    assert "never overwritten" in refuse(*words, "--out", "mine.toml")
    shown = printed(*words, "--out", "other.toml")
    assert "not determined" in shown
    assert "moves.thrust.windows.0.reach_m" in shown
    assert "joint fit" not in shown
    joint = json.loads(printed(*words, "--out", "joint.toml", "--joint", 12, "--json"))
    assert joint["joint"]["evaluations"] == 12
    assert {value["verdict"] for value in joint["boss"] if value["joint"] is not None} <= {"bounded"}
    assert "joint fit: changes of" in printed(*words, "--out", "shown.toml", "--joint", 12)
    rate = json.loads(
        printed("evaluate", "iudex-phase1-paper-0", "--scenario", "mine-scenario.toml", "--episodes", 2, "--json")
    )
    assert "mine-scenario" in json.dumps(rate)


def test_bad_input_is_one_line(refuse: Run, tmp_path: Path) -> None:
    assert "no such folder" in refuse("calibrate", "nowhere", "--boss", "iudex-phase1", "--out", "mine.toml")
    assert "unknown boss" in refuse("calibrate", "nowhere", "--boss", "gundyr", "--out", "mine.toml").lower()
    (tmp_path / "fights").mkdir()
    (tmp_path / "fights" / "one.parquet").write_bytes(b"no fight")
    refuse("calibrate", "fights", "--boss", "iudex-phase1", "--out", "mine.toml")
    assert "expected 12 evaluations or more, found 3" in refuse(
        "calibrate", "fights", "--boss", "iudex-phase1", "--out", "mine.toml", "--joint", 3
    )
    assert not (tmp_path / "mine.toml").exists()
