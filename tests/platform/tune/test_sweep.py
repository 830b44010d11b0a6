"""Sweeps that are run: tiny trials by Ray Tune, resumed, stopped early, and failed."""

import json
from pathlib import Path
from typing import Any

import pytest

import soulsgraph as sg
from soulsgraph.results.tables import read_rows, write_rows
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.progress import Interruption
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.tune.folder import Sweep, SweepFolder
from soulsgraph.tune.results import FAILED, FINISHED, INTERRUPTED, STOPPED, SweepResults, _last_curve, _over_seeds
from soulsgraph.tune.space import SearchSpace
from soulsgraph.tune.sweep import sweep

#: One skill, of which a trial takes seconds.
TINY: dict[str, Any] = {"graph": "end-to-end", "preset": "fast", "scale": 0.01, "episodes": 4, "quiet": True}


def row(gamma: float, seed: int, state: str = FINISHED, wins: int = 0, **others: Any) -> dict[str, Any]:
    counts = {"win_rate": wins / 10, "wins": wins, "episodes": 10, "low": 0.0, "high": 1.0}
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


def test_a_sweep_is_resumed_as_it_was_begun(refuse: Any, folder: SweepFolder) -> None:
    found = refuse("sweep", "--resume", "--run", folder.path, "--scheduler", "asha")
    assert "its plan has scheduler = none, found asha" in found
    assert "its plan has scale = 1" in refuse("sweep", "--resume", "--run", folder.path, "--scale", "0.5")


def fake_member(gamma: float, seed: int, value: float, training: float) -> dict[str, Any]:
    figures = {"return": value, "training_return": training, "episodes": 10, "low": value - 1.0, "high": value + 1.0}
    named = {"dodge.gamma": gamma, "seed": seed, "run": f"runs/{gamma}-{seed}"}
    return {**named, "state": FINISHED, "step": 900, **figures, "error": ""}


def test_of_populations_the_best_member_is_chosen_by_its_training_and_shown_with_the_mean(tmp_path: Path) -> None:
    space = SearchSpace({"dodge.gamma": (0.9, 0.8)})
    sweep_of = Sweep(Plan(), space, (1, 2), scheduler="pbt", stage="dodge")
    folder = SweepFolder.create(tmp_path / "sweep", sweep_of)
    rows = [fake_member(0.9, 1, 2.0, 5.0), fake_member(0.8, 1, 4.0, 1.0)]
    rows += [fake_member(0.8, 2, 3.0, 6.0), fake_member(0.9, 2, 1.0, 0.0)]
    results = SweepResults(folder, rows)
    table = results.table
    assert table is not None
    assert [(one["members"], one["return"]) for one in table.summary] == [("best", 2.5), ("mean", 2.5)]
    assert [row["found"] for row in table.by_seed if row["members"] == "best"] == ["3.00", "2.00"]
    assert results.best == {"dodge.gamma": 0.8}
    results.save()
    text = (folder.path / "results" / "report.md").read_text(encoding="utf-8")
    assert "Mean return of dodge" in text
    assert "figures/settings.png" in text


def test_a_page_shows_every_setting_with_its_interval_and_every_trial(folder: SweepFolder) -> None:
    rows = [row(0.9, 1, wins=1), row(0.9, 2, wins=2), row(0.8, 1, wins=6), row(0.8, 2, STOPPED)]
    SweepResults(folder, rows).save()
    page = (folder.path / "results" / "page.html").read_text(encoding="utf-8")
    assert "Sweep of gamma" in page
    assert "data:image/png" in page
    assert "stopped early" in page
    assert (folder.path / "results" / "figures" / "settings.png").is_file()


def curve(folder: SweepFolder, run: str, steps: int, value: float) -> str:
    """Write the learning curve of a run, which ends at a win rate, and return the run."""
    rows = [{"stage": "dodge", "skill": "dodge", "step": 500, "win_rate": 1.0}]
    rows += [{"stage": "last", "skill": "heal_attack", "step": 1_000 * n, "win_rate": value} for n in range(steps)]
    write_rows(folder.path / run / "results" / "curves.parquet", rows)
    return run


