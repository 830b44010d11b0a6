"""The tables of SoulsGym's game: its numbers, names and addresses, against the published ones."""

import pytest

from soulsgraph_envs.compat.soulsgym.static import StaticGameData

TABLES = (
    *("keybindings", "keymap", "actions", "coordinates", "player_animations", "critical_player_animations"),
    *("boss_animations", "player_stats", "bonfires"),
)


def test_the_tables_are_numbered_named_and_measured_as_soulsgyms():
    data = StaticGameData("DarkSoulsIII")
    assert set(vars(data)) == set(TABLES)
    assert [animation["ID"] for animation in data.player_animations.values()] == list(range(50))
    assert data.player_animations["RollingMedium"] == {"timings": [0.69, 0.73, 0.75], "ID": 21}
    assert data.critical_player_animations == {"DeathIdle": [0.0, 0.0, 0.0]}
    assert {boss: len(kinds["all"]) for boss, kinds in data.boss_animations.items()} == {"iudex": 32, "vordt": 27}
    assert {boss: len(kinds["unused"]) for boss, kinds in data.boss_animations.items()} == {"iudex": 11, "vordt": 0}
    assert data.boss_animations["iudex"]["all"]["SABreak"] == {"ID": 30, "type": "misc"}
    assert data.boss_animations["vordt"]["all"]["WalkFrontBattle"] == {"ID": 14, "type": "movement"}
    assert (data.actions[9], data.actions[19]) == (["forward", "right", "roll"], [])
    assert {data.keymap[key] for key in data.keybindings.values()} == {ord(key) for key in "WSADLHMRQEJKOP "}
    assert data.coordinates["iudex"]["player_init_poses_random"].shape == (11, 4)
    assert data.coordinates["vordt"]["boss_init_pose"].tolist() == [27.0, 2.0, -25.0, 3.1]
    assert data.player_stats["iudex"] == [9, 12, 10, 11, 15, 13, 12, 9, 9, 7]
    assert data.bonfires["Dancer of the Boreal Valley"] == 3002954


def test_a_callers_tables_are_its_own_and_other_games_have_none():
    StaticGameData("DarkSoulsIII").actions[0].append("jump")
    assert StaticGameData("DarkSoulsIII").actions[0] == ["forward"]
    with pytest.raises(KeyError, match="EldenRing"):
        StaticGameData("EldenRing")
