"""What a chain of adaptations keeps: every domain judged with the versions in play after every other.

The library keeps earlier versions, so what an agent could do before is still there; the adapted
versions may have forgotten it. The measures are those of the continual-learning benchmarks, with win
rates for the performances: `matrix[i, j]` is the win rate in domain j after training on domain i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from soulsgraph.domains import domain_chain
from soulsgraph.evaluation import EVALUATION_SEED, Setting, judge
from soulsgraph.files import write_json
from soulsgraph.judging import check_judging
from soulsgraph.progress import Display, stage_progress
from soulsgraph.reports.parquet import write_rows
from soulsgraph.reports.tables import WinRate
from soulsgraph.run_folder import RunFolder
from soulsgraph.transfer.report import text_table
from soulsgraph_envs.errors import SoulsGraphError

Doubles = npt.NDArray[np.float64]


def forward_transfer(matrix: Doubles, chance: Doubles) -> float:
    """Give how much training on the domains before helps in one not trained on yet.

    FWT = 1 / (T - 1) * sum over i = 2..T of R[i-1, i] - b[i], with b the performance of the untrained
    agent: Lopez-Paz & Ranzato (2017), "Gradient episodic memory for continual learning", Eq. 4. The
    untrained agent here is one whose every skill plays by chance.
    """
    ahead = np.diagonal(matrix, 1) - chance[1:]
    return float(ahead.mean())


def backward_transfer(matrix: Doubles) -> float:
    """Give what later training did to the earlier domains; below 0 it did harm.

    BWT = 1 / (T - 1) * sum over i = 1..T-1 of R[T, i] - R[i, i]: Lopez-Paz & Ranzato (2017), Eq. 3.
    """
    return float((matrix[-1, :-1] - np.diagonal(matrix)[:-1]).mean())


def forgetting(matrix: Doubles) -> Doubles:
    """Give what each domain lost from the end of its own training to the end of all, (domains,).

    F_i = p_i(i * D) - p_i(T * D), D being the budget of a domain: Wolczyk et al. (2021), "Continual
    World: a robotic benchmark for continual reinforcement learning". The last one's is 0.
    """
    lost: Doubles = np.diagonal(matrix) - matrix[-1]
    return lost


def isolated_forgetting(matrix: Doubles) -> Doubles:
    """Give what training on domain j took from an earlier domain i, (domain i, domain j); nan elsewhere.

    F[i, j] = (r[i, j-1, end] - r[i, j, end]) / |r[i, all, max]| for i < j: Powers et al. (2022), "CORA:
    benchmarks, baselines, and metrics as a platform for continual reinforcement learning agents".
    """
    return _isolated(matrix, earlier=True)


def zero_shot_forward_transfer(matrix: Doubles) -> Doubles:
    """Give what training on domain j brought to a later domain i, (domain i, domain j); nan elsewhere.

    Z[i, j] = (r[i, j, end] - r[i, j-1, end]) / |r[i, all, max]| for i > j: Powers et al. (2022). Before
    the first domain nothing is trained, so j = 1 has no value.
    """
    return -_isolated(matrix, earlier=False)


def _isolated(matrix: Doubles, earlier: bool) -> Doubles:
    size = len(matrix)
    out = np.full((size, size), np.nan)
    for i in range(size):
        # Where a domain was never won nothing can be lost or gained.
        best = max(float(np.abs(matrix[:, i]).max()), np.finfo(float).tiny)
        for j in range(1, size):
            if (i < j) == earlier and i != j:
                out[i, j] = (matrix[j - 1, i] - matrix[j, i]) / best
    return out


@dataclass(frozen=True)
class Retention:
    """The chain of domains, wins (domains, domains) after each in each, and wins of chance play (domains,)."""

    domains: tuple[str, ...]
    wins: npt.NDArray[np.int64]
    chance_wins: npt.NDArray[np.int64]
    episodes: int

    @property
    def matrix(self) -> Doubles:
        """Win rates after training on domain i (rows) in domain j (columns)."""
        rates: Doubles = self.wins / self.episodes
        return rates

    def to_dict(self) -> dict[str, Any]:
        """Give everything as plain values for JSON; None where a measure is not defined."""
        chance = self.chance_wins / self.episodes
        return {
            "domains": list(self.domains),
            "episodes": self.episodes,
            "rows": self.rows(),
            "forward_transfer": forward_transfer(self.matrix, chance),
            "backward_transfer": backward_transfer(self.matrix),
            "forgetting": dict(zip(self.domains, forgetting(self.matrix).tolist(), strict=True)),
            "isolated_forgetting": _plain(isolated_forgetting(self.matrix)),
            "zero_shot_forward_transfer": _plain(zero_shot_forward_transfer(self.matrix)),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Give one row a cell: after which domain, in which, the wins and their interval."""
        after = ("nothing (chance)", *self.domains)
        counts = np.vstack([self.chance_wins, self.wins]).tolist()
        return [
            {
                "after": name,
                "domain": domain,
                **{key: value for key, value in _rate(wins, self.episodes).items() if key not in _UNUSED},
            }
            for name, row in zip(after, counts, strict=True)
            for domain, wins in zip(self.domains, row, strict=True)
        ]

    def to_rich(self) -> Table:
        """Give the matrix for the terminal."""
        after = ("nothing (chance)", *self.domains)
        counts = np.vstack([self.chance_wins, self.wins]).tolist()
        rows = [
            [name, *(f"{wins}/{self.episodes}  {100 * wins / self.episodes:.1f} %" for wins in row)]
            for name, row in zip(after, counts, strict=True)
        ]
        return text_table("Wins after training on (row) in (column)", ("after", *self.domains), rows)

    def lines(self) -> list[str]:
        """Say the measures in points of win rate."""
        chance = self.chance_wins / self.episodes
        lost = ", ".join(
            f"{name} {100 * value:+.1f}" for name, value in zip(self.domains, forgetting(self.matrix), strict=True)
        )
        return [
            f"forward transfer {100 * forward_transfer(self.matrix, chance):+.1f} points over chance",
            f"backward transfer {100 * backward_transfer(self.matrix):+.1f} points",
            f"forgetting with the newest versions: {lost}; with each domain's own versions, kept in the library: 0",
        ]


