"""How much of a lost win rate each choice of skills wins back for the same steps, and when."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from soulsgraph.paper.study import ADAPTED
from soulsgraph.results.seeds import Rows, SeedsTable, frame_of, paired_difference, records, seed_values
from soulsgraph.results.statistics import Interval, WinRate, mean_interval
from soulsgraph.results.tables import cells_table, finite, write_results
from soulsgraph.runs.evaluate import Setting, evaluate
from soulsgraph.runs.lineage import adaptation_stages, branch, cards_of, cards_trained_on, chain_fights, check_target
from soulsgraph.runs.plan import (
    LEAST_SCALE,
    Plan,
    Stage,
    check_range,
    expect_fight,
    fight_label,
    scenario_digest,
    short,
)
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import Workplace, train_stages
from soulsgraph.transfer import TransferOptions
from soulsgraph_envs.combat.rollout import Episodes
from soulsgraph_envs.core.config import digest_of, to_table
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import writing
from soulsgraph_policies.agents.library import SkillCard

Row = Mapping[str, Any]
#: Labels of the row without any step, and of two arms.
NOTHING, RECOMMENDED, FROM_SCRATCH = "nothing", "recommended", "from scratch"
#: Label of an arm whose skills adapt in the same fights, and kind of a comparison with one after another.
JOINTLY = "jointly"
#: Column of the decisions that were played in the new fight to select the skills of an arm.
_SELECTED = "selection_decisions"
#: Steps of the least budget: every skill of a run from scratch needs some.
_LEAST_BUDGET = 1_000
#: Folder of the arm of a recovery that trains every skill anew.
SCRATCH = "scratch"
_logger = logging.getLogger("soulsgraph")


@dataclass(frozen=True, kw_only=True)
class RecoveryTarget(TransferOptions):
    """What is to be recovered: a scenario, the steps each arm may spend in all, and how it is evaluated."""

    budget: int
    #: What is compared, in the names of the results.
    kind: str = "recovery"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("budget", self.budget, _LEAST_BUDGET, 100_000_000)

    @property
    def title(self) -> str:
        """What is recovered and how it is evaluated, above a table."""
        return f"Recovery in {self.scenario}, {self.budget:,} steps an arm, {self.episodes} episodes"


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
    #: Decisions that were played in the new fight to select the skills.
    selection_decisions: int = 0

    @property
    def folder(self) -> str:
        """Name the arm's folder by what is done in it: arms that do the same share one."""
        return "+".join(self.skills) + (f"-{JOINTLY}" if self.jointly else "") or SCRATCH


_FROM_NOTHING = Arm(FROM_SCRATCH, ())


def arm_row(arm: Arm, steps: int, played: Episodes, before: Episodes) -> Row:
    """Return the result of an arm: skills adapted, steps taken, the episodes played, and those played before any step.

    Selecting the skills is no step, and is counted beside.

    The gain in win rate is paired by episode, with its t interval.
    """
    gains = played.won.astype(np.float64) - before.won
    low, high = mean_interval(gains) if len(gains) > 1 else Interval(-1.0, 1.0)
    gain = float(gains.mean())
    return {
        "setting": arm.label,
        **WinRate.of(played.won).columns(),
        "adapted": " + ".join(arm.skills),
        "mean_return": float(played.returns.mean()),
        "steps": steps,
        _SELECTED: arm.selection_decisions,
        "gain": gain,
        "gain_low": low,
        "gain_high": high,
        "gain_per_10000_steps": 10_000 * gain / steps if steps else None,
    }


def arms_of(run: RunFolder, recommended: Sequence[str], decisions: int = 0) -> tuple[Arm, ...]:
    """Return the arms: the recommended set if there is one, each single skill, all, and training from scratch.

    `decisions` were played in the new fight for the recommendation.
    """
    order = run.plan.skill_graph.order
    first = (Arm(RECOMMENDED, tuple(recommended), selection_decisions=decisions),) if recommended else ()
    return (*first, *(Arm(skill, (skill,)) for skill in order), Arm("all", order), _FROM_NOTHING)


