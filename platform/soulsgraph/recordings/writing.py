"""Write a fight: ticks are added one after another, and the whole file appears when the fight is finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from soulsgraph.recordings.files import check_new, write_table
from soulsgraph.recordings.header import Header, PlayedSkill, Result
from soulsgraph.recordings.schema import CONTROLS, READINGS, SEEN, schema_of
from soulsgraph_envs.combat.rollout import Flags, Floats, Integers, Outcome
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.state import Raw, RawValues, StateRows, state_rows
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.scene import Part, Scene
from soulsgraph_envs.skills import Decisions, Skill
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks

Columns = dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """What the skills did in a tick, (skills,) each: the action under way, -1 for none, where a decision began with
    this tick, and whether the action was drawn at random."""

    actions: Integers
    decides: Flags
    random: Flags


@dataclass(frozen=True)
class Appearance:
    """What of a moment is more than raw values: the scene as the simulator knows it, and the animations' names.

    Without a scene both fighters' animations may be said in words.
    """

    scene: Scene | None = None
    player_animation: str | None = None
    boss_animation: str | None = None
    player_doing: str | None = None
    boss_doing: str | None = None

    @classmethod
    def simulated(cls, game: Simulator) -> Appearance:
        """Return what a simulator of one lane shows."""
        names = game.animation_names(0)
        return cls(game.scene(0), names.player, names.boss)


NOTHING_SEEN = Appearance()


class FightWriter:
    """Keep the ticks of one fight; `finish` writes `<fight>.parquet` into a folder, whole or not at all.

    `agent` has the skills of the header, in their order; without one a person played. Nothing is on the disk before
    `finish`. What is wrong with the header is said at once, not when the fight was fought.

    Raises:
        SoulsGraphError: for a header that cannot be written, or a fight that is there already.
    """

    def __init__(self, folder: Path, header: Header, agent: Agent | None = None) -> None:
        check_new(folder, header)
        self._folder, self._header, self._agent = folder, header, agent
        self._raws: list[npt.NDArray[np.float64]] = []
        self._controls: list[int] = []
        self._seen: list[Appearance] = []
        self._choices: list[Choice] = []

    def __len__(self) -> int:
        return len(self._controls)

    def add(self, raw: RawValues, controls: int, seen: Appearance = NOTHING_SEEN, choice: Choice | None = None) -> None:
        """Add a tick: the raw values (25,) and what was seen as it began, the controls and actions in it."""
        self._raws.append(np.array(raw, np.float64))
        self._controls.append(int(controls))
        self._seen.append(seen)
        if choice is not None:
            self._choices.append(choice)

    def finish(self, raw: RawValues, outcome: Outcome, seen: Appearance = NOTHING_SEEN) -> Path:
        """Add the moment at which the fight ended, write the file and return its path.

        Raises:
            SoulsGraphError: for a fight without a tick, or one that is there already.
            WriteError: if the place cannot be written.
        """
        if not self._controls:
            raise SoulsGraphError(f"{self._header.fight}: expected a fight of at least one tick, found none.")
        raws = np.vstack([*self._raws, np.array(raw, np.float64)])
        header = replace(self._header, result=_result(self._header, raws, outcome))
        written: Columns = {
            **key_columns(header, np.arange(len(raws))),
            **reading_columns(raws),
            **seen_columns([*self._seen, seen]),
            **_controls([*self._controls, 0]),
        }
        if self._agent is not None:
            written |= _agent_columns(header, self._agent, state_rows(raws), self._choices)
        return write_table(self._folder, header, pa.table(written, schema=schema_of(header)))


def key_columns(header: Header, ticks: Integers) -> Columns:
    """Return what is the same in all rows, and the time of each, `ticks` (rows,)."""
    rows = len(ticks)
    constant = {name: getattr(header, name) for name in ("fight", "scenario", "source", "player")}
    constant["outcome"] = header.result.outcome
    return {
        **{name: [value] * rows for name, value in constant.items()},
        "tick": ticks.astype(np.int32),
        "time_s": np.round(ticks * header.tick_s, 6),
        "last": np.arange(rows) == rows - 1,
    }


def reading_columns(raws: RawValues) -> Columns:
    """Return the columns of raw values (rows, 25); NaN is a missing value."""
    return {column.name: pa.array(raws[:, raw], from_pandas=True).cast(column.type) for raw, column in READINGS.items()}


def _controls(controls: Sequence[int]) -> Columns:
    bits = np.array(controls, np.uint32)
    return {column.name: (bits & np.uint32(control)) != 0 for control, column in CONTROLS.items()}


def seen_columns(seen: Sequence[Appearance]) -> Columns:
    """Return the columns of what was seen beside raw values, one row each."""
    rows = [_scene_values(one) for one in seen]
    return {column.name: [row.get(column.name) for row in rows] for column in SEEN}


def _scene_values(seen: Appearance) -> Columns:
    names = {"player_animation_name": seen.player_animation, "boss_animation_name": seen.boss_animation}
    if (scene := seen.scene) is None:
        return names | {"player_doing": seen.player_doing, "boss_doing": seen.boss_doing}
    return names | {
        "phase": scene.phase,
        "player_doing": scene.player.name,
        "boss_doing": scene.boss.name,
        "player_parts": _parts(scene.player.parts),
        "boss_parts": _parts(scene.boss.parts),
        "player_moment": scene.player.moment,
        "hit_areas": [
            {
                "reach_m": area.window.reach_m,
                "half_arc_rad": area.window.half_arc_rad,
                "offset_m": area.window.offset_m,
                "winding_up": area.winding_up,
                "open": area.open,
            }
            for area in scene.areas
        ],
        "until_hit_s": scene.until_hit_s,
        "invulnerable": scene.invulnerable,
        "player_change": scene.player_change.points,
        "player_change_age_s": scene.player_change.age_s,
        "boss_change": scene.boss_change.points,
        "boss_change_age_s": scene.boss_change.age_s,
        "build_up": scene.build_up,
    }


def _parts(parts: Sequence[Part]) -> list[dict[str, float]]:
    return [{"first": first, "last": last} for first, last in parts]


def _result(header: Header, raws: RawValues, outcome: Outcome) -> Result:
    ticks, refilled = len(raws) - 1, header.ground.refill
    flasks = _lost(raws, Raw.FLASKS)
    return Result(
        outcome=outcome,
        steps=ticks,
        ticks=ticks,
        seconds=round(ticks * header.tick_s, 6),
        boss_hp=_known(raws[-1, Raw.BOSS_HP]),
        player_hp=_known(raws[-1, Raw.PLAYER_HP]),
        # In a training scenario HP is full again after every tick, whatever was lost.
        damage_dealt=None if refilled else _lost(raws, Raw.BOSS_HP),
        damage_taken=None if refilled else _lost(raws, Raw.PLAYER_HP),
        flasks_used=None if flasks is None else int(flasks),
    )


def _lost(raws: RawValues, raw: Raw) -> float | None:
    """Return what was lost of a raw value from tick to tick, together; None where a tick lacks it."""
    return _known(np.maximum(-np.diff(raws[:, raw]), 0.0).sum())


def _known(value: float) -> float | None:
    return float(value) if isfinite(value) else None


def _agent_columns(header: Header, agent: Agent, rows: StateRows, choices: Sequence[Choice]) -> Columns:
    actions, decides, random = (
        np.vstack([*(getattr(choice, name) for choice in choices), np.full(len(agent.skills), last)])
        for name, last in (("actions", -1), ("decides", 0), ("random", 0))
    )
    found: Columns = {}
    for index, (played, skill) in enumerate(zip(header.skills, agent.skills, strict=True)):
        begun = SkillActions(actions[:, index], decides[:, index].astype(np.bool_), random[:, index].astype(np.bool_))
        found |= _skill_columns(played, skill, agent, rows, begun, header.result.outcome)
    return found


@dataclass(frozen=True)
class Spans:
    """Decisions of one skill in a fight: the rows in which they begin and end, and their actions, (n,) each.

    The row of an end is the next one that can begin a decision; it may lie behind the end of the fight.
    """

    begins: Integers
    ends: Integers
    actions: Integers

    def ended(self, rows: StateRows, outcome: Outcome) -> Spans:
        """Return those that came to an end, in one of the State rows (ticks + 1, 25) of the fight."""
        last = len(rows) - 1
        # The end of a fight ends what is under way; where it is cut, nobody knows what it would have brought.
        ended = Spans(self.begins, np.minimum(self.ends, last), self.actions)
        return ended.where(self.ends <= last) if outcome == "cut" else ended

    def where(self, kept: Flags) -> Spans:
        """Return those that are `kept` (n,)."""
        return Spans(self.begins[kept], self.ends[kept], self.actions[kept])

    def decisions(self, rows: StateRows, outcome: Outcome) -> Decisions:
        """Return decisions that came to an end, from the State rows (ticks + 1, 25) of the fight."""
        over = self.ends == len(rows) - 1
        died, won = over & (outcome == "died"), over & (outcome == "won")
        return Decisions(rows[self.begins], rows[self.ends], self.actions, died, won)


@dataclass(frozen=True)
class SkillActions:
    """One skill's actions, and where its decisions begin, the moment of the end included, (ticks + 1,) each."""

    actions: Integers
    decides: Flags
    random: Flags

    @property
    def spans(self) -> Spans:
        """Where its decisions begin and end."""
        begins = np.flatnonzero(self.decides)
        return Spans(begins, np.append(begins[1:], len(self.decides))[: len(begins)], self.actions[begins])


