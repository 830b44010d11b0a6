"""Sweeps that are run: tiny trials by Ray Tune, gone on with, stopped early, and failed."""

import json
from pathlib import Path
from typing import Any

import pytest

import soulsgraph as sg
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.progress import Interruption
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.tune.folder import Sweep, SweepFolder
from soulsgraph.tune.space import SearchSpace
from soulsgraph.tune.sweep import FAILED, FINISHED, INTERRUPTED, STOPPED, SweepResults, sweep

#: One skill, of which a trial takes seconds.
TINY: dict[str, Any] = {"graph": "end-to-end", "preset": "fast", "scale": 0.01, "episodes": 4, "quiet": True}


def row(gamma: float, seed: int, state: str = FINISHED, wins: int = 0, **others: Any) -> dict[str, Any]:
    counts = {"win_rate": wins / 10, "wins": wins, "episodes": 10, "low": 0.0, "high": 1.0}
    return {"gamma": gamma, "seed": seed, "state": state, "step": 900, **counts, "error": "", "run": "r", **others}


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    return SweepFolder.create(tmp_path / "sweep", Sweep(Plan(), SearchSpace({"gamma": (0.9, 0.8)}), (1, 2)))


def test_settings_stand_by_their_mean_over_seeds_the_best_first(folder: SweepFolder) -> None:
    rows = [row(0.9, 1, wins=1), row(0.9, 2, wins=2), row(0.8, 1, wins=6), row(0.8, 2, wins=8)]
    results = SweepResults(folder, rows)
    assert results.best == {"gamma": 0.8}
    table = results.table
    assert table is not None
    assert [(one["gamma"], one["seeds"], round(one["win_percent"])) for one in table.summary] == [
        (0.8, 2, 70),
        (0.9, 2, 15),
    ]
    assert table.summary[0]["win_percent_low"] < 70.0 < table.summary[0]["win_percent_high"]
    results.save()
    assert len(read_rows(folder.path / "results" / "trials.parquet")) == 4
    assert len(read_rows(folder.path / "results" / "sweep.parquet")) == 2
    assert "0.8" in repr(results)
    results.check()


def test_trials_that_did_not_finish_count_in_no_mean_and_are_named(folder: SweepFolder) -> None:
    stopped = [row(0.9, 1, wins=3), row(0.9, 2, STOPPED, wins=9), row(0.8, 1, STOPPED)]
    results = SweepResults(folder, stopped)
    assert results.table is not None
    assert [one["seeds"] for one in results.table.summary] == [1]
    assert "2 of 4 trials stopped early" in repr(results)
    with pytest.raises(Interruption, match="stopped with 1 of 4 trials left"):
        SweepResults(folder, [*stopped, row(0.8, 2, INTERRUPTED)]).check()
    failed = SweepResults(folder, [row(0.8, 2, FAILED, error="a disk, found none.")])
    assert failed.table is None
    assert "no trial finished" in repr(failed)
    with pytest.raises(sg.SoulsGraphError, match=r"1 of 1 failed.*a disk"):
        failed.check()


@pytest.mark.slow
def test_a_sweep_trains_each_setting_on_each_seed_and_goes_on_where_a_trial_failed(tmp_path: Path) -> None:
    space, path = {"gamma": [0.9, 0.99]}, tmp_path / "sweep"
    plan = Plan(graph="end-to-end", preset="fast", scale=0.01, episodes=4)
    begun = SweepFolder.create(path, Sweep(plan, SearchSpace({"gamma": (0.9, 0.99)}), (200,)))
    first = begun.run_path({"gamma": 0.9}, 200)
    (first / "other").mkdir(parents=True)
    with pytest.raises(
        sg.SoulsGraphError, match=r"1 of 2 failed, the first in runs/.*expected an empty folder for a new run"
    ):
        sweep(space, seeds=1, run=path, **TINY)
    (first / "other").rmdir()
    results = sweep(space, seeds=1, run=path, **TINY)
    frame = results.frame
    assert sorted(frame["gamma"]) == [0.9, 0.99]
    assert set(frame["state"]) == {FINISHED}
    for trial in results.rows:
        run = RunFolder.open(path / trial["run"])
        stage = run.plan.stages()[-1]
        assert run.plan.hyperparameters(stage).gamma == trial["gamma"]
        curve = read_rows(run.results("curves"))
        assert [one["step"] for one in curve]
    with pytest.raises(
        sg.SoulsGraphError, match=r"an empty folder or a sweep with space = .*, found a sweep with space"
    ):
        sweep({"gamma": [0.9]}, seeds=1, run=path, **TINY)


@pytest.mark.slow
def test_asha_reads_the_win_rates_of_checkpoints_and_draws_the_same_settings_for_every_seed(tmp_path: Path) -> None:
    space = {"gamma": {"low": 0.9, "high": 0.99}}
    results = sweep(space, seeds=2, run=tmp_path / "sweep", search="random", samples=1, scheduler="asha", **TINY)
    assert len(results.frame) == 2
    assert results.frame["gamma"].nunique() == 1
    assert set(results.frame["state"]) <= {FINISHED, STOPPED}
    progress = [*(tmp_path / "sweep" / "tune").glob("experiment_state-*.json")]
    assert json.loads(progress[-1].read_text(encoding="utf-8"))["trial_data"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected the TOML file of a space to search"),
        (("nothing.toml",), "expected a readable TOML file"),
        (("space.toml", "--seeds", "0"), "seeds"),
        (("space.toml", "--set", "gama=1"), "unknown option"),
        (("space.toml", "--scale", "0.001"), "expected"),
        (("space.toml", "--resume"), "begin one with: soulsgraph sweep SPACE.toml --run"),
    ],
)
def test_the_command_refuses_in_one_line(arguments: tuple[str, ...], message: str, refuse: Any, tmp_path: Path) -> None:
    (space := tmp_path / "space.toml").write_text("gamma = [0.9]\n", encoding="utf-8")
    words = [str(space) if word == space.name else word for word in arguments]
    assert message in refuse("sweep", *words, "--run", tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_a_sweep_is_gone_on_with_as_it_was_begun(refuse: Any, folder: SweepFolder) -> None:
    found = refuse("sweep", "--resume", "--run", folder.path, "--scheduler", "asha")
    assert "its plan has scheduler = none, found asha" in found
    assert "its plan has scale = 1" in refuse("sweep", "--resume", "--run", folder.path, "--scale", "0.5")
