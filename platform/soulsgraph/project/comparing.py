"""Train agents of several skill graphs on the same seeds, and evaluate them in the same fights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from soulsgraph.results.origin import describe_origin
from soulsgraph.results.seeds import difference, mean_text, seed_values
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import markdown_table, number, write_results
from soulsgraph.runs.evaluate import Setting, evaluate
from soulsgraph.runs.plan import Plan, check_learns, scenario_digest
from soulsgraph.runs.progress import Display
from soulsgraph.runs.run_folder import RunFolder, check_same
from soulsgraph.runs.train import Workplace, train_stages
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.core.files import slug

HEADINGS = ("graph", "seeds", "win rate by seed", "mean", "difference", "seconds of a fight")


@dataclass(frozen=True)
class AgentResult:
    """One agent: its graph, its training seed, how it fought, and the seconds of the game that a fight took."""

    graph: str
    seed: int
    won: WinRate
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the agent as plain values, in one row."""
        counts = {"wins": self.won.wins, "episodes": self.won.episodes, "seconds": self.seconds}
        return {"graph": self.graph, "seed": self.seed, **counts, "rate": self.won.rate}


@dataclass(frozen=True)
class GraphComparison:
    """Agents of several graphs, each graph on the same seeds; the first graph is what others are compared with."""

    plan: Plan
    agents: tuple[AgentResult, ...]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """One row a graph: rates in percent, means with Student's 95 % interval, the difference taken by seed."""
        frame = pd.DataFrame([agent.to_dict() for agent in self.agents])
        rates = {str(graph): 100.0 * seed_values(own, "rate") for graph, own in frame.groupby("graph", sort=False)}
        seconds, first = frame.groupby("graph")["seconds"].mean(), next(iter(rates.values()))
        return [
            (
                graph,
                str(len(rate)),
                ", ".join(map(number, rate)),
                mean_text(rate),
                "" if rate is first else mean_text(difference(rate, first)),
                number(seconds[graph]),
            )
            for graph, rate in rates.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return what was compared as plain values."""
        plan = {name: getattr(self.plan, name) for name in ("preset", "scale", "episodes")}
        scenario = self.plan.scenario
        fight = {"scenario": slug(scenario), "scenario_digest": scenario_digest(scenario)}
        agents = [agent.to_dict() for agent in self.agents]
        return {**fight, **plan, **describe_origin(), "agents": agents}

    def save(self, folder: Path) -> None:
        """Write comparison.json, comparison.parquet (a row an agent) and comparison.md.

        Raises:
            WriteError: if the folder cannot be written.
        """
        values = self.to_dict()
        write_results(folder, "comparison", values["agents"], values, markdown_table(HEADINGS, self.rows))


@dataclass(frozen=True)
class Comparison:
    """What is compared: a plan but for its graph and seed, and below which folder the runs are."""

    plan: Plan
    graphs: tuple[str, ...]
    seeds: Sequence[int]
    out: Path

    def runs(self) -> Iterator[RunFolder]:
        """Begin or open the runs, graph by graph for each seed.

        Raises:
            RunFolderError: if something else is in a folder.
            SoulsGraphError: if a plan does not hold, or a run in a folder was begun with another.
        """
        for seed in self.seeds:
            for graph in self.graphs:
                plan, path = replace(self.plan, graph=graph, seed=seed), self.out / slug(graph) / f"seed-{seed}"
                if not (path / RunFolder.plan_file).exists():
                    yield RunFolder.planned(path, plan)
                    continue
                run = RunFolder.open(path)
                check_same(run, plan)
                yield run

    def train(self, session: Session, worker: WorkerProcess, console: Console, display: Display) -> GraphComparison:
        """Train what is not trained yet, evaluate every agent on the same seeds, and write the comparison.

        Raises:
            Interruption: if a stop was asked for; the next call resumes.
            SoulsGraphError: as `runs`, and if a folder cannot be written.
        """
        agents, runs = [], list(self.runs())
        for run in runs:
            if not run.begun:
                check_learns(run.plan, run.plan.stages())
        for run in runs:
            console.print(f"{run.plan.graph}, seed {run.plan.seed}: {run.path}", soft_wrap=True)
            with run.locked(), Workplace(run, session, display, worker=worker) as workplace:
                train_stages(workplace, run.plan.stages(), console)
                agents.append(_evaluated(run))
        result = GraphComparison(self.plan, tuple(agents))
        result.save(self.out)
        return result


def _evaluated(run: RunFolder) -> AgentResult:
    plan = run.plan
    evaluation = evaluate(run, Setting(plan.scenario, plan.scenario), plan.episodes)
    return AgentResult(plan.graph, plan.seed, evaluation.win_rate, evaluation.means["mean_seconds"])
