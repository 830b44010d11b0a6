"""Pages of the zoo: an agent's card with the header of a model hub, and the table of all agents."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from soulsgraph.tables import markdown_table
from soulsgraph.zoo.card import AgentCard

HEADINGS = ("agent", "decisions", "wins", "win rate", "95 % interval")
_LICENSE, _TASK = "mit", "reinforcement-learning"


def agent_row(card: AgentCard) -> tuple[str, ...]:
    """Return an agent's row of the table, one cell a heading."""
    _, wins, rate, interval, _ = card.win_rate.cells
    return (card.name, f"{card.budget:,}", wins, rate, interval)


def agents_table(cards: Iterable[AgentCard]) -> str:
    """Return the table of agents as Markdown."""
    return markdown_table(HEADINGS, ((f"`{first}`", *others) for first, *others in map(agent_row, cards)))


def card_page(card: AgentCard) -> str:
    """Return a card as Markdown, below a header in YAML as model hubs read it."""
    _, wins, rate, interval, _ = card.win_rate.cells
    lineage = (
        (
            f"`{one.skill}` v{one.version}",
            one.scenario,
            f"{one.budget:,}",
            str(one.seed),
            ", ".join(one.upstream) or "-",
            f"`{one.digest[:16]}`",
        )
        for one in card.lineage
    )
    origin, digests = card.origin, card.digests
    versions = ", ".join(f"{name} {version}" for name, version in origin.versions.items())
    skills = "\n".join(f"- inputs and actions of {name}: `{digest}`" for name, digest in digests.skills.items())
    return f"""---
{_header(card)}
---

# {card.name}

An agent of soulsgraph: preset `{card.preset}`, graph `{card.graph}`, training seed {card.seed}.
It was trained for {card.budget:,} decisions in the scenario `{card.scenario}` of the simulator.

It wins {wins} greedy fights, {rate} (95 % interval {interval}).
They are the evaluation episodes of seed {card.reached.seed}, which are used for nothing else.
Its training seed was fixed beforehand, and no seed is left out.

## Lineage

{markdown_table(("skill", "scenario", "decisions", "seed", "trained on", "digest"), lineage)}

## Origin

Commit `{origin.commit or "unknown"}`, {origin.created}; {versions}.
Processor: {origin.processor}.

SHA-256 digests of what it was trained with:

- data of the fight: `{digests.scenario}`
- preset: `{digests.preset}`
{skills}
"""


def _header(card: AgentCard) -> str:
    """Return the header: every value as JSON, which YAML contains."""
    metric = {
        "type": "win_rate",
        "name": f"win rate over {card.reached.episodes} episodes",
        "value": round(100 * card.reached.rate, 1),
        "verified": False,
    }
    result = {
        "task": {"type": _TASK, "name": _TASK},
        "dataset": {"type": card.scenario, "name": f"{card.scenario}, simulated"},
        "metrics": [metric],
    }
    header: dict[str, Any] = {
        "license": _LICENSE,
        "library_name": "soulsgraph",
        "pipeline_tag": _TASK,
        "tags": [_TASK, "deep-reinforcement-learning", "dqn", card.scenario],
        "model-index": [{"name": card.name, "results": [result]}],
    }
    return "\n".join(f"{key}: {json.dumps(value)}" for key, value in header.items())
