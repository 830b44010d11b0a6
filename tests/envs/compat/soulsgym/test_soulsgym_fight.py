"""A state of SoulsGym's."""

import json

import numpy as np

from soulsgraph_envs.compat.soulsgym.fight import GameState


def test_a_state_has_defaults_changes_and_comes_back_from_json():
    state = GameState()
    state.boss_hp, state.player_pose[0] = np.float32(500), 7.0
    assert GameState().player_pose[0] == 0
    again = GameState.from_dict(json.loads(json.dumps(state.as_json())))
    assert again.as_json() == state.as_json()
    assert isinstance(again.player_pose, np.ndarray)
    assert state.as_dict(deepcopy=False)["player_pose"] is state.player_pose
    copied = state.as_dict()
    copied["player_pose"][0] = 8.0
    assert state.player_pose[0] == 7.0