def joint_arms(skills: Sequence[str], decisions: int = 0) -> tuple[Arm, ...]:
    """Return the arms that adapt the same skills for the same steps jointly and one after another.

    `decisions` were played in the new fight to select them.
    """
    arms = Arm(JOINTLY, tuple(skills), jointly=True), Arm("one after another", tuple(skills))
    return tuple(replace(arm, selection_decisions=decisions) for arm in arms)


def recover(
    run: RunFolder, target: RecoveryTarget, arms: Sequence[Arm], make_place: MakePlace, console: Console
) -> list[Row]:
    """Train every arm in a folder of its own below the run's `recovery`, evaluate it, and write the results.

    The run itself stays as it is. What was trained before, from the same versions and in the same fight, is not trained
    again. A row is returned for the agent before any step, and one for each arm.

    Raises:
        SoulsGraphError: for an unknown scenario, or one that the run went through; if a budget is too small for an arm
            to learn anything, or the fight changes meanwhile.
        Interruption: if a stop was asked for; the same call resumes.
        WriteError: if a folder cannot be written.
    """
    after, fight = check_target(run, target.scenario, target.home), scenario_digest(target.scenario)
    _check_learns(run, target, arms)
    before = _evaluated(run, after, target)
    rows, name = [arm_row(Arm(NOTHING, ()), 0, before, before)], results_name(target, run.plan.scenario, after, arms)
    about = {"scenario": target.scenario, "home": after, "fight": fight, "versions": _branched(run, after)}
    for arm in arms:
        console.print(f"arm: {arm.label}", highlight=False)
        folder, stages = _begin(run, target, after, arm)
        with folder.locked(), make_place(folder) as workplace:
            cards = train_stages(workplace, stages, console)
        steps = sum(card.training.steps for card in cards)
        expect_fight(target.scenario, fight, f"this recovery of {run.path}")
        rows.append(arm_row(arm, steps, _evaluated(folder, target.scenario, target), before))
        write_results(run.path / "results", name, rows, {**about, "rows": rows})
    return rows


def results_name(target: RecoveryTarget, own: str, after: str, arms: Sequence[Arm] = ()) -> str:
    """Name the files of the results: by the fight, the budget, whose versions are continued, and what learns jointly.

    `own` is the scenario of the run, `after` the one whose versions are continued.
    """
    skills = next((arm.skills for arm in arms if arm.jointly), ADAPTED)
    name = f"{target.kind}-{fight_label(target.scenario)}-{target.budget}"
    name += "" if skills == ADAPTED else f"-{'+'.join(skills)}"
    return name if after == own else f"{name}-from-{fight_label(after)}"


def _check_learns(run: RunFolder, target: RecoveryTarget, arms: Sequence[Arm]) -> None:
    """Refuse a budget by which a skill of an arm would take no update; raises SoulsGraphError."""
    for arm in arms:
        if arm.skills:
            stages = [run.plan.stage(skill, target.scenario, 1) for skill in arm.skills]
            wanted = max(run.plan.hyperparameters(stage).least_budget for stage in stages) * len(stages)
        else:
            whole, plan = run.plan.whole_budget(), run.plan
            parts = {skill: plan.hyperparameters(plan.stage(skill)).least_budget for skill in plan.skill_graph.skills}
            wanted = max(math.ceil(least * whole / plan.whole_budget(skill)) for skill, least in parts.items())
            wanted = max(wanted, math.ceil(LEAST_SCALE * whole))
        if target.budget < wanted:
            raise SoulsGraphError(
                f"budget: expected {wanted:,} steps or more, by which every skill of the arm {arm.label!r} learns, "
                f"found {target.budget:,}; raise it."
            )


def recovery_table(target: RecoveryTarget, rows: Sequence[Row]) -> Table:
    """Return the table for the terminal."""
    return cells_table(target.title, [_cells(row) for row in rows])


