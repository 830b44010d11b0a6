"""Retention over a chain of adaptations: every domain evaluated with the versions in play after every other.

The library keeps earlier versions, so what an agent could do before is still there; the adapted
versions may have forgotten it. The measures are those of the continual-learning benchmarks, with win
rates for the performances: `matrix[i, j]` is the win rate in domain j after training on domain i.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from soulsgraph.domains import domain_chain
from soulsgraph.evaluate import EVALUATION_SEED, Setting, check_evaluation, evaluate
from soulsgraph.files import api_call, write_json
from soulsgraph.progress import Counting, Display, stage_progress
from soulsgraph.run_folder import RunFolder
from soulsgraph.tables import write_rows
from soulsgraph.transfer.recovery import TrainingTransfer, branch, training_transfer
from soulsgraph.transfer.report import text_table, win_row
from soulsgraph_envs.core.errors import SoulsGraphError

Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Kept:
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
    """The chain of domains, wins (domains, domains) after each in each, and wins of chance play (domains,).

    `kept` and `training` have one entry for each domain that has a later, or an earlier one.
    """

    domains: tuple[str, ...]
    wins: npt.NDArray[np.int64]
    chance_wins: npt.NDArray[np.int64]
    episodes: int
    kept: tuple[Kept, ...]
    training: tuple[TrainingTransfer, ...]

    @property
    def matrix(self) -> Doubles:
        """Win rates in domain j (columns) after training on domain i (rows)."""
        rates: Doubles = self.wins / self.episodes
        return rates

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON; None where a measure is not defined."""
        chance = self.chance_wins / self.episodes
        return {
            "domains": list(self.domains),
            "episodes": self.episodes,
            "rows": self.rows(),
            "zero_shot_transfer": forward_transfer(self.matrix, chance),
            "training_forward_transfer": {found.domain: found.to_dict() for found in self.training},
            "backward_transfer": backward_transfer(self.matrix),
            "kept": {found.domain: found.to_dict() for found in self.kept},
            "forgetting": dict(zip(self.domains, forgetting(self.matrix).tolist(), strict=True)),
            "isolated_forgetting": _plain(isolated_forgetting(self.matrix)),
            "zero_shot_forward_transfer": _plain(zero_shot_forward_transfer(self.matrix)),
        }

    @property
    def _counts(self) -> dict[str, list[int]]:
        """Wins in each domain after training on each, and by chance."""
        trained = dict(zip(self.domains, self.wins.tolist(), strict=True))
        return {"nothing (chance)": self.chance_wins.tolist(), **trained}

    def rows(self) -> list[dict[str, Any]]:
        """Return one row a cell: after which domain, in which, the wins and their interval."""
        return [
            {"after": after, "domain": domain, **win_row(wins, self.episodes)}
            for after, counts in self._counts.items()
            for domain, wins in zip(self.domains, counts, strict=True)
        ]

    def to_rich(self) -> Table:
        """Return the matrix for the terminal."""
        rows = []
        for after, counts in self._counts.items():
            cells = [f"{wins}/{self.episodes}  {100 * wins / self.episodes:.1f} %" for wins in counts]
            rows.append({"after": after, **dict(zip(self.domains, cells, strict=True))})
        return text_table("Wins after training on (row) in (column)", rows)

    def lines(self) -> list[str]:
        """Return the measures in points of win rate."""
        chance = self.chance_wins / self.episodes
        lost = ", ".join(
            f"{name} {100 * value:+.1f}" for name, value in zip(self.domains, forgetting(self.matrix), strict=True)
        )
        return [
            f"zero-shot forward transfer {100 * forward_transfer(self.matrix, chance):+.1f} points over chance",
            *(found.line() for found in self.training),
            f"backward transfer {100 * backward_transfer(self.matrix):+.1f} points",
            f"forgetting with the newest versions: {lost}",
            *(found.line() for found in self.kept),
        ]


