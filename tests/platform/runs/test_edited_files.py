"""Files that a user edits: invalid values are refused in one line with file and key."""

from pathlib import Path

import pytest

from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.core.machine import Memory


@pytest.fixture
def run(tmp_path) -> Path:
    RunFolder.create(tmp_path / "run", Plan(scale=0.01))
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("[1, 2", "[1, 2"), "readable JSON"),
        (('"seed": 0', '"seed": true'), "plan.seed: expected a whole number from 0 to 2147483647, found True"),
        (('"seed": 0', f'"seed": {10**400}'), "plan.seed: expected a whole number of at most 64 bits"),
        (('"seed": 0', f'"seed": {"9" * 5000}'), "readable JSON"),
        (('"scale": 0.01', '"scale": 1e400'), "plan.scale: expected a finite number, found inf"),
        (('"lanes": null', '"lanes": ' + "[" * 100_000), "tables or lists within each other"),
        (('"preset": "best"', '"preset": 3'), "plan.preset: expected a text, found 3"),
        (('"seed": 0', '"sed": 0'), "plan.sed: expected 'seed', found an unknown key"),
        (('"format_version": 1', '"format_version": 2'), "format version 1"),
        (('"format_version": 1', '"format_version": true'), "format_version"),
        (('"format_version": 1,', '"format_version": 1, "new": 1,'), "new: expected one of"),
    ],
)
def test_a_plan_file_that_was_edited_wrongly(refuse, run, edit, message):
    file = run / "plan.json"
    text = file.read_text()
    file.write_text("{[1, 2" if edit[0] == edit[1] else text.replace(*edit))
    assert file.read_text() != text
    found = refuse("table", run)
    assert str(file) in found
    assert message in found
    assert (
        "restore the file from a copy or begin a new run" in found
        or "use the version of soulsgraph that wrote it" in found
    )


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("scenario", "flasks = 1e400", "flasks: expected a finite number"),
        ("scenario", f"flasks = {10**400}", "flasks: expected a whole number of at most 64 bits"),
        ("scenario", 'transition = "boss"', "transition: expected a table"),
        ("scenario", "transition = 3", "transition: expected a table"),
        ("scenario", 'boss = "a\\u0000.toml"', "boss: expected a name or the path of a TOML file"),
        ("scenario", "boss = 3", "boss: expected a name or the path of a TOML file, found 3"),
        ("scenario", "x = " + "[" * 100_000, "tables or lists within each other"),
        ("scenario", "a." * 100 + "b = 1", "tables or lists within each other"),
        ("scenario", "0" * 10_000, "readable TOML"),
        ("boss", "hp_max = inf", "hp_max: expected a finite number"),
        ("boss", "hp_max = 0x" + "f" * 5000, "hp_max: expected a whole number of at most 64 bits"),
        ("player", "estus_heal = nan", "estus_heal: expected a finite number"),
        ("player", "[scaled]\nestus_heal = 1e308", "estus_heal: expected a number from"),
    ],
)
def test_a_data_file_with_what_no_field_holds(refuse, tmp_path, kind, text, message):
    base = {"scenario": "iudex-phase1", "boss": "iudex-phase1", "player": "knight"}[kind]
    file = tmp_path / f"{kind}.toml"
    file.write_text(f'based_on = "{base}"\nname = "mine"\n{text}\n')
    scenario = file
    if kind != "scenario":
        scenario = tmp_path / "scenario.toml"
        scenario.write_text(f'based_on = "iudex-phase1"\nname = "mine"\n{kind} = "{kind}.toml"\n')
    found = refuse("curriculum", "--scenario", scenario, "--run", tmp_path / "new")
    assert f"{kind}.toml: " in found
    assert message in found
    assert len(found) < 700


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[games]]\npid = 1e400", "games[0].pid: expected a finite number"),
        (f"[[games]]\npid = {10**400}", "games[0].pid: expected a whole number of at most 64 bits"),
        ("[[games]]\nspeed = true", "games[0].speed: expected a number from 0.1 to 100, found True"),
        ("games = 3", "games: expected a list, found 3"),
        ("games = " + "[" * 100_000, "tables or lists within each other"),
    ],
)
def test_a_games_file_with_a_bad_value(refuse, tmp_path, text, message):
    (tmp_path / "games.toml").write_text(text)
    found = refuse("doctor", "--games", tmp_path / "games.toml")
    assert "games.toml: " in found
    assert message in found


def test_a_plan_that_needs_more_memory_than_there_is_begins_nothing(refuse, tmp_path, monkeypatch):
    monkeypatch.setattr("soulsgraph_policies.learning.hyperparameters.usable_memory", lambda: Memory(10**6, 10**6))
    for begin in (("curriculum", "--run"), ("reproduce", "--out")):
        assert "half of the memory that this process may use" in refuse(*begin, tmp_path / "new")
        assert not (tmp_path / "new").exists()
