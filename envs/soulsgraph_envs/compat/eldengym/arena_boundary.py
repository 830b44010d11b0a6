"""The edge of an arena as a polygon, and the signed distance to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.compat.eldengym.errors import OptionError, check_between
from soulsgraph_envs.core.config import Where, read_file, read_value, to_json
from soulsgraph_envs.core.errors import DataError

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
            raise DataError(path_data_file, "player_path", "points with global_x and global_y", repr(error)) from error
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
    values: Mapping[str, Any] = read_value(Mapping[str, Any], read_file(where, "JSON"), where)
    read_value(list[Any], values.get(key), where.at(key))
    return values
