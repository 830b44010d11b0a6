"""A state of SoulsGym's, and the files of its fights."""

import json

import numpy as np
import pytest

from soulsgraph_envs.compat.soulsgym.fight import DATA, BossFight, GameState
from soulsgraph_envs.core.config import Where, load
from soulsgraph_envs.core.errors import DataError


@pytest.mark.parametrize(("written", "named"), [("", "misc"), ("msic = []", "msic")])
def test_a_fight_has_all_of_soulsgyms_kinds_of_animations(tmp_path, written, named):
    text = (DATA / "fights" / "vordt.toml").read_text(encoding="utf-8")
    path = tmp_path / "vordt.toml"
    path.write_text(text.replace('misc = ["SABreak"]', written), encoding="utf-8")
    with pytest.raises(DataError, match=rf"animations\.{named}"):
        load(BossFight, Where(path))


def test_a_state_has_defaults_changes_and_comes_back_from_json():
    state = GameState()
    assert (state.phase, state.boss_max_hp, state.player_animation, state.lock_on) == (1, 1, "NoAnimation", False)
    assert (state.player_pose.shape, state.camera_pose.shape) == ((4,), (6,))
    state.boss_hp, state.player_pose[0] = np.float32(500), 7.0
    assert GameState().player_pose[0] == 0
    again = GameState.from_dict(json.loads(json.dumps(state.as_json())))
    assert again.as_json() == state.as_json()
    assert isinstance(again.player_pose, np.ndarray)
    assert state.as_dict(deepcopy=False)["player_pose"] is state.player_pose
    copied = state.as_dict()
    copied["player_pose"][0] = 8.0
    assert state.player_pose[0] == 7.0
