"""Which skills a fight needs: what an agent loses when one of them is not played by what it learned.

Each skill in turn acts at random, does nothing, or is played by a network that never learned, while all others play as
trained, in the same fights as the whole agent. The same is asked of the scripted reference where every skill has one:
what it loses is the fight's doing, not the training's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from rich.table import Table

from soulsgraph.results.seeds import Rows, SeedsTable, frame_of, summary
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import cells_table
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs.evaluate import OnFinished, Setting
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.combat.scripted import REFERENCES, references
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, FrozenNetwork

#: How a skill is played instead of by what it learned.
Stand = Literal["random", "idle", "untrained"]
STANDS: tuple[Stand, ...] = ("random", "idle", "untrained")
#: The row of an agent whose every skill plays as trained.
NO_SKILL = "none"


@dataclass(frozen=True)
class Necessity:
    """What one agent, and the scripted reference, won: rows of skill, how it was played, wins, and points lost."""

    trained: Rows
    #: Without an entry where a skill has no scripted reference.
    scripted: Rows

    def to_dict(self) -> dict[str, Any]:
        """Return both as plain values for JSON."""
        return {"rows": [*self.trained], "scripted": [*self.scripted]}

    def to_rich(self) -> list[Table]:
        """Return both for the terminal."""
        tables = {"What each skill is worth to the agent": self.trained, "And to the scripted reference": self.scripted}
        return [cells_table(title, [*map(_cells, rows)]) for title, rows in tables.items() if rows]


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    wins = f"{row['wins']}/{row['episodes']}  {100 * row['rate']:.1f} %"
    return {"skill": row["skill"], "played": row["played"], "wins": wins, "points lost": f"{row['lost_points']:+.1f}"}


def measure_necessity(
    run: RunFolder, setting: Setting, episodes: int, seed: int, on_finished: OnFinished | None = None
) -> Necessity:
    """Play the same fights with every skill as trained, and with each in turn replaced in every way of `STANDS`.

    Raises:
        SoulsGraphError: if a skill is missing or damaged, a name unknown, or a skill has no action that does nothing.
    """
    evaluating.check_evaluation(seed, episodes)
    agent, seeds = evaluating.make_agent(run, setting), evaluating.evaluation_seeds(seed, episodes)
    names = [skill.name for skill in agent.skills]
    untrained = {name: _untrained(agent.networks[name], run.plan.seed, at) for at, name in enumerate(names)}
    scripted: Rows = ()
    if all(name in REFERENCES for name in names):
        reference = replace(agent, replaced=references(names, agent.scenario))
        scripted = [*_rows(reference, untrained, seeds, on_finished)]
    return Necessity([*_rows(agent, untrained, seeds, on_finished)], scripted)


def settings_of(skills: Sequence[str]) -> int:
    """Return how many settings `measure_necessity` plays at most of an agent of these skills."""
    return 2 * (1 + len(STANDS) * len(skills))


def _rows(
    agent: Agent, untrained: Mapping[str, FrozenNetwork], seeds: Seeds, on_finished: OnFinished | None
) -> Iterator[dict[str, Any]]:
    whole = WinRate.of(evaluating.play(agent, seeds, on_finished).won)
    yield {"skill": NO_SKILL, "played": "", **whole.columns(), "lost_points": 0.0}
    for skill in agent.skills:
        for stand in STANDS:
            without = _without(agent, skill.name, stand, untrained)
            rate = WinRate.of(evaluating.play(without, seeds, on_finished).won)
            lost = whole.percent - rate.percent
            yield {"skill": skill.name, "played": stand, **rate.columns(), "lost_points": lost}


def _without(agent: Agent, skill: str, stand: Stand, untrained: Mapping[str, FrozenNetwork]) -> Agent:
    if stand == "untrained":
        return agent.playing({skill: untrained[skill]})
    return replace(agent, replaced={**agent.replaced, skill: stand})


def _untrained(network: FrozenNetwork | Sequence[FrozenNetwork], seed: int, skill: int) -> FrozenNetwork:
    """Return a network of the same layers as its training began with: uniform within 1 / sqrt(inputs), as PyTorch."""
    if not isinstance(network, FrozenNetwork):
        (network,) = network
    random = np.random.default_rng((seed, skill))
    weights = {MEAN: np.zeros_like(network.weights[MEAN]), DEVIATION: np.ones_like(network.weights[DEVIATION])}
    bound = 1.0
    for name, values in network.weights.items():
        if name not in weights:
            # A layer's weight comes before its bias, which has the same bound.
            bound = 1.0 / np.sqrt(values.shape[1]) if values.ndim == 2 else bound
            weights[name] = random.uniform(-bound, bound, values.shape).astype(np.float32)
    return replace(network, weights=weights)


def necessity_over_seeds(measured: Mapping[int, Necessity]) -> SeedsTable:
    """Return the mean win rate of each setting and the points lost, paired by seed, with intervals over seeds."""
    frame = frame_of({seed: one.trained for seed, one in measured.items()})
    frame["percent"] = 100.0 * frame["rate"]
    by = ["skill", "played"]
    rates = summary(frame, by, "percent", {"seeds": "seeds", "mean": "win_percent"})
    lost = summary(frame, by, "lost_points", {"mean": "lost_points"})
    return SeedsTable.of("What each skill is worth to agents", frame, rates, lost)
