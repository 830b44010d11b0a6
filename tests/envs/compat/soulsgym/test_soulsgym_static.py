"""The tables of SoulsGym's game: its numbers, names and addresses, against the published ones."""

import pytest

from soulsgraph_envs.compat.soulsgym.static import StaticGameData


def test_the_tables_are_numbered_named_and_measured_as_soulsgyms():
    data = StaticGameData("DarkSoulsIII")
    assert [animation["ID"] for animation in data.player_animations.values()] == list(range(50))
    assert data.player_animations["RollingMedium"] == {"timings": [0.69, 0.73, 0.75], "ID": 21}
    assert {boss: len(kinds["all"]) for boss, kinds in data.boss_animations.items()} == {"iudex": 32, "vordt": 27}
    assert data.boss_animations["vordt"]["all"]["WalkFrontBattle"] == {"ID": 14, "type": "movement"}
    assert (data.actions[9], data.actions[19]) == (["forward", "right", "roll"], [])
    assert {data.keymap[key] for key in data.keybindings.values()} == {ord(key) for key in "WSADLHMRQEJKOP "}
    assert data.coordinates["vordt"]["boss_init_pose"].tolist() == [27.0, 2.0, -25.0, 3.1]


def test_a_callers_tables_are_its_own_and_other_games_have_none():
    StaticGameData("DarkSoulsIII").actions[0].append("jump")
    assert StaticGameData("DarkSoulsIII").actions[0] == ["forward"]
    with pytest.raises(KeyError, match="EldenRing"):
        StaticGameData("EldenRing")
