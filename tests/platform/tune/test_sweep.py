"""Sweeps that are run: tiny trials by Ray Tune, resumed, stopped early, and failed."""

from pathlib import Path
from typing import Any

import pytest
from ray import tune

import soulsgraph as sg
from soulsgraph.results.tables import read_rows, write_rows
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.progress import Interruption
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.tracking.contract import LogPoint
from soulsgraph.tune.folder import FAILED, FINISHED, INTERRUPTED, STOPPED, Sweep, SweepFolder, SweptRun
from soulsgraph.tune.results import SweepResults, _error, _over_seeds
from soulsgraph.tune.space import SearchSpace
from soulsgraph.tune.sweep import sweep
from soulsgraph.tune.tuners import TuneTracker, _tune_config, trials_of

#: One skill, of which a trial takes seconds.
TINY: dict[str, Any] = {"graph": "end-to-end", "preset": "fast", "scale": 0.01, "episodes": 4, "quiet": True}


def row(
    gamma: float, seed: int, state: str = FINISHED, wins: int = 0, mean_return: float = 0.0, **others: Any
) -> dict[str, Any]:
    counts = {"win_rate": wins / 10, "return": mean_return, "wins": wins, "episodes": 10, "low": 0.0, "high": 1.0}
    return {
        "gamma": gamma,
        "seed": seed,
        "state": state,
        "step": 900,
        **counts,
        "error": "",
        "run": f"runs/{gamma}-{seed}",
        **others,
    }


def summed_of(results: SweepResults) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = results.summary.to_dict("records")
    return rows


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    return SweepFolder.create(tmp_path / "sweep", Sweep(Plan(), SearchSpace({"gamma": (0.9, 0.8)}), (1, 2)))


def test_settings_stand_by_their_mean_over_seeds_the_best_first(folder: SweepFolder) -> None:
    rows = [row(0.9, 1, wins=1), row(0.9, 2, wins=2), row(0.8, 1, wins=6), row(0.8, 2, wins=8)]
    results = SweepResults(folder, rows)
    assert results.best == {"gamma": 0.8}
    best, other = summed_of(results)
    assert [(one["gamma"], one["seeds"], round(one["win_percent"])) for one in (best, other)] == [
        (0.8, 2, 70),
        (0.9, 2, 15),
    ]
    assert best["win_percent_low"] < 70.0 < best["win_percent_high"]
    results.save()
    assert len(read_rows(folder.path / "results" / "trials.parquet")) == 4
    assert results.to_dict()["best"] == {"gamma": 0.8}
    results.check()


def test_trials_that_did_not_finish_count_in_no_mean_and_are_named(folder: SweepFolder) -> None:
    stopped = [row(0.9, 1, wins=3), row(0.9, 2, STOPPED, wins=9), row(0.8, 1, STOPPED)]
    results = SweepResults(folder, stopped)
    assert [one["seeds"] for one in summed_of(results)] == [1]
    assert "2 of 4" in repr(results)
    with pytest.raises(Interruption, match="1 of 4"):
        SweepResults(folder, [*stopped, row(0.8, 2, INTERRUPTED)]).check()
    failed = SweepResults(folder, [row(0.8, 2, FAILED, error="a disk, found none.")])
    assert failed.tables == []
    with pytest.raises(sg.SoulsGraphError, match=r"1 of 1 failed.*a disk"):
        failed.check()


@pytest.mark.slow
def test_a_sweep_trains_each_setting_on_each_seed_and_goes_on_where_a_trial_failed(tmp_path: Path) -> None:
    space, path = {"gamma": [0.9, 0.99]}, tmp_path / "sweep"
    plan = Plan(graph="end-to-end", preset="fast", scale=0.01, episodes=4)
    begun = SweepFolder.create(path, Sweep(plan, SearchSpace({"gamma": (0.9, 0.99)}), (200,)))
    first = begun.run_path({"gamma": 0.9}, 200)
    (first / "other").mkdir(parents=True)
    with pytest.raises(sg.SoulsGraphError, match=r"gamma=0\.9, seed 200"):
        sweep(space, seeds=1, run=path, **TINY)
    (first / "other").rmdir()
    results = sweep(space, seeds=1, run=path, **TINY)
    assert sorted(results.frame["gamma"]) == [0.9, 0.99]
    assert set(results.frame["state"]) == {FINISHED}
    for trial in results.rows:
        run = RunFolder.open(path / trial["run"])
        assert run.plan.hyperparameters(run.plan.stages()[-1]).gamma == trial["gamma"]
        assert read_rows(run.results("curves"))
    with pytest.raises(sg.SoulsGraphError, match="space"):
        sweep({"gamma": [0.9]}, seeds=1, run=path, **TINY)


