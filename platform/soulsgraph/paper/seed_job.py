"""The jobs of a reproduction: train what each trains, evaluate it, and record what the paper says of single skills."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph.paper.study import (
    ADAPTED,
    HOME,
    REFERENCE,
    REFERENCES,
    SHIFTED,
    TABLE_1_PARTS,
    Records,
    ReproductionFolder,
    SeedJob,
    evaluation_seed,
)
from soulsgraph.results.tables import read_rows
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs.evaluate import TABLE_1, OnFinished, Setting, WinRateRow
from soulsgraph.runs.lineage import adaptation_stages, stage_key, unfinished
from soulsgraph.runs.plan import Stage
from soulsgraph.runs.progress import Interruption, Supervisor
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.study_folder import Tables
from soulsgraph.runs.train import train_unit
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph_envs.combat.rollout import Episodes
from soulsgraph_envs.combat.scripted import OracleDodge, OracleEndToEnd, OracleFight, Script, engaging
from soulsgraph_envs.core.scenario import load_scenario, started_at
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.skills import END_TO_END, make_skill, training_scenario
from soulsgraph_policies.agents.agent import Agent, StandIn

#: Points that are kept of each stage's training; the paper preset alone records tens of thousands.
BINS = 200

#: Where the scripted references play.
_FIGHTS = ((HOME, "mid"), (SHIFTED, "mid"), (SHIFTED, "long"))
#: Rows of references: two oracles a fight.
REFERENCE_ROWS = 2 * len(_FIGHTS)
_FINE_TUNED_LONG = replace(TABLE_1[-1], label="long-range start, fine-tuned", part="extra", start="long")
_DODGE = "dodge"


def do_job(folder: ReproductionFolder, job: SeedJob, supervisor: Supervisor) -> Tables:
    """Train what a job trains, evaluate it, and return its records.

    Raises:
        Interruption: if a stop was asked for; what was trained so far is saved.
        SoulsGraphError: if a file of the run is damaged, or cannot be written.
    """
    episodes, tables = folder.plan.episodes, dict[str, Records]()
    follow = partial(_follow_episodes, supervisor, episodes)
    if job == REFERENCES:
        tables["rows"] = evaluate_references(episodes, follow("table", REFERENCE_ROWS))
    else:
        run = folder.run(job)
        with run.locked():
            stages = train_by(folder.plan.learner, run, run.plan.stages(), supervisor)
            if job.part == "skills":
                adapted = adaptation_stages(run, SHIFTED, ADAPTED)
                stages += train_by(folder.plan.learner, run, adapted, supervisor)
        tables |= {"curves": curve_rows(run, job, stages), "training": training_rows(run, job, stages)}
        settings, seed = evaluated_settings(run, job), evaluation_seed(job.seed)
        on_finished = follow("table", len(settings))
        played = [evaluating.evaluate(run, row, episodes, seed, on_finished=on_finished) for row in settings]
        tables["rows"] = [_evaluated(job, row, one.episodes) for row, one in zip(settings, played, strict=True)]
        # Three policies in four tasks, one in one.
        if job.part == "skills":
            tables["measures"] = measure_skills(run, follow("measures", 12))
        elif job.part == "end_to_end":
            tables["measures"] = measure_baseline(run, follow("measures", 1))
    of = {"preset": folder.plan.preset}
    return {table: [of | row for row in rows] for table, rows in tables.items()}


def _follow_episodes(supervisor: Supervisor, episodes: int, name: str, tasks: int) -> OnFinished:
    """Return a callback that reports episodes to the supervisor and raises `Interruption` once a stop is requested."""
    progress, done = supervisor.follow(name, tasks * episodes), 0

    def on_finished(count: int) -> None:
        nonlocal done
        done += count
        progress.update(done)
        if supervisor.stop_requested():
            raise Interruption("stopped during the evaluation; it is done anew.")

    return on_finished


def train_by(
    learner: str, run: RunFolder, stages: tuple[Stage, ...], supervisor: Supervisor, worker: WorkerProcess | None = None
) -> tuple[Stage, ...]:
    """Train those of the stages that are not finished yet, by our learner or stable-baselines3; return all of them.

    Learning curves are evaluated by the `worker`, without one in this process.
    """
    if learner == "soulsgraph":
        train_unit(run, stages, supervisor, worker)
        return stages
    # Imported here: it takes seconds, and only a comparison needs it.
    from soulsgraph.paper.stable_baselines import train_with_stable_baselines

    for stage in unfinished(run, stages):
        progress = supervisor.follow(stage.name, stage.budget)

        def go_on(steps: int) -> bool:
            progress.update(steps)  # noqa: B023 - called within this round of the loop only
            return not supervisor.stop_requested()

        train_with_stable_baselines(run, stage, go_on, worker)
    return stages


def curve_rows(run: RunFolder, job: SeedJob, stages: Sequence[Stage]) -> Records:
    """Return the greedy checkpoints of every stage (Figures 2 and 3)."""
    return [
        place
        | {"step": row["step"], "episode_return": row["return"]}
        | {name: row[name] for name in ("low", "high", "length", "seconds", "win_rate")}
        for place, _, rows in _stages(run, job, stages, "curves")
        for row in sorted(rows, key=lambda row: int(row["step"]))
    ]


def training_rows(run: RunFolder, job: SeedJob, stages: Sequence[Stage]) -> Records:
    """Return the episodes that ended while training, as means over parts of each stage's budget (Figures 5 and 6)."""
    return [
        place | part
        for place, stage, rows in _stages(run, job, stages, "training")
        for part in _binned([row for row in rows if row["episodes"]], max(stage.steps / BINS, 1.0))
    ]


