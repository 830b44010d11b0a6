"""Sequences of fights to learn one after another, as data: tasks in order, budgets, and how each passed the filter.

A shipped sequence records the digest of every fight and the win rates by which it passed the filter. A file of one's
own may leave both out: `checked_tasks` plays the filter of what lacks one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import Annotated

from soulsgraph_envs.continual.boss_filter import (
    FilterResult,
    Share,
    check_boss,
    expect_playable,
    filter_result,
    passing,
)
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
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.files import write_text
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
    def boss_animations(self) -> int:
        """How many ids from 0 on hold every animation of its bosses; raises as `load_scenario` does."""
        scenarios = map(load_scenario, dict.fromkeys(self.scenarios))
        bosses = [load_boss(phase.boss) for scenario in scenarios for phase in scenario.phases()]
        ids = [move.id for boss in bosses for move in boss.moves]
        return max(ids + [other.id for boss in bosses for other in boss.animations.known().values()], default=-1) + 1

    def budget_at(self, position: int) -> int:
        """Return the decisions for the task at a position, 0 for the first."""
        return self.budget if position else self.first_budget


@dataclass(frozen=True)
class SequenceRecipe:
    """How a sequence is made: the first bosses of a family, from a seed on, that pass the filter.

    It goes through them `rounds` times. `kinds` are kinds of labelled shifts, one a task, in their order.
    """

    family: str
    tasks: int
    first_seed: int
    rounds: int = 1
    kinds: Sequence[str] = ()


#: The first is the fight that the others are shifts of; the second such is a shift that changes nothing.
_S8 = ("none", "lock-view", "arena", "moves", "camera-reversed", "blow", "camera-speed", "none")
#: The shipped sequences. Those to choose hyperparameters on have bosses of their own, of smaller seeds.
RECIPES: Mapping[str, SequenceRecipe] = {
    "S8": SequenceRecipe("labelled", 8, 10_001, kinds=_S8),
    "S20": SequenceRecipe("timing", 20, 10_001),
    "C20": SequenceRecipe("conflict", 20, 10_001),
    "O20": SequenceRecipe("own", 20, 10_001),
    "S100": SequenceRecipe("timing", 100, 10_001),
    "R20": SequenceRecipe("timing", 10, 10_001, rounds=2),
    "S8-choose": SequenceRecipe("labelled", 8, 1, kinds=_S8),
    "S20-choose": SequenceRecipe("timing", 6, 1),
    "C20-choose": SequenceRecipe("conflict", 6, 1),
}
#: Bosses that are in no sequence, to measure how well an agent still learns: how many are recorded, and from which
#: seed on.
HELD_OUT_BOSSES, HELD_OUT_SEED = 12, 20_001


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
    places = [Where(path).at("tasks").at(index) for index in range(len(loaded.tasks))]
    pairs = zip(loaded.tasks, places, strict=True)
    tasks = tuple(replace(task, scenario=reference(task.scenario, path, at.at("scenario"))) for task, at in pairs)
    for task, place in zip(tasks, places, strict=True):
        _check_digest(task, place)
    return replace(loaded, tasks=tasks)


def held_out(family: str, count: int) -> tuple[ContinualTask, ...]:
    """Return bosses of a family that are in no shipped sequence and pass the filter, recorded ones first.

    Raises:
        UnknownNameError: if no bosses of that family are recorded.
        SoulsGraphError: as `load_sequence`.
    """
    if family not in (known := shipped_names("held-out bosses")):
        raise UnknownNameError("family with held-out bosses", family, known)
    path = find("held-out bosses", family)
    tasks = load_data("held-out bosses", ContinualSequence, path).tasks
    for index, task in enumerate(tasks[:count]):
        _check_digest(task, Where(path).at("tasks").at(index))
    if count > len(tasks):
        following = int(tasks[-1].scenario.rpartition("/")[2]) + 1
        found = passing(family, following, count - len(tasks))
        tasks += tuple(_recorded(name, result) for name, result in found)
    return tasks[:count]


def checked_tasks(sequence: ContinualSequence) -> ContinualSequence:
    """Return a sequence with every task's win rates, playing the filter where some or their digest are missing.

    Raises:
        SoulsGraphError: naming the first fight that fails the filter.
    """
    tasks = []
    for task in sequence.tasks:
        result = task.result or _played(task.scenario, fight_digest(task.scenario))
        expect_playable(task.scenario, result)
        tasks.append(_recorded(task.scenario, result))
    return replace(sequence, tasks=tuple(tasks))


@lru_cache(maxsize=1024)
def _played(scenario: str, digest: str) -> FilterResult:
    """Return what the filter says of a scenario; the digest is that of its fight, which a file may change."""
    return check_boss(scenario)


def fight_digest(scenario: str) -> str:
    """Return a digest of everything that a fight's data say; raises as `load_scenario` does."""
    if is_generated(scenario):
        return _generated_digest(scenario)
    load_scenario(scenario)
    return digest_of(fight_tables(scenario))


