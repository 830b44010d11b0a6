"""How much of a lost win rate each choice of skills wins back for the same steps, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from soulsgraph.domains import adaptation_stages, branch, check_target
from soulsgraph.evaluate import Setting, evaluate
from soulsgraph.files import slug, write_json
from soulsgraph.plan import Stage, check_range
from soulsgraph.progress import Board
from soulsgraph.run_folder import RunFolder
from soulsgraph.statistics import Interval, mean_interval
from soulsgraph.tables import write_rows
from soulsgraph.train import Workplace, train_stages
from soulsgraph.transfer.measures import TransferOptions, win_row
from soulsgraph.transfer.report import cells_table
from soulsgraph_envs.combat.episodes import Episodes
from soulsgraph_envs.skills import budget_of

Row = Mapping[str, Any]
#: Labels of the row without any step, and of two arms.
NOTHING, RECOMMENDED, FROM_SCRATCH = "nothing", "recommended", "from scratch"
#: Label of an arm whose skills adapt in the same fights, and kind of a comparison with one after another.
JOINTLY = "jointly"
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


#: Makes the workplace of an arm from the run in a folder of its own and its `board`.
MakePlace = Callable[..., Workplace]


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


def arm_row(label: str, skills: Sequence[str], steps: int, played: Episodes, before: Episodes) -> Row:
    """Return the result of an arm: skills adapted, steps taken, the episodes played, and those played before any step.

    The gain in win rate is paired by episode, with its t interval.
    """
    gains = played.won.astype(np.float64) - before.won
    low, high = mean_interval(gains) if len(gains) > 1 else Interval(-1.0, 1.0)
    gain = float(gains.mean())
    return {
        "setting": label,
        **win_row(int(played.won.sum()), len(played)),
        "adapted": " + ".join(skills),
        "mean_return": float(played.returns.mean()),
        "steps": steps,
        "gain": gain,
        "gain_low": low,
        "gain_high": high,
        "gain_per_10000_steps": 10_000 * gain / steps if steps else None,
    }


def arms_of(run: RunFolder, recommended: Sequence[str]) -> tuple[Arm, ...]:
    """Return the arms: the recommended set if there is one, each single skill, all, and training from scratch."""
    order = run.plan.skill_graph.order
    first = (Arm(RECOMMENDED, tuple(recommended)),) if recommended else ()
    return (*first, *(Arm(skill, (skill,)) for skill in order), Arm("all", order), Arm(FROM_SCRATCH, ()))


def joint_arms(skills: Sequence[str]) -> tuple[Arm, ...]:
    """Return the arms that adapt the same skills for the same steps jointly and one after another."""
    return Arm(JOINTLY, tuple(skills), jointly=True), Arm("one after another", tuple(skills))


def recover(run: RunFolder, target: Target, arms: Sequence[Arm], make_place: MakePlace, console: Console) -> list[Row]:
    """Train every arm in a folder of its own below the run's `recovery`, evaluate it, and write the results.

    The run itself stays as it is. What was trained before is not trained again. A row is returned for the agent
    before any step, and one for each arm.

    Raises:
        SoulsGraphError: for an unknown scenario, or one that the run went through.
        Interrupted: if a stop was asked for; the same call goes on.
        WriteError: if a folder cannot be written.
    """
    after = check_target(run, target.scenario, target.home)
    before = _evaluated(run, after, target)
    rows, name = [arm_row(NOTHING, (), 0, before, before)], results_name(target)
    for arm in arms:
        console.print(f"arm: {arm.label}", highlight=False)
        folder, stages = _begin(run, target, after, arm)
        with folder.locked(), Board(folder.tensorboard, folder.plan.skill_graph.order) as board:
            cards = train_stages(make_place(folder, board=board), stages, console)
        steps = sum(card.training.steps for card in cards)
        rows.append(arm_row(arm.label, arm.skills, steps, _evaluated(folder, target.scenario, target), before))
        write_json(run.path / "results" / f"{name}.json", {"scenario": target.scenario, "rows": rows})
        write_rows(run.results(name), rows)
    return rows


def results_name(target: Target) -> str:
    """Name the files of the results."""
    return f"{target.kind}-{slug(target.scenario)}-{target.budget}"


def recovery_table(target: Target, rows: Sequence[Row]) -> Table:
    """Return the table for the terminal."""
    title = f"Recovery in {target.scenario}, {target.budget:,} steps an arm, {target.episodes} episodes"
    return cells_table(title, [_cells(row) for row in rows])


def _cells(row: Row) -> dict[str, str]:
    per_step = row["gain_per_10000_steps"]
    return {
        "adapted": row["setting"],
        "steps": f"{row['steps']:,}",
        "wins": f"{row['wins']}/{row['episodes']}",
        "rate": f"{100 * row['rate']:.1f} %",
        "gain (95 %)": f"{100 * row['gain']:+.1f} ({100 * row['gain_low']:+.1f} to {100 * row['gain_high']:+.1f})",
        "per 10,000": "" if per_step is None else f"{100 * per_step:+.2f}",
        "return": f"{row['mean_return']:.2f}",
    }


def _evaluated(run: RunFolder, trained_on: str, target: Target) -> Episodes:
    return evaluate(run, Setting(target.scenario, trained_on), target.episodes, target.seed).episodes


def _begin(run: RunFolder, target: Target, after: str, arm: Arm) -> tuple[RunFolder, tuple[Stage, ...]]:
    """Return the arm's run, begun from the versions of the chain up to `after` if it is not there, and its stages."""
    path = arm_path(run, target.scenario, target.budget, arm.folder)
    if (path / "plan.json").exists():
        folder = RunFolder.open(path)
    elif arm.skills:
        folder = branch(run, path, after)
    else:
        scale = target.budget / sum(map(budget_of, run.plan.skill_graph.skills))
        folder = RunFolder.create(path, replace(run.plan, scenario=target.scenario, scale=scale))
    if not arm.skills:
        return folder, folder.plan.stages()
    budget = target.budget // len(arm.skills)
    return folder, adaptation_stages(folder, target.scenario, arm.skills, budget, after, arm.jointly)


def arm_path(run: RunFolder, scenario: str, budget: int, arm: str) -> Path:
    """Return the folder of a recovery's arm below the run, named by what is done in it."""
    return run.path / "recovery" / slug(scenario) / str(budget) / arm
