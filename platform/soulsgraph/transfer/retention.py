"""Retention over a chain of adaptations: every domain evaluated with the versions in play after every other.

The library keeps earlier versions, so what an agent could do before is still there; the adapted
versions may have forgotten it. The measures are those of the continual-learning benchmarks, with win
rates for the performances (`results.metrics`): `matrix[i, j]` is the win rate in domain j after training on domain i.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from soulsgraph.results import metrics
from soulsgraph.results.seeds import SeedsTable, frame_of, summary
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import cells_table, write_results
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs import lineage
from soulsgraph.runs.evaluate import (
    EVALUATION_SEED,
    Setting,
    checkpoint_files,
    load_checkpoint,
    weights_by_skill,
    with_variants,
)
from soulsgraph.runs.progress import Display, stage_progress
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.transfer.recovery import scratch_arm
from soulsgraph_envs.combat.rollout import Doubles, Flags, Integers
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import temporary_folder
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.agents.library import INPUTS, SkillCard


@dataclass(frozen=True)
class HomeRetention:
    """A domain's own versions at home, evaluated twice over the same episodes, won or not (episodes,).

    `before` is played by a run that holds nothing later than the domain, `now` by the run after the
    whole chain.
    """

    domain: str
    before: Flags
    now: Flags

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, the difference of the win rates, and how many episodes changed their result."""
        return {
            "wins_before": int(self.before.sum()),
            "wins_now": int(self.now.sum()),
            "difference": float(self.now.mean() - self.before.mean()),
            "episodes_that_differ": int((self.now != self.before).sum()),
        }

    def line(self) -> str:
        """Return it as a line for the terminal."""
        found, episodes = self.to_dict(), len(self.now)
        return (
            f"own versions of {self.domain}, kept in the library: {found['wins_before']}/{episodes} before what came "
            f"later, {found['wins_now']}/{episodes} now, {100 * found['difference']:+.1f} points; "
            f"{found['episodes_that_differ']} episodes ended otherwise"
        )


