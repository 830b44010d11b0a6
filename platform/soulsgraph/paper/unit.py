"""One unit of a reproduction: train what it trains, evaluate it, and record what the paper says of single skills."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.console import Console

from soulsgraph.domains import adaptation_stages, check_target, finished_versions
from soulsgraph.evaluate import OnFinished, Setting, evaluation_seeds, load_artifacts, make_agent, play
from soulsgraph.paper.rows import evaluate_settings, evaluated_settings
from soulsgraph.paper.study import ADAPTED, HOME, SHIFTED, ReproductionFolder, Unit, evaluation_seed
from soulsgraph.plan import Stage
from soulsgraph.progress import Board, Interrupted, Supervisor
from soulsgraph.run_folder import RunFolder
from soulsgraph.tables import read_rows
from soulsgraph.train import Workplace, train_stages
from soulsgraph_clusters.session import Session
from soulsgraph_envs.combat.episodes import Episodes
from soulsgraph_envs.combat.scripted import Script, engaging
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.streams import Seeds
from soulsgraph_envs.skills import make_skill, practice_ground
from soulsgraph_policies.agent import Agent, StandIn

#: Points that are kept of each stage's training; the paper preset alone records tens of thousands.
BINS = 200

Rows = list[dict[str, Any]]


def curve_rows(run: RunFolder, unit: Unit, stages: Sequence[Stage]) -> Rows:
    """Return the greedy checkpoints of every stage (Figures 2 and 3)."""
    return [
        place
        | {name: row[name] for name in ("step", "low", "high", "length", "seconds", "win_rate")}
        | {"episode_return": row["return"]}
        for place, rows in _stages(run, unit, stages, "curves")
        for row in sorted(rows, key=lambda row: int(row["step"]))
    ]


def training_rows(run: RunFolder, unit: Unit, stages: Sequence[Stage]) -> Rows:
    """Return the episodes that ended while training, as means over parts of each stage's budget (Figures 5 and 6)."""
    return [
        place | part
        for (place, rows), stage in zip(_stages(run, unit, stages, "training"), stages, strict=True)
        for part in _binned([row for row in rows if row["episodes"]], stage.budget)
    ]


def _stages(run: RunFolder, unit: Unit, stages: Sequence[Stage], table: str) -> list[tuple[dict[str, Any], Rows]]:
    path = run.results(table)
    recorded = read_rows(path) if path.exists() else []
    return [
        (
            {"seed": unit.seed, "unit": unit.part, "skill": stage.skill, "scenario": stage.scenario},
            [row for row in recorded if row["stage"] == stage.name],
        )
        for stage in stages
    ]


def _binned(rows: Rows, budget: int) -> Rows:
    width = max(budget / BINS, 1.0)
    bins = np.array([int((row["step"] - 1) / width) for row in rows], np.int64)
    columns = {
        "episode_return": "return",
        "episode_length": "length",
        "episode_seconds": "seconds",
        "win_rate": "win_rate",
    }
    parts = []
    for index in np.unique(bins):
        within = [row for row, one in zip(rows, bins, strict=True) if one == index]
        weights = [row["episodes"] for row in within]
        means = {name: float(np.average([row[of] for row in within], weights=weights)) for name, of in columns.items()}
        parts.append({"step": max(int(row["step"]) for row in within), **means})
    return parts


Measures = list[dict[str, Any]]

_DODGE = "dodge"


def measure_skills(run: RunFolder, on_finished: OnFinished) -> Measures:
    """Measure camera, lock-on and movement against random and scripted play, and dodge against random and none.

    Each plays its own practice task on top of the trained upstream skills, from the same starts. Dodge is
    measured in seconds too: an idle decision takes one tick and a dodge five, so an agent that never dodges makes
    more decisions in a shorter life.
    """
    measures = [
        {"name": f"{skill} return {policy}", "value": float(played.returns.mean()), "count": len(played)}
        for skill in engaging()
        for policy, played in _practised(run, skill, on_finished)
    ]
    return measures + [
        {"name": f"{_DODGE} {unit} {policy}", "value": float(values.mean()), "count": len(played)}
        for policy, played in _practised(run, _DODGE, on_finished)
        for unit, values in (("length", played.lengths), ("seconds", played.seconds))
    ]


def measure_baseline(run: RunFolder, on_finished: OnFinished) -> Measures:
    """Measure how often the greedy baseline chooses each of its actions, as shares of all its decisions."""
    agent = make_agent(run, Setting(HOME, HOME))
    taken = play(agent, _seeds(run), on_finished, keep_decisions=True).taken
    names = [action.name for action in agent.skills[-1].actions]
    counts = np.bincount(taken.actions, minlength=len(names))
    return [
        {"name": f"share of {name}", "value": float(count / counts.sum()), "count": int(counts.sum())}
        for name, count in zip(names, counts, strict=True)
    ]


