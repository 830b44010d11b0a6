"""The columns of a recording: their names, types, units and meaning, which the file's schema holds too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from soulsgraph.recordings.header import Header, PlayedSkill
from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.state import Raw

#: Key of the header among the file's metadata, and of the digest over header and columns.
HEADER_KEY, DIGEST_KEY = b"soulsgraph_fight", b"soulsgraph_digest"
_UNIT, _MEANING = b"unit", b"description"


def _struct(**fields: pa.DataType) -> pa.DataType:
    """Return a type of named values, none of which may be missing, nor the whole in a list."""
    return pa.struct([pa.field(name, kind, nullable=False) for name, kind in fields.items()])


def _list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


#: A share of an animation's length, from 0 to 1.
PART = _struct(first=pa.float64(), last=pa.float64())
#: A sector in front of the boss that a blow strikes.
AREA = _struct(
    reach_m=pa.float64(),
    half_arc_rad=pa.float64(),
    offset_m=pa.float64(),
    winding_up=pa.float64(),
    open=pa.bool_(),
)


@dataclass(frozen=True)
class ColumnType:
    """One column: its name, Arrow type, unit, and what it means."""

    name: str
    type: pa.DataType
    unit: str
    meaning: str
    nullable: bool = True

    @property
    def field(self) -> pa.Field:
        """The column as a field of an Arrow schema."""
        metadata = {_UNIT: self.unit.encode(), _MEANING: self.meaning.encode()}
        return pa.field(self.name, self.type, self.nullable, metadata)


_WHO = {"PLAYER": "the player", "BOSS": "the boss", "CAMERA": "the camera"}


def _reading(raw: Raw) -> ColumnType:
    """Return the column of a raw value."""
    name = raw.name.lower()
    who, _, what = raw.name.partition("_")
    if raw == Raw.LOCKED:
        return ColumnType(name, pa.bool_(), "", "whether the camera is locked on the boss")
    if raw == Raw.FLASKS:
        return ColumnType(name, pa.int16(), "flasks", "flasks left")
    if raw in (Raw.PLAYER_ANIMATION, Raw.BOSS_ANIMATION):
        return ColumnType(name, pa.int32(), "", f"id of {_WHO[who]}'s animation, as the skills see it")
    if what in ("X", "Y", "Z"):
        if who == "CAMERA":
            return ColumnType(name, pa.float64(), "", f"{what.lower()} of the direction in which the camera looks")
        return ColumnType(f"{name}_m", pa.float64(), "m", f"place of {_WHO[who]}, {what.lower()} (z is up)")
    if what == "ANGLE":
        return ColumnType(f"{name}_rad", pa.float64(), "rad", f"heading of {_WHO[who]}, from -pi to pi")
    if name.endswith("_s"):
        how = "how long it has played" if "TIME" in what else "how long it is"
        return ColumnType(name, pa.float64(), "s", f"{_WHO[who]}'s animation: {how}")
    whose = "the player's stamina" if who == "STAMINA" else f"{_WHO[who]}'s HP"
    return ColumnType(name, pa.float64(), "points", f"{whose}{', full' if name.endswith('max') else ''}")


#: The column of every raw value, in the order of `Raw`.
READINGS: Mapping[Raw, ColumnType] = {raw: _reading(raw) for raw in Raw}
#: The column of every control.
CONTROLS: Mapping[Control, ColumnType] = {
    control: ColumnType(
        f"control/{(control.name or '').lower()}",
        pa.bool_(),
        "",
        f"whether {(control.name or '').lower()} is held or pressed in this tick",
    )
    for control in Control
    if control
}
#: Constant in a file, so that many files can be grouped.
KEYS = (
    ColumnType("fight", pa.string(), "", "identity of the fight", nullable=False),
    ColumnType("scenario", pa.string(), "", "scenario that is fought", nullable=False),
    ColumnType("source", pa.string(), "", "simulator, game, fleet or person", nullable=False),
    ColumnType("player", pa.string(), "", "who plays: a run, an agent of the zoo, oracle, or a person", nullable=False),
    ColumnType("outcome", pa.string(), "", "how the fight ends: won, died, time over or cut", nullable=False),
)
_TIME = (
    ColumnType("tick", pa.int32(), "ticks", "control ticks since the fight began", nullable=False),
    ColumnType("time_s", pa.float64(), "s", "game time since the fight began", nullable=False),
    ColumnType("last", pa.bool_(), "", "the moment at which the fight ended, in which nothing is done", nullable=False),
)
#: What only the simulator knows, and what the data say of an animation.
SEEN = (
    ColumnType("player_animation_name", pa.string(), "", "the game's name of the player's animation"),
    ColumnType("boss_animation_name", pa.string(), "", "the game's name of the boss's animation"),
    ColumnType("phase", pa.int8(), "", "phase of the boss, from 1"),
    ColumnType("player_doing", pa.string(), "", "what the player does, in words"),
    ColumnType("boss_doing", pa.string(), "", "what the boss does, in words"),
    ColumnType("player_parts", _list_of(PART), "", "invulnerable parts of the player's animation, as shares"),
    ColumnType("boss_parts", _list_of(PART), "", "hit windows of the boss's animation, as shares"),
    ColumnType("player_moment", pa.float64(), "", "when a blow lands or a flask heals, as a share; -1 for never"),
    ColumnType("hit_areas", _list_of(AREA), "", "where the boss strikes now (open), or after its wind-up"),
    ColumnType("until_hit_s", pa.float64(), "s", "until the next hit window opens; infinite where none comes"),
    ColumnType("invulnerable", pa.bool_(), "", "whether nothing can hit the player now"),
    ColumnType("player_change", pa.float64(), "points", "the last change of the player's HP, below 0 for a blow"),
    ColumnType("player_change_age_s", pa.float64(), "s", "how long ago that was"),
    ColumnType("boss_change", pa.float64(), "points", "the last change of the boss's HP"),
    ColumnType("boss_change_age_s", pa.float64(), "s", "how long ago that was"),
    ColumnType("build_up", pa.float64(), "", "status effect built up, from 0 to 1"),
)


#: Every column but those of skills, in order.
FIGHT_COLUMNS = (*KEYS, *_TIME, *READINGS.values(), *SEEN, *CONTROLS.values())
#: The columns of texts, none of which belongs to a skill.
TEXTS = tuple(column.name for column in FIGHT_COLUMNS if column.type == pa.string())


def skill_columns(skill: PlayedSkill) -> Iterator[ColumnType]:
    """Yield the columns of one skill, all named `<skill>/...`."""
    names, size = ", ".join(skill.observation), len(skill.observation)
    floats, actions = pa.float32(), ", ".join(skill.actions)
    of = skill.name
    yield ColumnType(f"{of}/version", pa.int32(), "", "version of the network that plays; -1 for none", nullable=False)
    yield ColumnType(f"{of}/decides", pa.bool_(), "", "whether a decision begins with this tick", nullable=False)
    yield ColumnType(f"{of}/action", pa.int16(), "", f"action under way, -1 for none: {actions}", nullable=False)
    yield ColumnType(f"{of}/random", pa.bool_(), "", "whether that action was drawn at random; null: not known")
    yield ColumnType(f"{of}/observation", pa.list_(floats, size), "", f"what it observes: {names}", nullable=False)
    if skill.valued:
        values = pa.list_(floats, len(skill.actions))
        yield ColumnType(f"{of}/values", values, "", f"Q-values of that observation: {actions}", nullable=False)
    whole = "of the decision that begins here; null where none begins, or none came to its end"
    yield ColumnType(f"{of}/reward", floats, "", f"reward {whole}")
    for term in skill.terms:
        yield ColumnType(f"{of}/term/{term}", floats, "", f"reward term {term} {whole}")


def columns(header: Header) -> tuple[ColumnType, ...]:
    """Return every column of a fight's file, in order."""
    skills = [column for skill in header.skills for column in skill_columns(skill)]
    return (*FIGHT_COLUMNS, *skills)


def schema_of(header: Header) -> pa.Schema:
    """Return the Arrow schema of a fight's file, units and meanings in each field's metadata."""
    return pa.schema([column.field for column in columns(header)])
