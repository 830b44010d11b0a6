"""Which skills a fight needs: what an agent loses when one of them is not played by what it learned.

Each skill in turn acts at random, does nothing, or is played by a network that never learned, while all others play as
trained, in the same fights as the whole agent. The same is asked of the scripted reference where every skill has one:
what it loses is due to the fight, not to training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console, RenderableType
from scipy.special import bdtrc

from soulsgraph.results.seeds import Rows, by_seed_frame, records, seed_tables, summary
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import Table
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs.evaluate import EVALUATION_SEED, OnFinished, Setting
from soulsgraph.runs.progress import stage_progress
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.combat.scripted import REFERENCES, references
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_policies.agents.agent import Agent, StandIn
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, FrozenNetwork

#: A skill is called worse than chance where equal play would win as much more at random with at most this probability,
#: and how many fights are played for that at most: a second for all skills.
_FALSE_ALARM, _BY_CHANCE_EPISODES = 0.01, 200
#: The row of an agent whose every skill plays as it does.
NO_SKILL = "none"
#: Agents by the skill in which they differ from the whole one, and how that is played.
Variants = Mapping[tuple[str, str], Agent]


def agent_variants(agent: Agent, seed: int) -> Variants:
    """Return an agent, and it with each skill in turn at random, idle where it can be, and untrained, by the seed."""
    names = [skill.name for skill in agent.skills]
    return _variants(agent, {name: _untrained(agent.networks[name], seed, place) for place, name in enumerate(names)})


def scripted_variants(agent: Agent) -> Variants:
    """Return the scripted reference in an agent's place, at random and idle; nothing where a skill has no script."""
    names = [skill.name for skill in agent.skills]
    if not all(name in REFERENCES for name in names):
        return {}
    return _variants(replace(agent, replaced=references(names, agent.scenario)), {})


def _variants(agent: Agent, untrained: Mapping[str, FrozenNetwork]) -> Variants:
    variants = {(NO_SKILL, ""): agent}
    for skill in agent.skills:
        stand_ins: list[StandIn] = ["random"]
        if any(not (action.holds | action.presses) for action in skill.actions):
            stand_ins.append("idle")
        for stand_in in stand_ins:
            variants[skill.name, stand_in] = replace(agent, replaced={**agent.replaced, skill.name: stand_in})
        if skill.name in untrained:
            variants[skill.name, "untrained"] = agent.playing({skill.name: untrained[skill.name]})
    return variants


def played_rows(variants: Variants, seeds: Seeds, on_finished: OnFinished | None = None) -> Rows:
    """Play the same fights by every variant; return a row of each: its wins, and the points that it lost."""
    rates = {of: WinRate.of(evaluating.play(agent, seeds, on_finished).won) for of, agent in variants.items()}
    return [
        {"skill": skill, "played": played, **rate.columns(), "lost_points": rates[NO_SKILL, ""].percent - rate.percent}
        for (skill, played), rate in rates.items()
    ]


def worse_than_chance(
    agent: Agent, episodes: int, console: Console | None = None
) -> dict[str, tuple[WinRate, WinRate]]:
    """Return each skill that chance plays better, with the win rates at random and as trained in the same fights.

    What a skill is rewarded for may not be what wins the fight. Fights that only one of the two wins decide (a
    one-sided sign test).
    """
    seeds = evaluating.evaluation_seeds(EVALUATION_SEED, min(episodes, _BY_CHANCE_EPISODES))
    variants = {skill: one for (skill, played), one in _variants(agent, {}).items() if played in ("", "random")}
    with stage_progress("each skill at random", len(seeds) * len(variants), console, unit="episodes") as progress:
        won = {skill: evaluating.play(one, seeds, progress.advance).won for skill, one in variants.items()}
    trained, found = won.pop(NO_SKILL), {}
    for skill, chance in won.items():
        more, fewer = int((chance & ~trained).sum()), int((trained & ~chance).sum())
        # The probability of as many or more where both are as good.
        if more and bdtrc(more - 1, more + fewer, 0.5) <= _FALSE_ALARM:
            found[skill] = WinRate.of(chance), WinRate.of(trained)
    return found


def _untrained(network: FrozenNetwork | Sequence[FrozenNetwork], seed: int, skill: int) -> FrozenNetwork:
    """Return a network of the same layers, drawn as PyTorch draws them: uniform within 1 / sqrt(inputs)."""
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


