"""A learner of somebody else's plays a whole sequence by its own loop: the environment alone changes the fight."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.vector import VectorWrapper

from soulsgraph_envs.gym.continual_env import ContinualVectorEnv


def test_the_one_file_learns_task_after_task() -> None:
    path = Path(__file__).parents[3] / "examples" / "one_file.py"
    spec = importlib.util.spec_from_file_location("one_file", path)
    assert spec is not None
    assert spec.loader is not None
    one_file: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(one_file)
    keywords: dict[str, Any] = {"sequence": "S8", "agent": "heal_attack", "autoreset_mode": "SameStep"}
    envs = gymnasium.make_vec("soulsgraph/Continual-v0", one_file.LANES, steps_per_task=64, **keywords)
    inner = envs.unwrapped
    assert isinstance(inner, ContinualVectorEnv)
    played: list[int] = []

    class Watched(VectorWrapper):  # type: ignore[type-arg]
        def step(self, actions: Any) -> Any:
            played.append(inner.clock.position)
            return super().step(actions)

    one_file.make_envs = lambda *_: Watched(envs)
    one_file.train("heal_attack", 8 * 64, {}, seed=0)
    assert [*dict.fromkeys(played)] == [*range(8)]
    assert {played.count(task) for task in range(1, 7)} == {64 // one_file.LANES}
