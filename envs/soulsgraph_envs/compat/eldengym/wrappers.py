"""EldenGym's wrappers, as version 0.6.0 names them: of the picture, the memory attributes and the arena's edge.

The edge is a polygon, and what agents are shown is the signed distance to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete

from soulsgraph_envs.compat.eldengym.env import OptionError, check_at_least, check_between
from soulsgraph_envs.core.config import Where, read_file, to_json, validate
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.render.pictures import scaled

AnyEnv = gymnasium.Env[Any, Any]
Shape = tuple[int, ...]
Info = dict[str, Any]
Stepped = tuple[Any, float, bool, bool, Info]

#: Shares of red, green and blue in brightness (ITU-R BT.601), which are not those of Gymnasium's grey pictures.
_BRIGHTNESS = np.array([0.299, 0.587, 0.114], np.float32)


class _FrameWrapper(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Replace the picture of every observation: the value under `key`, or all of it if that is None.

    Raises:
        OptionError: if there is no picture (height, width, channels) of uint8.
    """

    def __init__(self, env: AnyEnv, key: str | None, shape: Callable[[Shape], Shape]) -> None:
        super().__init__(env)
        self._key, whole = key, env.observation_space
        space = whole if key is None else whole.spaces.get(key) if isinstance(whole, Dict) else None
        if not isinstance(space, Box) or space.dtype != np.uint8 or len(space.shape) != 3:
            raise OptionError(
                f"{type(self).__name__}: expected a picture (height, width, channels) of uint8"
                f"{(key and f' under {key!r}') or ''}, found {whole}."
            )
        shown = Box(0, 255, shape(space.shape), np.uint8)
        self.observation_space = Dict({**whole.spaces, str(key): shown}) if isinstance(whole, Dict) else shown

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
        check_at_least("width", width, 1)
        check_at_least("height", height, 1)
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
        check_at_least("num_stack", num_stack, 1)
        self._frames: deque[Picture] = deque(maxlen=num_stack)
        super().__init__(env, frame_key, lambda shape: (*shape[:2], shape[2] * num_stack))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Begin an episode with nothing but its first picture."""
        self._frames.clear()
        return super().reset(seed=seed, options=options)

    def picture(self, frame: Picture) -> Picture:
        """Return the stack, the latest picture last."""
        self._frames.append(frame)
        while len(self._frames) < (self._frames.maxlen or 0):
            self._frames.append(frame)
        return np.concatenate(self._frames, axis=-1)


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


def dict_space(env: AnyEnv, *keys: str) -> Dict:
    """Return the environment's dictionary space.

    Raises:
        OptionError: if it is not a dictionary space, or lacks one of `keys`.
    """
    space = env.observation_space
    missing = [key for key in keys if not isinstance(space, Dict) or key not in space.spaces]
    if missing or not isinstance(space, Dict):
        raise OptionError(f"wrapper: expected a dictionary observation with {', '.join(keys)}; found {space}.")
    return space


def with_numbers(space: Dict, like: str, **lowest: float) -> Dict:
    """Return the space with more numbers in it, shaped like the one at `like`, from `lowest` to infinity."""
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
        space = dict_space(env, *(attribute_ranges or {}))
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
        player = ("player_damage_taken", player_hp_attr, player_max_hp_attr)
        boss = ("boss_damage_dealt", boss_hp_attr, boss_max_hp_attr)
        self._refunds = [refund for refund, wanted in ((player, refund_player), (boss, refund_boss)) if wanted]
        dict_space(env, *(key for _, *keys in self._refunds for key in keys))
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
        space = dict_space(env, anim_id_key)
        self.observation_space = with_numbers(space, anim_id_key, boss_anim_id=-np.inf, elapsed_frames=0.0)
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

    The normal is a unit vector on the boundary's map, see `arena_boundary.on_map`.

    Raises:
        OptionError: for `live_plot`, which is not offered.
    """

    def __init__(self, env: AnyEnv, boundary: ArenaBoundary, live_plot: bool = False) -> None:
        super().__init__(env)
        if live_plot:
            raise OptionError("live_plot: expected False, found True: the plot is not offered; draw env.render().")
        self.boundary = boundary
        space = dict_space(env, *_PLACE)
        self.observation_space = with_numbers(space, _PLACE[0], **dict.fromkeys(_SIGNED_DISTANCE, -np.inf))

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
        self._penalties = dict(hit=hit_penalty, dodge=dodge_penalty, danger_zone=danger_zone_penalty, oob=oob_penalty)

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


