"""Sequences are data: shipped ones hold what they record, and files of your own are checked as they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from soulsgraph_envs.continual import sequences as module
from soulsgraph_envs.continual.boss_filter import FilterResult, check_boss
from soulsgraph_envs.continual.generator import REPORTING_SEED, shift_of
from soulsgraph_envs.continual.sequences import check_tasks, fight_digest, held_out, load_sequence, sequence_names
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError

#: What nothing here changes is read once.
SHIPPED = {name: load_sequence(name) for name in sequence_names()}


def test_shipped_sequences_are_what_the_page_says() -> None:
    lengths = {"S8": 8, "S20": 20, "C20": 20, "O20": 20, "S100": 100, "R20": 20}
    choosing = {"S8-choose": 8, "S20-choose": 6, "C20-choose": 6}
    assert {name: len(sequence.tasks) for name, sequence in SHIPPED.items()} == lengths | choosing
    for name, sequence in SHIPPED.items():
        assert (sequence.budget_at(0), sequence.budget_at(1)) == (230_000, 80_000)
        assert all(task.result and task.result.passed for task in sequence.tasks)
        seeds = [int(scenario.rpartition("/")[2]) for scenario in sequence.scenarios]
        assert all((seed < REPORTING_SEED) == (name in choosing) for seed in seeds)
        once = seeds[: len(seeds) // 2] if name == "R20" else seeds
        assert sorted({*once}) == once
        assert seeds == once * (len(seeds) // len(once))
    shifts = [shift_of(scenario) for scenario in SHIPPED["S8"].scenarios]
    kinds = ["none", "lock-view", "arena", "moves", "camera-reversed", "blow", "camera-speed", "none"]
    assert [shift and shift[0] for shift in shifts] == kinds


def test_what_is_recorded_is_what_the_filter_says_today() -> None:
    for name, position in (("S20", 0), ("S8", 1)):
        task = SHIPPED[name].tasks[position]
        assert task.result == check_boss(task.scenario)


def test_held_out_bosses_are_in_no_sequence() -> None:
    known = {scenario for sequence in SHIPPED.values() for scenario in sequence.scenarios}
    for family in ("timing", "conflict", "own", "labelled"):
        recorded = held_out(family, 12)
        assert len({task.scenario for task in recorded} - known) == 12
        assert all(task.result and task.result.passed for task in recorded)
    with pytest.raises(UnknownNameError, match="timings"):
        held_out("timings", 1)


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
    check_tasks(sequence)


def test_a_fight_is_played_once_by_the_filter_and_again_when_its_file_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[str] = []

    def passing(scenario: str) -> FilterResult:
        played.append(Path(scenario).name)
        return FilterResult(1.0, 0.0, 0.0, True)

    monkeypatch.setattr(module, "check_boss", passing)
    fight = tmp_path / "fight.toml"
    for text, times in (("", 1), ("", 1), ("flasks = 1\n", 2)):
        fight.write_text(f'based_on = "vordt"\nname = "fight"\n{text}')
        check_tasks(load_sequence(own(tmp_path, 'scenario = "fight.toml"')))
        assert played == ["fight.toml"] * times


def test_a_boss_that_fails_the_filter_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SoulsGraphError, match="generated/timing/10001"):
        check_tasks(load_sequence(own(tmp_path, 'scenario = "generated/timing/10001"')))
    # What is recorded counts as much as what is played.
    recorded = f'scenario = "iudex-phase1"\ndigest = "{fight_digest("iudex-phase1")}"\noracle = 0.5\n'
    monkeypatch.setattr(module, "check_boss", lambda _: FilterResult(1.0, 0.0, 0.0, True))
    with pytest.raises(SoulsGraphError, match="iudex-phase1"):
        check_tasks(load_sequence(own(tmp_path, recorded + "random = 0.0\nundodged = 0.0")))


@pytest.mark.parametrize("missing", ["digest", "oracle", "random", "undodged"])
def test_win_rates_count_only_if_all_are_there_and_it_is_known_of_which_fight(tmp_path: Path, missing: str) -> None:
    failing = "generated/timing/10001"
    lines = {"digest": f'"{fight_digest(failing)}"', "oracle": "1.0", "random": "0.0", "undodged": "0.0"}
    said = [f"{key} = {value}" for key, value in lines.items() if key != missing]
    with pytest.raises(SoulsGraphError, match=failing):
        check_tasks(load_sequence(own(tmp_path, "\n".join([f'scenario = "{failing}"', *said]))))
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
