"""Shipped data is valid, and a bad file is refused by the key that is wrong in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from soulsgraph_envs.core import scenario as catalogue
from soulsgraph_envs.core.errors import DataError, SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario, scenario_names

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


def test_phases_share_the_ids_of_shared_moves_and_count_without_gaps() -> None:
    first, second = map(load_boss, PHASES)
    titles = [{move.id: move.title for move in boss.moves} for boss in (first, second)]
    common = titles[0].keys() & titles[1].keys()
    assert len(common) == 8
    assert all(titles[0][key] == titles[1][key] for key in common)
    others = [vars(boss.animations) for boss in (first, second)]
    assert others[0] == others[1]
    union = titles[0].keys() | titles[1].keys()
    assert sorted(union) == list(range(14))
    assert sorted(animation.id for animation in others[0].values()) == list(range(14, 20))


#: What is changed in a file of a kind, by a regular expression, and the key by which it is refused.
SPOILT = {
    "scenarios/iudex-phase1": [
        (r"^boss_hp = .*", "boss_hp = [622.0, 1037.0]", "boss_hp"),
        (r"^boss_hp = .*", "boss_hp = [2000.0, 1037.0]", "boss_hp"),
        (r"^boss = .*", 'boss = "gundyr"', "gundyr"),
        (r"^\[starts\.long\]", "[starts.far]", "starts"),
        (r"^distance_m = \[3\.0, 12\.5\]", "distance_m = [3.0, 40.0]", "starts.scattered.distance_m"),
        (r"^distance_m = \[3\.0, 12\.5\]", "distance_m = [9.0, 5.0]", "starts.scattered.distance_m"),
        (r"^distance_m = \[3\.0, 12\.5\]", "distance_m = [0.1, 5.0]", "starts.scattered.distance_m"),
        (r"^flasks = 1", "flasks = 1\nboss_hp_full = 1.0", "boss_hp_full"),
        (r"^flasks = 1", 'flasks = 1\nstart = "near"', "start"),
    ],
    "scenarios/iudex-full": [
        (r'^boss = "iudex-phase2"', 'boss = "vordt"', "transition.boss"),
        (r"id = 20", "id = 14", "transition.animation.id"),
    ],
    "bosses/iudex-phase1": [
        (r"time_s = \[0\.6, 0\.75\]", "time_s = [0.75, 0.6]", "moves[0].windows[0].time_s"),
        (r"time_s = \[1\.8, 2\.0\]", "time_s = [1.8, 9.0]", "moves[0].windows[2].time_s"),
        (r"time_s = \[1\.15, 1\.3\]", "time_s = [0.7, 1.3]", "moves[0].windows[1].time_s"),
        (r"^id = 2$", "id = 0", "moves"),
        (r"^id = 2$", "id = 14", "moves"),
        (r"^counter = .*", 'counter = "bite"', "rear.counter"),
        (r"^wait_s = .*", "wait_s = [3.0, 1.0]", "aggression.wait_s"),
        (r"^leap_s = .*", "leap_s = 2.0", "leap_s"),
        (r"^thrown = .*", "", "animations.thrown"),
    ],
    "bosses/vordt": [
        (r"tracks_s = 1\.05", "tracks_s = 1.2", "moves[5].runs_through"),
        (r"lunge_m_s = 10\.0", "lunge_m_s = 0.0", "moves[5].runs_through"),
        (r"every_s = 0\.2", "every_s = 0.02", "moves[0].windows[0].every_s"),
    ],
    "players/knight": [
        (r"hit_s = 0\.37", "hit_s = 5.0", "animations.light_1.hit_s"),
        (r", hit_s = 0\.95", "", "animations.estus.hit_s"),
        (r"^damage = .*", "damage = [50.0, 30.0]", "attack.damage"),
        (r"id = 1,", "id = 0,", "animations"),
    ],
    "players/knight-full": [
        (r"^heavy_2 = .*", "", "animations.heavy_2"),
        (r"^(jump = .*), hit_s = 0\.60 }", r"\1 }", "animations.jump.hit_s"),
        (r"^damage = \[260.*", "damage = [320.0, 260.0]", "parry.damage"),
        (r"^window_s = .*", "window_s = [0.4, 0.1]", "parry.window_s"),
    ],
}
LOADERS = {"scenarios": load_scenario, "bosses": load_boss, "players": load_player}


@pytest.mark.parametrize(("file", "change"), [(file, change) for file, changes in SPOILT.items() for change in changes])
def test_a_bad_file_is_refused_by_key(tmp_path: Path, file: str, change: tuple[str, str, str]) -> None:
    kind, _, name = file.partition("/")
    pattern, replacement, key = change
    path = spoilt(tmp_path, kind, name, pattern, replacement)
    with pytest.raises(SoulsGraphError, match=rf"[ ./']{re.escape(key)}"):
        LOADERS[kind](path)


def test_unknown_names_and_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="iudex-phase-1"):
        load_scenario("iudex-phase-1")
    broken = tmp_path / "broken.toml"
    broken.write_bytes(b"name = \xff")
    for path in (tmp_path / "nowhere.toml", broken):
        with pytest.raises(DataError, match=path.name):
            load_scenario(path)


def test_transition_may_name_a_boss_beside_it(tmp_path: Path) -> None:
    spoilt(tmp_path, "bosses", "iudex-phase2", r"^name = .*", 'name = "Another"').rename(tmp_path / "next.toml")
    path = spoilt(tmp_path, "scenarios", "iudex-full", r'^boss = "iudex-phase2"', 'boss = "next.toml"')
    transition = load_scenario(path).transition
    assert transition is not None
    assert load_boss(transition.boss).name == "Another"
