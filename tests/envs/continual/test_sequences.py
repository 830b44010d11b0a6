"""Sequences are data: shipped ones hold what they record, and files of your own are checked as they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from soulsgraph_envs.continual import sequences as module
from soulsgraph_envs.continual.boss_filter import FilterResult, check_boss
from soulsgraph_envs.continual.generator import REPORTING_SEED, label_of
from soulsgraph_envs.continual.sequences import (
    HELD_OUT_BOSSES,
    RECIPES,
    SequenceRecipe,
    checked_tasks,
    fight_digest,
    held_out,
    load_sequence,
    make_sequence,
    sequence_names,
    write_sequence,
)
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError

#: What nothing here changes is read once.
SHIPPED = {name: load_sequence(name) for name in RECIPES}


def seeds(names: tuple[str, ...]) -> list[int]:
    return [int(name.rpartition("/")[2]) for name in names]


def test_every_recipe_is_shipped_as_it_says() -> None:
    assert {*sequence_names()} == {*RECIPES}
    for name, recipe in RECIPES.items():
        sequence = SHIPPED[name]
        assert (sequence.name, sequence.family) == (name, recipe.family)
        assert len(sequence.tasks) == recipe.tasks * recipe.rounds
        assert len({*sequence.scenarios}) == recipe.tasks
        assert (sequence.budget_at(0), sequence.budget_at(1)) == (230_000, 80_000)
        assert all(task.result and task.result.passed for task in sequence.tasks)
        own = seeds(sequence.scenarios)
        assert all((seed < REPORTING_SEED) == name.endswith("-choose") for seed in own)
        assert own == sorted(own[: recipe.tasks]) * recipe.rounds
    kinds = [label_of(scenario).kind for scenario in SHIPPED["S8"].scenarios]
    assert kinds == ["none", "lock-view", "arena", "moves", "camera-reversed", "blow", "camera-speed", "none"]


def test_what_is_recorded_is_what_the_filter_says_today() -> None:
    for name, position in (("S20", 0), ("S8", 1)):
        task = SHIPPED[name].tasks[position]
        assert task.result == check_boss(task.scenario)


def test_held_out_bosses_are_in_no_sequence_and_more_than_are_recorded_are_found() -> None:
    known = {scenario for sequence in SHIPPED.values() for scenario in sequence.scenarios}
    for family in ("timing", "conflict", "own", "labelled"):
        recorded = held_out(family, HELD_OUT_BOSSES)
        assert len({task.scenario for task in recorded} - known) == HELD_OUT_BOSSES
        assert all(task.result and task.result.passed for task in recorded)
    more = held_out("timing", HELD_OUT_BOSSES + 1)
    assert more[:-1] == held_out("timing", HELD_OUT_BOSSES)
    assert more[-1].scenario not in {task.scenario for task in more[:-1]}
    with pytest.raises(UnknownNameError, match="timings"):
        held_out("timings", 1)


def test_a_sequence_that_is_made_is_read_back_as_it_was(tmp_path: Path) -> None:
    made = make_sequence("mine", SequenceRecipe("timing", 1, 10_002, rounds=2))
    assert made.tasks == SHIPPED["S20"].tasks[:1] * 2
    write_sequence(made, tmp_path / "mine.toml")
    assert load_sequence(tmp_path / "mine.toml") == made


def test_shipped_files_are_written_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECIPES", {})
    monkeypatch.setattr(module, "HELD_OUT_BOSSES", 1)
    (file,) = module.write_shipped(tmp_path, ["conflict"])
    assert load_sequence(file).tasks == held_out("conflict", 1)


def own(folder: Path, *tasks: str, more: str = "") -> Path:
    path = folder / "mine.toml"
    path.write_text('name = "mine"\n' + more + "".join(f"[[tasks]]\n{task}\n" for task in tasks))
    return path


def test_a_file_of_ones_own_may_say_no_more_than_scenarios(tmp_path: Path) -> None:
    (tmp_path / "fight.toml").write_text('based_on = "vordt"\nname = "fight"\n')
    path = own(tmp_path, 'scenario = "iudex-phase1"', 'scenario = "fight.toml"', more="budget = 5\n")
    sequence = load_sequence(path)
    assert sequence.scenarios == ("iudex-phase1", str(tmp_path / "fight.toml"))
    assert (sequence.first_budget, sequence.budget) == (230_000, 5)
    checked = checked_tasks(sequence)
    assert [task.digest for task in checked.tasks] == [fight_digest(name) for name in sequence.scenarios]
    assert all(task.result and task.result.passed for task in checked.tasks)


def test_a_boss_that_fails_the_filter_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SoulsGraphError, match="generated/timing/10001"):
        checked_tasks(load_sequence(own(tmp_path, 'scenario = "generated/timing/10001"')))
    # What is recorded counts as much as what is played.
    recorded = f'scenario = "iudex-phase1"\ndigest = "{fight_digest("iudex-phase1")}"\noracle = 0.5\n'
    monkeypatch.setattr(module, "check_boss", lambda _: FilterResult(1.0, 0.0, 0.0, True))
    with pytest.raises(SoulsGraphError, match="iudex-phase1"):
        checked_tasks(load_sequence(own(tmp_path, recorded + "random = 0.0\nundodged = 0.0")))


@pytest.mark.parametrize("missing", ["digest", "oracle", "random", "undodged"])
def test_win_rates_count_only_if_all_are_there_and_it_is_known_of_which_fight(tmp_path: Path, missing: str) -> None:
    failing = "generated/timing/10001"
    lines = {"digest": f'"{fight_digest(failing)}"', "oracle": "1.0", "random": "0.0", "undodged": "0.0"}
    said = [f"{key} = {value}" for key, value in lines.items() if key != missing]
    with pytest.raises(SoulsGraphError, match=failing):
        checked_tasks(load_sequence(own(tmp_path, "\n".join([f'scenario = "{failing}"', *said]))))
    # A labelled shift has no such third rate.
    shift = next(task for task in SHIPPED["S8"].tasks if task.undodged is None)
    assert shift.result is not None


@pytest.mark.parametrize(
    ("task", "named"),
    [
        ('scenario = "iudex-phase9"', "iudex-phase9"),
        ('scenario = "generated/timing/x"', "generated/timing"),
        ('scenario = "iudex-phase1"\noracle = 2.0', r"tasks\[0\]\.oracle"),
        ('scenario = "iudex-phase1"\nwins = 2.0', r"tasks\[0\]\.wins"),
        ("budget = 3", r"tasks\[0\]\.budget"),
        ('digest = ""', r"tasks\[0\]\.scenario"),
        # The generator changed since: what it makes now is another fight.
        (f'scenario = "generated/timing/10002"\ndigest = "{"0" * 64}"', "generated/timing/10002"),
        ("", "tasks"),
    ],
)
def test_a_bad_file_is_refused_by_key(tmp_path: Path, task: str, named: str) -> None:
    with pytest.raises(SoulsGraphError, match=named):
        load_sequence(own(tmp_path, *filter(None, [task])))


def test_an_unknown_sequence_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="S9"):
        load_sequence("S9")