_UNUSED = ("setting", "paper_percent")


def judge_retention(run: RunFolder, episodes: int, seed: int = EVALUATION_SEED, display: Display = "auto") -> Retention:
    """Judge every domain of the run's chain after each, from the same evaluation seeds, and write the results.

    Raises:
        SoulsGraphError: if the run was not adapted to another scenario yet.
        WriteError: if the results cannot be written.
    """
    check_judging(seed, episodes)
    domains, order = domain_chain(run), run.plan.skill_graph.order
    if len(domains) < 2:
        raise SoulsGraphError(
            f"{run.path}: expected a run adapted to another scenario, found one that knows {domains[0]} only; "
            f"adapt it first: soulsgraph adapt {run.path} --scenario NAME."
        )
    size = len(domains)
    settings = [Setting(domain, domains[0], randomize=order) for domain in domains]
    settings += [Setting(domain, after) for after in domains for domain in domains]
    wins = []
    with stage_progress("retention", len(settings), display, unit="settings") as progress:
        for number, setting in enumerate(settings, 1):
            wins.append(int(judge(run, setting, episodes, seed).won.sum()))
            progress.update(number)
    counts = np.array(wins)
    retention = Retention(domains, counts[size:].reshape(size, size), counts[:size], episodes)
    write_json(run.path / "results" / "retention.json", retention.to_dict())
    write_rows(run.results("retention"), retention.rows())
    return retention


def _rate(wins: int, episodes: int) -> dict[str, Any]:
    return WinRate("", wins, episodes).to_dict()


def _plain(values: Doubles) -> list[list[float | None]]:
    return [[None if np.isnan(value) else float(value) for value in row] for row in values]
