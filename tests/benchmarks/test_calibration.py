"""Hidden draws end to end, at a size that says nothing about how good they are."""

import json
import sys

import numpy as np

import calibration
from soulsgraph.calibrate.rows import read_fights
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.runs.evaluate import evaluation_seeds
from soulsgraph_envs.core.scenario import load_boss


def test_lanes_keep_what_a_recording_holds(tmp_path):
    fighter, seeds = Fighter.probe("iudex-phase1"), evaluation_seeds(4, 3)
    record(fighter, seeds, tmp_path)
    recorded = read_fights(tmp_path, load_boss("iudex-phase1"), simulated=True).fights
    kept = calibration.LaneRows(fighter.agent, seeds).fights
    assert len(recorded) == len(kept) == 3
    # Both in the order of the seeds, in which the files' names end.
    for fight, (_, same) in zip(recorded, sorted(kept.items()), strict=True):
        for name in ("clock_s", "raw", "controls", "boss", "hp"):
            np.testing.assert_array_equal(getattr(same, name), getattr(fight, name))


def test_a_draw_is_measured_once_and_summed_up(tmp_path, monkeypatch):
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
    assert (tmp_path / "out" / "calibration.md").exists()

    def again(*words):
        raise AssertionError("measured again")

    monkeypatch.setattr(calibration, "measure", again)
    calibration.main()
