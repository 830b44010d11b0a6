"""Train agents of several skill graphs on the same seeds, and evaluate them in the same fights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from soulsgraph.results.origin import describe_origin
from soulsgraph.results.seeds import difference, mean_text, seed_values
from soulsgraph.results.tables import Table, number
from soulsgraph.runs.evaluate import Setting, evaluate
from soulsgraph.runs.plan import Plan, check_learns, scenario_digest
from soulsgraph.runs.progress import Supervisor
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.study_folder import StudyFile, StudyFolder, Tables, Unit
from soulsgraph.runs.train import train_unit
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import slug

HEADINGS = ("graph", "seeds", "win rate by seed", "mean", "difference", "seconds of a fight")
_AGENTS = "agents"


@dataclass(frozen=True)
class GraphStudy:
    """What is compared: a plan but for its graph and seed.

    Raises:
        SoulsGraphError: if a graph is given twice, or a plan does not hold.
    """

    plan: Plan
    graphs: tuple[str, ...]
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(set(self.graphs)) < max(len(self.graphs), 2):
            found = ", ".join(self.graphs) or "none"
            raise SoulsGraphError(f"compare: expected two graphs or more, each once, found {found}.")
        for graph in self.graphs:
            self.plan_of(graph, self.seeds[0])

    def plan_of(self, graph: str, seed: int) -> Plan:
        """Return the plan of an agent's run."""
        return replace(self.plan, graph=graph, seed=seed)

    def check_learns(self) -> None:
        """Refuse a scale by which a skill would take no update; raises SoulsGraphError."""
        for graph in self.graphs:
            plan = self.plan_of(graph, self.seeds[0])
            check_learns(plan, plan.stages())


class GraphFolder(StudyFolder[GraphStudy]):
    """Paths of a comparison: beside a study's, `<graph>/seed-<seed>/` (a run folder)."""

    kind, plan_file, holds = "comparison of graphs", "compare.json", StudyFile[GraphStudy]

    @staticmethod
    def fights(plan: GraphStudy) -> dict[str, str]:
        """Return the digest of the fight."""
        return {plan.plan.scenario: scenario_digest(plan.plan.scenario)}

    def check_memory(self) -> None:
        """Refuse a plan that needs more memory than this machine may spare; raises DataError."""
        for graph in self.plan.graphs:
            self.plan.plan_of(graph, self.plan.seeds[0]).check_memory()

    @property
    def units(self) -> tuple[Unit, ...]:
        """An agent of every graph, seed by seed."""
        agents = ((graph, seed) for seed in self.plan.seeds for graph in self.plan.graphs)
        return tuple(Unit(f"{graph} {seed}", train_agent, (graph, seed)) for graph, seed in agents)

    def run(self, graph: str, seed: int) -> RunFolder:
        """Open an agent's run, begun if it is not there; raises SoulsGraphError if another run is there."""
        return RunFolder.of_plan(self.path / slug(graph) / f"seed-{seed}", self.plan.plan_of(graph, seed))

    def write_report(self, out: Path) -> tuple[dict[str, Any], Table, Path]:
        """Write the report of the agents so far into a folder; return its values, its table and its Markdown file.

        The table has a row a graph: rates in percent, means with Student's 95 % interval, and the difference from the
        first graph, taken by seed.

        Raises:
            WriteError: if the folder cannot be written.
        """
        # Imported here: it takes a moment, and a plan needs none.
        from soulsgraph.pages.report import Report, Section
        from soulsgraph.results.figures import draw_settings

        plan, frame = self.plan.plan, pd.read_parquet(self.path / self.tables / f"{_AGENTS}.parquet")
        frame = frame.assign(percent=100.0 * frame["rate"])
        rates = {str(graph): seed_values(own, "percent") for graph, own in frame.groupby("graph", sort=False)}
        seconds, first = frame.groupby("graph")["seconds"].mean(), rates[self.plan.graphs[0]]
        rows = [
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
        table, agents = Table("", HEADINGS, rows), frame.drop(columns="percent").to_dict("records")
        common = {name: getattr(plan, name) for name in ("preset", "scale", "episodes")}
        fight = {"scenario": slug(plan.scenario), "scenario_digest": scenario_digest(plan.scenario)}
        values = {**fight, **common, **describe_origin(), "agents": agents}
        note = "Win rates in %, with Student's 95 % interval over seeds; differences are taken within each seed."
        drawn = draw_settings(frame, ["graph"], "percent", "win rate, %")
        title = f"Graphs in {slug(plan.scenario)}, {plan.episodes} episodes a seed"
        report = Report(title, [Section("", [note], [table], {"graphs.png": drawn})])
        return values, table, report.write(out, values, {_AGENTS: agents})


def train_agent(folder: GraphFolder, graph: str, seed: int, supervisor: Supervisor) -> Tables:
    """Train an agent, and evaluate it in the fights of all; raises as `train_unit`."""
    run = folder.run(graph, seed)
    plan = run.plan
    with run.locked():
        train_unit(run, plan.stages(), supervisor)
    results = evaluate(run, Setting(plan.scenario, plan.scenario), plan.episodes)
    won, seconds = results.wins, results.means["mean_seconds"]
    row = {"wins": won.wins, "episodes": won.episodes, "seconds": seconds, "rate": won.rate}
    return {_AGENTS: [{"graph": graph, "seed": seed, **row}]}
