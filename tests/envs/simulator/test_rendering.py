"""Pictures of the environments: in arrays, in a window, in videos."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics, RecordVideo

from fakes.programs import read_video
from soulsgraph_envs.core.errors import ResetNeededError, SoulsGraphError
from soulsgraph_envs.gym.skill_env import SkillEnv, SkillVectorEnv

SIZE = (360, 640, 3)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Allow windows without a display."""
    import pygame

    pygame.display.quit()
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    yield
    pygame.display.quit()


#: What an environment needs to be told; only EldenGym's picture has a size that can be asked for.
ASKED = (126, 224)
OPTIONS = {
    "soulsgraph/Skill-v0": {},
    "soulsgraph/EldenGym-v0": {"scenario_name": "Margit-v0", "driver": "simulator", "frame_size": ASKED},
}


# Some of EldenGym's keys have no effect in the simulator, which it says.
@pytest.mark.filterwarnings("ignore::soulsgraph_envs.compat.eldengym.env.SimulatedGameWarning")
@pytest.mark.parametrize("id", OPTIONS)
def test_gymnasium_records_a_video_of_every_step_in_the_size_asked_for(id: str, tmp_path: Path) -> None:
    # CleanRL's --capture-video is these two wrappers.
    env = RecordVideo(gymnasium.make(id, render_mode="rgb_array", **OPTIONS[id]), str(tmp_path / "videos"))
    env = RecordEpisodeStatistics(env)
    env.reset(seed=1)
    for _ in range(4):
        env.step(env.action_space.sample())
    env.close()
    pictures = read_video(next((tmp_path / "videos").glob("*.mp4")))
    assert [picture.shape for picture in pictures] == [(*ASKED, 3) if OPTIONS[id] else SIZE] * 5


@pytest.mark.parametrize("make", [SkillEnv, SkillVectorEnv])
def test_pictures_need_a_mode_that_exists_and_a_reset(make: type) -> None:
    with pytest.raises(SoulsGraphError, match="ansi"):
        make(render_mode="ansi")
    with pytest.raises(ResetNeededError):
        make(render_mode="rgb_array").render()
    env = make()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None


def test_the_vector_face_draws_every_lane_but_has_no_window() -> None:
    with pytest.raises(SoulsGraphError, match="human"):
        SkillVectorEnv(render_mode="human")
    env = SkillVectorEnv(3, render_mode="rgb_array")
    env.reset(seed=0)
    env.step(np.zeros(3, np.int64))
    pictures = env.render()
    assert [picture.shape for picture in pictures] == [(180, 320, 3)] * 3
    assert len({picture.tobytes() for picture in pictures}) == 3