@pytest.mark.slow
def test_asha_reads_checkpoints_and_trials_of_a_setting_that_was_drawn_twice_wait_for_each_other(
    tmp_path: Path,
) -> None:
    asked: dict[str, Any] = {"search": "random", "samples": 2, "scheduler": "asha"}
    results = sweep({"gamma": [0.9]}, seeds=1, run=tmp_path / "sweep", **asked, **TINY)
    assert set(results.frame["state"]) <= {FINISHED, STOPPED}
    assert len({row["run"] for row in results.rows}) == 1
    # 2,500 decisions have checkpoints after 1,000 and 2,000; at the end comes the evaluation.
    reports = [trial.last_result["training_iteration"] for trial in trials_of(SweepFolder.open(tmp_path / "sweep"))]
    assert max(reports) == 3


def test_asha_goes_by_the_checkpoints_of_the_last_skill(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, float]] = []
    monkeypatch.setattr(tune, "report", reported.append)
    for metric in ("win_rate", "return"):
        tracker = TuneTracker("dodge", metric, before=300)
        for group in ("camera", "dodge"):
            tracker.log(LogPoint(group, 1_300, 0.0), {"eval/win_rate": 0.5, "eval/episodic_return": 2.0})
        tracker.log(LogPoint("dodge", 1_400, 0.0), {"loss": 1.0})
    assert reported == [{"win_rate": 0.5, "step": 1_000}, {"return": 2.0, "step": 1_000}]
    asked = Sweep(Plan(), SearchSpace({"gamma": (0.9, 0.8)}), (1, 2), search="random", samples=5, scheduler="asha")
    config = _tune_config(asked)
    assert (config.metric, config.mode, config.num_samples) == ("win_rate", "max", 5)
    # The last skill learns from 90,000 decisions; the first rung is at a ninth.
    assert [rung for rung, _ in config.scheduler._brackets[0]._rungs][-1] == 10_000
    assert config.scheduler._time_attr == "step"


def test_a_sweep_is_resumed_as_it_was_begun(refuse: Any, folder: SweepFolder) -> None:
    assert "scheduler" in refuse("study", "sweep", "--run", folder.path, "--scheduler", "asha")
    assert "scale" in refuse("study", "sweep", "--run", folder.path, "--scale", "0.5")


def test_of_populations_the_best_member_is_chosen_by_its_training_and_shown_with_the_mean(tmp_path: Path) -> None:
    space = SearchSpace({"dodge.gamma": (0.9, 0.8)})
    source = SweptRun("iudex-phase1-best-0", "iudex-phase1", ("dodge",))
    sweep_of = Sweep(Plan(), space, (1, 2), scheduler="pbt", stage="dodge", source=source)
    folder = SweepFolder.create(tmp_path / "sweep", sweep_of)
    members = [(0.9, 1, 2.0, 5.0), (0.8, 1, 4.0, 1.0), (0.8, 2, 3.0, 6.0), (0.9, 2, 1.0, 0.0)]
    rows = [row(gamma, seed, mean_return=value, training_return=training) for gamma, seed, value, training in members]
    results = SweepResults(folder, [{"dodge.gamma": one["gamma"], **one} for one in rows])
    assert [(one["members"], one["return"]) for one in summed_of(results)] == [("best", 2.5), ("mean", 2.5)]
    members = results.by_seed
    assert sorted(members[members["members"] == "best"]["return"]) == [2.0, 3.0]
    assert results.best == {"dodge.gamma": 0.8}


def curve(folder: SweepFolder, run: str, steps: int, value: float) -> str:
    """Write the learning curve of a run, which ends at a win rate, and return the run."""
    rows: list[dict[str, Any]] = [{"stage": "dodge", "skill": "dodge", "step": 500, "win_rate": 1.0}]
    rows += [{"stage": "last", "skill": "heal_attack", "step": 1_000 * n, "win_rate": value} for n in range(steps)]
    write_rows(folder.path / run / "results" / "curves.parquet", rows)
    return run


