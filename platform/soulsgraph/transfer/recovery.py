"""How much of a lost win rate each choice of skills wins back for the same steps, and when."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from soulsgraph.curves import checkpoint_files, load_checkpoint, weights_by_skill
from soulsgraph.domains import (
    adaptation_stages,
    cards_by_stage,
    cards_of,
    check_target,
    domain_cards,
    domain_chain,
    record_domain,
    stage_of,
    versions_before,
)
from soulsgraph.evaluate import Setting, evaluate, evaluation_seeds, play_variants
from soulsgraph.files import api_call, slug, write_json
from soulsgraph.plan import BUDGETS, Stage, check_range
from soulsgraph.progress import Board, Display
from soulsgraph.run_folder import RunFolder
from soulsgraph.statistics import Interval, mean_interval
from soulsgraph.tables import write_rows
from soulsgraph.train import Workplace, train_stages
from soulsgraph.transfer.measures import TransferOptions
from soulsgraph.transfer.report import text_table, win_row
from soulsgraph.worker_process import WorkerProcess
from soulsgraph_clusters.session import Session
from soulsgraph_envs.combat.episodes import Episodes
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agent import Agent, StandIn
from soulsgraph_policies.artifact import SkillCard
from soulsgraph_policies.atomic import whole_folder
from soulsgraph_policies.inference import FrozenNetwork, Weights

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


@dataclass(frozen=True)
class Comparison:
    """A run, the target of its recovery, and the session its arms are trained in."""

    run: RunFolder
    target: Target
    session: Session
    display: Display = "auto"
    #: Evaluates learning curves while training goes on.
    worker: WorkerProcess | None = None


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
        gains = self.played.won.astype(np.float64) - self.before.won
        low, high = mean_interval(gains) if len(gains) > 1 else Interval(-1.0, 1.0)
        gain = float(gains.mean())
        return {
            "setting": self.label,
            **win_row(int(self.played.won.sum()), len(self.played)),
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
    before = _evaluated(run, after, target)
    results = [ArmResult(NOTHING, (), 0, before, before)]
    name = results_name(target)
    for arm in arms:
        console.print(f"arm: {arm.label}", highlight=False)
        folder, stages = _begin(run, target, after, arm)
        with folder.locked(), Board(folder.tensorboard, folder.plan.skill_graph.order) as board:
            place = Workplace(folder, comparison.session, board, comparison.display, worker=comparison.worker)
            cards = train_stages(place, stages, console)
        evaluated = _evaluated(folder, target.scenario, target)
        steps = sum(card.training.steps for card in cards)
        results.append(ArmResult(arm.label, arm.skills, steps, evaluated, before))
        rows = [result.to_dict() for result in results]
        write_json(run.path / "results" / f"{name}.json", {"scenario": target.scenario, "rows": rows})
        write_rows(run.results(name), rows)
    return results


def results_name(target: Target) -> str:
    """Name the files of the results."""
    return f"{target.kind}-{slug(target.scenario)}-{target.budget}"


def recovery_table(target: Target, results: Sequence[ArmResult]) -> Table:
    """Return the table for the terminal."""
    title = f"Recovery in {target.scenario}, {target.budget:,} steps an arm, {target.episodes} episodes"
    return text_table(title, [_cells(result.to_dict()) for result in results])


def _cells(row: dict[str, Any]) -> dict[str, str]:
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
        scale = target.budget / sum(BUDGETS.values())
        folder = RunFolder.create(path, replace(run.plan, scenario=target.scenario, scale=scale))
    if not arm.skills:
        return folder, folder.plan.stages()
    budget = target.budget // len(arm.skills)
    return folder, adaptation_stages(folder, target.scenario, arm.skills, budget, after, arm.jointly)


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
        for card in cards_of(run):
            if card.training.scenario in chain:
                version = Path(card.skill, f"v{card.version}")
                shutil.copytree(run.library.folder / version, temporary / "library" / version)
        copied = RunFolder(temporary, run.plan)
        for earlier, later in pairwise(chain):
            record_domain(copied, later, earlier)
    return RunFolder.open(path)


Doubles = npt.NDArray[np.float64]
#: Episodes that each checkpoint plays, the same ones for every checkpoint and run.
POINT_EPISODES = 20


@dataclass(frozen=True)
class SuccessCurve:
    """Win rates of the whole agent after a number of steps in a domain: both (points,), from step 0 on."""

    steps: Doubles
    rates: Doubles

    @property
    def area(self) -> float:
        """Mean win rate over the steps (trapezoids), in [0, 1]: the AUC of Continual World."""
        span = float(self.steps[-1] - self.steps[0])
        return float(np.trapezoid(self.rates, self.steps)) / span if span else float(self.rates.mean())

    def to_list(self) -> list[list[float]]:
        """Return steps and rates as plain values."""
        return [self.steps.tolist(), self.rates.tolist()]


def win_rates(agent: Agent, seed: int, variants: int = 1) -> list[float]:
    """Return the win rate of each of an agent's variants over the same episodes, all in one batch of lanes."""
    won = play_variants(agent, evaluation_seeds(seed, POINT_EPISODES), variants).won
    rates: list[float] = won.reshape(variants, -1).mean(axis=1).tolist()
    return rates


