"""Learners of others play a whole short S8, and what they are evaluated to be is written as a table of wins."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pyarrow.parquet
import pytest
from gymnasium.vector import VectorWrapper
from pyarrow import Table
from stable_baselines3 import DQN

from soulsgraph.continual.scoring import score_file
from soulsgraph_envs.gym.continual_env import ContinualEnv, ContinualVectorEnv

AGENT, EPISODES = "heal_attack", 2
#: What a file of evaluations has: tasks are counted from 1, `after` is how many were finished by then.
COLUMNS = ["method", "seed", "after", "decisions", "task", "wins", "episodes"]
Greedy = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
Rows = list[dict[str, Any]]


def evaluated(greedy: Greedy, method: str, after: int) -> Rows:
    """Return a row for every task, or between the first and the last for the one just learned and the one to come.

    The fights are greedy, and the same ones each time.
    """
    rows: Rows = []
    for position in range(8) if after in (0, 8) else (after - 1, after):
        keywords: dict[str, Any] = {"sequence": "S8", "agent": AGENT, "task": position, "autoreset_mode": "SameStep"}
        fights = gymnasium.make_vec("soulsgraph/Continual-v0", EPISODES, **keywords)
        observations, _ = fights.reset(seed=1_000_000)
        won, running = np.zeros(EPISODES, bool), np.ones(EPISODES, bool)
        while running.any():
            observations, _, terminated, truncated, info = fights.step(greedy(observations))
            ended = running & (terminated | truncated)
            if ended.any():
                won[ended] = info["final_info"]["won"][ended]
            running &= ~ended
        fights.close()
        counts = {"after": after, "decisions": 0, "task": position + 1}
        rows.append({"method": method, "seed": 0, **counts, "wins": int(won.sum()), "episodes": EPISODES})
    return rows


def check_table(rows: Rows, path: Path) -> None:
    pyarrow.parquet.write_table(Table.from_pylist(rows), path)
    table = pyarrow.parquet.read_table(path)
    assert table.column_names == COLUMNS
    assert score_file(path).methods == (table["method"][0].as_py(),)
    assert [*dict.fromkeys(table["after"].to_pylist())] == [*range(9)]


@pytest.mark.slow
def test_stable_baselines_learns_task_after_task(tmp_path: Path) -> None:
    env = gymnasium.make("soulsgraph/Continual-v0", sequence="S8", agent=AGENT, steps_per_task=64)
    inner = env.unwrapped
    assert isinstance(inner, ContinualEnv)
    model = DQN("MlpPolicy", env, learning_starts=32, seed=0)
    rows = evaluated(lambda seen: model.predict(seen, deterministic=True)[0], "DQN", 0)
    before = model.policy.state_dict()["q_net.q_net.0.weight"].clone()
    for position, steps in enumerate(inner.clock.steps):
        assert inner.clock.position == position
        model.learn(steps, reset_num_timesteps=position == 0)
        rows += evaluated(lambda seen: model.predict(seen, deterministic=True)[0], "DQN", position + 1)
    assert model.num_timesteps == 8 * 64
    assert not before.equal(model.policy.state_dict()["q_net.q_net.0.weight"])
    check_table(rows, tmp_path / "dqn.parquet")


def test_the_one_file_learns_task_after_task(tmp_path: Path) -> None:
    """Its training loop is the same: the environment alone changes the fight, which it is not shown."""
    path = Path(__file__).parents[3] / "examples" / "one_file.py"
    spec = importlib.util.spec_from_file_location("one_file", path)
    assert spec is not None
    assert spec.loader is not None
    one_file: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(one_file)
    rows: Rows = []
    policies: list[Any] = []

    class Policy(one_file.Policy):  # type: ignore[misc]
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            policies.append(self)
            rows.extend(evaluated(self.greedy, "one file", 0))

    class Watched(VectorWrapper):  # type: ignore[type-arg]
        """Evaluate whenever a task is over; what began in its place is not shown in `info`."""

        def step(self, actions: Any) -> Any:
            before, result = inner.clock.position, super().step(actions)
            if inner.clock.position != before:
                rows.extend(evaluated(policies[0].greedy, "one file", inner.clock.position))
            return result

    keywords: dict[str, Any] = {"sequence": "S8", "agent": AGENT, "autoreset_mode": "SameStep"}
    envs = gymnasium.make_vec("soulsgraph/Continual-v0", one_file.LANES, steps_per_task=64, **keywords)
    inner = envs.unwrapped
    assert isinstance(inner, ContinualVectorEnv)
    one_file.Policy, one_file.make_envs = Policy, lambda *_: Watched(envs)
    trained = one_file.train(AGENT, 8 * 64, {}, seed=0)
    assert inner.clock.position == 7
    rows += evaluated(trained.greedy, "one file", 8)
    check_table(rows, tmp_path / "one_file.parquet")
