"""The edge of an arena as a polygon, and the signed distance to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.eldengym.errors import OptionError
from soulsgraph_envs.errors import DataError

Points = npt.NDArray[np.float64]


def on_map(x: float, y: float) -> tuple[float, float]:
    """Give a place in the game's global coordinates as (y, -x), the map that EldenGym traces its arenas on."""
    return y, -x


class ArenaBoundary:
    """Measure from a point of the map to the edge; distances are below 0 inside, exact, in metres.

    Raises:
        OptionError: if the corners are not three or more points of the plane.
    """

    def __init__(self, corners: Any) -> None:
        ring = getattr(corners, "exterior", None)  # a shapely polygon, as EldenGym takes it
        points = np.asarray(ring.coords if ring is not None else corners, np.float64)
        if points.ndim != 2 or len(points) < 3 or points.shape[1] != 2 or not np.isfinite(points).all():
            raise OptionError(f"ArenaBoundary: expected three or more corners (x, y), found shape {points.shape}.")
        self.corners: Points = points[:-1] if (points[0] == points[-1]).all() else points

    @classmethod
    def disc(cls, centre: Sequence[float], radius: float, corners: int = 90) -> ArenaBoundary:
        """Make the round arena of a simulated fight, its centre in global coordinates."""
        turns = np.linspace(0.0, 2 * np.pi, corners, endpoint=False)
        middle = np.array(on_map(centre[0], centre[1]))
        return cls(middle + radius * np.stack([np.cos(turns), np.sin(turns)], axis=-1))

    @classmethod
    def from_path_data(cls, path_data_file: str | Path) -> ArenaBoundary:
        """Take the path that a player walked around the arena, as EldenGym's tracing writes it (JSON).

        Raises:
            DataError: if the file holds no such path.
        """
        steps = _read(path_data_file, "player_path")
        return cls([on_map(step["global_x"], step["global_y"]) for step in steps])

    @classmethod
    def load(cls, path: str | Path) -> ArenaBoundary:
        """Read what `save` wrote, here or in EldenGym; raises as `from_path_data`."""
        return cls(_read(path, "polygon"))

    def save(self, path: str | Path) -> None:
        """Write the corners as JSON."""
        Path(path).write_text(json.dumps({"polygon": self.corners.tolist()}), encoding="utf-8")

    def query_batch(self, points: npt.ArrayLike) -> tuple[npt.NDArray[np.bool_], Points]:
        """Tell of points (n, 2) which are inside (n,), and how far each is from the edge (n,), never below 0."""
        values = np.array([self.nearest_distance(x, y) for x, y in np.asarray(points, np.float64)])
        return values < 0, np.abs(values)

    def is_inside(self, x: float, y: float) -> bool:
        """Tell whether a point is inside the edge."""
        return self.nearest_distance(x, y) < 0

    def nearest_distance(self, x: float, y: float) -> float:
        """Give the signed distance to the edge."""
        return self.query_sdf(x, y)[0]

    def get_sdf_normal(self, x: float, y: float) -> tuple[float, float]:
        """Give the unit vector in which the distance grows fastest: outwards."""
        return self.query_sdf(x, y)[1:]

    def query_sdf(self, x: float, y: float) -> tuple[float, float, float]:
        """Give the signed distance and the normal: (distance, normal x, normal y)."""
        start, end = self.corners, np.roll(self.corners, -1, axis=0)
        edge, towards = end - start, np.array([x, y]) - start
        along = np.clip((towards * edge).sum(axis=1) / np.maximum((edge * edge).sum(axis=1), 1e-12), 0.0, 1.0)
        away = towards - along[:, None] * edge
        lengths = np.hypot(away[:, 0], away[:, 1])
        nearest = int(lengths.argmin())
        sign = -1.0 if _encloses(start, end, x, y) else 1.0
        length = float(lengths[nearest])
        normal = sign * away[nearest] / length if length > 0 else np.zeros(2)
        return sign * length, float(normal[0]), float(normal[1])


def _encloses(start: Points, end: Points, x: float, y: float) -> bool:
    """Count the edges that a ray along x crosses: an odd number around what is inside."""
    crosses = (start[:, 1] > y) != (end[:, 1] > y)
    rise = np.where(crosses, end[:, 1] - start[:, 1], 1.0)
    at = start[:, 0] + (y - start[:, 1]) * (end[:, 0] - start[:, 0]) / rise
    return bool((crosses & (at > x)).sum() % 2)


def _read(path: str | Path, key: str) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))[key]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(path, key, "a list of points", repr(error)) from error
