"""Fights out of a fleet's journal: what its games sent, a row a decision of a skill that learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from soulsgraph.recordings.files import RecordingError, is_written, write_table
from soulsgraph.recordings.format import Header, PlayedSkill, Result, make_header, run_name
from soulsgraph.recordings.recording import Columns, at_rows, fixed_lists, key_columns, reading_columns
from soulsgraph.runs.lineage import own_stages, stage_key, stages_made, unfinished
from soulsgraph.runs.plan import Stage
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk
from soulsgraph_clusters.fleet.protocol.messages import decode_columns, read_moments
from soulsgraph_clusters.fleet.protocol.task import StageTask, digests_of_skills
from soulsgraph_clusters.fleet.store import FILE, Journal, StoredChunk
from soulsgraph_envs.combat.rollout import Episodes, Integers, outcome_of
from soulsgraph_envs.core.files import slug
from soulsgraph_envs.core.state import Column, Raw
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.agents.projects import ProjectDigest
from soulsgraph_policies.learning.sampler import Transitions

_TICK_S = 0.1
#: State columns that are a raw value as it is; the others are ratios, or made of several.
_AS_READ = {
    column: Raw[column.name]
    for column in Column
    if column.name in Raw.__members__ and column not in (Column.STAMINA, Column.PLAYER_HP, Column.BOSS_HP)
}


class _Fight(NamedTuple):
    """Where one fight was fought, and of which skill its decisions are."""

    pc: str
    game: str
    boot: str
    skill: str
    lane: int
    episode: int

    @property
    def name(self) -> str:
        who = slug(f"{self.pc[:40]}-{self.game[:40]}-{self.boot[:8]}")
        return f"{who}-lane{self.lane}-fight{self.episode}-{self.skill}"


#: Decisions of a fight, and the versions of the weights that decided.
_Part = tuple[Transitions, Integers]


def journals(run: RunFolder) -> dict[Path, Stage]:
    """Return the folders of a run's journals with their stages: those that made versions, and the one under way.

    Raises:
        RecordingError: if there is none.
    """
    stages = {key: stage for key, (stage, _) in stages_made(run).items()}
    stages |= {stage_key(run, stage): stage for stage in unfinished(run, own_stages(run))[:1]}
    kept = {run.journal(key): stage for key, stage in stages.items() if (run.journal(key) / FILE).exists()}
    if not kept:
        raise RecordingError(run.path, "a stage with a fleet's journal", "none", "train with a fleet first")
    return kept


def task_of(run: RunFolder, stage: Stage) -> StageTask:
    """Return what a fleet's games play in a stage of a run.

    Raises:
        SoulsGraphError: if a fleet cannot play it.
    """
    plan, order = run.plan, run.plan.skill_graph.order
    playing = {name for part in stage.parts for name in (*run.plan.skill_graph.upstream(part.skill), part.skill)}
    plays = {name: name for name in order if name in playing}
    learns = {part.skill: plan.hyperparameters(part) for part in stage.parts}
    clip = learns[stage.skill].observation_clip
    return StageTask(stage.scenario, plays, learns, clip, plan.options, projects=digests_of_skills(plays))


def record_journal(
    run: RunFolder, stage: Stage, kept: Path, folder: Path, on_written: Callable[[Path], object] = lambda _: None
) -> Counter[str]:
    """Write every whole fight of a stage's journal, `kept`, into a folder; return how many were left out, by reason.

    Fights that are there already are left out too.

    Raises:
        RecordingError: if a file of a fight's name holds another fight.
        FleetError: if the journal is damaged, or games play for the stage now.
        WriteError: if the place cannot be written.
    """
    task, left_out = task_of(run, stage), Counter[str]()
    skills = {skill.name: skill for skill in task.skills_of(task.sampled)}
    template = make_header(
        task.ground, scenario=task.scenario, source="fleet", driver="", player=run_name(run.path), tick_s=_TICK_S,
        options=task.options, project=ProjectDigest.of(run.plan.graph),
    )  # fmt: skip
    played = {name: PlayedSkill.of(skill, "training") for name, skill in skills.items()}
    templates = {name: replace(template, skills=(one,)) for name, one in played.items()}
    # One start of a game may play for a skill twice: in the curriculum, and adapting.
    adapted = stage.scenario != run.plan.scenario
    stage_name = f"-{kept.name.partition('@')[2][-40:]}" if adapted else ""
    with closing(Journal(kept, stage.name, reading=True)) as journal:
        left_out.update({f"chunks refused as {verdict}": count for verdict, count in journal.refused.items()})
        open_fights: dict[_Fight, list[_Part]] = {}
        for stored in journal.in_order():
            for fought, parts, ended in _ended(stored, task, open_fights):
                if sum(len(part) for part, _ in parts) != ended.lengths[0]:
                    left_out["fights with decisions missing"] += 1
                    continue
                header = replace(templates[fought.skill], fight=fought.name + stage_name)
                path = _write(header, skills[fought.skill], folder, parts, ended)
                if path is None:
                    left_out["fights there already"] += 1
                else:
                    on_written(path)
        if open_fights:
            left_out["fights without an end"] += len(open_fights)
    return left_out


def _ended(
    stored: StoredChunk, task: StageTask, open_fights: dict[_Fight, list[_Part]]
) -> Iterator[tuple[_Fight, list[_Part], Episodes]]:
    """Put a chunk's decisions to their fights, and yield those that ended in it, each with its one row of episodes."""
    message = Chunk.FromString(stored.content)
    chunk, moments = decode_columns(message.columns), read_moments(message)
    for module, transitions in chunk.transitions.items():
        skills = task.skills_of([module])
        for lane in np.unique(transitions.lanes):
            skill, inside = skills[lane % len(skills)].name, transitions.lanes == lane
            ended, rows = chunk.episodes.get(skill), np.zeros(0, np.int64)
            if ended is not None:
                rows = np.flatnonzero((ended.lanes == lane // len(skills)) & (ended.lengths > 0))
            # A fight's last decision ends with it, so the first fights of the chunk are those that ended in it.
            for number, episode in enumerate(np.unique(transitions.episodes[inside])):
                lanes = int(lane // len(skills))
                fought = _Fight(stored.pc, stored.game, stored.boot, skill, lanes, int(episode))
                parts, chosen = open_fights.setdefault(fought, []), inside & (transitions.episodes == episode)
                decisions = Transitions(*(column[chosen] for column in vars(transitions).values()))
                parts.append((decisions, moments[module].versions[chosen]))
                if ended is not None and number < len(rows):
                    own = slice(int(rows[number]), int(rows[number]) + 1)
                    columns = {name: values[own] for name, values in vars(ended).items() if name != "decisions"}
                    yield fought, open_fights.pop(fought), Episodes(**columns)


def _write(header: Header, skill: Skill, folder: Path, parts: Sequence[_Part], ended: Episodes) -> Path | None:
    """Write a fight and return its path; None if it is there already."""
    transitions = Transitions.join([part for part, _ in parts])
    versions = np.concatenate([own for _, own in parts])
    played = replace(header.skills[0], version=int(versions.min()))
    header = replace(header, skills=(played,), result=_result(header, transitions, ended))
    # Beside those of other stages their columns would be lost to tools that read a folder.
    own = folder / skill.name
    if is_written(own, header, ("origin",)):
        return None
    return write_table(own, header, _columns(header, versions, skill, transitions))


def _result(header: Header, transitions: Transitions, ended: Episodes) -> Result:
    refilled = header.ground.refill
    return Result(
        outcome=outcome_of(ended.died[0], ended.won[0]),
        steps=len(transitions),
        ticks=round(float(ended.seconds[0]) / header.tick_s),
        seconds=round(float(ended.seconds[0]), 6),
        boss_hp=None if refilled else float(ended.boss_hp[0]) * header.ground.boss_hp_full,
        flasks_used=max(header.ground.flasks - int(ended.rows[0, Column.FLASKS]), 0),
    )


def _columns(header: Header, versions: Integers, skill: Skill, transitions: Transitions) -> Columns:
    count = len(transitions)
    observed = np.vstack([transitions.observations, transitions.next_observations[-1:]])
    ticks = np.concatenate([[0], np.cumsum(transitions.ticks)])
    # The end of the fight may have cut the last decision.
    ticks[-1] = max(min(ticks[-1], header.result.ticks), ticks[-2] + 1)
    read = {
        _AS_READ[column]: observed[:, index].astype(np.float64)
        for index, (column, indicated) in enumerate(skill.observation.values)
        if indicated < 0 and column in _AS_READ
    }
    places, last, of = np.arange(count), np.arange(count + 1) == count, skill.name
    return {
        **key_columns(header, ticks),
        **reading_columns(read),
        f"{of}/version": np.append(versions, versions[-1]).astype(np.int32),
        f"{of}/decides": ~last,
        f"{of}/action": np.append(transitions.actions, -1).astype(np.int16),
        f"{of}/observation": fixed_lists(observed),
        f"{of}/reward": at_rows(transitions.rewards, places, count + 1),
    }