def measure_retention(
    run: RunFolder, episodes: int, seed: int = EVALUATION_SEED, display: Display = "auto"
) -> Retention:
    """Evaluate every domain of the run's chain after each, from the same evaluation seeds, and write the results.

    Raises:
        SoulsGraphError: if the run was not adapted to another scenario yet.
        WriteError: if the results cannot be written.
    """
    check_evaluation(seed, episodes)
    domains = domain_chain(run)
    if len(domains) < 2:
        raise SoulsGraphError(
            f"{run.path}: expected a run adapted to another scenario, found one that knows {domains[0]} only; "
            f"adapt it first: {api_call('adaptation_stages', run=run.path)}."
        )
    size, order = len(domains), run.plan.skill_graph.order
    with stage_progress("retention", size * (size + 1) + 2 * (size - 1), display, unit="settings") as progress:
        count = Counting(progress)

        def won_by(player: RunFolder, setting: Setting) -> Flags:
            won = evaluate(player, setting, episodes, seed).episodes.won
            count(1)
            return won

        def kept_in(domain: str) -> Kept:
            with TemporaryDirectory() as folder:
                before = won_by(branch(run, Path(folder, "run"), domain), Setting(domain, domain))
            return Kept(domain, before, won[domain, domain])

        def training_in(domain: str) -> TrainingTransfer:
            found = training_transfer(run, domain, seed)
            count(1)
            return found

        chance = [won_by(run, Setting(domain, domains[0], randomize=order)).sum() for domain in domains]
        won = {(after, domain): won_by(run, Setting(domain, after)) for after in domains for domain in domains}
        wins = np.array([[won[after, domain].sum() for domain in domains] for after in domains])
        kept, training = tuple(map(kept_in, domains[:-1])), tuple(map(training_in, domains[1:]))
    retention = Retention(domains, wins, np.array(chance), episodes, kept, training)
    write_json(run.path / "results" / "retention.json", retention.to_dict())
    write_rows(run.results("retention"), retention.rows())
    return retention


def _plain(values: Doubles) -> list[list[float | None]]:
    return [[None if np.isnan(value) else value for value in row] for row in values.tolist()]


def forward_transfer(matrix: Doubles, chance: Doubles) -> float:
    """Return how much training on the domains before helps in one not trained on yet.

    FWT = 1 / (T - 1) * sum over i = 2..T of R[i-1, i] - b[i], with b the performance of the untrained
    agent: Lopez-Paz & Ranzato (2017), "Gradient episodic memory for continual learning", Eq. 4. The
    untrained agent here is one whose every skill acts at random.
    """
    ahead = np.diagonal(matrix, 1) - chance[1:]
    return float(ahead.mean())


def backward_transfer(matrix: Doubles) -> float:
    """Return what later training did to the earlier domains; below 0 it did harm.

    BWT = 1 / (T - 1) * sum over i = 1..T-1 of R[T, i] - R[i, i]: Lopez-Paz & Ranzato (2017), Eq. 3.
    """
    return float((matrix[-1, :-1] - np.diagonal(matrix)[:-1]).mean())


def forgetting(matrix: Doubles) -> Doubles:
    """Return what each domain lost from the end of its own training to the end of all, (domains,).

    F_i = p_i(i * D) - p_i(T * D), D being the budget of a domain: Wolczyk et al. (2021), "Continual
    World: a robotic benchmark for continual reinforcement learning". The last one's is 0.
    """
    lost: Doubles = np.diagonal(matrix) - matrix[-1]
    return lost


def isolated_forgetting(matrix: Doubles) -> Doubles:
    """Return what training on domain j took from an earlier domain i, (domain i, domain j); nan elsewhere.

    F[i, j] = (r[i, j-1, end] - r[i, j, end]) / |r[i, all, max]| for i < j: Powers et al. (2022), "CORA:
    benchmarks, baselines, and metrics as a platform for continual reinforcement learning agents".
    """
    return np.where(np.triu(np.ones_like(matrix), 1), _lost(matrix), np.nan)


def zero_shot_forward_transfer(matrix: Doubles) -> Doubles:
    """Return what training on domain j brought to a later domain i, (domain i, domain j); nan elsewhere.

    Z[i, j] = (r[i, j, end] - r[i, j-1, end]) / |r[i, all, max]| for i > j: Powers et al. (2022). Before
    the first domain nothing is trained, so j = 1 has no value.
    """
    return np.where(np.tril(np.ones_like(matrix), -1), -_lost(matrix), np.nan)


def _lost(matrix: Doubles) -> Doubles:
    """Return what training on domain j took from domain i, as a share of the best there; nan for the first j."""
    # Where a domain was never won nothing can be lost or gained.
    best = np.maximum(np.abs(matrix).max(axis=0), np.finfo(float).tiny)
    lost = np.full_like(matrix, np.nan)
    lost[:, 1:] = (matrix[:-1] - matrix[1:]).T / best[:, None]
    return lost
