"""Held-out seeds: an agent is trained once, and the table has a row for each kind with the median of its seeds."""

import json
from pathlib import Path

import pytest

from held_out import table, trained


def _row(name: str, seed: int, wins: int) -> dict[str, object]:
    return {"scenario": name, "seed": seed, "wins": wins, "episodes": 400, "wall_s": 1.0}


def test_a_row_has_the_median_and_how_many_seeds_learned_at_all() -> None:
    rows = [_row("margit", seed, wins) for seed, wins in enumerate([400, 0, 300])]
    (_, _, margit, other) = table({"margit": 99.5}, [*rows, _row("end-to-end", 0, 2)]).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in (margit, other)]
    assert cells[0] == ["margit", "99.5", "75.0", "2 of 3", "100.0, 0.0, 75.0"]
    assert cells[1] == ["end-to-end", "", "0.5", "1 of 1", "0.5"]


def test_an_agent_of_an_earlier_call_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "margit-7.json").write_text(json.dumps(_row("margit", 7, 400)), encoding="utf-8")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("it was trained"))
    assert trained(tmp_path, "margit", ("curriculum",), 7)["wins"] == 400