@lru_cache(maxsize=1024)
def _generated_digest(scenario: str) -> str:
    """Return the digest of a generated fight, which no file can change while this process runs, nor a user get wrong.

    It is not loaded: that takes several times as long, and a sequence has a hundred.
    """
    return digest_of(fight_tables(scenario))


def make_sequence(name: str, recipe: SequenceRecipe) -> ContinualSequence:
    """Make a sequence: choose the first bosses that pass the filter.

    Raises:
        SoulsGraphError: if the family has none.
    """
    tasks = tuple(_recorded(found, result) for found, result in _chosen(recipe))
    return ContinualSequence(name, tasks * recipe.rounds, recipe.family)


def _chosen(recipe: SequenceRecipe) -> Iterator[tuple[str, FilterResult]]:
    if not recipe.kinds:
        yield from passing(recipe.family, recipe.first_seed, recipe.tasks)
        return
    seed = recipe.first_seed
    for kind in islice(recipe.kinds, recipe.tasks):
        (found,) = passing(f"{recipe.family}-{kind}", seed, 1)
        yield found
        seed = int(found[0].rpartition("/")[2]) + 1


def write_sequence(sequence: ContinualSequence, path: Path) -> None:
    """Write a sequence as a TOML file; raises WriteError."""
    heading = f'name = "{sequence.name}"\nfamily = "{sequence.family}"\n'
    heading += f"first_budget = {sequence.first_budget}\nbudget = {sequence.budget}\n"
    write_text(path, heading + "".join(map(_table, sequence.tasks)))


def write_shipped(folder: Path, families: Sequence[str] = ("timing", "conflict", "own", "labelled")) -> list[Path]:
    """Write every shipped sequence, and each family's held-out bosses, below a folder; return the files.

    It takes a CPU minute for each hundred bosses. Raises as `make_sequence`, and WriteError.
    """
    recipes = {Path("sequences") / f"{name}.toml": recipe for name, recipe in RECIPES.items()}
    for family in families:
        kept = SequenceRecipe(family, HELD_OUT_BOSSES, HELD_OUT_SEED)
        recipes[Path("held_out") / f"{family}.toml"] = kept
    for file, recipe in recipes.items():
        write_sequence(make_sequence(file.stem, recipe), folder / file)
    return [folder / file for file in recipes]


def _table(task: ContinualTask) -> str:
    lines = [f'scenario = "{task.scenario}"', f'digest = "{task.digest}"' if task.digest else ""]
    shares = {"oracle": task.oracle, "random": task.random, "undodged": task.undodged}
    lines += [f"{key} = {share!r}" for key, share in shares.items() if share is not None]
    return "\n[[tasks]]\n" + "".join(f"{line}\n" for line in lines if line)


def _recorded(scenario: str, result: FilterResult) -> ContinualTask:
    return ContinualTask(scenario, fight_digest(scenario), result.oracle, result.random, result.undodged)


def _check_digest(task: ContinualTask, where: Where) -> None:
    """Refuse a scenario that is unknown, or another fight than was recorded."""
    with where.at("scenario").referring():
        found = fight_digest(task.scenario)
    if task.digest and found != task.digest:
        what = "generates" if is_generated(task.scenario) else "says"
        raise SoulsGraphError(
            f"{where.file}: {where.key}: expected {task.scenario} to be the fight with the digest "
            f"{task.digest[:8]}, found that this version {what} another ({found[:8]}); use the version of soulsgraph "
            "that the sequence was made with, or leave out the digest and the win rates to have the fight checked anew."
        )
