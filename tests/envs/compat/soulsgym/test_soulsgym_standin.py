"""SoulsGym's environment over a real program: memory read, keys pressed, its clock stopped between steps."""

import sys

import gymnasium
import pytest

import soulsgraph_envs.compat.soulsgym  # noqa: F401 - registers the environments
from fakes.keys import virtual_screen
from fakes.stand_in import StandInProcess
from fakes.waiting import undisturbed
from soulsgraph_envs.games.standin.launch import StandInOptions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads another process's memory as Linux gives it"),
]


#: The first action: ahead, towards the boss.
AHEAD = 0


def test_vordt_is_reached_through_his_fog_gate_and_fought_at_his_place(tmp_path):
    games = tmp_path / "games.toml"
    vordt = {"encounter": "vordt-in-place", "at": "bonfire"}

    def fought(env):
        shown, _ = env.reset(seed=0)
        assert shown["player_pose"][:2] == pytest.approx([28.24, 37.0], abs=0.6)
        assert (shown["lock_on"], shown["boss_hp"][0], shown["frost_resistance"][0]) == (1, 1328, 1)
        for _ in range(20):
            shown = env.step(AHEAD)[0]
            assert env.observation_space.contains(shown)
            assert shown["boss_animation"] >= 0
        assert shown["player_pose"][1] < 35

    with virtual_screen() as display, StandInProcess(StandInOptions(**vordt, display=display, settings=games)):
        env = gymnasium.make("soulsgraph/SoulsGymVordt-v0", driver="memory", games=games)
        undisturbed(lambda: fought(env))
        env.close()
