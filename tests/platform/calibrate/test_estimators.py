"""Estimators on random data whose answer is known."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration_draws import ALTERATIONS, LEAST, MOST, draw_alterations
from soulsgraph.calibrate.boss_file import write_tables
from soulsgraph.calibrate.choice import Onset, chain_fits, luce_fits, wait_fits
from soulsgraph.calibrate.hit_windows import (
    WindowData,
    assign_windows,
    damage_fit,
    find_sector,
    spread_fit,
    window_fits,
)
from soulsgraph.calibrate.motion import Ticks, best_edge, leap_fits, lunge_fits
from soulsgraph.calibrate.moves import MoveData
from soulsgraph.calibrate.rows import Flags
from soulsgraph.calibrate.values import fit, middle
from soulsgraph_envs.core.config import find, read_data, shipped_names
from soulsgraph_envs.core.scenario import HitWindow, load_boss

_BOSS = load_boss("iudex-phase1")


@given(edge=st.floats(1.0, 9.0), seed=st.integers(0, 1000))
@settings(max_examples=30, derandomize=True)
def test_an_edge_is_found_between_the_values_beside_it(edge: float, seed: int) -> None:
    values = np.random.default_rng(seed).uniform(0.0, 10.0, 200)
    found, low, high, wrong = best_edge(values, values < edge)
    assert wrong == 0.0
    assert low <= edge <= high
    assert low <= found <= high


def _ticks(move_s: float, lunge_s: tuple[float, float], speed_m_s: float, distance_m: float) -> Ticks:
    """Return ticks of 0.1 s of many performances of a move, the player near the boss from the lunge on."""
    begin = np.concatenate([np.arange(late, move_s - 0.1, 0.1) for late in np.linspace(0.0, 0.09, 7)])
    end, none = begin + 0.1, 0.0 * begin
    inside = np.clip(np.minimum(end, lunge_s[1]) - np.maximum(begin, lunge_s[0]), 0.0, None)
    number, near = np.zeros(len(begin), np.int64), np.where(end > lunge_s[0], distance_m, 5.0)
    gone = inside * speed_m_s
    return Ticks(number, number, begin, end, gone, gone, none, none, none, near)


@given(begin=st.floats(0.2, 0.8), lasts=st.floats(0.25, 0.6), speed=st.floats(1.0, 8.0))
@settings(max_examples=20, derandomize=True)
def test_a_lunge_is_found_where_it_was_seen_alone(begin: float, lasts: float, speed: float) -> None:
    move = replace(_BOSS.moves[0], runs_through=False)
    clear = lunge_fits("m", _ticks(1.6, (begin, begin + lasts), speed, 5.0), 1.0, move, 1.0)
    assert [value.verdict for value in clear] == ["determined"] * 3
    assert [value.estimate for value in clear] == pytest.approx([speed, begin, begin + lasts], rel=0.02, abs=0.02)
    # A body in the way hides it: nothing says that the boss stands.
    hidden = lunge_fits("m", _ticks(1.6, (begin, begin + lasts), speed, 1.0), 1.0, move, 1.0)
    assert [value.verdict for value in hidden] == ["not determined"] * 3
    still = lunge_fits("m", _ticks(1.6, (begin, begin + lasts), 0.0, 5.0), 1.0, move, 1.0)
    assert (still[0].verdict, still[0].estimate) == ("determined", 0.0)


def test_a_lunge_that_whole_ticks_show_for_a_moment_alone_is_as_near_the_shipped_one_as_may_be() -> None:
    # Always the same tick of 0.1 s goes 0.95 m, and those behind it are hidden: a frame of 57 m/s would explain it too.
    begin = np.tile(np.arange(0.0, 0.75, 0.1), 4)
    gone, none = np.where(begin > 0.65, 0.95, 0.0), 0.0 * begin
    numbers = np.repeat(np.arange(4), 8)
    ticks = Ticks(numbers, numbers, begin, begin + 0.1, gone, gone, none, none, none, none + 5.0)
    move = replace(_BOSS.moves[0], runs_through=False, lunge_m_s=7.0)
    speed, first, last = lunge_fits("m", ticks, 1.0, move, 1.0)
    assert (speed.estimate, first.estimate, last.verdict) == (pytest.approx(9.5), pytest.approx(0.7), "bounded")


def test_a_leap_is_known_as_well_as_its_window() -> None:
    begin = np.tile(np.arange(0.0, 1.15, 0.1), 4)
    gone, none = np.where(begin > 0.45, 0.5, 0.0), 0.0 * begin
    numbers = np.repeat(np.arange(4), 12)
    ticks = Ticks(numbers, numbers, begin, begin + 0.1, gone, gone, none, none, none, none + 5.0)
    (sure,) = leap_fits("m", ticks, (1.1, 1.0925, 1.1075), 0.6)
    assert (sure.estimate, sure.verdict) == (pytest.approx(0.6, abs=0.02), "determined")
    (vague,) = leap_fits("m", ticks, (1.1, 0.9, 1.3), 0.6)
    assert (vague.low, vague.high) == (pytest.approx(0.4, abs=0.03), pytest.approx(0.8, abs=0.03))
    assert vague.verdict == "bounded"


def test_a_few_wrong_values_move_an_edge_little() -> None:
    values = np.linspace(0.0, 10.0, 1001)
    below = values < 4.0
    below[[950, 10]] = [True, False]
    assert best_edge(values, below)[0] == pytest.approx(4.0, abs=0.02)


@given(low=st.floats(0.3, 2.0), span=st.floats(0.5, 4.0), seed=st.integers(0, 1000))
@settings(max_examples=30, derandomize=True)
def test_the_ends_of_waits_lie_within_their_intervals(low: float, span: float, seed: int) -> None:
    frames = np.round(np.random.default_rng(seed).uniform(low, low + span, 150) * 60.0)
    waits = [Onset(0, 5.0, float(wait), 5.0, False, False, False) for wait in frames]
    found = wait_fits(waits, _BOSS)
    for value, truth in zip(found[:2], (low, low + span), strict=True):
        assert value.low is not None
        assert value.high is not None
        assert value.estimate == pytest.approx(truth, abs=0.12 * span + 0.02)
        assert value.verdict != "unlike the model"
        assert value.low - 0.06 * span - 0.01 <= truth <= value.high + 0.06 * span + 0.01


def test_waits_that_are_far_from_uniform_are_unlike_the_model() -> None:
    waits = [Onset(0, 5.0, wait, 5.0, False, False, False) for wait in [60.0] * 60 + [180.0] * 60]
    assert {value.verdict for value in wait_fits(waits, _BOSS)[:2]} == {"unlike the model"}


@pytest.mark.parametrize("far", [0, 150])
def test_waits_beside_the_player_are_estimated_apart_from_others(far: int) -> None:
    random = np.random.default_rng(4)
    waits, more = random.uniform(48.0, 180.0, 300), random.uniform(18.0, 60.0, 300)
    near = [Onset(0, 1.0, float(wait + one), 1.0, False, False, False) for wait, one in zip(waits, more, strict=True)]
    away = [Onset(0, 1.0, float(wait), 5.0, False, False, False) for wait in random.uniform(48.0, 180.0, far)]
    found = {value.key: value for value in wait_fits([*near, *away], _BOSS)}
    for end, truth in enumerate((0.8, 3.0)):
        value = found[f"aggression.wait_s.{end}"]
        assert value.low is not None
        assert value.high is not None
        assert value.low <= truth <= value.high
        assert value.verdict == ("determined" if far and end else value.verdict)
        assert far or value.verdict == "bounded"
    for end, truth in enumerate((0.3, 1.0)):
        value = found[f"aggression.near_wait_s.{end}"]
        assert value.known == bool(far)
        assert not far or (value.low or 0.0) <= truth <= (value.high or 0.0)


@given(chance=st.floats(0.1, 0.9), most=st.integers(0, 4), seed=st.integers(0, 1000))
@settings(max_examples=30, derandomize=True)
def test_chains_are_as_long_as_seen_and_as_likely_as_while_they_could_go_on(
    chance: float, most: int, seed: int
) -> None:
    random, ended = np.random.default_rng(seed), list[tuple[int, bool]]()
    for _ in range(200):
        links = 0
        while links < most and random.random() < chance:
            ended.append((links, True))
            links += 1
        ended.append((links, False))
    found, longest = chain_fits(ended, _BOSS)
    seen = max((links for links, _ in ended), default=0)
    shipped = _BOSS.aggression.chain_most
    assert longest.estimate in (None, seen)
    assert longest.verdict != "determined" or seen == most
    assert longest.estimate is not None or seen <= shipped
    if seen == most > 0 and longest.verdict == "determined":
        assert found.low is not None
        assert found.high is not None
        # A binomial interval of 95 %, with room for the draws of thirty examples: 0.1 on either side.
        assert found.low - 0.1 <= chance <= found.high + 0.1


@given(weights=st.lists(st.floats(0.3, 3.0), min_size=2, max_size=5), seed=st.integers(0, 1000))
@settings(max_examples=20, derandomize=True)
def test_weights_come_back_up_to_their_sum(weights: list[float], seed: int) -> None:
    random, count = np.random.default_rng(seed), len(weights)
    ranges = [(0.0, 4.0 if place % 2 else 9.0) for place in range(count)]
    shares = np.array(weights)
    rows = []
    for distance in random.uniform(0.0, 9.0, 3000):
        within = np.array([low <= distance <= high for low, high in ranges])
        rows.append((int(random.choice(count, p=within * shares / (within * shares).sum())), float(distance)))
    found = luce_fits(rows, ranges, np.ones(count), [str(place) for place in range(count)])
    expected = shares / shares.sum() * count
    outside = [
        value for value, truth in zip(found, expected, strict=True)
        if not float(value.low or 0.0) * 0.9 <= truth <= float(value.high or 0.0) * 1.1
    ]  # fmt: skip
    assert outside == []


def test_a_move_that_was_at_hand_and_never_chosen_is_rare() -> None:
    rows = [(0, 1.0)] * 40
    (chosen, often), (_, seldom) = (
        luce_fits(rows[:count], [(0.0, 2.0), (0.0, 2.0)], np.ones(2), ["a", "b"]) for count in (40, 2)
    )
    assert (seldom.estimate, seldom.verdict) == (None, "not determined")
    assert (often.low, often.count, often.verdict) == (0.0, 40, "bounded")
    assert often.estimate is not None
    assert often.high is not None
    # None of 40 is less likely than one in twenty from a share of 7.2 % on.
    assert chosen.estimate is not None
    assert often.high / (often.high + chosen.estimate) == pytest.approx(0.072, rel=0.02)
    assert often.estimate / (often.estimate + chosen.estimate) == pytest.approx(0.017, rel=0.05)
    away = luce_fits([(0, 1.0)] * 40, [(0.0, 2.0), (3.0, 4.0)], np.ones(2), ["a", "b"])[1]
    assert away.verdict == "not determined"


def _performances(window: HitWindow, seed: int, count: int = 120) -> MoveData:
    """Return performances of a move with one window, the player on random ways past a boss that looks along -y."""
    random, frames = np.random.default_rng(seed), 60
    start, end = (round(one * 60.0) for one in window.time_s)
    moments = np.arange(frames) / 60.0
    distance = random.uniform(0.5, 2.0 * window.reach_m, (count, 1)) + random.uniform(-4.0, 4.0, (count, 1)) * moments
    angle = random.uniform(-1.8 * window.half_arc_rad, 1.8 * window.half_arc_rad, (count, 1)) + 0.0 * moments
    dx, dy = -np.sin(angle) * distance, -np.cos(angle) * distance
    inside = (np.abs(distance) <= window.reach_m) & (np.abs(angle) <= window.half_arc_rad) & (distance > 0)
    inside &= (np.arange(frames) >= start) & (np.arange(frames) < end)
    hits = [(at, int(np.flatnonzero(row)[0])) for at, row in enumerate(inside) if row.any()]
    seen = np.ones((count, frames), np.bool_) & (distance > 0)
    zeros, flags = np.zeros((count, frames)), np.zeros(len(hits), np.bool_)
    damage = np.round(window.damage * (1.0 + 0.08 * random.uniform(-1.0, 1.0, len(hits))))
    return MoveData(
        8, 1.0, [None] * count, zeros, zeros, dx, dy, zeros, seen, seen,  # type: ignore[list-item]
        np.array(hits).reshape(-1, 2), damage, flags, flags,
    )  # fmt: skip


@given(reach=st.floats(2.0, 5.0), arc=st.floats(0.4, 1.5), length=st.floats(0.15, 0.4), seed=st.integers(0, 10**6))
@settings(max_examples=15, derandomize=True)
def test_a_sector_is_found_with_its_end(reach: float, arc: float, length: float, seed: int) -> None:
    window = HitWindow((0.3, 0.3 + length), reach, arc, 100.0)
    data = _performances(window, seed)
    shipped = replace(window, reach_m=3.5, half_arc_rad=0.8, time_s=(0.3, 0.55))
    (found,) = assign_windows(data, [shipped], 1.0)
    assert found is not None
    assert found.start == 18
    sector = find_sector(data, found, shipped, 1.0)
    assert sector is not None
    assert sector.odd == 0.0
    assert sector.reach[0] == pytest.approx(reach, rel=0.12)
    assert sector.arc[0] == pytest.approx(arc, rel=0.25)
    assert sector.reach[1] * 0.97 <= reach <= sector.reach[2] * 1.03
    damage = damage_fit("damage", data, found.own, _BOSS, 100.0)
    assert damage.estimate == pytest.approx(100.0, rel=0.04)


def _blows(damage: list[np.ndarray]) -> list[tuple[MoveData, WindowData]]:
    """Return one window a list of blows, of which nothing but the HP they took is known."""
    data = _performances(HitWindow((0.3, 0.5), 3.0, 1.0, 100.0), 1)
    seen = [replace(data, damage=values, counter=np.zeros(len(values), np.bool_)) for values in damage]
    return [(one, WindowData(0, np.arange(len(one.damage)), 9, (0.0, 0.0, 0.0))) for one in seen]


@given(spread=st.floats(0.03, 0.3), means=st.lists(st.floats(40.0, 300.0), min_size=3, max_size=6),
       seed=st.integers(0, 1000), wrong=st.booleans())  # fmt: skip
@settings(max_examples=40, derandomize=True)
def test_the_spread_of_damage_is_found_whatever_the_means(
    spread: float, means: list[float], seed: int, wrong: bool
) -> None:
    random = np.random.default_rng(seed)
    damage = [np.floor(mean * random.uniform(1.0 - spread, 1.0 + spread, 40) + 0.5) for mean in means]
    if wrong:
        # A counter-hit that nobody saw.
        damage[0][0] *= 1.7
    found = spread_fit(_blows(damage), _BOSS)
    assert found.low is not None
    assert found.high is not None
    assert found.estimate == pytest.approx(spread, rel=0.12)
    assert 0.95 * found.low <= spread <= 1.05 * found.high


def test_damage_that_never_varies_has_a_spread_below_half_a_point() -> None:
    found = spread_fit(_blows([np.full(40, 100.0), np.full(40, 60.0)]), replace(_BOSS, damage_spread=0.0))
    assert found.low == 0.0
    assert found.high is not None
    assert found.high < 0.5 / 60.0
    lone = spread_fit(_blows([np.array([100.0]), np.array([60.0])]), _BOSS)
    assert lone.verdict == "not determined"


def test_windows_that_moved_are_told_apart_by_their_blows() -> None:
    first, second = HitWindow((0.2, 0.3), 3.0, 1.0, 50.0), HitWindow((0.5, 0.6), 3.0, 1.0, 80.0)
    one, other = _performances(first, 1), _performances(second, 1)
    both = replace(one, hits=np.vstack([one.hits, other.hits]))
    shipped = [replace(first, time_s=(0.25, 0.35)), replace(second, time_s=(0.42, 0.52))]
    found = assign_windows(both, shipped, 1.0)
    assert [window.start if window else None for window in found] == [12, 30]
    # Blows in one place alone, between both, may be of either.
    assert assign_windows(one, shipped, 1.0) == [None, None]


def _shielded(data: MoveData, window: HitWindow, frames: slice, rows: slice | Flags) -> MoveData:
    """Return performances in which nothing can strike the player in some frames: blows come after these, or never."""
    free = data.open.copy()
    free[rows, frames] = False
    inside = (data.geometry(0.0)[0] <= window.reach_m) & (data.geometry(0.0)[1] <= window.half_arc_rad) & free
    start, end = (round(one * 60.0) for one in window.time_s)
    inside &= (np.arange(data.frames) >= start) & (np.arange(data.frames) < end)
    hits = np.array([(at, int(np.flatnonzero(row)[0])) for at, row in enumerate(inside) if row.any()])
    flags = np.zeros(len(hits), np.bool_)
    return replace(data, open=free, hits=hits, damage=np.full(len(hits), 100.0), counter=flags, knockdown=flags)


@pytest.mark.parametrize("seed", range(4))
def test_a_start_is_known_only_where_somebody_could_have_been_struck_before_it(seed: int) -> None:
    window, all_of = HitWindow((0.3, 0.6), 3.0, 1.0, 100.0), slice(None)
    data = _performances(window, seed)
    # The data that everybody has are off: the blows alone say when it opens.
    shipped = replace(window, time_s=(0.36, 0.66))
    rolling = _shielded(data, window, slice(10, 25), all_of)
    (hidden,) = assign_windows(rolling, [shipped], 1.0)
    assert hidden is not None
    assert hidden.start == 25
    assert hidden.opens[1] < 18 < hidden.opens[2]
    values = {
        value.kind: value for value in window_fits("w", rolling, hidden, shipped, replace(_BOSS, time_factor=1.0))
    }
    assert values["start"].verdict == "bounded"
    (seen,) = assign_windows(_shielded(data, window, slice(10, 25), slice(0, 60)), [shipped], 1.0)
    assert seen is not None
    assert seen.opens == (18.0, 17.5, 18.5)


def _combo(seed: int) -> tuple[MoveData, list[HitWindow]]:
    """Return performances of two windows, from frame 12 and 24 on, and what everybody takes them for.

    Who is struck by the first is shielded until frame 32, and the others roll until frame 26.
    """
    first, second = HitWindow((0.2, 0.22), 3.0, 1.0, 50.0), HitWindow((0.4, 0.7), 3.0, 1.0, 80.0)
    # One way past the boss for both.
    one, other = _performances(first, seed), _performances(second, seed)
    struck = np.isin(np.arange(len(other.open)), one.hits[:, 0])
    again = _shielded(_shielded(other, second, slice(13, 32), struck), second, slice(8, 26), ~struck)
    hits = np.vstack([one.hits, again.hits])
    flags = np.zeros(len(hits), np.bool_)
    both = replace(again, hits=hits, damage=np.full(len(hits), 60.0), counter=flags, knockdown=flags)
    return both, [replace(first, time_s=(0.22, 0.4)), replace(second, time_s=(0.5, 0.8))]


def test_blows_that_may_be_of_either_window_are_of_none() -> None:
    wrong = 0
    for seed in range(20):
        data, shipped = _combo(seed)
        first, second = assign_windows(data, shipped, 1.0)
        assert first is not None
        assert second is not None
        assert first.opens == (12.0, 11.5, 12.5)
        assert second.opens[1] <= 24 <= second.opens[2]
        wrong += bool((data.hits[first.own, 1] > 12).any())
    # Seeds 0 to 19: that several walk into the second in one frame by chance may look like its first.
    assert wrong <= 4


@given(st.lists(st.floats(-100.0, 100.0), min_size=1, max_size=60))
def test_a_median_lies_within_its_interval(values: list[float]) -> None:
    median, (low, high), spread = middle(values, 0.1)
    assert low <= median - 0.1
    assert median + 0.1 <= high
    assert spread >= 0.0


def test_verdicts_follow_the_width_of_the_interval() -> None:
    assert fit("a", "reach", 1.0, 10.0, (9.5, 10.5), 9).verdict == "determined"
    assert fit("a", "reach", 1.0, 10.0, (8.0, 12.0), 9).verdict == "bounded"
    # From the estimate to either end: one of 16 % on one side may hide an error of 16 %.
    assert fit("a", "reach", 1.0, 10.0, (9.95, 11.2), 9).verdict == "bounded"
    assert fit("a", "reach", 1.0, 10.0, (9.5, 10.5), 2).verdict == "bounded"
    assert fit("a", "reach", 1.0, 10.0, (9.5, np.inf), 9).high is None
    assert fit("a", "reach", 1.0, np.nan, (0.0, 1.0), 9).verdict == "not determined"
    assert fit("a", "reach", 1.0, 10.0, (9.5, 10.5), 9, unlike=True).verdict == "unlike the model"


@pytest.mark.parametrize("name", shipped_names("boss"))
def test_a_boss_is_written_as_it_was_read(name: str, tmp_path: Path) -> None:
    tables = read_data("boss", find("boss", name))
    write_tables(tmp_path / "boss.toml", tables, "A head.", {("motion", "walk_m_s"): "a note"})
    text = (tmp_path / "boss.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text) == tables
    assert text.startswith("# A head.")
    assert "# a note" in text


def test_a_draw_is_the_same_again_and_alters_as_much_as_it_says(tmp_path: Path) -> None:
    path, done = draw_alterations("iudex-phase1", 3, tmp_path)
    text = path.read_text(encoding="utf-8")
    assert draw_alterations("iudex-phase1", 3, tmp_path)[1] == done
    assert path.read_text(encoding="utf-8") == text
    assert len({one.keys for one in done}) == len(done) == ALTERATIONS
    assert all(LEAST <= abs(one.factor - 1.0) <= MOST for one in done)
    assert load_boss(path).moves != _BOSS.moves
    assert draw_alterations("iudex-phase1", 4, tmp_path)[1] != done


@pytest.mark.slow
def test_every_window_of_a_draw_can_strike(tmp_path: Path) -> None:
    # Where windows may come out shorter than a frame, draw 108 has one.
    for seed in range(100, 116):
        boss = load_boss(draw_alterations("iudex-phase1", seed, tmp_path)[0])
        lengths_s = [window.time_s[1] - window.time_s[0] for move in boss.moves for window in move.windows]
        assert min(lengths_s) * boss.time_factor >= 1.0 / 60.0