def test_a_page_draws_the_last_stages_curves_of_each_setting_between_its_seeds(folder: SweepFolder) -> None:
    rows = [row(0.9, 1, wins=1, run=curve(folder, "a", 3, 0.1)), row(0.9, 2, wins=2, run=curve(folder, "b", 2, 0.3))]
    rows += [row(0.8, 1, wins=6, run=curve(folder, "c", 3, 0.6)), row(0.8, 2, wins=8)]
    results = SweepResults(folder, rows)
    points = [read_rows(folder.path / name / "results" / "curves.parquet") for name in "ab"]
    assert _over_seeds([_last_curve(one, "win_rate", 100.0) for one in points]) == [
        (0.0, 20.0, 10.0, 30.0),
        (1_000.0, 20.0, 10.0, 30.0),
    ]
    results.save()
    page = (folder.path / "results" / "page.html").read_text(encoding="utf-8")
    assert page.index("gamma 0.8</span>") < page.index("gamma 0.9</span>")
    assert page.count('class="band"') == 2
    assert "the best first." in page


def test_a_page_draws_at_most_the_ten_best_settings(tmp_path: Path) -> None:
    space = SearchSpace({"gamma": tuple(number / 100 for number in range(80, 92))})
    folder = SweepFolder.create(tmp_path / "sweep", Sweep(Plan(), space, (1,)))
    rows = [
        row(gamma, 1, wins=n % 10, run=curve(folder, f"r{n}", 2, 0.5)) for n, gamma in enumerate(space.lists["gamma"])
    ]
    SweepResults(folder, rows).save()
    page = (folder.path / "results" / "page.html").read_text(encoding="utf-8")
    assert page.count('class="band"') == 10
    assert "the 10 best of 12 settings" in page


def test_a_page_tells_settings_apart_that_are_the_same_in_few_digits(folder: SweepFolder) -> None:
    rows = [row(gamma, 1, run=curve(folder, f"{gamma}", 2, 0.5)) for gamma in (0.990012, 0.990014)]
    SweepResults(folder, rows).save()
    page = (folder.path / "results" / "page.html").read_text(encoding="utf-8")
    assert page.count('class="band"') == 2
    assert "gamma 0.990012</span>" in page
    assert "gamma 0.990014</span>" in page


def test_a_setting_that_was_drawn_twice_counts_once(folder: SweepFolder) -> None:
    rows = [row(0.9, 1, wins=4), row(0.9, 1, wins=4), row(0.9, 2, wins=8)]
    table = SweepResults(folder, rows).table
    assert table is not None
    assert [(one["seeds"], round(one["win_percent"])) for one in table.summary] == [(2, 60)]


@pytest.mark.slow
def test_trials_of_a_setting_that_was_drawn_twice_wait_for_each_other(tmp_path: Path) -> None:
    results = sweep({"gamma": [0.9]}, seeds=1, run=tmp_path / "sweep", search="random", samples=2, **TINY)
    assert [row["state"] for row in results.rows] == [FINISHED, FINISHED]
    assert len({(row["run"], row["win_rate"]) for row in results.rows}) == 1


@pytest.mark.slow
def test_optuna_repeats_each_of_its_settings_on_every_seed(tmp_path: Path) -> None:
    space = {"gamma": {"low": 0.9, "high": 0.99}, "hidden_sizes": [[16, 16], [32, 32]]}
    results = sweep(space, seeds=2, run=tmp_path / "sweep", search="optuna", samples=2, **TINY)
    assert len(results.frame) == 4
    assert sorted(results.frame["seed"]) == [200, 200, 201, 201]
    assert results.frame.groupby("gamma")["seed"].nunique().tolist() == [2, 2]
    assert set(results.frame["state"]) == {FINISHED}