def _stages(
    run: RunFolder, job: SeedJob, stages: Sequence[Stage], table: str
) -> Iterator[tuple[dict[str, Any], Stage, Records]]:
    path = run.results(table)
    recorded = read_rows(path) if path.exists() else []
    for stage in stages:
        key = stage_key(run, stage)
        for skill in stage.skills:
            place = {"seed": job.seed, "unit": job.part, "skill": skill, "scenario": stage.scenario}
            yield place, stage, [row for row in recorded if (row["stage"], row["skill"]) == (key, skill)]


def _binned(rows: Records, width: float) -> Iterator[dict[str, Any]]:
    def bin_of(row: Mapping[str, Any]) -> int:
        return int((row["step"] - 1) / width)

    for _, group in groupby(sorted(rows, key=bin_of), bin_of):
        within = [*group]
        weights = [row["episodes"] for row in within]
        columns = {f"episode_{name}": name for name in ("return", "length", "seconds")} | {"win_rate": "win_rate"}
        means = {name: float(np.average([row[of] for row in within], weights=weights)) for name, of in columns.items()}
        yield {"step": max(int(row["step"]) for row in within), **means}


def evaluated_settings(run: RunFolder, job: SeedJob) -> tuple[WinRateRow, ...]:
    """Return what the job's agent is evaluated on."""
    settings = evaluating.allowed_rows(run)
    if job.part == "skills":
        return (*settings, _FINE_TUNED_LONG)
    if job.part == "end_to_end":
        return settings
    label = f"single end-to-end agent, {run.plan.budget(END_TO_END):,} steps"
    return tuple(replace(row, part="extra", label=label) for row in settings)


