"""Shipped data is valid, and a bad file is refused in one line: file, key, expected, found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soulsgraph_envs.core import scenario as catalogue
from soulsgraph_envs.core.config import Where, read_table
from soulsgraph_envs.core.errors import DataError, UnknownNameError
from soulsgraph_envs.core.scenario import BossData, RunSpeed, load_boss, load_player, load_scenario, scenario_names

DATA = Path(catalogue.__file__).parents[1] / "data"
PHASES = ("iudex-phase1", "iudex-phase2")


def spoilt(tmp_path: Path, kind: str, name: str, pattern: str, replacement: str) -> Path:
    text = (DATA / kind / f"{name}.toml").read_text(encoding="utf-8")
    changed, count = re.subn(pattern, replacement, text, count=1, flags=re.MULTILINE)
    assert count == 1, f"{pattern} is not in {name}"
    path = tmp_path / f"{name}.toml"
    path.write_text(changed, encoding="utf-8")
    return path


def test_every_shipped_scenario_is_sound() -> None:
    assert {*PHASES, "vordt"} < set(scenario_names())
    for name in scenario_names():
        assert load_scenario(name).name == name


def test_phases_are_the_papers() -> None:
    first, second = map(load_scenario, PHASES)
    assert (first.flasks, first.boss_hp, first.death_hp_ratio) == (1, (1037.0, 622.0), 0.05)
    assert (second.flasks, second.boss_hp, second.death_hp_ratio) == (2, (560.0, 60.0), 0.05)
    assert first.boss_hp_full == second.boss_hp_full == 1037.0
    assert first.arena.centre_m == (142.0, 595.0)
    assert first.starts["mid"].distance_m == (5.0, 7.0)


def test_knight_has_the_games_numbers() -> None:
    knight = load_player("knight")
    assert (knight.body.hp, knight.body.stamina, knight.estus_heal) == (454.0, 95.0, 250.0)
    light = knight.animations.light_1
    assert (light.attack_s, light.roll_s, light.move_s) == (0.63, 0.80, 1.03)


def timing(boss: BossData, move_id: int) -> list[object]:
    move = next(move for move in boss.moves if move.id == move_id)
    return [move.length_s, move.tracks_s, [window.time_s for window in move.windows]]


@pytest.mark.parametrize("name", PHASES)
def test_ids_grow_with_the_relative_time_of_the_first_hit(name: str) -> None:
    moves = sorted(load_boss(name).moves, key=lambda move: move.id)
    ratios = [move.windows[0].time_s[0] / move.length_s for move in moves]
    assert ratios == sorted(ratios)


def test_phases_share_the_ids_of_shared_moves_and_count_without_gaps() -> None:
    first, second = map(load_boss, PHASES)
    titles = [{move.id: move.title for move in boss.moves} for boss in (first, second)]
    common = titles[0].keys() & titles[1].keys()
    assert len(common) == 8
    assert all(titles[0][key] == titles[1][key] for key in common)
    for key in common:
        timings = [
            [m.length_s, m.tracks_s, [w.time_s for w in m.windows]]
            for b in (first, second)
            for m in b.moves
            if m.id == key
        ]
        assert timings[0] == timings[1]
    others = [vars(boss.animations) for boss in (first, second)]
    assert others[0] == others[1]
    union = titles[0].keys() | titles[1].keys()
    assert sorted(union) == list(range(14))
    assert sorted(animation.id for animation in others[0].values()) == list(range(14, 20))


@pytest.mark.parametrize("name", PHASES)
def test_every_move_names_its_raw_animation(name: str) -> None:
    for move in load_boss(name).moves:
        assert move.name == f"Attack{move.raw_id}"


def test_unknown_name_suggests_a_known_one() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'iudex-phase1'"):
        load_scenario("iudex-phase-1")
    with pytest.raises(UnknownNameError, match="unknown boss"):
        load_boss("gundyr")


def test_unreadable_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="readable TOML file"):
        load_scenario(tmp_path / "nowhere.toml")
    broken = tmp_path / "broken.toml"
    broken.write_bytes(b"name = \xff")
    with pytest.raises(DataError, match=r"broken\.toml"):
        load_scenario(broken)


@pytest.mark.parametrize(
    ("pattern", "replacement", "told"),
    [
        (r"^flasks = 1", "", r"flasks: expected a whole number from 0 to 99, found no such key"),
        (r"^flasks = 1", "flask = 1", r"flask: expected 'flasks', found an unknown key"),
        (r"^flasks = 1", "flasks = 1.5", r"flasks: expected a whole number.*found 1\.5"),
        (r"^flasks = 1", "flasks = true", r"flasks: expected a whole number.*found True"),
        (r"^flasks = 1", "flasks = -1", r"flasks: .*found -1"),
        (r"^boss_hp = .*", "boss_hp = [622.0, 1037.0]", r"boss_hp: expected \[start, end\]"),
        (r"^boss_hp = .*", "boss_hp = [2000.0, 1037.0]", r"boss_hp: expected .*1037"),
        (r"^boss_hp = .*", "boss_hp = [1037.0]", r"boss_hp: expected a list of 2 numbers"),
        (r"^death_hp_ratio = .*", "death_hp_ratio = nan", r"death_hp_ratio: .*found nan"),
        (r"^boss = .*", "boss = 3", r"boss: expected a name or the path"),
        (r"^player = .*", "", r"player: .*no such key"),
        (r"^\[arena\]", "[arenas]", r"arenas: expected 'arena'"),
        (r"^\[starts\.long\]", "[starts.far]", r"starts: expected exactly scattered, mid, long"),
        (r"^distance_m = \[3\.0, 12\.5\]", "distance_m = [3.0, 40.0]", r"starts\.scattered\.distance_m: .*arena"),
        (r"^distance_m = \[3\.0, 12\.5\]", "distance_m = [9.0, 5.0]", r"starts\.scattered\.distance_m: .*rising"),
        (r"^distance_m = \[3\.0, 12\.5\]", "distance_m = [0.1, 5.0]", r"starts\.scattered\.distance_m: .*contact"),
        (r"^facing = false", "facing = 0", r"starts\.scattered\.facing: expected true or false"),
        (r"^flasks = 1", "flasks = 1\nboss_hp_full = 1.0", r"boss_hp_full"),
        (r"^flasks = 1", 'flasks = 1\nstart = "near"', r"start: expected one of scattered, mid, long"),
    ],
)
def test_bad_scenario_is_told(tmp_path: Path, pattern: str, replacement: str, told: str) -> None:
    path = spoilt(tmp_path, "scenarios", "iudex-phase1", pattern, replacement)
    with pytest.raises(DataError, match=told) as caught:
        load_scenario(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "replacement", "told"),
    [
        (r"time_s = \[0\.6, 0\.75\]", "time_s = [0.75, 0.6]", r"moves\[0\]\.windows\[0\]\.time_s"),
        (r"time_s = \[1\.8, 2\.0\]", "time_s = [1.8, 9.0]", r"moves\[0\]\.windows\[2\]\.time_s: .*within the move"),
        (r"time_s = \[1\.15, 1\.3\]", "time_s = [0.7, 1.3]", r"moves\[0\]\.windows\[1\]\.time_s: .*window before"),
        (r"^tracks_s = 1\.6", "tracks_s = 7.0", r"moves\[0\]: expected tracks_s"),
        (r"^id = 2$", "id = 0", r"moves: .*ids once, found 0 repeated"),
        (r"^id = 2$", "id = 14", r"moves: .*ids once, found 14 repeated"),
        (r"^counter = .*", 'counter = "bite"', r"rear\.counter: expected one of"),
        (r"^weight = 1\.0", "weight = -1.0", r"moves\[0\]\.weight"),
        (r"^wait_s = .*", "wait_s = [3.0, 1.0]", r"aggression\.wait_s"),
        (r"^leap_s = .*", "leap_s = 2.0", r"leap_s: expected at most the start"),
        (r"^back_off_within_m = .*", "back_off_within_m = 9.0", r"motion\.back_off_within_m"),
        (r"reach_m = 3\.8", 'reach_m = "far"', r"moves\[0\]\.windows\[0\]\.reach_m: expected a number"),
        (r"^\[\[moves\]\]", "[[move]]", r"move: expected 'moves'"),
    ],
)
def test_bad_boss_is_told(tmp_path: Path, pattern: str, replacement: str, told: str) -> None:
    path = spoilt(tmp_path, "bosses", "iudex-phase1", pattern, replacement)
    with pytest.raises(DataError, match=told):
        load_boss(path)


@pytest.mark.parametrize(
    ("pattern", "replacement", "told"),
    [
        (r"hit_s = 0\.37", "hit_s = 5.0", r"animations\.light_1\.hit_s: expected at most the length"),
        (r", hit_s = 0\.95", "", r"animations\.estus\.hit_s"),
        (r"^damage = .*", "damage = [50.0, 30.0]", r"attack\.damage"),
        (r"^lock_break_m = .*", "lock_break_m = 3.0", r"camera\.lock_break_m"),
        (r"id = 1,", "id = 0,", r"animations: .*0 repeated"),
        (r"^idle = .*", "", r"animations\.idle: expected a table, found no such key"),
    ],
)
def test_bad_player_is_told(tmp_path: Path, pattern: str, replacement: str, told: str) -> None:
    path = spoilt(tmp_path, "players", "knight", pattern, replacement)
    with pytest.raises(DataError, match=told):
        load_player(path)


@pytest.mark.parametrize(
    ("pattern", "replacement", "told"),
    [
        (r"^heavy_2 = .*", "", r"animations\.heavy_2: expected a table, found no such key"),
        (r"^\[jump\]\n(.*\n){3}", "", r"animations\.jump: expected no such key, found one without its group"),
        (r"^(jump = .*), hit_s = 0\.60 }", r"\1 }", r"animations\.jump\.hit_s"),
        (r"^damage = \[260.*", "damage = [320.0, 260.0]", r"parry\.damage"),
        (r"^window_s = .*", "window_s = [0.4, 0.1]", r"parry\.window_s"),
        (r"^window_s = .*", "window_s = [0.4, 2.0]", r"parry\.window_s: expected a window within the parry's 0\.93 s"),
        (r"^airborne_s = .*", "airborne_s = 0.7", r"jump\.airborne_s: expected a moment before it lands, 0\.6 s"),
        (r"^\[heavy\]", "[heavys]", r"heavys: expected 'heavy'"),
    ],
)
def test_bad_further_actions_are_told(tmp_path: Path, pattern: str, replacement: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        load_player(spoilt(tmp_path, "players", "knight-full", pattern, replacement))


@pytest.mark.parametrize(
    ("pattern", "replacement", "told"),
    [
        (r'^boss = "iudex-phase2"', 'boss = "vordt"', r"transition\.boss: expected a boss of as many HP, 1037"),
        (r'^boss = "iudex-phase2"', "", r"transition\.boss: expected a text"),
        (r"id = 20", "id = 14", r"transition\.animation\.id: expected an id that neither boss has, found 14"),
        (r"^below_hp_ratio = .*", "below_hp_ratio = 1.5", r"transition\.below_hp_ratio"),
    ],
)
def test_bad_transition_is_told(tmp_path: Path, pattern: str, replacement: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        load_scenario(spoilt(tmp_path, "scenarios", "iudex-full", pattern, replacement))


def test_boss_is_parried_and_thrown_or_neither(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"animations\.thrown: expected a table"):
        load_boss(spoilt(tmp_path, "bosses", "iudex-phase1", r"^thrown = .*", ""))


def test_transition_may_name_a_boss_beside_it(tmp_path: Path) -> None:
    spoilt(tmp_path, "bosses", "iudex-phase2", r"^name = .*", 'name = "Another"').rename(tmp_path / "next.toml")
    path = spoilt(tmp_path, "scenarios", "iudex-full", r'^boss = "iudex-phase2"', 'boss = "next.toml"')
    transition = load_scenario(path).transition
    assert transition is not None
    assert load_boss(transition.boss).name == "Another"


def test_scenario_may_name_files_beside_it(tmp_path: Path) -> None:
    spoilt(tmp_path, "bosses", "iudex-phase1", r"^hp_max = .*", "hp_max = 2000.0").rename(tmp_path / "big.toml")
    path = spoilt(tmp_path, "scenarios", "iudex-phase1", r"^boss = .*", 'boss = "big.toml"')
    assert load_scenario(path).boss_hp_full == 2000.0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@settings(max_examples=200)
@given(values=st.fixed_dictionaries({"speed_m_s": json_values, "locked_factor": json_values}) | json_values)
def test_reader_accepts_what_is_in_range_and_tells_everything_else(values: object) -> None:
    try:
        run = read_table(RunSpeed, values, Where("any"))
    except DataError:
        return
    assert 0 <= run.speed_m_s <= 20
    assert 0 <= run.locked_factor <= 1