def success_curve(run: RunFolder, domain: str, seed: int) -> SuccessCurve:
    """Play the agent as it enters a domain, at every checkpoint of its stages there, and after each stage.

    Raises:
        LibraryError: if a skill was never trained, or is damaged.
        SoulsGraphError: if a checkpoint is damaged.
    """
    skills = {name: make_skill(name, run.plan.options) for name in run.plan.skill_graph.order}
    scenario = load_scenario(domain)

    versions = versions_before(run, domain)
    before = {skill: run.library.load(skill, n).network(skills[skill], scenario) for skill, n in versions.items()}
    untrained: dict[str, StandIn] = {name: "random" for name in skills if name not in before}
    agent = Agent(scenario, tuple(skills.values()), before, untrained)
    steps, rates = [0], win_rates(agent, seed)
    for cards in cards_by_stage(domain_cards(run, domain)):
        points = _points(run, cards)
        playing = {
            card.skill: [
                FrozenNetwork.of(skills[card.skill], scenario, weights[card.skill], card.observation_clip)
                for weights in points.values()
            ]
            for card in cards
        }
        steps += [steps[-1] + step for step in points]
        rates += win_rates(agent.playing(playing), seed, len(points))
        agent = agent.playing({skill: networks[-1] for skill, networks in playing.items()})
    return SuccessCurve(np.array(steps, np.float64), np.array(rates))


def _points(run: RunFolder, cards: Sequence[SkillCard]) -> dict[int, dict[str, Weights]]:
    """Return every skill's weights by step: at the checkpoints of the stage that made the cards, and after it.

    There are no checkpoints where skills that learned beside them have been trained again since.
    """
    stage, end = stage_of(run, cards), sum(card.training.steps for card in cards)
    complete = len(cards) >= len(cards[-1].training.jointly)
    files = checkpoint_files(run.path / "curves" / stage.name) if complete else {}
    points = {step: weights_by_skill(stage.skill, load_checkpoint(path)) for step, path in files.items() if step < end}
    return points | {end: {card.skill: run.library.load(card.skill, card.version).playing for card in cards}}


@dataclass(frozen=True)
class TrainingTransfer:
    """Success over the steps in one domain beside the same from scratch; None where that was not trained.

    `remedy` is the call that trains it.
    """

    domain: str
    curve: SuccessCurve
    alone: SuccessCurve | None
    remedy: str

    @property
    def forward_transfer(self) -> float | None:
        """Continual World's forward transfer; None without the curve from scratch, or if that is 1 throughout."""
        return None if self.alone is None else training_forward_transfer(self.curve.area, self.alone.area)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        alone = self.alone
        return {
            "forward_transfer": self.forward_transfer,
            "area": self.curve.area,
            "alone_area": alone and alone.area,
            "missing": None if alone else self.remedy,
            "curve": self.curve.to_list(),
            "alone_curve": alone and alone.to_list(),
        }

    def line(self) -> str:
        """Return it as a line for the terminal."""
        begin = f"forward transfer while training in {self.domain} (Continual World): "
        if self.alone is None:
            return f"{begin}missing, for nothing was trained there from scratch; train it with: {self.remedy}"
        value = self.forward_transfer
        shown = "not defined, from scratch won throughout" if value is None else f"{value:+.3f}"
        return f"{begin}{shown}; mean success {self.curve.area:.3f}, from scratch {self.alone.area:.3f}"


def training_transfer(run: RunFolder, domain: str, seed: int) -> TrainingTransfer:
    """Play a domain's curve, and that of the recovery's arm trained from scratch.

    Raises:
        SoulsGraphError: if a checkpoint or an artifact is damaged.
    """
    budget = sum(card.training.budget for card in domain_cards(run, domain))
    path = arm_path(run, domain, budget, SCRATCH)
    scratch = RunFolder.open(path) if (path / "plan.json").exists() else None
    trained = scratch and all(scratch.library.versions(skill) for skill in run.plan.skill_graph.order)
    alone = success_curve(scratch, domain, seed) if scratch and trained else None
    remedy = api_call("recover", run=run.path, scenario=domain, budget=budget)
    return TrainingTransfer(domain, success_curve(run, domain, seed), alone, remedy)


def training_forward_transfer(area: float, area_alone: float) -> float | None:
    """Return FT_i = (AUC_i - AUC_i^b) / (1 - AUC_i^b): what came before helped while domain i was trained.

    `area` is the mean success rate over the steps in the domain, `area_alone` that of training it from
    scratch for the same steps: Wolczyk et al. (2021), "Continual World". 0 is no help, 1 success from the
    first step on; None where training from scratch succeeded throughout.
    """
    return (area - area_alone) / (1.0 - area_alone) if area_alone < 1.0 else None