def _skill_columns(
    played: PlayedSkill, skill: Skill, agent: Agent, rows: StateRows, begun: SkillActions, outcome: Outcome
) -> Columns:
    of, count = skill.name, len(rows)
    ended = begun.spans.ended(rows, outcome)
    terms = skill.reward.evaluate(ended.decisions(rows, outcome))
    found: Columns = {
        f"{of}/version": np.full(count, played.version, np.int32),
        f"{of}/decides": begun.decides,
        f"{of}/action": begun.actions.astype(np.int16),
        f"{of}/random": begun.random,
        f"{of}/observation": fixed_lists(skill.observation(rows, agent.scenario)),
        f"{of}/reward": at_rows(terms.sum(axis=1), ended.begins, count),
    }
    if played.valued:
        found[f"{of}/values"] = fixed_lists(
            FusedNetworks([cast(FrozenNetwork, agent.networks[skill.name])]).q_values(0, rows)
        )
    for index, term in enumerate(skill.reward.names):
        found[f"{of}/term/{term}"] = at_rows(terms[:, index], ended.begins, count)
    return found


def at_rows(values: Floats, places: Integers, count: int) -> pa.Array:
    """Return `count` numbers of which those at `places` (n,) have `values` (n,), the others none."""
    whole, missing = np.zeros(count, np.float32), np.ones(count, np.bool_)
    whole[places], missing[places] = values, False
    return pa.array(whole, pa.float32(), mask=missing)


def fixed_lists(values: Floats) -> pa.Array:
    """Return the rows of (rows, size) as lists of that size."""
    flat = pa.array(np.ascontiguousarray(values, np.float32).reshape(-1), pa.float32())
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
