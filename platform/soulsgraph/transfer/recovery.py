"""How much of a lost win rate each choice of skills recovers in the same steps, beside training from scratch."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from soulsgraph.curriculum import train_stages
from soulsgraph.domains import adaptation_stages, check_target, domain_chain, record_domain
from soulsgraph.evaluation import Setting, evaluate
from soulsgraph.files import slug, write_json
from soulsgraph.intervals import Interval, mean_interval
from soulsgraph.plan import BUDGETS, Plan, Stage, check_range
from soulsgraph.progress import Display
from soulsgraph.reports.parquet import write_rows
from soulsgraph.reports.tables import WinRate
from soulsgraph.reports.tensorboard import Board
from soulsgraph.run_folder import RunFolder
from soulsgraph.training import Workplace
from soulsgraph.transfer.measures import TransferOptions
from soulsgraph.transfer.report import text_table
from soulsgraph_clusters.session import Session
from soulsgraph_envs.episodes import Episodes
from soulsgraph_policies.atomic import whole_folder

#: Labels of the row without any step, and of two arms.
NOTHING, RECOMMENDED, FROM_SCRATCH = "nothing", "recommended", "from scratch"
#: Label of an arm whose skills adapt in the same fights, and kind of a comparison with one after another.
JOINTLY = "jointly"
_HEADINGS = ("adapted", "steps", "wins", "rate", "gain (95 %)", "per 10,000", "return")
#: Steps of the least budget: every skill of a run from scratch needs some.
_LEAST_BUDGET = 1_000
#: Folder of the arm of a recovery that trains every skill anew.
SCRATCH = "scratch"


@dataclass(frozen=True, kw_only=True)
class Target(TransferOptions):
    """What is to be recovered: a scenario, the steps each arm may spend in all, and how it is evaluated."""

    budget: int
    #: What is compared, in the names of the results.
    kind: str = "recovery"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("budget", self.budget, _LEAST_BUDGET, 100_000_000)


@dataclass(frozen=True)
class Comparison:
    """A run, the target of its recovery, and the Ray session its arms are trained in."""

    run: RunFolder
    target: Target
    session: Session
    display: Display = "auto"


@dataclass(frozen=True)
class Arm:
    """One way to spend the steps: which skills adapt, none of them for training all from scratch.

    They adapt one after another, or `jointly` in the same fights.
    """

    label: str
    skills: tuple[str, ...]
    jointly: bool = False

    @property
    def folder(self) -> str:
        """Name the arm's folder by what is done in it: arms that do the same share one."""
        return "+".join(self.skills) + (f"-{JOINTLY}" if self.jointly else "") or SCRATCH