@dataclass(frozen=True)
class Ablations:
    """What agents lost, by seed, and the scripted reference: rows of skill, how it was played, wins, points lost."""

    by_seed: Mapping[int, Rows]
    #: Empty where a skill has no script.
    scripted: Rows

    @property
    def frame(self) -> pd.DataFrame:
        """The rows of every seed."""
        frame = by_seed_frame(self.by_seed)
        return frame.assign(percent=100.0 * frame["rate"])

    def over_seeds(self) -> pd.DataFrame:
        """Return the mean win rate of each setting and the points lost, paired by seed, with intervals over seeds."""
        by = ["skill", "played"]
        rates = summary(self.frame, by, "percent", {"seeds": "seeds", "mean": "win_percent"})
        return rates.merge(summary(self.frame, by, "lost_points", {"mean": "lost_points"}), on=by)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values for JSON."""
        return {"rows": records(self.over_seeds()), "seeds": records(self.frame), "scripted": [*self.scripted]}

    @property
    def tables(self) -> list[Table]:
        """Of one seed its wins, of several the means; and those of the scripted reference."""
        first, *others = self.by_seed.values()
        tables = [_table("What each skill is worth to the agent", first)]
        if others:
            tables = seed_tables("What each skill is worth to agents", self.frame, self.over_seeds())
        scripted = _table("What each skill is worth to the scripted reference", self.scripted)
        return [*tables, scripted] if self.scripted else tables

    def to_rich(self) -> list[RenderableType]:
        """Return it for the terminal."""
        return [table.to_rich() for table in self.tables]


def _table(title: str, rows: Rows) -> Table:
    cells = [
        (row["skill"], row["played"], f"{row['wins']}/{row['episodes']}  {100 * row['rate']:.1f} %",
         f"{row['lost_points']:+.1f}") for row in rows
    ]  # fmt: skip
    return Table(title, ("skill", "played", "wins", "points lost"), cells)


def runs_by_seed(runs: Iterable[RunFolder]) -> dict[int, RunFolder]:
    """Return runs that differ in nothing but their seed by seed, in the order given.

    Raises:
        SoulsGraphError: if two have the same seed, or their plans differ otherwise.
    """
    found: dict[int, RunFolder] = {}
    for run in runs:
        first = next(iter(found.values()), run)
        if run.plan.seed in found:
            raise SoulsGraphError(
                f"{run.path}: expected a run of another seed than {found[run.plan.seed].path}, found seed "
                f"{run.plan.seed} again; name each seed once."
            )
        if replace(run.plan, seed=first.plan.seed) != first.plan:
            raise SoulsGraphError(
                f"{run.path}: expected the plan of {first.path} but for its seed, found another; "
                "compare runs of one plan, others by a call of their own."
            )
        found[run.plan.seed] = run
    return found


def measure_ablations(
    runs: Mapping[int, RunFolder],
    scenario: str,
    episodes: int,
    seed: int = EVALUATION_SEED,
    start: str | None = None,
    console: Console | None = None,
) -> Ablations:
    """Measure what the runs' agents, by seed, and the scripted reference lose in a scenario, in the same fights.

    Raises:
        SoulsGraphError: before anything is played, if a skill is missing or damaged, a name unknown, a number out of
            range, or the runs would play versions trained on different scenarios.
    """
    sources = {of: evaluating.source_of(run, scenario) for of, run in runs.items()}
    if len({*sources.values()}) > 1:
        found = ", ".join(f"{source} for seed {of}" for of, source in sources.items())
        raise SoulsGraphError(
            f"ablations: expected every seed to play the versions of one scenario, found those of {found}; adapt all "
            "of them to it, or leave one to a call of its own."
        )
    agents = {of: evaluating.make_agent(run, Setting(scenario, sources[of], start)) for of, run in runs.items()}
    variants = {of: agent_variants(agent, of) for of, agent in agents.items()}
    scripted, seeds = scripted_variants(next(iter(agents.values()))), evaluating.evaluation_seeds(seed, episodes)
    total = episodes * sum(map(len, (*variants.values(), scripted)))
    with stage_progress("ablations", total, console, unit="episodes") as progress:
        by_seed = {of: played_rows(each, seeds, progress.advance) for of, each in variants.items()}
        return Ablations(by_seed, played_rows(scripted, seeds, progress.advance))
