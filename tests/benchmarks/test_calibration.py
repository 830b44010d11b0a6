"""Hidden draws end to end, at a size that says nothing about how good they are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import calibration
import exploration
from soulsgraph.calibrate.rows import read_fights
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.runs.evaluate import evaluation_seeds
from soulsgraph_envs.core.scenario import load_boss


def test_lanes_keep_what_a_recording_holds(tmp_path: Path) -> None:
    fighter, seeds = Fighter.probe("iudex-phase1"), evaluation_seeds(4, 3)
    record(fighter, seeds, tmp_path)
    recorded = read_fights(tmp_path, load_boss("iudex-phase1"), simulated=True).fights
    kept = calibration.LaneRows(fighter.agent, seeds).fights
    assert len(recorded) == len(kept) == 3
    for fight in recorded:
        same = kept[fight.name.rsplit("-", 1)[1]]
        for name in ("clock_s", "raw", "controls", "boss", "hp"):
            np.testing.assert_array_equal(getattr(same, name), getattr(fight, name))


def test_a_draw_is_measured_once_and_summed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "FIGHTS", 4)
    monkeypatch.setattr(calibration, "_BATCH", 2)
    words = ["--seeds", "7", "--minutes", "0.5", "1", "--train", "0", "--kept", str(tmp_path / "kept")]
    monkeypatch.setattr(sys, "argv", ["calibration.py", *words, "--out", str(tmp_path / "out")])
    calibration.main()
    kept = json.loads((tmp_path / "kept" / "draw-7.json").read_text(encoding="utf-8"))
    draw = kept["draw"]
    assert [one["minutes"] for one in draw["lengths"]] == [0.5, 1.0]
    assert len(draw["true"]) == len(draw["lengths"][0]["won"]) == len(calibration.PLAYED)
    assert sum(value["altered"] for value in draw["lengths"][0]["values"]) >= calibration.ALTERATIONS - 1
    found = json.loads((tmp_path / "out" / "calibration.json").read_text(encoding="utf-8"))
    assert [one["draws"] for one in found["results"]] == [1, 1]
    assert found["results"][1]["kinds"][-1]["determined"] > 0
    assert "## 1 minutes, 1 draws" in (tmp_path / "out" / "calibration.md").read_text(encoding="utf-8")

    def again(*words: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(calibration, "measure", again)
    calibration.main()


def test_a_joint_fit_is_measured_beside_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_BATCH", 2)
    words = ["--joint", "12", "--seeds", "7", "--minutes", "1", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["calibration.py", *words])
    calibration.main()
    (draw,) = json.loads((tmp_path / "joint.json").read_text(encoding="utf-8"))["draws"]
    assert draw["joint"]["evaluations"] == 12
    assert draw["values"]
    assert all(value["joint_error"] == value["error"] for value in draw["values"] if not value["kept"])


_DOCS = Path(__file__).parents[2] / "docs"
_RESULTS = _DOCS / "results" / "calibration"


def test_the_page_has_the_measured_figures() -> None:
    results = json.loads((_RESULTS / "calibration.json").read_text(encoding="utf-8"))["results"]
    page = (_DOCS / "fitting.md").read_text(encoding="utf-8")
    assert "\n".join(calibration.page_rows(results)) in page
    assert f"over {results[0]['draws']} draws" in page


def test_the_page_has_the_figures_of_the_stand_ins() -> None:
    kept = json.loads((_RESULTS / "stand-in" / "calibration.json").read_text(encoding="utf-8"))
    (found,) = kept["results"]
    whole, page = found["kinds"][-1], " ".join((_DOCS / "fitting.md").read_text(encoding="utf-8").split())
    shares = {
        "determined {} of the values": whole["determined"] / whole["values"],
        "with a median error of {}": whole["median_error"],
        "and at most {}": whole["largest_error"],
        "{} of all intervals contained": whole["covered"],
        "{} of the weights": found["weights_within"],
        "{} of win rates": found["won_within_5"],
        "with the shipped data {}": found["shipped_within_5"],
    }
    missing = [line for name, share in shares.items() if (line := name.format(f"{100 * share:.1f} %")) not in page]
    assert missing == []
    assert found["seeds"] == [141, 142, 143, 144]


def test_the_page_has_the_figures_of_the_probe_that_goes_on() -> None:
    kept = json.loads((_RESULTS / "exploration.json").read_text(encoding="utf-8"))
    page = " ".join((_DOCS / "fitting.md").read_text(encoding="utf-8").split())
    heads, _, *rows = exploration.text_of(kept["draws"], kept["minutes"]).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")][1:] for line in (heads, rows[-1])]
    first, *others = zip(*cells, strict=True)
    assert f"{first[1]} values are determined after {first[0]}" in page
    assert all(f"{count} after {head}" in page for head, count in others)


def test_the_page_has_the_figures_of_the_joint_fit() -> None:
    kept = json.loads((_RESULTS / "joint.json").read_text(encoding="utf-8"))
    page = " ".join((_DOCS / "fitting.md").read_text(encoding="utf-8").split())
    assert calibration.joint_text(kept["draws"]) in page