@dataclass(frozen=True)
class ArmResult:
    """The result of an arm: skills adapted, steps taken, the episodes played, and those played before any step."""

    label: str
    skills: tuple[str, ...]
    steps: int
    played: Episodes
    before: Episodes

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values; the gain in win rate is paired by episode, with its t interval."""
        rate = WinRate(self.label, int(self.played.won.sum()), len(self.played)).to_dict()
        del rate["paper_percent"]
        gains = self.played.won.astype(np.float64) - self.before.won
        low, high = mean_interval(gains) if len(gains) > 1 else Interval(-1.0, 1.0)
        gain = float(gains.mean())
        return rate | {
            "adapted": " + ".join(self.skills),
            "mean_return": float(self.played.returns.mean()),
            "steps": self.steps,
            "gain": gain,
            "gain_low": low,
            "gain_high": high,
            "gain_per_10000_steps": 10_000 * gain / self.steps if self.steps else None,
        }


def arms_of(run: RunFolder, recommended: Sequence[str]) -> tuple[Arm, ...]:
    """Return the arms: the recommended set if there is one, each single skill, all, and training from scratch."""
    order = run.plan.skill_graph.order
    first = (Arm(RECOMMENDED, tuple(recommended)),) if recommended else ()
    return (*first, *(Arm(skill, (skill,)) for skill in order), Arm("all", order), Arm(FROM_SCRATCH, ()))


def joint_arms(skills: Sequence[str]) -> tuple[Arm, ...]:
    """Return the arms that adapt the same skills for the same steps jointly and one after another."""
    return Arm(JOINTLY, tuple(skills), jointly=True), Arm("one after another", tuple(skills))


def recover(comparison: Comparison, arms: Sequence[Arm], console: Console) -> list[ArmResult]:
    """Train every arm in a folder of its own below the run's `recovery`, evaluate it, and write the results.

    The run itself stays as it is. What was trained before is not trained again.

    Raises:
        SoulsGraphError: for an unknown scenario, or one that the run went through.
        Interrupted: if a stop was asked for; the same call goes on.
        WriteError: if a folder cannot be written.
    """
    run, target = comparison.run, comparison.target
    after = check_target(run, target.scenario, target.home)
    before = _judged(run, Setting(target.scenario, after), target)
    results = [ArmResult(NOTHING, (), 0, before, before)]
    for arm in arms:
        console.print(f"arm: {arm.label}", highlight=False)
        folder = _arm_folder(run, target, after, arm)
        stages = _stages(folder, target, after, arm)
        with folder.locked(), Board(folder.tensorboard, folder.plan.skill_graph.order) as board:
            cards = train_stages(Workplace(folder, comparison.session, board, comparison.display), stages, console)
        evaluated = _judged(folder, Setting(target.scenario, target.scenario), target)
        steps = sum(card.training.steps for card in cards)
        results.append(ArmResult(arm.label, arm.skills, steps, evaluated, before))
        _write(run, target, results)
    return results


def results_name(target: Target) -> str:
    """Name the files of the results."""
    return f"{target.kind}-{slug(target.scenario)}-{target.budget}"


def recovery_table(target: Target, results: Sequence[ArmResult]) -> Table:
    """Return the table for the terminal."""
    title = f"Recovery in {target.scenario}, {target.budget:,} steps an arm, {target.episodes} episodes"
    return text_table(title, _HEADINGS, [_cells(result.to_dict()) for result in results])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    per_step = row["gain_per_10000_steps"]
    return (
        row["setting"],
        f"{row['steps']:,}",
        f"{row['wins']}/{row['episodes']}",
        f"{100 * row['rate']:.1f} %",
        f"{100 * row['gain']:+.1f} ({100 * row['gain_low']:+.1f} to {100 * row['gain_high']:+.1f})",
        "" if per_step is None else f"{100 * per_step:+.2f}",
        f"{row['mean_return']:.2f}",
    )


def _judged(run: RunFolder, setting: Setting, target: Target) -> Episodes:
    return evaluate(run, setting, target.episodes, target.seed).episodes


def _write(run: RunFolder, target: Target, results: Sequence[ArmResult]) -> None:
    name = results_name(target)
    rows = [result.to_dict() for result in results]
    write_json(run.path / "results" / f"{name}.json", {"scenario": target.scenario, "rows": rows})
    write_rows(run.results(name), rows)


def _arm_folder(run: RunFolder, target: Target, after: str, arm: Arm) -> RunFolder:
    """Open the arm's run, begun from the versions of the chain up to `after` if it is not there."""
    path = arm_path(run, target.scenario, target.budget, arm.folder)
    if (path / "plan.json").exists():
        return RunFolder.open(path)
    if not arm.skills:
        return RunFolder.create(path, _scratch_plan(run.plan, target))
    return branch(run, path, after)


def _scratch_plan(plan: Plan, target: Target) -> Plan:
    return replace(plan, scenario=target.scenario, scale=target.budget / sum(BUDGETS.values()))


def _stages(folder: RunFolder, target: Target, after: str, arm: Arm) -> tuple[Stage, ...]:
    if not arm.skills:
        return folder.plan.stages()
    budget = target.budget // len(arm.skills)
    return adaptation_stages(folder, target.scenario, arm.skills, budget, after, arm.jointly)


def arm_path(run: RunFolder, scenario: str, budget: int, arm: str) -> Path:
    """Return the folder of a recovery's arm below the run, named by what is done in it."""
    return run.path / "recovery" / slug(scenario) / str(budget) / arm


def branch(run: RunFolder, path: Path, after: str) -> RunFolder:
    """Copy the run's plan and the versions of the chain up to `after` into a new folder, and open it.

    The folder appears whole, its chain on record, or not at all.

    Raises:
        WriteError: if the folder exists or cannot be written.
    """
    chain = domain_chain(run, after)
    with whole_folder(path) as temporary:
        shutil.copy2(run.path / "plan.json", temporary / "plan.json")
        _copy_versions(run, chain, temporary / "library")
        copied = RunFolder(temporary, run.plan)
        for earlier, later in pairwise(chain):
            record_domain(copied, later, earlier)
    return RunFolder.open(path)


def _copy_versions(run: RunFolder, chain: tuple[str, ...], library: Path) -> None:
    for skill in run.plan.skill_graph.order:
        for number in run.library.versions(skill):
            if run.library.card(skill, number).training.scenario in chain:
                version = Path(skill, f"v{number}")
                shutil.copytree(run.library.folder / version, library / version)
