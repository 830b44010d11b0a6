"""The space that a sweep searches: lists of values, and ranges, of options of the learner by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_type_hints

from soulsgraph_envs.core.config import Where, read_file, require, validate
from soulsgraph_envs.core.errors import UnknownNameError, plain_number, shown
from soulsgraph_policies.learning.hyperparameters import OPTION_NAMES, SKILL_OPTION_NAMES, DQNHyperparameters, Preset

Search = Literal["grid", "random", "optuna"]
#: The keys of a table that is a range; any other table holds the options of one skill.
_RANGE_KEYS = {"low", "high"}
#: Settings of a grid that are checked, and trained at most.
MOST_SETTINGS = 10_000


@dataclass(frozen=True)
class SearchRange:
    """Numbers from `low` to `high` to draw from, in equal measure, or with `log` of their logarithms.

    Raises:
        DataError: if it is empty, or cannot have logarithms.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        require(self.low < self.high, "low", f"be less than high, {plain_number(self.high)}")
        require(self.low > 0.0 or not self.log, "low", "be more than 0 with log")

    def ends(self, whole: bool) -> tuple[float, float]:
        """Return both ends, as whole numbers for an option that is one."""
        return (int(self.low), int(self.high)) if whole else (self.low, self.high)


@dataclass(frozen=True)
class SearchSpace:
    """Options of the learner by name, those of one skill as dodge.gamma: their values, or the range they are in."""

    lists: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ranges: Mapping[str, SearchRange] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all options."""
        return (*self.lists, *self.ranges)

    def grid(self) -> Iterator[dict[str, Any]]:
        """Yield every combination of the lists' values."""
        return (dict(zip(self.lists, values, strict=True)) for values in product(*self.lists.values()))

    def corners(self) -> Iterator[dict[str, Any]]:
        """Yield the first value of every option, and each other value or end of a range beside those of the others."""
        ends = {name: one.ends(is_whole(name)) for name, one in self.ranges.items()}
        values: dict[str, Sequence[Any]] = {**self.lists, **ends}
        first = {name: known[0] for name, known in values.items()}
        return (first | {name: value} for name, known in values.items() for value in known)

    def domains(self, search: Search) -> dict[str, Any]:
        """Return the space as Ray Tune has it."""
        # Imported here: it takes seconds.
        from ray import tune

        choose = tune.grid_search if search == "grid" else tune.choice
        listed = {name: choose([*values]) for name, values in self.lists.items()}
        drawn = {}
        for name, one in self.ranges.items():
            whole = is_whole(name)
            low, high = one.ends(whole)
            equal, logarithmic = (tune.randint, tune.lograndint) if whole else (tune.uniform, tune.loguniform)
            drawn[name] = (logarithmic if one.log else equal)(low, high + whole)
        return {**listed, **drawn}

    def clipped(self, setting: Mapping[str, Any]) -> dict[str, Any]:
        """Return a setting with every number within its range."""
        ends = {name: one.ends(is_whole(name)) for name, one in self.ranges.items()}
        return {**setting, **{name: min(max(setting[name], low), high) for name, (low, high) in ends.items()}}


def is_whole(option: str) -> bool:
    """Return whether an option, or that of a skill, is a whole number."""
    name = option.rpartition(".")[2]
    return (get_type_hints(Preset) | get_type_hints(DQNHyperparameters)).get(name) is int


def load_space(file: Path, skills: Sequence[str]) -> SearchSpace:
    """Read a TOML file of lists of values, `{low, high, log}`, and tables of these for some of the skills.

    Raises:
        DataError: for a file that cannot be read, or what is none of these.
        UnknownNameError: for an unknown option or skill.
    """
    where = Where(file)
    return read_space(read_file(where, "TOML"), where, skills)


def read_space(table: object, where: Where, skills: Sequence[str]) -> SearchSpace:
    """Read a space from nested tables, as `load_space`."""
    lists: dict[str, tuple[Any, ...]] = {}
    ranges: dict[str, SearchRange] = {}
    for name, value, at in _entries(table, where):
        skill, _, option = name.rpartition(".")
        known, kind = (SKILL_OPTION_NAMES, "option of a skill") if skill else (OPTION_NAMES, "option")
        with at.referring():
            if skill and skill not in skills:
                raise UnknownNameError("skill", skill, skills)
            if option not in known:
                raise UnknownNameError(kind, option, known)
        if isinstance(value, Mapping):
            ranges[name] = validate(SearchRange, value, at)
            continue
        if not isinstance(value, list | tuple) or not value:
            raise at.error("a list of values, or a table with low and high", shown(value))
        at.demand(all(one not in value[:index] for index, one in enumerate(value)), "each value once", shown([*value]))
        lists[name] = tuple(value)
    where.demand(bool(lists or ranges), "one option or more, as gamma = [0.98, 0.99]", "none")
    return SearchSpace(lists, ranges)


def _entries(table: object, where: Where, skill: str = "") -> Iterator[tuple[str, object, Where]]:
    if not isinstance(table, Mapping):
        raise where.error("a table of options", shown(table))
    for key, value in table.items():
        at = where.at(key)
        if isinstance(value, Mapping) and not skill and not _RANGE_KEYS & value.keys():
            yield from _entries(value, at, f"{key}.")
        else:
            yield f"{skill}{key}", value, at