def evaluate_references(episodes: int, on_finished: OnFinished) -> Records:
    """Evaluate the scripted oracles, which know the boss's hits in advance: the upper bound of each fight.

    They have no training seed; their rows carry that of the evaluation episodes. There are `REFERENCE_ROWS`
    of them, and each plays `episodes`.
    """
    rows, seeds = [], evaluating.evaluation_seeds(REFERENCES.seed, episodes)
    for name, start in _FIGHTS:
        full: dict[str, Script] = {**engaging(), _DODGE: OracleDodge(), "heal_attack": OracleFight()}
        restricted: dict[str, Script] = {END_TO_END: OracleEndToEnd(load_scenario(name))}
        for label, scripts in (("scripted oracle", full), ("scripted oracle, the baseline's 16 actions", restricted)):
            skills = tuple(make_skill(skill) for skill in scripts)
            agent = Agent(started_at(load_scenario(name), start), skills, replaced=scripts)
            played = evaluating.play(agent, seeds, on_finished)
            row = replace(TABLE_1[0], label=label, part=REFERENCE, scenario=name, start=start)
            rows.append(_evaluated(REFERENCES, row, played))
    return rows


def _evaluated(job: SeedJob, row: WinRateRow, played: Episodes) -> dict[str, Any]:
    return {
        "seed": job.seed,
        "part": row.part,
        "label": row.label,
        "scenario": row.scenario,
        "start": row.start,
        "paper_percent": row.paper_percent if row.part in TABLE_1_PARTS else None,
        "wins": int(played.won.sum()),
        "episodes": len(played),
        "mean_return": float(played.returns.mean()),
        "mean_length": float(played.lengths.mean()),
        "mean_seconds": float(played.seconds.mean()),
    }


def measure_skills(run: RunFolder, on_finished: OnFinished) -> Records:
    """Measure camera, lock-on and movement against random and scripted play, and dodge against random and none.

    Each plays its own practice task on top of the trained upstream skills, from the same starts. Dodge is
    measured in seconds too: an idle decision takes one tick and a dodge five, so an agent that never dodges makes
    more decisions in a shorter life.
    """
    measures = [
        _measure(run, f"{skill} return {policy}", played.returns)
        for skill in engaging()
        for policy, played in _practised(run, skill, on_finished)
    ]
    return measures + [
        _measure(run, f"{_DODGE} {quantity} {policy}", values)
        for policy, played in _practised(run, _DODGE, on_finished)
        for quantity, values in (("length", played.lengths), ("seconds", played.seconds))
    ]


def measure_baseline(run: RunFolder, on_finished: OnFinished) -> Records:
    """Measure how often the greedy baseline chooses each of its actions, as shares of all its decisions."""
    agent = evaluating.make_agent(run, Setting(HOME, HOME))
    taken = evaluating.play(agent, _seeds(run), on_finished, keep_decisions=True).taken
    return [
        _measure(run, f"share of {action.name}", taken.actions == index)
        for index, action in enumerate(agent.skills[-1].actions)
    ]


def _measure(run: RunFolder, name: str, values: npt.NDArray[Any]) -> dict[str, Any]:
    return {"seed": run.plan.seed, "name": name, "value": float(values.mean()), "count": len(values)}


def _practised(run: RunFolder, name: str, on_finished: OnFinished) -> Iterator[tuple[str, Episodes]]:
    """Play a skill's practice task by each policy: random, trained, and scripted (idle for an oracle)."""
    chain = (*run.plan.skill_graph.upstream(name), name)
    skills = tuple(make_skill(skill, run.plan.options) for skill in chain)
    scenario = training_scenario(load_scenario(run.plan.scenario), skills[-1])
    networks = evaluating.load_networks(run, run.plan.scenario, skills, scenario)
    script = engaging().get(name)
    players: dict[str, Mapping[str, StandIn | Script]] = {
        "random": {name: "random"},
        "trained": {},
        "scripted" if script else "idle": {name: script or "idle"},
    }
    for policy, replaced in players.items():
        yield policy, evaluating.play(Agent(scenario, skills, networks, replaced), _seeds(run), on_finished)


def _seeds(run: RunFolder) -> Seeds:
    return evaluating.evaluation_seeds(evaluation_seed(run.plan.seed), run.plan.episodes)
