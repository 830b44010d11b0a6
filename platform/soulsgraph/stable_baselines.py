"""stable-baselines3's DQN on the vector environment, to compare our learner with in speed and results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from soulsgraph_envs.skill_env import SkillVectorEnv
from soulsgraph_policies.hyperparameters import DQNHyperparameters


class SkillVecEnv(VecEnv):
    """The vector environment in stable-baselines3's own protocol."""

    def __init__(self, env: SkillVectorEnv, seed: int) -> None:
        # The base class asks for attributes of the lanes at once.
        self._env, self._seed_value = env, seed
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self._actions = np.zeros(env.num_envs, np.int64)

    def reset(self) -> Any:
        """Begin every lane."""
        return self._env.reset(seed=self._seed_value)[0]

    def step_async(self, actions: Any) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Step every lane; ended lanes report their last observation as `terminal_observation`."""
        observations, rewards, terminated, truncated, info = self._env.step(self._actions)
        ended = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for lane in np.flatnonzero(ended):
            infos[lane] = {
                "terminal_observation": info["final_obs"][lane],
                "TimeLimit.truncated": bool(truncated[lane]),
                "won": bool(info["won"][lane]),
                "seconds": float(info["seconds"][lane]),
            }
        return observations, rewards, ended, infos

    def close(self) -> None:
        """Close the vector environment."""
        self._env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the vector environment for each lane asked."""
        return [getattr(self._env, attr_name, None) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuse: lanes share one simulator."""
        raise NotImplementedError("lanes share one simulator: attributes of one lane cannot be set")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Refuse: lanes share one simulator."""
        raise NotImplementedError("lanes share one simulator: methods of one lane cannot be called")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return False for every lane: none is wrapped."""
        return [False for _ in self._get_indices(indices)]

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Take the seed for the next reset."""
        self._seed_value = self._seed_value if seed is None else seed
        return [seed] * self.num_envs


def make_dqn(env: SkillVectorEnv, hyperparameters: DQNHyperparameters, seed: int, gradient_steps: int) -> DQN:
    """Make stable-baselines3's DQN with the same hyperparameters and normalised observations."""
    normalised = VecNormalize(SkillVecEnv(env, seed), norm_reward=False, clip_obs=hyperparameters.observation_clip)
    return DQN(
        "MlpPolicy",
        normalised,
        learning_rate=hyperparameters.learning_rate,
        buffer_size=hyperparameters.replay_capacity,
        learning_starts=hyperparameters.learning_starts,
        batch_size=hyperparameters.batch_size,
        gamma=hyperparameters.discount,
        train_freq=hyperparameters.decisions_per_update,
        gradient_steps=gradient_steps,
        target_update_interval=hyperparameters.target_period,
        exploration_initial_eps=hyperparameters.exploration_initial,
        exploration_fraction=hyperparameters.exploration_fraction,
        exploration_final_eps=hyperparameters.exploration_final,
        max_grad_norm=hyperparameters.max_gradient_norm,
        policy_kwargs={"net_arch": list(hyperparameters.hidden_sizes)},
        seed=seed,
        device="cpu",
    )