Points = npt.NDArray[np.float64]


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

    Raises:
        OptionError: if the corners are not three or more points of the plane, or a number is out of its range.
    """

    def __init__(self, polygon: Any, resolution: float = 0.5, padding: float = 10.0) -> None:
        points = _points(polygon)
        check_between("resolution", resolution, 1e-6, 1e6)
        check_between("padding", padding, 0.0, 1e6)
        self.corners: Points = points[:-1] if (points[0] == points[-1]).all() else points
        self.resolution, self.padding = resolution, padding
        self.x_min, self.y_min = (float(low) for low in self.corners.min(axis=0) - padding)
        self.x_max, self.y_max = (float(high) for high in self.corners.max(axis=0) + padding)

    @classmethod
    def disc(cls, centre: Sequence[float], radius: float, corners: int = 90) -> ArenaBoundary:
        """Make the round arena of a simulated fight, its centre in global coordinates."""
        turns = np.linspace(0.0, 2 * np.pi, corners, endpoint=False)
        middle = np.array(on_map(centre[0], centre[1]))
        return cls(middle + radius * np.stack([np.cos(turns), np.sin(turns)], axis=-1))

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
            DataError: if the file holds no such path.
            OptionError: if fewer than three corners are left.
        """
        steps = _read(path_data_file, "player_path")["player_path"]
        try:
            path = np.array([on_map(step["global_x"], step["global_y"]) for step in steps], np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise Where(path_data_file, "player_path").error(
                "points with global_x and global_y", repr(error)
            ) from error
        if len(path) > 2 and np.isfinite(path).all():
            path = _hull(path) if use_convex_hull else _simplified(path, simplify_tolerance)
        return cls(path, resolution)

    @classmethod
    def load(cls, path: str | Path) -> ArenaBoundary:
        """Read what `save` wrote, here or in EldenGym; raises as `from_path_data`."""
        values = _read(path, "polygon")
        return cls(values["polygon"], values.get("resolution", 0.5), values.get("padding", 10.0))

    def save(self, path: str | Path) -> None:
        """Write the corners as JSON, which EldenGym reads too."""
        values = {"polygon": self.corners.tolist(), "resolution": self.resolution, "padding": self.padding}
        Path(path).write_text(to_json(values), encoding="utf-8")

    def query(self, x: float, y: float) -> BoundaryDistances:
        """Measure from a point to the edge, at its nearest and along the axes."""
        value = self.nearest_distance(x, y)
        east, west = _along(self.corners, x, y)
        north, south = _along(self.corners[:, ::-1], y, x)
        return BoundaryDistances(value < 0, -value, north, south, east, west)

    def query_batch(self, points: npt.ArrayLike) -> tuple[npt.NDArray[np.bool_], Points]:
        """Return which points (n, 2) are inside (n,), and how far each is from the edge (n,), never below 0."""
        places = np.asarray(points, np.float64)
        assert not places.size or places.shape == (len(places), 2)
        values = np.array([self.nearest_distance(x, y) for x, y in places])
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
        start, end = self.corners, np.roll(self.corners, -1, axis=0)
        away = _away(start, end, np.array([x, y]))
        lengths = np.hypot(away[:, 0], away[:, 1])
        nearest = int(lengths.argmin())
        sign = -1.0 if _encloses(start, end, x, y) else 1.0
        length = float(lengths[nearest])
        normal = sign * away[nearest] / length if length > 0 else np.zeros(2)
        return sign * length, float(normal[0]), float(normal[1])


def _points(polygon: Any) -> Points:
    ring = getattr(polygon, "exterior", None)  # a shapely polygon, as EldenGym takes it
    try:
        points = np.asarray(ring.coords if ring is not None else polygon, np.float64)
    except (TypeError, ValueError) as error:
        raise OptionError(f"ArenaBoundary: expected three or more corners (x, y), found {error}.") from error
    if points.ndim != 2 or len(points) < 3 or points.shape[1] != 2 or not np.isfinite(points).all():
        raise OptionError(f"ArenaBoundary: expected three or more corners (x, y), found shape {points.shape}.")
    return points


def _away(start: Points, end: Points, points: Points) -> Points:
    """Return the vectors from the nearest places of the edges to the points, (n, 2); edges or points broadcast."""
    edge, towards = end - start, points - start
    along = np.clip((towards * edge).sum(axis=-1) / np.maximum((edge * edge).sum(axis=-1), 1e-12), 0.0, 1.0)
    away: Points = towards - along[..., None] * edge
    return away


def _along(corners: Points, x: float, y: float) -> tuple[float, float]:
    """Return the distance to the edge from a point, in the direction of rising and of falling x."""
    (x0, y0), (x1, y1) = corners.T, np.roll(corners, -1, axis=0).T
    met, level = (np.minimum(y0, y1) <= y) & (y <= np.maximum(y0, y1)), y0 == y1
    slope = (x1 - x0) / np.where(level, 1.0, y1 - y0)
    places = np.where(level, np.clip(x, np.minimum(x0, x1), np.maximum(x0, x1)), x0 + (y - y0) * slope)
    ways = places[met] - x
    return float(np.min(ways[ways >= 0], initial=inf)), float(np.min(-ways[ways <= 0], initial=inf))


def _simplified(path: Points, tolerance: float) -> Points:
    """Simplify a closed path by the algorithm of Douglas and Peucker."""
    ring = np.vstack((path, path[:1]))
    kept, spans = {0}, [(0, len(ring) - 1)]
    while spans:
        first, last = spans.pop()
        lengths = np.hypot(*_away(ring[first], ring[last], ring[first + 1 : last]).T)
        if np.max(lengths, initial=0.0) > tolerance:
            middle = first + 1 + int(lengths.argmax())
            kept.add(middle)
            spans += [(first, middle), (middle, last)]
    return path[sorted(kept)]


def _hull(path: Points) -> Points:
    # Imported here: nobody else needs it.
    from scipy.spatial import ConvexHull, QhullError

    try:
        corners: Points = path[ConvexHull(path).vertices]
    except QhullError as error:
        raise OptionError("use_convex_hull: expected a path around an area, found points on a line.") from error
    return corners


def _encloses(start: Points, end: Points, x: float, y: float) -> bool:
    """Return whether a path encloses a point: a ray along x then crosses an odd number of edges."""
    crosses = (start[:, 1] > y) != (end[:, 1] > y)
    rise = np.where(crosses, end[:, 1] - start[:, 1], 1.0)
    at = start[:, 0] + (y - start[:, 1]) * (end[:, 0] - start[:, 0]) / rise
    return bool((crosses & (at > x)).sum() % 2)


def _read(path: str | Path, key: str) -> Mapping[str, Any]:
    """Read a JSON file whose `key` has a list."""
    where = Where(path)
    values: Mapping[str, Any] = validate(dict[str, Any], read_file(where, "JSON"), where)
    validate(list[Any], values.get(key), where.at(key))
    return values