def _practised(run: RunFolder, name: str, on_finished: OnFinished) -> Iterator[tuple[str, Episodes]]:
    """Play a skill's practice task by each policy: random, trained, and scripted (idle for an oracle)."""
    chain = (*run.plan.skill_graph.upstream(name), name)
    skills = tuple(make_skill(skill, run.plan.options) for skill in chain)
    scenario = practice_ground(load_scenario(run.plan.scenario), skills[-1])
    artifacts = load_artifacts(run, run.plan.scenario, chain)
    networks = {skill.name: artifacts[skill.name].network(skill, scenario) for skill in skills}
    script = engaging().get(name)
    players: dict[str, Mapping[str, StandIn | Script]] = {
        "random": {name: "random"},
        "trained": {},
        "scripted" if script else "idle": {name: script or "idle"},
    }
    for policy, replaced in players.items():
        yield policy, play(Agent(scenario, skills, networks, replaced), _seeds(run), on_finished)


def _seeds(run: RunFolder) -> Seeds:
    return evaluation_seeds(evaluation_seed(run.plan.seed), run.plan.episodes)


#: Episodes of the measures over the plan's: three policies in four tasks, one in one.
_SKILL_MEASURES, _BASELINE_MEASURES = 12, 1


@dataclass(frozen=True)
class UnitJob:
    """A unit with its run, its records' folder and its supervisor."""

    folder: ReproductionFolder
    unit: Unit
    run: RunFolder
    supervisor: Supervisor

    def do(self) -> None:
        """Do the rest of the unit.

        Raises:
            Interrupted: if a stop was asked for; what was done so far is saved.
            SoulsGraphError: if a file of the run is damaged, or cannot be written.
        """
        with self.run.locked():
            stages = self._train(self.run.plan.stages())
            if self.unit.part == "skills":
                stages += self._adapt()
        self._record(stages)

    def _adapt(self) -> tuple[Stage, ...]:
        source = check_target(self.run, SHIFTED)
        planned = adaptation_stages(self.run, SHIFTED, ADAPTED, after=source)
        # A unit adapts once: what was adapted before an interruption is not another stage.
        return self._train(tuple(replace(stage, suffix="") for stage in planned))

    def _train(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        if self.folder.study.learner != "soulsgraph":
            self._train_with_stable_baselines(stages)
            return stages
        with Board(self.run.tensorboard, self.run.plan.skill_graph.order) as board:
            place = Workplace(self.run, Session(local=False), board, "silent", self.supervisor)
            train_stages(place, stages, Console(quiet=True))
        return stages

    def _train_with_stable_baselines(self, stages: tuple[Stage, ...]) -> None:
        # Imported here: it takes seconds, and only a comparison needs it.
        from soulsgraph.paper.stable_baselines import train_with_stable_baselines

        for stage in stages:
            if finished_versions(self.run, stage):
                continue
            progress = self.supervisor.follow(stage.name, stage.budget)

            def go_on(steps: int) -> bool:
                progress.update(steps)  # noqa: B023 - called within this round of the loop only
                return not self.supervisor.stop_requested()

            train_with_stable_baselines(self.run, stage, go_on)

    def _record(self, stages: tuple[Stage, ...]) -> None:
        run, unit, folder, episodes = self.run, self.unit, self.folder, self.run.plan.episodes
        skills = unit.part == "skills"
        folder.record(
            unit,
            "learning",
            lambda: {"curves": curve_rows(run, unit, stages), "training": training_rows(run, unit, stages)},
        )
        rows = len(evaluated_settings(run, unit))
        folder.record(
            unit, "rows", lambda: {"rows": evaluate_settings(run, unit, self._following("table", rows * episodes))}
        )
        if "measures" not in unit.pieces:
            return
        measure, tasks = (measure_skills, _SKILL_MEASURES) if skills else (measure_baseline, _BASELINE_MEASURES)
        folder.record(
            unit,
            "measures",
            lambda: {
                "measures": [
                    {"seed": unit.seed, **row} for row in measure(run, self._following("measures", tasks * episodes))
                ]
            },
        )

    def _following(self, name: str, total: int) -> OnFinished:
        return follow_episodes(self.supervisor, name, total)


def follow_episodes(supervisor: Supervisor, name: str, total: int) -> OnFinished:
    """Return a callback that reports episodes to the supervisor and raises `Interrupted` once a stop is requested."""
    progress, done = supervisor.follow(name, total), 0

    def on_finished(count: int) -> None:
        nonlocal done
        done += count
        progress.update(done)
        if supervisor.stop_requested():
            raise Interrupted("stopped during the evaluation; it is done anew.")

    return on_finished
