"""Retention over a chain of adaptations, over several training seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soulsgraph.reports.seed_statistics import Spread
from soulsgraph.transfer.over_seeds import SeedsTable, spread_fields
from soulsgraph.transfer.retention import Retention
from soulsgraph_envs.errors import SoulsGraphError

_CELL = ("after", "domain")


def check_chains(chains: Mapping[int, tuple[str, ...]]) -> None:
    """Make sure that every seed went through the same domains.

    Raises:
        SoulsGraphError: naming two seeds and their chains.
    """
    (first, expected), *others = chains.items()
    for seed, chain in others:
        if chain != expected:
            raise SoulsGraphError(
                f"retention: expected every seed to go through {' -> '.join(expected)} as seed {first} did, found "
                f"{' -> '.join(chain)} for seed {seed}; adapt it in the same order or leave it to a call of its own."
            )


def win_rates_over_seeds(found: Mapping[int, Retention]) -> SeedsTable:
    """Return the win rate after each domain in each, in percent."""
    by_seed = [{"seed": seed, **row} for seed, retention in found.items() for row in retention.rows()]
    summary = []
    for cell in dict.fromkeys((row["after"], row["domain"]) for row in by_seed):
        rates = {row["seed"]: 100.0 * row["rate"] for row in by_seed if (row["after"], row["domain"]) == cell}
        fields = spread_fields("win_percent", Spread(rates))
        summary.append({**dict(zip(_CELL, cell, strict=True)), "seeds": len(rates), **fields})
    return SeedsTable("Wins after training on one domain in another", _CELL, summary, by_seed)


def measures_over_seeds(found: Mapping[int, Retention]) -> SeedsTable:
    """Return transfer, forgetting and the change of the old versions; a seed's missing measure is shown as missing."""
    by_seed: list[dict[str, Any]] = [
        {"seed": seed, "measure": name, "value": value, "found": "missing" if value is None else f"{value:+.3f}"}
        for seed, retention in found.items()
        for name, value in measures_of(retention).items()
    ]
    summary: list[dict[str, Any]] = []
    for name in dict.fromkeys(row["measure"] for row in by_seed):
        values = {row["seed"]: row["value"] for row in by_seed if row["measure"] == name and row["value"] is not None}
        spread = Spread(values) if values else None
        summary.append({"measure": name, "seeds": len(values), **spread_fields("mean", spread)})
    return SeedsTable("Transfer and forgetting, as shares of episodes", ("measure",), summary, by_seed)


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
    named |= {
        f"change of {found.domain}, own versions": values["kept"][found.domain]["difference"]
        for found in retention.kept
    }
    return named
