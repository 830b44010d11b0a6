"""What a recording holds: a header of the fight as a whole, and its columns, a row a tick.

The header says the scenario, source, player, skills, result and origin. Names, types, units and meaning of columns are
in the file's schema too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa

from soulsgraph.results.origin import describe_run
from soulsgraph.runs.plan import scenario_digest
from soulsgraph_envs.combat.rollout import Outcome
from soulsgraph_envs.core.config import Between, NonEmpty, Pair
from soulsgraph_envs.core.extras import installed_version
from soulsgraph_envs.core.scenario import Arena, Scenario, load_boss, load_player
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.skills import Skill, SkillOptions
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
    observation: tuple[str, ...]
    actions: tuple[str, ...]
    terms: tuple[str, ...]

    @classmethod
    def of(cls, skill: Skill, player: Player, version: int = -1, digest: str = "") -> PlayedSkill:
        """Return a skill for which a player decides; with networks their Q-values are in the file."""
        names = skill.observation.names, tuple(action.name for action in skill.actions), skill.reward.names
        return cls(skill.name, player, version, digest, player == "network", *names)


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
    boss_hp: Pair[Annotated[float, Between(-1e9, 1e9)]]
    boss_hp_full: Annotated[float, Between(1e-3, 1e9)]
    flasks: _Count
    phases: NonEmpty[PhaseGround]

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


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a recording says of its fight: JSON in the file's own metadata.

    `fight` is its identity, the file's name without its ending. `seed` is the seed of the episode in decimal digits,
    empty where there is none. `driver` is the simulator, or that of the running game; empty where it is not known.
    `map` names the running game's address map, `game_version` is its executable's, empty where unknown, and `speed` the
    factor of its clock. `project` is whose skills played, where they are not all the paper's.
    """

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    fight: str = ""
    scenario: str
    scenario_digest: str
    start: str
    source: Origins
    driver: str
    player: str
    seed: str
    tick_s: Annotated[float, Between(1e-3, 10.0)] = 0.1
    options: SkillOptions = field(default_factory=SkillOptions)
    skills: tuple[PlayedSkill, ...] = ()
    ground: Ground
    origin: RecordingOrigin
    result: Result = field(default_factory=Result)
    project: ProjectDigest | None = None
    map: str = ""
    game_version: str = ""
    speed: Annotated[float, Between(1e-3, 1e3)] = 1.0

    @property
    def simulated(self) -> bool:
        """Whether it can be played again from its seed and controls."""
        return self.driver == SIMULATOR and bool(self.seed)


def run_name(folder: Path) -> str:
    """Return the name of a run as a player: its folder's, with the one above it where that is only a seed's."""
    path = folder.resolve()
    name = f"{path.parent.name}-{path.name}" if _SEED_FOLDER.fullmatch(path.name) else path.name
    return name.lstrip(".-") or "run"


def make_header(fought: Scenario, /, *, scenario: str, seed: int | str = "", **fields: Any) -> Header:
    """Return the header of a fight that begins now; for many alike, make one and replace `fight`, `seed` and `origin`.

    `scenario` is the name or path by which the scenario was loaded; `fields` are others of the header's.

    Raises:
        SoulsGraphError: if a file of the scenario is missing or damaged.
    """
    return Header(
        scenario=scenario,
        scenario_digest=scenario_digest(scenario),
        start=fought.start,
        seed=str(seed),
        ground=Ground.of(fought),
        origin=RecordingOrigin.now(),
        **fields,
    )


#: Key of the header among the file's metadata.
HEADER_KEY = b"soulsgraph_fight"
#: What of a column is among its metadata.
UNIT, MEANING = b"unit", b"description"


def _struct(**fields: pa.DataType) -> pa.DataType:
    """Return a type of named values, none of which may be missing, nor the whole in a list."""
    return pa.struct([pa.field(name, kind, nullable=False) for name, kind in fields.items()])


def _list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


#: A share of an animation's length, from 0 to 1.
PART = _struct(first=pa.float64(), last=pa.float64())
#: A sector in front of the boss that a blow strikes.
AREA = _struct(
    reach_m=pa.float64(), half_arc_rad=pa.float64(), offset_m=pa.float64(), winding_up=pa.float64(), open=pa.bool_()
)


def _column(name: str, kind: pa.DataType, unit: str, meaning: str, nullable: bool = True) -> pa.Field:
    """Return a column with its unit and what it means."""
    return pa.field(name, kind, nullable, {UNIT: unit.encode(), MEANING: meaning.encode()})


_WHO = {"PLAYER": "the player", "BOSS": "the boss", "CAMERA": "the camera"}


def _reading(raw: Raw) -> pa.Field:
    """Return the column of a raw value."""
    name = raw.name.lower()
    who, _, what = raw.name.partition("_")
    if raw == Raw.LOCKED:
        return _column(name, pa.bool_(), "", "whether the camera is locked on the boss")
    if raw == Raw.FLASKS:
        return _column(name, pa.int16(), "flasks", "flasks left")
    if raw in (Raw.PLAYER_ANIMATION, Raw.BOSS_ANIMATION):
        return _column(name, pa.int32(), "", f"id of {_WHO[who]}'s animation, as the skills see it")
    if what in ("X", "Y", "Z"):
        if who == "CAMERA":
            return _column(name, pa.float64(), "", f"{what.lower()} of the direction in which the camera looks")
        return _column(f"{name}_m", pa.float64(), "m", f"place of {_WHO[who]}, {what.lower()} (z is up)")
    if what == "ANGLE":
        return _column(f"{name}_rad", pa.float64(), "rad", f"heading of {_WHO[who]}, from -pi to pi")
    if name.endswith("_s"):
        how = "how long it has played" if "TIME" in what else "how long it is"
        return _column(name, pa.float64(), "s", f"{_WHO[who]}'s animation: {how}")
    whose = "the player's stamina" if who == "STAMINA" else f"{_WHO[who]}'s HP"
    return _column(name, pa.float64(), "points", f"{whose}{', full' if name.endswith('max') else ''}")


