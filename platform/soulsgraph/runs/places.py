"""Where a training takes place: its Ray, and what plays in it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

from soulsgraph_envs.core.config import AnyPath, Between, check_fields, require


@dataclass(frozen=True)
class TrainingPlace:
    """Where Ray runs, and what plays; raises SoulsGraphError for what cannot go together."""

    address: str | None = None
    """Ray cluster to join, as HOST:PORT or auto; if not given, a local Ray is started where the work needs one."""
    places_within: Annotated[float, Between(0.0, 1_440.0)] = 0.0
    """Minutes that a stage waits until every env runner has a place, for example while an autoscaler starts machines;
    without it, half a minute, and only for places that the cluster has already."""
    games: AnyPath | None = None
    """TOML file of real-time games to train in, a process each; the simulator if not given."""
    fleet: AnyPath | None = None
    """TOML file of a fleet: its game PCs play, each with `soulsgraph fleet host`, in the place of env runners."""
    no_ray: bool = False
    """Run a fleet's gateway in this process, without Ray, as on Windows. It then ends with this process; as a Ray actor
    it would be restarted if it is killed."""
    track_fights: bool = False
    """Track pictures of a greedy fight, its Q-values and actions, every 5,000 decisions of a skill."""

    def __post_init__(self) -> None:
        check_fields(self)
        require(self.games is None or self.fleet is None, "games", "be left out beside a fleet")

    @property
    def without_ray(self) -> bool:
        """Whether a fleet's gateway runs in this process."""
        return self.no_ray or sys.platform == "win32"
