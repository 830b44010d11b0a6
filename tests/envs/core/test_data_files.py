"""A data file may be based on another: what differs is laid over it, and errors name their place."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from soulsgraph_envs.core.config import Between, NonEmpty, Pair, Where, check_fields, load, to_table, validate
from soulsgraph_envs.core.errors import DataError, SoulsGraphError
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario, scenario_names
from soulsgraph_envs.core.state import Column, Control
from soulsgraph_envs.skills import SkillOptions


def written(folder: Path, **files: str) -> Callable[[str], Path]:
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return lambda name: folder / f"{name}.toml"


def differences(first: dict[str, Any], second: dict[str, Any], above: str = "") -> set[str]:
    found: set[str] = set()
    for key, value in first.items():
        place = f"{above}{key}"
        if isinstance(value, dict):
            found |= differences(value, second[key], f"{place}.")
        elif value != second[key]:
            found.add(place)
    return found


def test_file_gives_only_what_differs(tmp_path: Path) -> None:
    at = written(tmp_path, stout='based_on = "knight"\nname = "Stout"\nestus_heal = 300.0\n[body]\nhp = 500.0')
    stout, knight = asdict(load_player(at("stout"))), asdict(load_player("knight"))
    assert differences(stout, knight) == {"name", "estus_heal", "body.hp"}
    assert (stout["estus_heal"], stout["body"]["hp"]) == (300.0, 500.0)


def test_one_reader_reads_toml_and_json_alike(tmp_path: Path) -> None:
    (tmp_path / "options.toml").write_text('hp_window = false\n[dodge]\nstamina = "indicator"\n')
    (tmp_path / "options.json").write_text('{"hp_window": false, "dodge": {"stamina": "indicator"}}')
    toml, json_ = (load(SkillOptions, Where(tmp_path / f"options.{ending}")) for ending in ("toml", "json"))
    assert toml == json_ == validate(SkillOptions, to_table(toml), Where("written"))
    assert not toml.hp_window
    for ending, wrong in (("toml", "[dodge]\nstamina = 3"), ("json", '{"dodge": {"stamina": 3}}')):
        (tmp_path / f"options.{ending}").write_text(wrong)
        with pytest.raises(DataError, match=rf"options\.{ending}: dodge\.stamina"):
            load(SkillOptions, Where(tmp_path / f"options.{ending}"))


def test_an_added_move_comes_behind_the_others_and_a_listed_one_in_their_place(tmp_path: Path) -> None:
    shipped = load_boss("iudex-phase1")
    window = "{ time_s = [0.8, 0.95], reach_m = 2.0, half_arc_rad = 3.2, damage = 110.0 }"
    move = (
        f'id = 97\nname = "Whirl"\ntitle = "whirl"\nraw_id = -1\nlength_s = 2.0\ntracks_s = 0.5\nwindows = [{window}]\n'
    )
    head = 'based_on = "iudex-phase1"\nname = "mine"\n'
    (path := tmp_path / "mine.toml").write_text(f"{head}[[added.moves]]\n{move}distance_m = [0.0, 5.0]\nweight = 1.0\n")
    mine = load_boss(path)
    assert mine.moves[:-1] == shipped.moves
    assert (mine.moves[-1].id, mine.moves[-1].title) == (97, "whirl")
    path.write_text(f"{head}[[moves]]\n{move}distance_m = [0.0, 5.0]\nweight = 1.0\n")
    # What asks for another move is in the file that this one is based on.
    with pytest.raises(DataError, match=r"mine\.toml: rear\.counter .*iudex-phase1\.toml"):
        load_boss(path)


def test_scaled_numbers_are_multiplied_down_a_chain(tmp_path: Path) -> None:
    half = 'name = "Half"\n[scaled.run]\nspeed_m_s = 0.5'
    at = written(tmp_path, half=f'based_on = "knight"\n{half}', quarter=f'based_on = "half.toml"\n{half}')
    full_m_s = load_player("knight").run.speed_m_s
    assert load_player(at("quarter")).run.speed_m_s == pytest.approx(full_m_s / 4)


def test_paths_are_relative_to_the_file_they_stand_in(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir(), here.mkdir()
    at = written(there, boss='based_on = "iudex-phase1"\nname = "Big"\nhp_max = 2000.0')
    written(there, arena='based_on = "iudex-phase1"\nname = "arena"\nboss = "boss.toml"')
    at = written(here, again='based_on = "../there/arena.toml"\nname = "again"')
    assert load_scenario(at("again")).boss_hp_full == 2000.0


_MINE = 'based_on = "knight"\nname = "x"\n'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('based_on = "knight"', r"mine\.toml: name"),
        ('based_on = "mine.toml"\nname = "x"', r"based_on.* mine -> mine"),
        ('based_on = "other.toml"\nname = "x"', r"based_on.* mine -> other -> mine"),
        ('based_on = "nowhere.toml"\nname = "x"', r"based_on.*nowhere\.toml"),
        ('based_on = "broken.toml"\nname = "x"', r"broken\.toml: estus_heal"),
        (f"{_MINE}[camera]\nyaw_rad = 1.0", r"mine\.toml: camera\.yaw_rad"),
        (f"{_MINE}scaled = 2", r"mine\.toml: scaled"),
        (f"{_MINE}added = 2", r"mine\.toml: added"),
        (f"{_MINE}[added]\nname = [2]", r"added\.name"),
        (f"{_MINE}[scaled.camera]\nyaw = 2", r"scaled\.camera\.yaw"),
        (f"{_MINE}[scaled]\nname = 2", r"scaled\.name"),
        (f"{_MINE}[scaled]\nestus_heal = 1e9", r"mine\.toml: estus_heal"),
        ('name = "x"\n[scaled]\nestus_heal = 2', r"mine\.toml: scaled"),
    ],
)
def test_bad_derivation_is_refused_by_file_and_key(tmp_path: Path, text: str, named: str) -> None:
    other = 'based_on = "mine.toml"\nname = "y"'
    at = written(tmp_path, mine=text, other=other, broken='based_on = "knight"\nname = "z"\nestus_heal = -1')
    with pytest.raises(SoulsGraphError, match=named):
        load_player(at("mine"))


CONTROLS = {
    "controls-no-shift": (set(), set(), set()),
    "controls-camera-speed": ({"player"}, {"camera.yaw_rad_s", "camera.pitch_rad_s"}, set()),
    "controls-lock-range": ({"player"}, {"camera.lock_range_m", "camera.lock_break_m"}, set()),
    "controls-blows": ({"boss"}, set(), {"damage_factor", "time_factor"}),
}


def test_controls_differ_from_phase_1_in_what_they_say_and_nothing_else() -> None:
    assert set(CONTROLS) == {name for name in scenario_names() if name.startswith("controls-")}
    home = load_scenario("iudex-phase1")
    for name, (of_scenario, of_player, of_boss) in CONTROLS.items():
        control = load_scenario(name)
        players = asdict(load_player(control.player)), asdict(load_player(home.player))
        bosses = asdict(load_boss(control.boss)), asdict(load_boss(home.boss))
        assert differences(asdict(control), asdict(home)) == {"name"} | of_scenario
        assert differences(*players) - {"name"} == of_player
        assert differences(*bosses) - {"name"} == of_boss


@dataclass(frozen=True)
class Inner:
    share: Annotated[float, Between(0.0, 1.0)] = 0.5


@dataclass(frozen=True)
class Values:
    whole: Annotated[int, Between(1, 9)] = 1
    text: str = ""
    flag: bool = False
    kind: Literal["one", "other"] = "one"
    ends: Pair[float] = (0.0, 1.0)
    several: NonEmpty[int] = (1,)
    inner: Inner = field(default_factory=Inner)
    by_name: Mapping[str, Inner] = field(default_factory=dict)
    maybe: int | None = None


WRONG: dict[str, Sequence[object]] = {
    "whole": [0, 1.5, True, "1", None],
    "text": [1],
    "flag": [1],
    "kind": ["neither"],
    "ends": [(1.0,), (1.0, math.inf), (True, 1.0)],
    "several": [()],
    "maybe": [""],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_value_of_another_type_or_range_is_refused_in_a_file_and_from_python(name: str, value: object) -> None:
    with pytest.raises(DataError, match=name):
        validate(Values, {name: value}, Where("values.toml"))
    with pytest.raises(DataError, match=name):
        check_fields(replace(Values(), **{name: value}))  # type: ignore[arg-type]


def test_all_errors_of_a_file_come_at_once_each_with_its_place(tmp_path: Path) -> None:
    (path := tmp_path / "values.toml").write_text(
        'whole = 0\ntxt = "a"\nends = [1.0, nan]\nseveral = ["x"]\n[inner]\nshare = "x"\n[by_name.a]\nsahre = 1.0\n'
    )
    with pytest.raises(DataError) as refused:
        load(Values, Where(path))
    text = str(refused.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    for place in ("whole", "txt", "ends[1]", "several[0]", "inner.share", "by_name.a.sahre"):
        assert place in text
    # A list of items that were refused is not too short as well.
    assert text.count("several") == 1
    # Nearest names are of the table in which the key stands.
    assert "'text'" in text
    assert "'share'" in text


def test_whole_numbers_become_numbers_and_lists_tuples() -> None:
    read = validate(Values, {"ends": [1, 2], "several": [3]}, Where("values.toml"))
    assert read == Values(ends=(1.0, 2.0), several=(3,))
    assert [type(end) for end in read.ends] == [float, float]
    assert validate(Values, to_table(read), Where("values.toml")) == read


@dataclass(frozen=True)
class Named:
    column: Column
    held: Control = Control.NONE


def test_a_member_of_an_enumeration_is_its_name_in_a_file() -> None:
    values = {"column": "STAMINA", "held": "FORWARD|LEFT"}
    read = validate(Named, values, Where("named.toml"))
    assert read == Named(Column.STAMINA, Control.FORWARD | Control.LEFT)
    assert to_table(read) == values
    check_fields(read)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        *(({"column": value}, "column") for value in ("STAMNA", "STAMINA|PLAYER_HP", 4)),
        ({}, "column"),
        *(({"column": "STAMINA", "held": value}, "held") for value in ("FORWARD|UP", "")),
    ],
)
def test_a_name_that_an_enumeration_does_not_have_is_refused(values: dict[str, object], named: str) -> None:
    with pytest.raises(DataError, match=named):
        validate(Named, values, Where("named.toml"))