@dataclass(frozen=True)
class Retention:
    """The chain of domains, wins (domains, domains) after each in each, and wins of random play (domains,).

    `kept` and `training` have one entry for each domain that has a later, or an earlier one.
    """

    domains: tuple[str, ...]
    wins: Integers
    random_wins: Integers
    episodes: int
    kept: tuple[HomeRetention, ...]
    training: tuple[TrainingTransfer, ...]

    @property
    def matrix(self) -> Doubles:
        """Win rates in domain j (columns) after training on domain i (rows)."""
        return np.asarray(self.wins / self.episodes)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; None where a measure is not defined."""
        random = self.random_wins / self.episodes
        return {
            "domains": list(self.domains),
            "episodes": self.episodes,
            "rows": self.rows(),
            "zero_shot_transfer": float(metrics.zero_shot_transfer(self.matrix, random).mean()),
            "training_forward_transfer": {found.domain: found.to_dict() for found in self.training},
            "backward_transfer": float(metrics.backward_transfer(self.matrix).mean()),
            "kept": {found.domain: found.to_dict() for found in self.kept},
            "forgetting": dict(zip(self.domains, metrics.forgetting(self.matrix).tolist(), strict=True)),
            "isolated_forgetting": _plain(metrics.isolated_forgetting(self.matrix)),
            "zero_shot_forward_transfer": _plain(metrics.zero_shot_forward_transfer(self.matrix)),
        }

    @property
    def _counts(self) -> dict[str, list[int]]:
        """Wins in each domain after training on each, and of random play."""
        trained = dict(zip(self.domains, self.wins.tolist(), strict=True))
        return {"nothing (chance)": self.random_wins.tolist(), **trained}

    def rows(self) -> list[dict[str, Any]]:
        """Return one row a cell: after which domain, in which, the wins and their interval."""
        return [
            {"after": after, "domain": domain, **WinRate(wins, self.episodes).columns()}
            for after, counts in self._counts.items()
            for domain, wins in zip(self.domains, counts, strict=True)
        ]

    def to_rich(self) -> Table:
        """Return the matrix for the terminal."""
        rows = []
        for after, counts in self._counts.items():
            cells = [f"{wins}/{self.episodes}  {100 * wins / self.episodes:.1f} %" for wins in counts]
            rows.append({"after": after, **dict(zip(self.domains, cells, strict=True))})
        return cells_table("Wins after training on (row) in (column)", rows)

    def lines(self) -> list[str]:
        """Return the measures in points of win rate."""
        found = self.to_dict()
        lost = ", ".join(f"{domain} {100 * value:+.1f}" for domain, value in found["forgetting"].items())
        return [
            f"zero-shot forward transfer {100 * found['zero_shot_transfer']:+.1f} points over chance",
            *(transfer.line() for transfer in self.training),
            f"backward transfer {100 * found['backward_transfer']:+.1f} points",
            f"forgetting with the newest versions: {lost}",
            *(kept.line() for kept in self.kept),
        ]


def measure_retention(
    run: RunFolder, episodes: int, seed: int = EVALUATION_SEED, display: Display = "auto"
) -> Retention:
    """Evaluate every domain of the run's chain after each, from the same evaluation seeds, and write the results.

    Raises:
        SoulsGraphError: if the run was not adapted to another scenario yet.
        WriteError: if the results cannot be written.
    """
    evaluating.check_evaluation(seed, episodes)
    domains = lineage.domain_chain(run)
    lineage.expect_unchanged(run, *domains)
    if len(domains) < 2:
        raise SoulsGraphError(
            f"{run.path}: expected a run adapted to another scenario, found one that knows {domains[0]} only",
            "adapt it first",
        )
    size, order = len(domains), run.plan.skill_graph.order
    with stage_progress("retention", size * (size + 1) + 2 * (size - 1), display, unit="settings") as progress:

        def counted(result: Any) -> Any:
            progress.advance(1)
            return result

        def won_by(player: RunFolder, setting: Setting) -> Flags:
            return np.asarray(counted(evaluating.evaluate(player, setting, episodes, seed).episodes.won))

        random = [won_by(run, Setting(domain, domains[0], ablated=order)).sum() for domain in domains]
        won = {(after, domain): won_by(run, Setting(domain, after)) for after in domains for domain in domains}
        wins = np.array([[won[after, domain].sum() for domain in domains] for after in domains])
        kept = []
        for domain in domains[:-1]:
            with temporary_folder("soulsgraph-retention-") as folder:
                before = won_by(lineage.branch(run, Path(folder, "run"), domain), Setting(domain, domain))
            kept.append(HomeRetention(domain, before, won[domain, domain]))
        training = tuple(counted(training_transfer(run, domain, seed)) for domain in domains[1:])
    retention = Retention(domains, wins, np.array(random), episodes, tuple(kept), training)
    values = {**retention.to_dict(), "fights": lineage.chain_fights(run, domains[-1])}
    write_results(run.path / "results", "retention", retention.rows(), values)
    return retention


def chain_rates_over_seeds(chains: Mapping[int, Retention]) -> SeedsTable:
    """Return the win rate after each domain in each, in percent."""
    results = {seed: retention.rows() for seed, retention in chains.items()}
    return SeedsTable.of_win_rates("Wins after training on one domain in another", ("after", "domain"), results)


def measures_over_seeds(chains: Mapping[int, Retention]) -> SeedsTable:
    """Return transfer, forgetting and the change of the old versions; a seed's missing measure is shown as missing."""
    results = {
        seed: [
            {"measure": name, "value": value, "found": "missing" if value is None else f"{value:+.3f}"}
            for name, value in measures_of(retention).items()
        ]
        for seed, retention in chains.items()
    }
    frame = frame_of(results)
    means = summary(frame, ["measure"], "value", {"seeds": "seeds", "mean": "mean"})
    return SeedsTable.of("Transfer and forgetting, as shares of episodes", frame, means)


def measures_of(retention: Retention) -> dict[str, float | None]:
    """Name the measures of one chain; None where one is missing."""
    values = retention.to_dict()
    named: dict[str, float | None] = {
        "zero-shot forward transfer over chance": values["zero_shot_transfer"],
        "backward transfer": values["backward_transfer"],
    }
    named |= {
        f"forward transfer while training in {found.domain}": found.forward_transfer for found in retention.training
    }
    named |= {f"forgetting of {domain}, newest versions": lost for domain, lost in values["forgetting"].items()}
    named |= {f"change of {found.domain}, own versions": found.to_dict()["difference"] for found in retention.kept}
    return named


def _plain(values: Doubles) -> list[list[float | None]]:
    return [[None if np.isnan(value) else value for value in row] for row in values.tolist()]


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
        return metrics.curve_area(self.steps, self.rates)

    def to_list(self) -> list[list[float]]:
        """Return steps and rates as plain values."""
        return [self.steps.tolist(), self.rates.tolist()]


