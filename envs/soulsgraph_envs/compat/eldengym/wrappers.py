"""EldenGym's wrappers, as version 0.6.0 names them: of the picture, the memory attributes and the arena's edge.

The edge is a polygon, and what agents are shown is the signed distance to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import hypot, inf, nan
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.wrappers import FrameStackObservation

from soulsgraph_envs.core.config import Where, read_file, to_json
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.render.pictures import scaled

AnyEnv = gymnasium.Env[Any, Any]
Shape = tuple[int, ...]
Info = dict[str, Any]
Stepped = tuple[Any, float, bool, bool, Info]

#: Shares of red, green and blue in brightness (ITU-R BT.601), which are not those of Gymnasium's grey pictures.
_BRIGHTNESS = np.array([0.299, 0.587, 0.114], np.float32)


class _FrameWrapper(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Replace the picture of every observation: the value under `key`, or all of it if that is None."""

    def __init__(self, env: AnyEnv, key: str | None, shape: Callable[[Shape], Shape]) -> None:
        super().__init__(env)
        self._key, whole = key, cast(Any, env.observation_space)
        shown = Box(0, 255, shape((whole if key is None else whole[key]).shape), np.uint8)
        self.observation_space = shown if key is None else Dict({**whole.spaces, key: shown})

    def observation(self, observation: Any) -> Any:
        """Return the observation with its picture replaced."""
        if self._key is None:
            return self.picture(observation)
        return {**observation, self._key: self.picture(observation[self._key])}

    def picture(self, frame: Picture) -> Picture:
        """Return the replacement of a picture."""
        raise NotImplementedError


class DictResizeFrame(_FrameWrapper):
    """Scale the picture under `frame_key`."""

    def __init__(self, env: AnyEnv, width: int = 84, height: int = 84, frame_key: str | None = "frame") -> None:
        self._size = (height, width)
        super().__init__(env, frame_key, lambda shape: (height, width, shape[2]))

    def picture(self, frame: Picture) -> Picture:
        """Return the picture scaled, (height, width, channels)."""
        return scaled(frame, self._size)


class DictGrayscaleFrame(_FrameWrapper):
    """Make the picture under `frame_key` grey, (height, width, 1)."""

    def __init__(self, env: AnyEnv, frame_key: str | None = "frame") -> None:
        super().__init__(env, frame_key, lambda shape: (*shape[:2], 1))

    def picture(self, frame: Picture) -> Picture:
        """Return the brightness."""
        grey: Picture = np.rint(frame @ _BRIGHTNESS).astype(np.uint8)[..., None]
        return grey


class DictFrameStack(_FrameWrapper):
    """Stack the last `num_stack` pictures under `frame_key` along their channels, the first repeated at a reset."""

    def __init__(self, env: AnyEnv, num_stack: int = 4, frame_key: str | None = "frame") -> None:
        super().__init__(env, frame_key, lambda shape: (*shape[:2], shape[2] * num_stack))
        self.env = FrameStackObservation(env, num_stack)

    def observation(self, observation: Any) -> Any:
        """Return the latest observation with the stack as its picture."""
        if self._key is not None:
            observation = {name: value if name == self._key else value[-1, ...] for name, value in observation.items()}
        return super().observation(observation)

    def picture(self, frame: Picture) -> Picture:
        """Return stacked pictures (num_stack, height, width, channels) behind each other, the latest last."""
        return np.concatenate(frame, axis=-1)


class ResizeFrame(DictResizeFrame):
    """Scale an observation that is a picture."""

    def __init__(self, env: AnyEnv, width: int = 84, height: int = 84) -> None:
        super().__init__(env, width, height, None)


class GrayscaleFrame(DictGrayscaleFrame):
    """Make an observation that is a picture grey, (height, width, 1)."""

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env, None)


class FrameStack(DictFrameStack):
    """Stack observations that are pictures along their channels."""

    def __init__(self, env: AnyEnv, num_stack: int = 4) -> None:
        super().__init__(env, num_stack, None)


def with_numbers(env: AnyEnv, like: str, **lowest: float) -> Dict:
    """Return an environment's space with more numbers, shaped like the one at `like`, from `lowest` to infinity."""
    space = cast(Dict, env.observation_space)
    shape = space[like].shape
    return Dict({**space.spaces, **{name: Box(low, np.inf, shape, np.float32) for name, low in lowest.items()}})


def extended(observation: Any, like: str, **values: float) -> Any:
    """Return the observation with more numbers in it, shaped like the one at `like`."""
    shape = np.shape(observation[like])
    return {**observation, **{name: np.full(shape, value, np.float32) for name, value in values.items()}}


def number(value: Any) -> float:
    """Return an observed number, of shape () or (1,)."""
    return float(np.asarray(value).reshape(()))