def _cells(row: Row) -> dict[str, str]:
    per_step = row["gain_per_10000_steps"]
    return {
        "adapted": row["setting"],
        "steps": f"{row['steps']:,}",
        "to select": f"{row[_SELECTED]:,}",
        "wins": f"{row['wins']}/{row['episodes']}",
        "rate": f"{100 * row['rate']:.1f} %",
        "gain (95 %)": f"{100 * row['gain']:+.1f} ({100 * row['gain_low']:+.1f} to {100 * row['gain_high']:+.1f})",
        "per 10,000": "" if per_step is None else f"{100 * per_step:+.2f}",
        "return": f"{row['mean_return']:.2f}",
    }


def recovery_over_seeds(target: RecoveryTarget, results: Mapping[int, Rows]) -> SeedsTable:
    """Put the recoveries of several seeds together; `results` are each seed's rows, the first without any step.

    Win rates and gains are in percent and points, gains and differences paired by seed. A seed for which
    nothing was recommended counts in the recommended row as it was before.
    """
    first = JOINTLY if target.kind == JOINTLY else RECOMMENDED
    by_seed = frame_of({seed: _completed(arms, first) for seed, arms in results.items()})
    # Without steps there is no gain per step.
    per_step = 100.0 * by_seed["gain_per_10000_steps"].astype(float).fillna(0.0)
    arms = by_seed.assign(percent=100.0 * by_seed["rate"], points=100.0 * by_seed["gain"], per_step=per_step)
    best = seed_values(arms[arms["setting"] == first], "percent")

    def row(label: str, arm: pd.DataFrame) -> dict[str, Any]:
        rates, gains = seed_values(arm, "percent"), seed_values(arm, "points")
        columns = {"setting": label, "seeds": len(arm), "steps": round(arm["steps"].mean())}
        columns |= seed_values(arm, _SELECTED).columns({"mean": _SELECTED})
        columns |= rates.columns({"median": "median_percent", "mean": "win_percent"})
        if label == NOTHING:
            return columns
        columns |= gains.columns({"mean": "gain_points"})
        columns |= seed_values(arm, "per_step").columns({"mean": "gain_per_10000_steps"})
        columns |= {"seeds_that_gained": f"{(gains.values > 0.0).sum()} of {len(arm)}"}
        ahead = None if label == first else paired_difference(best, rates)
        return columns | (ahead.columns({"mean": f"{first}_ahead_points"}) if ahead else {})

    # What the others are compared with stands before them, even if the first seed had no recommendation.
    places = {NOTHING: 0, first: 1}
    rows = [finite(row(label, arm)) for label, arm in arms.groupby("setting", sort=False)]
    rows.sort(key=lambda row: places.get(row["setting"], 2))
    return SeedsTable(target.title, ("setting",), rows, records(by_seed))


def _completed(arms: Rows, first: str) -> Rows:
    if any(arm["setting"] == first for arm in arms):
        return arms
    # What it took to recommend nothing is not recorded.
    return [*arms, {**arms[0], "setting": first, _SELECTED: None}]


def _evaluated(run: RunFolder, trained_on: str, target: RecoveryTarget) -> Episodes:
    return evaluate(run, Setting(target.scenario, trained_on), target.episodes, target.seed).episodes


