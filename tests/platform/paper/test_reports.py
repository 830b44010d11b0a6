import io

import numpy as np
import pytest
from rich.console import Console

from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import GrowingTable, WinRateTable, read_rows, write_episodes
from soulsgraph.runs.progress import stage_progress
from soulsgraph_envs.combat.rollout import Episodes
from soulsgraph_envs.core.state import STATE_SIZE, Column

_TABLE = WinRateTable("Table 1 (a)", (WinRate(11, 25, "both trained", 44.0), WinRate(0, 400, "no dodge")))


def _printed(table):
    console = Console(file=io.StringIO(), width=120)
    console.print(*table.to_rich())
    return console.file.getvalue()


def test_a_table_tells_the_same_in_each_form():
    terminal, markdown = _printed(_TABLE), _TABLE.table.to_markdown().splitlines()
    assert markdown[4:] == [
        "| both trained | 11/25 | 44.0 % | 26.7-62.9 % | 44.0 % |",
        "| no dodge | 0/400 | 0.0 % | 0.0-1.0 % |  |",
    ]
    for row in _TABLE.rows:
        assert all(cell in terminal for cell in row.cells)
    values = _TABLE.to_dict()["rows"][0]
    assert (values["rate"], values["paper_percent"]) == (0.44, 44.0)
    assert (values["low"], values["high"]) == pytest.approx((0.266657, 0.629326), abs=2e-6)


def test_episodes_keep_each_reward_term(tmp_path):
    rows = np.zeros((2, STATE_SIZE), np.float32)
    rows[:, Column.BOSS_HP] = [0.5, 0.75]
    rows[:, Column.PLAYER_HP] = [1.0, 0.0]
    episodes = Episodes(
        lanes=np.array([3, 0]),
        lengths=np.array([10, 20]),
        seconds=np.array([5.0, 7.0]),
        won=np.array([True, False]),
        died=np.array([False, True]),
        rows=rows,
        terms=np.array([[1.0, -2.0], [0.5, 0.25]], np.float32),
    )
    seeds = np.array([3, 2**63 + 1], np.uint64)
    write_episodes(
        tmp_path / "episodes.parquet", {"trained": episodes, "random": episodes}, ("alive", "damage"), {"seed": seeds}
    )
    first = {"setting": "trained", "episode": 0, "seed": 3, "lengths": 10, "seconds": 5.0, "won": True, "died": False}
    first |= {"boss_hp": 0.5, "player_hp": 1.0, "return": -1.0, "term/alive": 1.0, "term/damage": -2.0}
    second = {"episode": 1, "seed": 2**63 + 1, "lengths": 20, "seconds": 7.0, "won": False, "died": True}
    second |= {"boss_hp": 0.75, "player_hp": 0.0, "return": 0.75, "term/alive": 0.5, "term/damage": 0.25}
    expected = [first, first | second]
    assert read_rows(tmp_path / "episodes.parquet") == [*expected, *(row | {"setting": "random"} for row in expected)]


def test_a_growing_table_goes_on_where_the_checkpoint_was(tmp_path):
    table = GrowingTable(tmp_path / "training.parquet")
    for stage, step in (("camera", 900), ("dodge", 500), ("dodge", 1000)):
        table.add({"stage": stage, "step": step})
    table.flush()
    resumed = GrowingTable(tmp_path / "training.parquet")
    resumed.forget("dodge", after_step=600)
    resumed.add({"stage": "dodge", "step": 700})
    resumed.flush()
    assert [row["step"] for row in read_rows(tmp_path / "training.parquet")] == [900, 500, 700]


class _Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def _lines(seconds, terminal=False, quiet=False, resumed_at=0):
    clock, console = _Clock(), Console(file=io.StringIO(), width=140, force_terminal=terminal, quiet=quiet)
    with stage_progress("dodge", 80_000, console, done=resumed_at, clock=clock) as progress:
        for second in seconds:
            clock.now_s += 1.0
            progress.update(resumed_at + 1_000 * second, mean_return=second / 2)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("resumed_at", "done", "left"),
    [
        (0, ["10,000/80,000", "20,000/80,000", "25,000/80,000"], ["0:01:10", "0:01:00", "0:00:55"]),
        # What was done before counts as no speed.
        (50_000, ["60,000/80,000", "70,000/80,000", "75,000/80,000"], ["0:00:20", "0:00:10", "0:00:05"]),
    ],
)
def test_a_log_gets_a_line_every_ten_seconds_and_a_last_one(resumed_at, done, left):
    lines = _lines(range(1, 26), resumed_at=resumed_at).splitlines()
    returns = ("5.00", "10.00", "12.50")
    assert lines == [
        f"dodge: {steps} steps  1,000 steps/s  return {value}  left {time}"
        for steps, value, time in zip(done, returns, left, strict=True)
    ]


def test_a_terminal_gets_a_bar_a_machine_nothing_and_what_never_moves_has_no_time_left():
    assert "25,000/80,000 steps" in _lines(range(1, 26), terminal=True)
    assert _lines(range(1, 26), quiet=True) == ""
    assert "-:--:--" in _lines([0])