class NormalizeMemoryAttributes(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Scale every number into [0, 1] by its range in `attribute_ranges`, or by the range seen so far."""

    def __init__(
        self, env: AnyEnv, attribute_ranges: Mapping[str, tuple[float, float]] | None = None, frame_key: str = "frame"
    ) -> None:
        super().__init__(env)
        space = cast(Dict, env.observation_space)
        self._given = dict(attribute_ranges or {})
        self._seen: dict[str, tuple[float, float]] = {}
        self._numbers = [key for key in space.spaces if key != frame_key]
        unit = {key: Box(0.0, 1.0, space[key].shape, np.float32) for key in self._numbers}
        self.observation_space = Dict({**space.spaces, **unit})

    def observation(self, observation: Any) -> Any:
        """Return the observation with its numbers scaled; one outside its range is clipped."""
        return {**observation, **{key: self._unit(key, observation[key]) for key in self._numbers}}

    def _unit(self, key: str, value: Any) -> Any:
        if key not in self._given:
            low, high = self._seen.get(key, (number(value),) * 2)
            self._seen[key] = min(low, number(value)), max(high, number(value))
        low, high = self._given.get(key) or self._seen[key]
        share = (number(value) - low) / (high - low) if high > low else 0.0
        return np.full(np.shape(value), min(max(share, 0.0), 1.0), np.float32)


class HPRefundWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Restore full HP after damage to the player, the boss or both, and report the damage in the info."""

    def __init__(
        self,
        env: AnyEnv,
        refund_player: bool = True,
        refund_boss: bool = False,
        player_hp_attr: str = "HeroHp",
        player_max_hp_attr: str = "HeroMaxHp",
        boss_hp_attr: str = "NpcHp",
        boss_max_hp_attr: str = "NpcMaxHp",
    ) -> None:
        super().__init__(env)
        self._refunds = [("player_damage_taken", player_hp_attr, player_max_hp_attr)] * refund_player
        self._refunds += [("boss_damage_dealt", boss_hp_attr, boss_max_hp_attr)] * refund_boss
        self._before: dict[str, float] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Begin an episode; nothing is refunded yet."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._before = {hp: number(observation[hp]) for _, hp, _ in self._refunds}
        return observation, info

    def step(self, action: Any) -> Stepped:
        """Step, then refund."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        for told, hp, most in self._refunds:
            left, full = number(observation[hp]), number(observation[most])
            damage = max(0.0, self._before[hp] - left)
            info[told] = damage
            info[f"{told}_normalized"] = damage / full if full > 0 else 0.0
            if damage > 0:
                self.unwrapped.client.set_attribute(hp, int(full), "int")  # type: ignore[attr-defined]
            self._before[hp] = full if damage > 0 else left
        return observation, float(reward), terminated, truncated, info


class AnimFrameWrapper(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Add the boss's animation as `boss_anim_id`, and for how many steps it has been the same as `elapsed_frames`."""

    def __init__(self, env: AnyEnv, anim_id_key: str = "NpcAnimId") -> None:
        super().__init__(env)
        self._key = anim_id_key
        self.observation_space = with_numbers(env, anim_id_key, boss_anim_id=-np.inf, elapsed_frames=0.0)
        self._latest, self._elapsed = nan, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Begin an episode and the count."""
        self._latest = nan
        return super().reset(seed=seed, options=options)

    def observation(self, observation: Any) -> Any:
        """Count, and return the observation with both numbers."""
        current = number(observation[self._key])
        self._elapsed = self._elapsed + 1 if current == self._latest else 0
        self._latest = current
        return extended(observation, self._key, boss_anim_id=current, elapsed_frames=self._elapsed)


_PLACE = ("player_x", "player_y", "player_z")
_SIGNED_DISTANCE = ("sdf_value", "sdf_normal_x", "sdf_normal_y")


class SDFObsWrapper(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Add the signed distance to the edge (`sdf_value`, below 0 inside) and its direction (`sdf_normal_x`, `_y`).

    The normal is a unit vector on the boundary's map, see `arena_boundary.on_map`; `live_plot` has no effect.
    """

    def __init__(self, env: AnyEnv, boundary: ArenaBoundary, live_plot: bool = False) -> None:
        super().__init__(env)
        self.boundary = boundary
        self.observation_space = with_numbers(env, _PLACE[0], **dict.fromkeys(_SIGNED_DISTANCE, -np.inf))

    def observation(self, observation: Any) -> Any:
        """Measure, and return the observation with the three numbers."""
        measured = self.boundary.query_sdf(*on_map(*_place(observation)[:2]))
        return extended(observation, _PLACE[0], **dict(zip(_SIGNED_DISTANCE, measured, strict=True)))


class OOBSafetyWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Teleport a player who left the arena back to the last safe place, and report it in the info.

    Outside is `hard_margin` metres beyond the edge, safe is `soft_margin` metres inside of that.
    """

    def __init__(
        self, env: AnyEnv, boundary: ArenaBoundary, soft_margin: float = 3.0, hard_margin: float = 0.0
    ) -> None:
        super().__init__(env)
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
        self._penalties = dict(hit=hit_penalty, dodge=dodge_penalty, danger_zone=danger_zone_penalty, oob=oob_penalty)

    def step(self, action: Any) -> Stepped:
        """Step and compute the reward; the info holds every penalty, the reward before (`reward_raw`) and after."""
        observation, reward, terminated, truncated, info = self.env.step(action)
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


Points = npt.NDArray[np.float64]
#: Beyond every arena.
_FAR_M = 1e6


def on_map(x: float, y: float) -> tuple[float, float]:
    """Return a place in the game's global coordinates as (y, -x), the map that EldenGym traces its arenas on."""
    return y, -x


@dataclass
class BoundaryDistances:
    """The side of the edge a point is on, and the distance to the edge in metres: nearest, and along the map's axes.

    `nearest` is above 0 inside and below 0 outside, unlike every other signed distance here (as in EldenGym); in
    a direction that meets no edge the distance is infinite.
    """

    inside: bool
    nearest: float
    north: float
    south: float
    east: float
    west: float


class ArenaBoundary:
    """Measure from a point of the map to the edge; distances are below 0 inside, exact, in metres.

    `polygon` is a shapely polygon or its corners (x, y). EldenGym measures on a grid: its `resolution` changes
    nothing here, and `padding` only widens `x_min` to `y_max`, beyond which the original measures infinity.
    """

    def __init__(self, polygon: Any, resolution: float = 0.5, padding: float = 10.0) -> None:
        # Imported here, as below: only arenas need it.
        from shapely import Polygon

        self.polygon = polygon if isinstance(polygon, Polygon) else Polygon(polygon)
        self.corners: Points = np.array(self.polygon.exterior.coords)[:-1]
        self.resolution, self.padding = resolution, padding
        x_min, y_min, x_max, y_max = self.polygon.bounds
        self.x_min, self.y_min = x_min - padding, y_min - padding
        self.x_max, self.y_max = x_max + padding, y_max + padding

    @classmethod
    def from_path_data(
        cls,
        path_data_file: str | Path,
        simplify_tolerance: float = 1.0,
        resolution: float = 0.5,
        use_convex_hull: bool = False,
    ) -> ArenaBoundary:
        """Load the path that a player walked around the arena, as EldenGym's tracing writes it (JSON).

        Corners that lie within `simplify_tolerance` metres of the edge without them are left out; with
        `use_convex_hull` the corners of the path's hull are used instead.

        Raises:
            DataError: if the file is no JSON.
        """
        from shapely import Polygon

        steps = read_file(Where(path_data_file), "JSON")["player_path"]
        path = Polygon([on_map(step["global_x"], step["global_y"]) for step in steps])
        return cls(path.convex_hull if use_convex_hull else path.simplify(simplify_tolerance), resolution)

    @classmethod
    def load(cls, path: str | Path) -> ArenaBoundary:
        """Read what `save` wrote, here or in EldenGym; raises as `from_path_data`."""
        values = read_file(Where(path), "JSON")
        return cls(values["polygon"], values.get("resolution", 0.5), values.get("padding", 10.0))

    def save(self, path: str | Path) -> None:
        """Write the corners as JSON, which EldenGym reads too."""
        values = {"polygon": self.corners.tolist(), "resolution": self.resolution, "padding": self.padding}
        Path(path).write_text(to_json(values), encoding="utf-8")

    def query(self, x: float, y: float) -> BoundaryDistances:
        """Measure from a point to the edge, at its nearest and along the axes."""
        value = self.nearest_distance(x, y)
        north, south, east, west = (self._along(x, y, *way) for way in ((0, 1), (0, -1), (1, 0), (-1, 0)))
        return BoundaryDistances(value < 0, -value, north, south, east, west)

    def query_batch(self, points: npt.ArrayLike) -> tuple[npt.NDArray[np.bool_], Points]:
        """Return which points (n, 2) are inside (n,), and how far each is from the edge (n,), never below 0."""
        values = np.array([self.nearest_distance(x, y) for x, y in np.asarray(points, np.float64)])
        return values < 0, np.abs(values)

    def is_inside(self, x: float, y: float) -> bool:
        """Return whether a point is inside the edge."""
        return self.nearest_distance(x, y) < 0

    def nearest_distance(self, x: float, y: float) -> float:
        """Return the signed distance to the edge."""
        return self.query_sdf(x, y)[0]

    def get_sdf_normal(self, x: float, y: float) -> tuple[float, float]:
        """Return the unit vector in which the distance grows fastest: outwards."""
        return self.query_sdf(x, y)[1:]

    def query_sdf(self, x: float, y: float) -> tuple[float, float, float]:
        """Return the signed distance and the normal: (distance, normal x, normal y)."""
        from shapely import Point

        edge, point = self.polygon.exterior, Point(x, y)
        nearest = edge.interpolate(edge.project(point))
        length = hypot(x - nearest.x, y - nearest.y)
        signed = -length if self.polygon.contains(point) else length
        return (signed, (x - nearest.x) / signed, (y - nearest.y) / signed) if length else (0.0, 0.0, 0.0)

    def _along(self, x: float, y: float, dx: int, dy: int) -> float:
        """Return the distance to the edge from a point in a direction; infinity where there is none."""
        from shapely import LineString, Point

        ray = LineString([(x, y), (x + _FAR_M * dx, y + _FAR_M * dy)])
        met = ray.intersection(self.polygon.exterior)
        return inf if met.is_empty else float(Point(x, y).distance(met))