#: The column of every raw value, in the order of `Raw`.
READINGS: Mapping[Raw, pa.Field] = {raw: _reading(raw) for raw in Raw}
#: The column of every control.
CONTROLS: Mapping[Control, pa.Field] = {
    control: _column(f"control/{name}", pa.bool_(), "", f"whether {name} is held or pressed in this tick")
    for control in Control
    if (name := (control.name or "").lower())
}
_MEANINGS = {
    "fight": "identity of the fight",
    "scenario": "scenario that is fought",
    "source": "simulator, game, fleet or person",
    "player": "who plays: a run, a zoo's agent, oracle, probe, or a person",
    "outcome": "how the fight ends: won, died, time over or cut",
}
#: Constant in a file, so that many files can be grouped.
_KEYS = tuple(_column(name, pa.string(), "", meaning, nullable=False) for name, meaning in _MEANINGS.items())
_TIME = (
    _column("tick", pa.int32(), "ticks", "control ticks since the fight began", nullable=False),
    _column("time_s", pa.float64(), "s", "game time since the fight began, by whole control ticks", nullable=False),
    _column("last", pa.bool_(), "", "the moment at which the fight ended, in which nothing is done", nullable=False),
)
#: What a game measures beside its readings.
MEASURED = (
    _column("clock_s", pa.float64(), "s", "game time since the fight began, as measured"),
    _column("boss_animation_read", pa.string(), "", "the boss's animation as the game names or numbers it"),
    _column("player_hp_unfilled", pa.float64(), "points", "the player's HP before a training scenario refilled it"),
)
#: What only the simulator knows, and what the data say of an animation.
SEEN = (
    _column("player_animation_name", pa.string(), "", "the game's name of the player's animation"),
    _column("boss_animation_name", pa.string(), "", "the game's name of the boss's animation"),
    _column("phase", pa.int8(), "", "phase of the boss, from 1"),
    _column("player_doing", pa.string(), "", "what the player does, in words"),
    _column("boss_doing", pa.string(), "", "what the boss does, in words"),
    _column("player_parts", _list_of(PART), "", "invulnerable parts of the player's animation, as shares"),
    _column("boss_parts", _list_of(PART), "", "hit windows of the boss's animation, as shares"),
    _column("player_moment", pa.float64(), "", "when a blow lands or a flask heals, as a share; -1 for never"),
    _column("hit_areas", _list_of(AREA), "", "where the boss strikes now (open), or after its wind-up"),
    _column("until_hit_s", pa.float64(), "s", "until the next hit window opens; infinite where none comes"),
    _column("invulnerable", pa.bool_(), "", "whether nothing can hit the player now"),
    _column("player_change", pa.float64(), "points", "the last change of the player's HP, below 0 for a blow"),
    _column("player_change_age_s", pa.float64(), "s", "how long ago that was"),
    _column("boss_change", pa.float64(), "points", "the last change of the boss's HP"),
    _column("boss_change_age_s", pa.float64(), "s", "how long ago that was"),
    _column("build_up", pa.float64(), "", "status effect built up, from 0 to 1"),
)
#: Every column but those of skills, in order.
FIGHT_COLUMNS = (*_KEYS, *_TIME, *READINGS.values(), *MEASURED, *SEEN, *CONTROLS.values())


def skill_columns(skill: PlayedSkill) -> Iterator[pa.Field]:
    """Yield the columns of one skill, all named `<skill>/...`."""
    names, size = ", ".join(skill.observation), len(skill.observation)
    floats, actions = pa.float32(), ", ".join(skill.actions)
    of = skill.name
    yield _column(f"{of}/version", pa.int32(), "", "version of the network that plays; -1 for none", nullable=False)
    yield _column(f"{of}/decides", pa.bool_(), "", "whether a decision begins with this tick", nullable=False)
    yield _column(f"{of}/action", pa.int16(), "", f"action under way, -1 for none: {actions}", nullable=False)
    yield _column(f"{of}/random", pa.bool_(), "", "whether that action was drawn at random; null: not known")
    yield _column(f"{of}/observation", pa.list_(floats, size), "", f"what it observes: {names}", nullable=False)
    if skill.valued:
        values = pa.list_(floats, len(skill.actions))
        yield _column(f"{of}/values", values, "", f"Q-values of that observation: {actions}", nullable=False)
    whole = "of the decision that begins here; null where none begins, or none came to its end"
    yield _column(f"{of}/reward", floats, "", f"reward {whole}")
    for term in skill.terms:
        yield _column(f"{of}/term/{term}", floats, "", f"reward term {term} {whole}")


def schema_of(header: Header) -> pa.Schema:
    """Return the Arrow schema of a fight's file, units and meanings in each field's metadata."""
    return pa.schema([*FIGHT_COLUMNS, *(column for skill in header.skills for column in skill_columns(skill))])
