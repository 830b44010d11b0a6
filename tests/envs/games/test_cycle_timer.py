from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph_envs.games.cycle_timer import Clock, CycleTimer, PhaseClock


class Time:
    """Time that passes only by sleeping, a little longer than asked, and by `work`."""

    def __init__(self, oversleeps_s: float = 0.0) -> None:
        self.now_s, self.oversleeps_s = 0.0, oversleeps_s

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds + self.oversleeps_s

    work = sleep


def make_timer(clock: Time, period_s: float = 0.1) -> CycleTimer:
    return CycleTimer(period_s, Clock(clock, clock.sleep), spin_s=0.0)


@given(st.lists(st.floats(0.001, 0.099), min_size=1, max_size=60), st.floats(0.0, 0.0009))
def test_ticks_stay_on_the_grid_however_late_each_one_wakes(works_s: list[float], oversleeps_s: float) -> None:
    clock = Time(oversleeps_s)
    timer = make_timer(clock)
    for number, work_s in enumerate(works_s, start=1):
        clock.now_s += work_s
        late_s = timer.wait()
        assert clock.now_s == pytest.approx(0.1 * number + late_s, abs=1e-9)
        assert late_s <= 0.001
    assert timer.overruns == 0


@given(st.lists(st.floats(0.0, 0.09) | st.floats(0.11, 0.5), min_size=1, max_size=60))
def test_no_tick_is_shorter_than_its_period_to_catch_up(works_s: list[float]) -> None:
    clock = Time()
    timer = make_timer(clock)
    for work_s in works_s:
        begun_s = clock.now_s
        clock.now_s += work_s
        timer.wait()
        assert clock.now_s - begun_s == pytest.approx(max(0.1, work_s), abs=1e-9)
    assert timer.overruns == sum(work_s > 0.1 for work_s in works_s)


def test_a_restart_forgives_a_pause_and_the_period_may_change() -> None:
    clock = Time()
    timer = make_timer(clock)
    clock.work(5.0)
    timer.restart()
    timer.wait()
    assert timer.overruns == 0
    assert clock.now_s == pytest.approx(5.1)
    assert timer.report().rate_hz == pytest.approx(10)
    timer.period_s = 0.05
    clock.work(0.25)
    assert timer.wait() == pytest.approx(0.2)
    report = timer.report()
    assert report.lateness.max_ms == pytest.approx(200)
    assert report.to_dict()["ticks"] == report.ticks
    assert "200.00 ms" in str(report)


def test_the_end_of_a_coarse_sleep_is_spun() -> None:
    clock, asked = Time(), []

    def sleep(seconds: float) -> None:
        asked.append(seconds)
        clock.now_s += seconds + 0.001

    def ticking() -> float:
        clock.now_s += 0.0001
        return clock.now_s

    timer = CycleTimer(0.1, Clock(ticking, sleep), spin_s=0.002)
    late_s = timer.wait()
    assert late_s < 0.0005
    assert len(asked) == 1
    assert asked[0] < 0.098


def test_phases_inside_another_do_not_count_twice_and_the_one_under_way_counts() -> None:
    now = [0.0]
    clock = PhaseClock(lambda: now[0])
    with clock.phase("outer"):
        now[0] += 1.0
        with suppress(ValueError), clock.phase("inner"):
            now[0] += 10.0
            raise ValueError("lost")
        now[0] += 2.0
        assert clock.seconds == {"outer": 3.0, "inner": 10.0}
    now[0] += 100.0
    with clock.phase("inner"):
        now[0] += 5.0
    assert clock.seconds == {"outer": 3.0, "inner": 15.0}
