"""Wrappers that know the arena: distance to its edge, rescue beyond it, and the rewards of a dodge policy."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from soulsgraph_envs.eldengym.arena_boundary import ArenaBoundary, on_map
from soulsgraph_envs.eldengym.errors import OptionError
from soulsgraph_envs.eldengym.wrappers.attributes import AnyEnv, Info, Stepped, dict_space, number, with_numbers

_PLACE = ("player_x", "player_y", "player_z")


class SDFObsWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Add the signed distance to the edge (`sdf_value`, below 0 inside) and its direction (`sdf_normal_x`, `_y`).

    The normal is a unit vector on the boundary's map, see `arena_boundary.on_map`.

    Raises:
        OptionError: for `live_plot`, which is not offered.
    """

    def __init__(self, env: AnyEnv, boundary: ArenaBoundary, live_plot: bool = False) -> None:
        super().__init__(env)
        if live_plot:
            raise OptionError("live_plot: expected False, found True: the plot is not offered; draw env.render().")
        self.boundary = boundary
        unbounded = dict.fromkeys(("sdf_value", "sdf_normal_x", "sdf_normal_y"), -np.inf)
        self.observation_space = with_numbers(dict_space(env, *_PLACE), _PLACE[0], **unbounded)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._extended(observation), info

    def step(self, action: Any) -> Stepped:
        """Step and measure."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._extended(observation), float(reward), terminated, truncated, info

    def _extended(self, observation: Any) -> Any:
        x, y, _ = _place(observation)
        shape = np.shape(observation[_PLACE[0]])
        names = ("sdf_value", "sdf_normal_x", "sdf_normal_y")
        found = zip(names, self.boundary.query_sdf(*on_map(x, y)), strict=True)
        return {**observation, **{name: np.full(shape, value, np.float32) for name, value in found}}


class OOBSafetyWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Teleport a player who left the arena back to the last safe place, and report it in the info.

    Outside is `hard_margin` metres beyond the edge, safe is `soft_margin` metres inside of that.
    """

    def __init__(
        self, env: AnyEnv, boundary: ArenaBoundary, soft_margin: float = 3.0, hard_margin: float = 0.0
    ) -> None:
        super().__init__(env)
        dict_space(env, *_PLACE)
        self.boundary, self.soft_margin, self.hard_margin = boundary, soft_margin, hard_margin
        self._safe = (0.0, 0.0, 0.0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Begin an episode; where it begins is safe."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._safe = _place(observation)
        info |= {"oob_detected": False, "teleported": False, "last_safe_xyz": self._safe}
        return observation, info

    def step(self, action: Any) -> Stepped:
        """Step, then rescue."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        place = _place(observation)
        value = self.boundary.nearest_distance(*on_map(*place[:2]))
        inside = value < self.hard_margin
        safe = value < self.hard_margin - self.soft_margin
        if safe:
            self._safe = place
        if not inside:
            self.unwrapped.client.teleport_to(*self._safe)  # type: ignore[attr-defined]
        info |= {"oob_detected": not inside, "teleported": not inside, "last_safe_xyz": self._safe}
        info |= {"sdf_value": value, "inside_hard": inside, "inside_soft": safe}
        return observation, float(reward), terminated, truncated, info


class DodgePolicyRewardWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Add penalties for being hit, dodging, nearing the edge and leaving the arena to the reward.

    It must wrap `HPRefundWrapper` and `OOBSafetyWrapper`, whose info it reads.
    """

    def __init__(
        self,
        env: AnyEnv,
        dodge_action_idx: int,
        hit_penalty: float = -1.0,
        dodge_penalty: float = -0.01,
        danger_zone_penalty: float = -0.1,
        oob_penalty: float = -1.0,
    ) -> None:
        super().__init__(env)
        self.dodge_action_idx = dodge_action_idx
        self._penalties = {
            "hit": hit_penalty,
            "dodge": dodge_penalty,
            "danger_zone": danger_zone_penalty,
            "oob": oob_penalty,
        }

    def step(self, action: Any) -> Stepped:
        """Step and compute the reward; the info holds every penalty, the reward before (`reward_raw`) and after."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        for key in ("player_damage_taken", "inside_hard", "inside_soft", "teleported"):
            if key not in info:
                raise OptionError(
                    f"DodgePolicyRewardWrapper: expected {key!r} in the info, found none: wrap the environment in "
                    "HPRefundWrapper and OOBSafetyWrapper first."
                )
        happened = {
            "hit": info["player_damage_taken"] > 0,
            "dodge": self._dodges(action),
            "danger_zone": info["inside_hard"] and not info["inside_soft"],
            "oob": info["teleported"],
        }
        shaped = float(reward)
        for name, it_happened in happened.items():
            if it_happened:
                info[f"reward_{name}_penalty"] = self._penalties[name]
                shaped += self._penalties[name]
        info |= {"reward_raw": float(reward), "reward_shaped": shaped}
        return observation, shaped, terminated, truncated, info

    def _dodges(self, action: Any) -> bool:
        if isinstance(self.action_space, Discrete):
            return int(action) == self.dodge_action_idx
        return bool(action[self.dodge_action_idx])


def _place(observation: Any) -> tuple[float, float, float]:
    x, y, z = (number(observation[name]) for name in _PLACE)
    return x, y, z