@dataclass(frozen=True)
class _ArmStart:
    """An arm as it begins: the run, the scenario, the steps in all, whose versions it continues, and what it does."""

    run: RunFolder
    scenario: str
    budget: int
    after: str
    arm: Arm

    @property
    def plan(self) -> Plan:
        """The plan of the arm's own run."""
        if self.arm.skills:
            return self.run.plan
        scale = self.budget / self.run.plan.whole_budget()
        return replace(self.run.plan, scenario=self.scenario, scale=scale)

    @property
    def inputs(self) -> dict[str, Any]:
        """What the arm begins with: its plan, its fight, and the versions that it continues."""
        fight = self.run.fight if self.arm.skills else scenario_digest(self.plan.scenario)
        versions = _branched(self.run, self.after) if self.arm.skills else {}
        return {**to_table(self.plan), "fight": fight, "versions": versions}

    def inputs_of(self, folder: RunFolder) -> dict[str, Any]:
        """Return what an arm that is there began with; not what it trained in the target's fight since."""
        begun = _versions(cards_of(folder), cards_trained_on(folder, self.scenario)) if self.arm.skills else {}
        return {**to_table(folder.plan), "fight": folder.fight, "versions": begun}

    @property
    def usual(self) -> Path:
        """The arm's folder, by the fight and what is done in it."""
        return arm_path(self.run, self.scenario, self.budget, self.arm.folder)

    def existing(self) -> RunFolder | None:
        """Return the arm's run if it is there: in the usual folder, or aside where another one took its place since."""
        inputs, found = self.inputs, map(_opened, (self.usual, _aside(self.usual, self.inputs)))
        return next((one for one in found if one and self.inputs_of(one) == inputs), None)

    def begin(self) -> RunFolder:
        """Open the arm's run in the usual folder, begun if it is not there; what is there of another is moved aside.

        Raises:
            WriteError: if a folder cannot be written.
        """
        usual, found = self.usual, self.existing()
        if found is not None and found.path == usual:
            return found
        self._make_way()
        if found is None:
            return branch(self.run, usual, self.after) if self.arm.skills else RunFolder.create(usual, self.plan)
        with writing(usual):
            found.path.rename(usual)
        return RunFolder.open(usual)

    def _make_way(self) -> None:
        usual = self.usual
        if not _taken(usual):
            return
        there = _opened(usual)
        inputs = {"plan": (usual / RunFolder.plan_file).read_text()} if there is None else self.inputs_of(there)
        aside = _aside(usual, inputs)
        with writing(aside):
            usual.rename(aside)
        _logger.warning("arm %s: what was there began from other versions; it is kept in %s", self.arm.label, aside)


def _aside(usual: Path, inputs: Mapping[str, Any]) -> Path:
    """Return the folder of an arm whose usual one another took: named by what it began with."""
    return usual.with_name(f"{usual.name}-{short(digest_of(inputs))}")


def _begin(run: RunFolder, target: RecoveryTarget, after: str, arm: Arm) -> tuple[RunFolder, tuple[Stage, ...]]:
    """Return the arm's run, begun from the versions of the chain up to `after` if it is not there, and its stages."""
    begun = _ArmStart(run, target.scenario, target.budget, after, arm)
    folder = begun.begin()
    if not arm.skills:
        return folder, folder.plan.stages()
    budget = target.budget // len(arm.skills)
    return folder, adaptation_stages(folder, target.scenario, arm.skills, budget, after, arm.jointly)


def scratch_arm(run: RunFolder, scenario: str, budget: int) -> RunFolder | None:
    """Return the run of the arm that trains every skill anew by the run's plan, if it is there."""
    if budget < LEAST_SCALE * run.plan.whole_budget():
        return None  # No plan is so small; an adaptation may be.
    return _ArmStart(run, scenario, budget, run.plan.scenario, _FROM_NOTHING).existing()


def _taken(path: Path) -> bool:
    return (path / RunFolder.plan_file).exists()


def _opened(path: Path) -> RunFolder | None:
    """Open an arm's run; None where there is none, or where it cannot be used, as without its scenario's file."""
    try:
        return RunFolder.open(path) if _taken(path) else None
    except SoulsGraphError as error:
        _logger.warning("%s: left aside: %s", path, error)
        return None


def _branched(run: RunFolder, after: str) -> dict[str, str]:
    """Return digests of the versions up to a scenario, by name."""
    return _versions([card for name in chain_fights(run, after) for card in cards_trained_on(run, name)])


def _versions(cards: Sequence[SkillCard], but: Sequence[SkillCard] = ()) -> dict[str, str]:
    return {f"{card.skill} v{card.version}": card.digest for card in cards if card not in but}


def arm_path(run: RunFolder, scenario: str, budget: int, arm: str) -> Path:
    """Return the usual folder of a recovery's arm below the run, named by the fight and by what is done in it."""
    return run.path / "recovery" / fight_label(scenario) / str(budget) / arm
