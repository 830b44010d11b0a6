"""What determines a thing that is found again: a stage, a version, an arm, a result; compared before it is taken.

A name, a path or a budget alone identifies nothing. A key holds all that does, as plain values by name. It is kept
beside what it is of, or read from it, and compared with the key of what is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from soulsgraph.runs.plan import Plan, Stage, scenario_digest
from soulsgraph_envs.core.config import Where, canonical, read_file, read_value, to_json, to_table
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import slug, write_json

#: The file of a key in the folder of what it is of, where it lies there.
KEY = "key.json"
#: Digits of a digest in names.
_DIGITS = 8
#: A scenario whose files say something else by now, and the fight that it was.
_MARKED = re.compile(rf"(.+)#([0-9a-f]{{{_DIGITS}}})")
#: Options that came after digests of how a skill learns, by the value that learns as before they came: with it an
#: option does not count, and the digest stays what it was.
_CAME_LATER: Mapping[str, Any] = {}


def digest_of(values: object) -> str:
    """Return the SHA-256 of plain values."""
    return sha256(to_json(values, sort_keys=True, default=str).encode()).hexdigest()


def short(digest: str) -> str:
    """Return a digest as names have it."""
    return digest[:_DIGITS]


@dataclass(frozen=True)
class Key:
    """Plain values by name that together determine a thing; None where nobody recorded one."""

    values: Mapping[str, Any]

    def differing(self, found: Key) -> tuple[str, ...]:
        """Return what is known of both and differs; what only the found one names came after this version."""
        other = found.values
        known = [name for name, value in self.values.items() if value is not None and other.get(name) is not None]
        return tuple(name for name in known if _plain(self.values[name]) != _plain(other[name]))

    def unknown(self, found: Key) -> tuple[str, ...]:
        """Return what the found one does not say."""
        return tuple(name for name in self.values if found.values.get(name) is None)

    @property
    def digest(self) -> str:
        """A digest of all of it."""
        return digest_of(dict(self.values))


def _plain(value: object) -> object:
    """Return a value as a file has it: a tuple is a list there."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def read_key(file: Path) -> Key:
    """Return the key that a file holds; an empty one where there is none.

    Raises:
        DataError: if it is damaged.
    """
    if not file.exists():
        return Key({})
    where = Where(file, remedy="remove the file, and what it is the key of, to begin anew")
    return Key(read_value(Mapping[str, Any], read_file(where), where))


def write_key(file: Path, key: Key) -> None:
    """Write the key of what is to come; raises WriteError."""
    write_json(file, dict(key.values))


def in_words(names: tuple[str, ...]) -> str:
    """Return names of a key's values as a sentence has them."""
    return ", ".join(name.replace("_", " ") for name in names)


def plan_values(plan: Plan) -> dict[str, Any]:
    """Return a plan as values of a key, each option by itself: one that comes later is then missing in older keys."""
    table = canonical(to_table(plan))
    for name, value in table.pop("options").items():
        parts = value if isinstance(value, Mapping) else {"": value}
        table |= {f"options {name} {part}".strip(): one for part, one in parts.items()}
    return {f"{name} of the plan": "none" if value is None else value for name, value in table.items()}


def how_it_learns(plan: Plan, stage: Stage) -> str:
    """Return a digest of all that a skill learns by but its budget: hyperparameters, rewards, observations, lanes."""
    method, numbers = plan.method, asdict(plan.hyperparameters(stage))
    # A replay holds a part of the budget.
    del numbers["budget"], numbers["buffer_size"]
    lanes = plan.lanes or method.lanes
    learning = [_counted(numbers), _counted(to_table(plan.options)), lanes, method.steps_per_round]
    return digest_of(canonical(learning))


def _counted(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _counted(value) if isinstance(value, Mapping) else value
        for name, value in options.items()
        if name not in _CAME_LATER or value != _CAME_LATER[name]
    }


def marked(scenario: str, fight: str) -> str:
    """Return a scenario with the fight that it was, as it is called where its files say something else by now."""
    return f"{scenario}#{short(fight)}"


def unmarked(name: str) -> tuple[str, str]:
    """Return a scenario, and the first digits of the fight that it was; empty where it is what its files say."""
    found = _MARKED.fullmatch(name)
    return (found[1], found[2]) if found else (name, "")


def fight_label(scenario: str) -> str:
    """Return a scenario as names of files have it: with a digest where it is a file of one's own.

    Raises:
        SoulsGraphError: if its file is missing or damaged.
    """
    name, digits = unmarked(scenario)
    if name.endswith(".toml"):
        digits = digits or short(scenario_digest(name))
    return f"{slug(name)}-{digits}" if digits else slug(name)


def expect_fight(scenario: str, fight: str, of: str) -> None:
    """Refuse a scenario that became another fight since a thing was begun in it.

    Raises:
        SoulsGraphError: naming the scenario, the thing and both fights.
    """
    if (found := scenario_digest(scenario)) != fight:
        remedy = "restore it" if scenario.endswith(".toml") else "use the version of soulsgraph that it was begun with"
        raise SoulsGraphError(
            f"{scenario}: expected the fight that {of} was begun with ({short(fight)}), found that it changed "
            f"({short(found)}); {remedy}, or begin anew under another name."
        )