def test_a_curve_of_a_setting_lies_between_its_seeds_in_the_last_stage(folder: SweepFolder) -> None:
    results = SweepResults(folder, [])
    runs = [curve(folder, "a", 3, 0.1), curve(folder, "b", 2, 0.3)]
    points = [one for run in runs if (one := results._curve_of({"run": run})) is not None]
    assert _over_seeds(points).round(9).to_dict("split")["data"] == [[0, 20, 10, 30], [1_000, 20, 10, 30]]
    assert results._curve_of({"run": "c"}) is None
    # A stage that was too short for a checkpoint has none either.
    write_rows(folder.path / "d" / "results" / "curves.parquet", [])
    assert results._curve_of({"run": "d"}) is None


def test_a_page_draws_the_ten_best_settings_told_apart_and_every_trial(tmp_path: Path) -> None:
    # Two are the same in few digits.
    space = SearchSpace({"gamma": (*(number / 100 for number in range(80, 90)), 0.990012, 0.990014)})
    folder = SweepFolder.create(tmp_path / "sweep", Sweep(Plan(), space, (1,)))
    rows = [row(gamma, 1, wins=n % 10, run=curve(folder, f"r{n}", 2, 0.5)) for n, gamma in
            enumerate(reversed(space.lists["gamma"]), 8)]  # fmt: skip
    results = SweepResults(folder, [*rows, row(0.8, 2, STOPPED)])
    results.save()
    drawn, _ = results._curves()
    assert len(drawn) == 10
    assert {"gamma 0.990012", "gamma 0.990014"} <= drawn.keys()
    page = (folder.path / "results" / "page.html").read_text(encoding="utf-8")
    assert STOPPED in page
    assert page.count("data:image/png") == 2
    assert (folder.path / "results" / "figures" / "settings.png").is_file()


def test_the_best_setting_is_one_whose_seeds_were_all_seen_to_the_same_step(folder: SweepFolder) -> None:
    # ASHA let one seed of 0.9 go on, the luckiest; of 0.8 both were seen to 2,000 decisions, of 0.9 to 1,000.
    rows = [row(0.9, 1, wins=9, step=3_000), row(0.9, 2, STOPPED, step=1_000)]
    rows += [row(0.8, 1, STOPPED, step=2_000), row(0.8, 2, STOPPED, step=2_000)]
    for number, one in enumerate(rows):
        one["run"] = curve(folder, f"run-{number}", 3, 0.9 if number == 0 else 0.2)
    results = SweepResults(folder, rows)
    assert results.best == {"gamma": 0.8}
    assert [one["gamma"] for one in results.finished] == [0.9]
    # Where both settings were seen to the same step, the curves there decide.
    rows[1]["step"] = 2_000
    assert SweepResults(folder, rows).best == {"gamma": 0.9}
    # A setting of which one seed was never seen is no candidate.
    assert SweepResults(folder, [rows[0], *rows[2:]]).best == {"gamma": 0.8}


def test_settings_that_win_nothing_stand_by_their_mean_return(folder: SweepFolder) -> None:
    rows = [row(0.9, 1, mean_return=1.0), row(0.9, 2, mean_return=2.0)]
    rows += [row(0.8, 1, mean_return=3.0), row(0.8, 2, mean_return=1.0)]
    results = SweepResults(folder, rows)
    assert results.too_short
    assert results.best == {"gamma": 0.8}
    results.save()
    (note,) = (line for line in results.notes if "too short" in line)
    assert note in (folder.path / "results" / "report.md").read_text(encoding="utf-8")
    assert not SweepResults(folder, [*rows[1:], row(0.9, 1, wins=1)]).too_short


class FailedTrial:
    """A trial of Tune whose error is in a file that a full disk cut short."""

    status = "ERROR"

    def get_pickled_error(self) -> Exception | None:
        raise EOFError("Ran out of input")


def test_an_error_that_a_full_disk_cut_short_is_a_line() -> None:
    assert "\n" not in _error(FailedTrial())
    assert "disk" in _error(FailedTrial())


def test_a_state_of_tune_that_a_full_disk_cut_short_is_named(tmp_path: Path) -> None:
    asked = Sweep(Plan(), SearchSpace({"gamma": (0.9,)}), (1,), scheduler="asha")
    begun = SweepFolder.create(tmp_path / "sweep", asked)
    begun.tune.mkdir()
    (begun.tune / "experiment_state-2026-01-01_00-00-00.json").touch()
    with pytest.raises(sg.SoulsGraphError, match="tune"):
        trials_of(begun)


