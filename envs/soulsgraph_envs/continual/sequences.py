"""Sequences of fights to learn one after another, as data: tasks in order, budgets, and how each passed the filter.

A shipped sequence records the digest of every fight and the win rates by which it passed the filter. A file of one's
own may leave both out: `check_tasks` plays the filter of what lacks one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated

from soulsgraph_envs.continual.boss_filter import FilterResult, Share, check_boss, filter_result
from soulsgraph_envs.continual.generator import shift_of
from soulsgraph_envs.core.config import (
    Between,
    NonEmpty,
    Where,
    digest_of,
    find,
    is_generated,
    load_data,
    reference,
    shipped_names,
)
from soulsgraph_envs.core.errors import DataError, SoulsGraphError
from soulsgraph_envs.core.scenario import fight_tables, load_boss, load_scenario

#: Decisions of all learning skills together for a task of a sequence, and for its first.
BUDGET, FIRST_BUDGET = 80_000, 230_000

Budget = Annotated[int, Between(1, 10**9)]


@dataclass(frozen=True)
class ContinualTask:
    """A fight of a sequence: a scenario by its name or file, the digest of what it says, and its win rates.

    `oracle`, `random` and `undodged` are those of scripted play that sees ahead, of random play, and of the first
    without ever dodging; a file of your own may leave them out.
    """

    scenario: str
    digest: str = ""
    oracle: Share | None = None
    random: Share | None = None
    undodged: Share | None = None

    @property
    def result(self) -> FilterResult | None:
        """What its recorded win rates say; None where one that is asked for is missing, or whose they are.

        Without a digest nobody knows which fight had them.
        """
        if not self.digest or self.oracle is None or self.random is None:
            return None
        if self.undodged is None and shift_of(self.scenario) is None:
            return None
        return filter_result(self.scenario, self.oracle, self.random, self.undodged)


@dataclass(frozen=True)
class ContinualSequence:
    """Fights to learn one after another; the same one may come again.

    `budget` and `first_budget` are decisions of all learning skills together for a task and for the first one. `family`
    is that of its generated bosses, empty where there is no one such.
    """

    name: str
    tasks: NonEmpty[ContinualTask]
    family: str = ""
    first_budget: Budget = FIRST_BUDGET
    budget: Budget = BUDGET

    @property
    def scenarios(self) -> tuple[str, ...]:
        """The scenario of every task, in order."""
        return tuple(task.scenario for task in self.tasks)

    @cached_property
    def boss_animations(self) -> tuple[int, ...]:
        """The ids of all animations of its bosses, rising; raises as `load_scenario` does."""
        scenarios = map(load_scenario, dict.fromkeys(self.scenarios))
        bosses = [load_boss(phase.boss) for scenario in scenarios for phase in scenario.phases()]
        return tuple(sorted({number for boss in bosses for number in boss.ids}))

    def budget_at(self, position: int) -> int:
        """Return the decisions for the task at a position, 0 for the first."""
        return self.budget if position else self.first_budget


def sequence_names() -> tuple[str, ...]:
    """Name the sequences that are shipped."""
    return shipped_names("sequence")


def load_sequence(name_or_path: str | Path) -> ContinualSequence:
    """Load a sequence by its name or file, and check that its fights are those that were recorded.

    Raises:
        UnknownNameError: if nothing of that name is shipped, or a task names an unknown scenario.
        DataError: for a missing, misspelt, mistyped or out-of-range value, and for a fight that changed.
    """
    path = find("sequence", name_or_path)
    loaded = load_data("sequence", ContinualSequence, path)
    tasks = []
    for index, task in enumerate(loaded.tasks):
        where = Where(path).at("tasks", index, "scenario")
        scenario = reference(task.scenario, path, where)
        with where.referring():
            digest = fight_digest(scenario)
        if task.digest and digest != task.digest:
            what = "generates" if is_generated(scenario) else "says"
            expected = f"{scenario} to be the fight with the digest {task.digest[:8]}"
            raise DataError(
                f"{where.prefix}expected {expected}, found that this version {what} another ({digest[:8]})",
                "use the version of soulsgraph that the sequence was made with, or leave out the digest and the win "
                "rates to have the fight checked anew",
            )
        tasks.append(replace(task, scenario=scenario))
    return replace(loaded, tasks=tuple(tasks))


def held_out(family: str, count: int) -> tuple[ContinualTask, ...]:
    """Return at most twelve bosses of a family that are in no shipped sequence and pass the filter.

    Raises:
        UnknownNameError: if no bosses of that family are recorded.
        DataError: for a fight that changed.
    """
    return load_sequence(find("held-out bosses", family)).tasks[:count]


def check_tasks(sequence: ContinualSequence) -> None:
    """Refuse a fight that fails the filter, which is played where win rates or the digest are missing.

    Raises:
        SoulsGraphError: naming the first such fight, and what failed.
    """
    for task in dict.fromkeys(sequence.tasks):
        result = task.result or _played(task.scenario, fight_digest(task.scenario))
        if not result.passed:
            raise SoulsGraphError(
                f"{task.scenario}: expected a fight that passes the filter, found {result.reason}; choose another seed "
                "or scenario."
            )


@lru_cache(maxsize=256)
def _played(scenario: str, digest: str) -> FilterResult:
    # A file that was edited is another fight: by its digest it is played anew.
    return check_boss(scenario)


def fight_digest(scenario: str) -> str:
    """Return a digest of everything that a fight's data say; raises as `load_scenario` does."""
    # Generated fights are not loaded: that takes several times as long, and a sequence has a hundred.
    if not is_generated(scenario):
        load_scenario(scenario)
    return digest_of(fight_tables(scenario))