@pytest.mark.slow
def test_a_population_trains_one_stage_and_keeps_by_which_options_its_weights_came_about(tmp_path: Path) -> None:
    space = {"lock_on": {"learning_rate": {"low": 1e-6, "high": 1e-1, "log": True}}}
    arguments = {"preset": "fast", "scale": 0.2, "episodes": 4, "quiet": True, "stage": "lock_on"}
    results = sweep(space, seeds=1, run=tmp_path / "sweep", search="random", samples=4, scheduler="pbt", **arguments)
    assert set(results.frame["state"]) == {FINISHED}
    runs = [RunFolder.open(tmp_path / "sweep" / one["run"]) for one in results.rows]
    assert len(runs) == 4
    assert len({run.library.card("camera", 1).digest for run in runs}) == 1
    schedules = [read_rows(run.results("schedule")) for run in runs]
    assert any(len(schedule) > 1 for schedule in schedules)
    for one, run, schedule in zip(results.rows, runs, schedules, strict=True):
        assert schedule[-1]["lock_on.learning_rate"] == one["lock_on.learning_rate"]
        assert 1e-6 <= one["lock_on.learning_rate"] <= 1e-1
        assert run.library.versions("lock_on") == [1]
        assert not run.library.versions("movement")
    assert "best" in repr(results)


@pytest.mark.slow
def test_a_sweep_adapts_a_copy_of_an_agent(tmp_path: Path) -> None:
    results = sweep(
        {"dodge": {"learning_rate": [1e-4, 1e-3]}},
        seeds=1,
        run=tmp_path / "sweep",
        adapt={"run": "iudex-phase1-best-0", "skills": ["dodge", "heal_attack"], "budget": 2_000},
        scenario="iudex-phase2",
        episodes=4,
        quiet=True,
    )
    assert set(results.frame["state"]) == {FINISHED}
    for one in results.rows:
        run = RunFolder.open(tmp_path / "sweep" / one["run"])
        assert run.library.versions("dodge") == run.library.versions("heal_attack") == [1, 2]
        assert run.library.card("heal_attack", 2).training.scenario == "iudex-phase2"
    assert (
        len({RunFolder.open(tmp_path / "sweep" / one["run"]).library.card("dodge", 2).sha256 for one in results.rows})
        == 2
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--scheduler", "pbt"), "expected with pbt the stage of one skill"),
        (("--scheduler", "pbt", "--stage", "dodge"), "expected with pbt options of dodge alone"),
        (("--stage", "dogde"), "unknown skill"),
        (("--search", "optuna", "--scheduler", "asha"), "expected none with optuna"),
        (("--adapt", "iudex-phase1-best-0", "--scale", "0.1"), "scale: expected none with an adaptation"),
        (("--adapt", "iudex-phase1-best-0", "--stage", "dodge"), "expected a stage or an adaptation, found both"),
        (("--adapt", "nowhere"), "nowhere"),
        (("--skills", "dodge"), "skills"),
    ],
)
def test_what_does_not_go_together_is_refused(
    arguments: tuple[str, ...], message: str, refuse: Any, tmp_path: Path
) -> None:
    (space := tmp_path / "space.toml").write_text("gamma = [0.9]\n", encoding="utf-8")
    assert message in refuse("sweep", space, *arguments, "--run", tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_optuna_that_is_missing_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soulsgraph.tune.folder.find_spec", lambda module: None)
    with pytest.raises(sg.SoulsGraphError, match=r"expected optuna to be installed.*pip install 'soulsgraph\[tune\]'"):
        Sweep(Plan(), SearchSpace({"gamma": (0.9,)}), search="optuna")


_AGENT = {"run": "iudex-phase1-best-0"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": None}, "seeds: expected a number or a list"),
        ({"seeds": 2.5}, "seeds: expected a number or a list"),
        ({"seeds": "ab"}, "seeds.0.: expected a whole number"),
        ({"adapt": 3}, "adapt: expected a table"),
        ({"adapt": {}}, "run"),
        ({"adapt": {"run": 3}}, "`run`: expected a path"),
        ({"adapt": _AGENT}, "expected another scenario"),
        ({"adapt": _AGENT | {"skills": "dodge"}}, "adapt.skills: expected a list"),
        ({"adapt": _AGENT, "scenario": "vordt", "preset": "fast"}, "preset: expected none with an adaptation"),
        ({"adapt": _AGENT, "scenario": "vordt", "graph": "end-to-end"}, "graph: expected none with an adaptation"),
        ({"adapt": _AGENT, "scenario": "vordt", "scale": 0.5}, "scale: expected none with an adaptation"),
    ],
)
def test_what_python_passes_is_checked_at_the_door(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(sg.SoulsGraphError, match=message):
        sweep({"gamma": [0.9]}, run=tmp_path / "sweep", **arguments)
    assert not (tmp_path / "sweep").exists()
