"""Generated bosses: a name alone makes the same scenario everywhere, and every seed makes a sound one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soulsgraph_envs.continual.families import load_family
from soulsgraph_envs.continual.generator import MOST_SEED, generated_name, shift_of, tables
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import BossData, load_boss, load_player, load_scenario

BOSSES = ("timing", "conflict", "own")
KINDS = tuple(load_family("labelled").kinds)
SEEDS = st.integers(0, MOST_SEED)


def boss_of(family: str, seed: int) -> BossData:
    return load_boss(load_scenario(generated_name(family, seed)).boss)


@settings(max_examples=12, deadline=None)
@given(seed=SEEDS)
def test_every_seed_makes_a_sound_boss_whose_moves_each_family_numbers_in_its_own_way(seed: int) -> None:
    def without_ids(boss: BossData) -> list[object]:
        values = {key: value for key, value in vars(boss).items() if key not in ("name", "moves")}
        return [values, [{**vars(move), "id": 0} for move in boss.moves]]

    timing, conflict, own = (boss_of(family, seed) for family in BOSSES)
    assert 5 <= len(timing.moves) <= 11
    assert any(move.leap_s > 0 or move.runs_through for move in timing.moves)
    (counter,) = [move for move in timing.moves if move.title == timing.rear.counter]
    assert counter.weight == 0.0
    assert counter.windows[0].half_arc_rad > 3.1
    assert without_ids(timing) == without_ids(conflict) == without_ids(own)
    ids = [[move.id for move in boss.moves] for boss in (timing, conflict, own)]
    assert all(0 <= number < 14 for number in (*ids[0], *ids[1]))
    assert all(18 <= number <= 999 for number in ids[2])
    # In `timing` they grow with the relative time of the first hit.
    timed = sorted(timing.moves, key=lambda move: move.id)
    shares = [move.windows[0].time_s[0] / move.length_s for move in timed]
    assert shares == sorted(shares)


def test_a_number_means_one_relative_time_in_timing_and_different_ones_in_conflict() -> None:
    def spread(family: str) -> float:
        times: dict[int, list[float]] = {}
        for seed in range(40):
            for move in tables(generated_name(family, seed))["boss"]["moves"]:
                times.setdefault(move["id"], []).append(move["windows"][0]["time_s"][0] / move["length_s"])
        return sum(max(one) - min(one) for one in times.values()) / len(times)

    assert spread("conflict") > 1.5 * spread("timing")


def test_own_ids_are_shared_by_no_two_bosses_of_near_seeds() -> None:
    bosses = [tables(generated_name("own", seed))["boss"] for seed in range(10_001, 10_090)]
    ids = [move["id"] for boss in bosses for move in boss["moves"]]
    assert len({*ids}) == len(ids)


def test_a_boss_is_the_same_as_before() -> None:
    """Figures written down when the generator was made: sequences record bosses of it by their digests."""
    boss = boss_of("timing", 10_001)
    moves = [(move.id, move.title, move.length_s) for move in boss.moves[:3]]
    assert moves == [(0, "three blows", 3.49), (2, "two blows", 2.9), (4, "second two blows", 3.12)]
    assert (boss.motion.walk_m_s, boss.aggression.wait_s) == (4.54, (0.84, 2.0))


def test_each_kind_of_shift_changes_what_it_names_and_nothing_else() -> None:
    home = load_scenario("five-skills")
    knight = load_player(home.player)
    for kind in KINDS:
        name = generated_name(f"labelled-{kind}", 7)
        scenario, found = load_scenario(name), shift_of(name)
        assert found is not None
        named, shift = found
        assert named == kind
        assert (scenario.boss == home.boss) == (not shift.moves_of)
        player = load_player(scenario.player)
        changed = {
            f"{group}.{key}"
            for group in ("body", "run", "roll", "attack", "hurt", "camera")
            for key, value in vars(getattr(player, group)).items()
            if value != getattr(vars(knight)[group], key)
        }
        assert changed == {*shift.player}


def test_a_seed_draws_its_kind_and_the_kind_may_be_named() -> None:
    drawn = {seed: shift_of(generated_name("labelled", seed)) for seed in range(100)}
    kinds = {seed: found[0] for seed, found in drawn.items() if found}
    assert {*kinds.values()} == {*KINDS}
    for seed, kind in list(kinds.items())[:8]:
        drawn_tables, named = (tables(generated_name(one, seed)) for one in ("labelled", f"labelled-{kind}"))
        assert drawn_tables.keys() == named.keys()
        assert drawn_tables.get("player", {}).get("camera") == named.get("player", {}).get("camera")
    assert [shift_of(name) for name in ("vordt", "generated/timing/7")] == [None, None]


@pytest.mark.parametrize(
    ("name", "named"),
    [
        *((f"generated/{family}/7", "family") for family in ("timin", "labelled-lock-viw", "timing-lock-view")),
        *((f"generated/timing/{seed}", "seed") for seed in ("07", "", 2**31, -1, "1/2", "\u0661")),
        ("generated/timing", "seed"),
        ("generated/", "family"),
    ],
)
def test_a_bad_name_is_refused(name: str, named: str) -> None:
    for load in (load_scenario, load_boss):
        with pytest.raises(SoulsGraphError, match=named):
            load(name)


def test_a_name_without_data_of_a_kind_is_refused() -> None:
    with pytest.raises(SoulsGraphError, match="generated/timing/7"):
        load_player("generated/timing/7")


def test_a_file_may_be_based_on_a_generated_boss(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('based_on = "generated/timing/7"\nname = "Mine"\nhp_max = 2000.0\n')
    (tmp_path / "fight.toml").write_text('based_on = "iudex-phase1"\nname = "fight"\nboss = "mine.toml"\n')
    assert load_scenario(tmp_path / "fight.toml").boss_hp_full == 2000.0
    assert load_boss(tmp_path / "mine.toml").moves == load_boss("generated/timing/7").moves
