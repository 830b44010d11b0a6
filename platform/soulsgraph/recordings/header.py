"""What a recording says of its fight as a whole: its scenario, source, player, skills, result and origin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from soulsgraph.results.origin import describe_run
from soulsgraph.runs.plan import scenario_digest
from soulsgraph_envs.combat.rollout import Outcome
from soulsgraph_envs.core.config import Between
from soulsgraph_envs.core.extras import installed_version
from soulsgraph_envs.core.scenario import Arena, Scenario, load_boss, load_player
from soulsgraph_envs.skills import SkillOptions
from soulsgraph_policies.agents.projects import ProjectDigest

FORMAT, FORMAT_VERSION = "soulsgraph fight", 1
#: Where a fight comes from: skills in the simulator or in a running game, a fleet's journal, or a person.
Origins = Literal["simulator", "game", "fleet", "person"]
#: The driver of a simulated fight, the only one that can be played again bit for bit.
SIMULATOR = "simulator"
#: What decided for a skill; "training" is a network that learned meanwhile, and drew some of its actions.
Player = Literal["network", "training", "script", "random"]
#: A comparison of graphs keeps its runs as GRAPH/seed-N.
_SEED_FOLDER = re.compile(r"seed-[0-9]+")
_NO_LIMIT = Between(0.0, 1e9)
_Count = Annotated[int, Between(0, 10**9)]
_Points = Annotated[float, _NO_LIMIT]
#: HP as read, in points.
_Level = Annotated[float, Between(-1e9, 1e9)]


@dataclass(frozen=True)
class PlayedSkill:
    """A skill that took part: what decided for it, and the names of what it observes, may do and is rewarded for.

    `version` and `digest` are those of the network that played, -1 and empty for anything else; of a skill in training
    the version counts the weights that were sent. `valued` is whether the file has its Q-values.
    """

    name: str
    player: Player
    version: int
    digest: str
    valued: bool
    observation: Sequence[str]
    actions: Sequence[str]
    terms: Sequence[str]


@dataclass(frozen=True)
class PhaseGround:
    """What a picture of one phase needs of its boss."""

    phase: Annotated[int, Between(0, 127)]
    boss: str
    radius_m: _Points
    status: str


@dataclass(frozen=True)
class Ground:
    """What a picture and the end of a fight need of its scenario, so that neither needs the scenario's files.

    `boss_hp` are the points at which the boss began and below which it is beaten.
    """

    arena: Arena
    player_radius_m: _Points
    view_rad: _Points
    lock_range_m: _Points
    refill: bool
    death_hp_ratio: Annotated[float, Between(0.0, 1e3)]
    boss_hp: Annotated[tuple[float, float], Between(-1e9, 1e9)]
    boss_hp_full: Annotated[float, Between(1e-3, 1e9)]
    flasks: _Count
    phases: tuple[PhaseGround, ...]

    @classmethod
    def of(cls, scenario: Scenario) -> Ground:
        """Return what a scenario's data say."""
        player = load_player(scenario.player)
        bosses = [load_boss(phase.boss) for phase in scenario.phases()]
        return cls(
            arena=scenario.arena,
            player_radius_m=player.body.radius_m,
            view_rad=player.camera.lock_view_rad,
            lock_range_m=player.camera.lock_range_m,
            refill=scenario.refill,
            death_hp_ratio=scenario.death_hp_ratio,
            boss_hp=scenario.boss_hp,
            boss_hp_full=scenario.boss_hp_full,
            flasks=scenario.flasks,
            phases=tuple(PhaseGround(boss.phase, boss.name, boss.radius_m, boss.status.name) for boss in bosses),
        )


@dataclass(frozen=True)
class Result:
    """How a fight ended. HP in points; levels, damage and flasks are None where the readings do not say.

    Damage is what was lost from tick to tick, so that a blow and a drink in the same tick count together. `steps`
    counts the rows before the last: ticks, or decisions where the source keeps nothing else.
    """

    outcome: Outcome = "cut"
    steps: _Count = 0
    ticks: _Count = 0
    seconds: _Points = 0.0
    boss_hp: _Level | None = None
    player_hp: _Level | None = None
    damage_dealt: _Points | None = None
    damage_taken: _Points | None = None
    flasks_used: _Count | None = None


@dataclass(frozen=True)
class RecordingOrigin:
    """With what a fight was recorded, and when (UTC, ISO 8601)."""

    soulsgraph: str
    commit: str | None
    processor: str
    created: str

    @classmethod
    def now(cls) -> RecordingOrigin:
        """Return the origin of what is recorded here and now."""
        return cls(installed_version(), *_machine(), datetime.now(UTC).isoformat(timespec="seconds"))


@cache
def _machine() -> tuple[str | None, str]:
    """Return the commit and the kind of processor, as an agent's card names it."""
    run = describe_run()
    kind = f"{run['machine'].get('processor', 'unknown')}, vectors of {run['vector_bits']} bits"
    return run["commit"], kind


@dataclass(frozen=True)
class Header:
    """What a recording says of its fight: JSON in the file's own metadata.

    `fight` is its identity, the file's name without its ending. `seed` is the seed of the episode in decimal digits,
    empty where there is none. `driver` is the simulator, or that of the running game; empty where it is not known.
    `project` is whose skills played, where they are not all the paper's.
    """

    format: str
    format_version: int
    fight: str
    scenario: str
    scenario_digest: str
    start: str
    source: Origins
    driver: str
    player: str
    seed: str
    tick_s: Annotated[float, Between(1e-3, 10.0)]
    options: SkillOptions
    skills: Sequence[PlayedSkill]
    ground: Ground
    origin: RecordingOrigin
    result: Result = field(default_factory=Result)
    project: ProjectDigest | None = None

    @property
    def simulated(self) -> bool:
        """Whether it can be played again from its seed and controls."""
        return self.driver == SIMULATOR and bool(self.seed)


def run_name(folder: Path) -> str:
    """Return the name of a run as a player: its folder's, with the one above it where that is only a seed's."""
    place = folder.resolve()
    name = f"{place.parent.name}-{place.name}" if _SEED_FOLDER.fullmatch(place.name) else place.name
    return name.lstrip(".-") or "run"


@dataclass(frozen=True)
class Identity:
    """Who fought where; `scenario` is the name or path by which it was loaded."""

    fight: str
    scenario: str
    source: Origins
    driver: str
    player: str
    seed: int | None = None


def make_header(
    identity: Identity,
    scenario: Scenario,
    skills: Sequence[PlayedSkill] = (),
    options: SkillOptions | None = None,
    tick_s: float = 0.1,
    project: ProjectDigest | None = None,
) -> Header:
    """Return the header of a fight that begins now; for many alike, make one and replace `fight`, `seed` and `origin`.

    Raises:
        SoulsGraphError: if a file of the scenario is missing or damaged.
    """
    return Header(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        fight=identity.fight,
        scenario=identity.scenario,
        scenario_digest=scenario_digest(identity.scenario),
        start=scenario.start,
        source=identity.source,
        driver=identity.driver,
        player=identity.player,
        seed="" if identity.seed is None else str(identity.seed),
        tick_s=tick_s,
        options=options or SkillOptions(),
        skills=tuple(skills),
        ground=Ground.of(scenario),
        origin=RecordingOrigin.now(),
        project=project,
    )