def win_rates(agent: Agent, seed: int, variants: int = 1) -> list[float]:
    """Return the win rate of each of an agent's variants over the same episodes, all in one batch of lanes."""
    won = evaluating.play_variants(agent, evaluating.evaluation_seeds(seed, POINT_EPISODES), variants).won
    return [float(rate) for rate in won.reshape(variants, -1).mean(axis=1)]


def success_curve(run: RunFolder, domain: str, seed: int) -> SuccessCurve:
    """Play the agent as it enters a domain, at every checkpoint of its stages there, and after each stage.

    Raises:
        LibraryError: if a skill was never trained, or is damaged.
        SoulsGraphError: if a checkpoint is damaged.
    """
    before = lineage.domain_chain(run, domain)[:-1]
    untrained = Setting(domain, domain, ablated=run.plan.skill_graph.order)
    agent = evaluating.make_agent(run, Setting(domain, before[-1]) if before else untrained)
    steps, rates = [0], win_rates(agent, seed)
    for cards in lineage.cards_by_stage(lineage.domain_cards(run, domain)):
        points, clip = _points(run, cards), cards[-1].observation_clip
        learned = [*points.values()]
        steps += [steps[-1] + step for step in points]
        rates += win_rates(with_variants(agent, clip, learned), seed, len(learned))
        agent = with_variants(agent, clip, learned[-1:])
    return SuccessCurve(np.array(steps, np.float64), np.array(rates))


def _points(run: RunFolder, cards: Sequence[SkillCard]) -> dict[int, dict[str, Weights]]:
    """Return every skill's weights by step: at the checkpoints of the stage that made the cards, and after it.

    There are no checkpoints where skills that learned beside them, or the stage, have been trained again since.
    """
    last, end = cards[-1], sum(card.training.steps for card in cards)
    complete, folder = len(cards) >= len(last.training.jointly), lineage.curve_folder(run, lineage.stage_of(run, cards))
    inputs = run.library.inputs(last.skill, last.version)
    own = complete and inputs and lineage.kept_inputs(folder / INPUTS) == inputs
    files = checkpoint_files(folder) if own else {}
    points = {step: weights_by_skill(last.skill, load_checkpoint(path)) for step, path in files.items() if step < end}
    return points | {end: {card.skill: run.library.load(card.skill, card.version).weights for card in cards}}


@dataclass(frozen=True)
class TrainingTransfer:
    """Success over the steps in one domain beside the same from scratch; None where no recovery trained that."""

    domain: str
    curve: SuccessCurve
    alone: SuccessCurve | None

    @property
    def forward_transfer(self) -> float | None:
        """Continual World's forward transfer; None without the curve from scratch, or if that is 1 throughout."""
        if self.alone is None:
            return None
        areas = np.array([self.curve.area]), np.array([self.alone.area])
        (value,) = metrics.forward_transfer(*areas).tolist()
        return None if np.isnan(value) else value

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        alone = self.alone
        return {
            "forward_transfer": self.forward_transfer,
            "area": self.curve.area,
            "alone_area": alone and alone.area,
            "curve": self.curve.to_list(),
            "alone_curve": alone and alone.to_list(),
        }

    def line(self) -> str:
        """Return it as a line for the terminal."""
        begin = f"forward transfer while training in {self.domain} (Continual World): "
        if self.alone is None:
            return f"{begin}missing, for no recovery was trained there from scratch"
        value = self.forward_transfer
        shown = "not defined, from scratch won throughout" if value is None else f"{value:+.3f}"
        return f"{begin}{shown}; mean success {self.curve.area:.3f}, from scratch {self.alone.area:.3f}"


def training_transfer(run: RunFolder, domain: str, seed: int) -> TrainingTransfer:
    """Play a domain's curve, and that of the recovery's arm trained from scratch.

    Raises:
        SoulsGraphError: if a checkpoint or an artifact is damaged.
    """
    budget = sum(card.training.budget for card in lineage.domain_cards(run, domain))
    scratch = scratch_arm(run, domain, budget)
    trained = scratch and all(scratch.library.versions(skill) for skill in run.plan.skill_graph.order)
    alone = success_curve(scratch, domain, seed) if scratch and trained else None
    return TrainingTransfer(domain, success_curve(run, domain, seed), alone)