def test_a_setting_that_was_drawn_twice_counts_once(folder: SweepFolder) -> None:
    rows = [row(0.9, 1, wins=4), row(0.9, 1, wins=4), row(0.9, 2, wins=8)]
    summed = summed_of(SweepResults(folder, rows))
    assert [(one["seeds"], round(one["win_percent"])) for one in summed] == [(2, 60)]


@pytest.mark.slow
def test_optuna_repeats_each_of_its_settings_on_every_seed(tmp_path: Path) -> None:
    space = {"gamma": {"low": 0.9, "high": 0.99}, "fcnet_hiddens": [[16, 16], [32, 32]]}
    results = sweep(space, seeds=2, run=tmp_path / "sweep", search="optuna", samples=1, **TINY)
    assert sorted(results.frame["seed"]) == [200, 201]
    assert results.frame["gamma"].nunique() == 1
    assert set(results.frame["state"]) == {FINISHED}


@pytest.mark.slow
def test_a_sweep_adapts_a_copy_of_an_agent(tmp_path: Path) -> None:
    results = sweep(
        {"dodge": {"lr": [1e-4, 1e-3]}},
        seeds=1,
        run=tmp_path / "sweep",
        adapt="iudex-phase1-best-0",
        budget=1_000,
        scenario="iudex-phase2",
        episodes=4,
        quiet=True,
    )
    assert set(results.frame["state"]) == {FINISHED}
    libraries = [RunFolder.open(tmp_path / "sweep" / one["run"]).library for one in results.rows]
    for library in libraries:
        assert library.versions("dodge") == library.versions("heal_attack") == [1, 2]
        assert library.card("heal_attack", 2).training.scenario == "iudex-phase2"
    assert len({library.card("dodge", 2).sha256 for library in libraries}) == 2


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("space.toml", "--seeds", "0"), "seeds"),
        (("space.toml", "--scale", "0.001"), "scale"),
        (("space.toml", "--scheduler", "pbt"), "stage"),
        (("space.toml", "--scheduler", "pbt", "--stage", "dodge", "--adapt", "iudex-phase1-best-0"), "gamma"),
        (("space.toml", "--stage", "dodge"), "adapt"),
        (("space.toml", "--search", "optuna", "--scheduler", "asha"), "scheduler"),
        (("space.toml", "--stage", "dodge", "--adapt", "iudex-full-whole-3"), "whole"),
        (("space.toml", "--adapt", "iudex-phase1-best-0", "--scale", "0.1"), "scale"),
        (("space.toml", "--adapt", "iudex-phase1-best-0", "--stage", "parry"), "parry"),
        (("space.toml", "--adapt", "nowhere"), "nowhere"),
        (("space.toml", "--skills", "dodge"), "adapt"),
        (("space.toml", "--adapt", "iudex-phase1-best-0", "--scenario", "iudex-phase1"), "scenario"),
        (("space.toml", "--adapt", "iudex-phase1-best-0", "--skills", "dogde"), "dogde"),
        (("space.toml", "--adapt", "iudex-phase1-best-0", "--scenario", "vordt", "--preset", "fast"), "preset"),
    ],
)
def test_the_command_refuses_in_one_line(arguments: tuple[str, ...], name: str, refuse: Any, tmp_path: Path) -> None:
    (space := tmp_path / "space.toml").write_text("gamma = [0.9]\n", encoding="utf-8")
    words = [str(space) if word == space.name else word for word in arguments]
    assert name in refuse("study", "sweep", *words, "--run", tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_optuna_that_is_missing_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soulsgraph.tune.folder.find_spec", lambda module: None)
    with pytest.raises(sg.SoulsGraphError, match=r"soulsgraph\[tune\]"):
        Sweep(Plan(), SearchSpace({"gamma": (0.9,)}), search="optuna")


def test_what_python_passes_is_checked_at_the_door(tmp_path: Path) -> None:
    with pytest.raises(sg.SoulsGraphError, match="adapt"):
        sweep({"gamma": [0.9]}, run=tmp_path / "sweep", adapt={})  # type: ignore[arg-type]
    assert not (tmp_path / "sweep").exists()
