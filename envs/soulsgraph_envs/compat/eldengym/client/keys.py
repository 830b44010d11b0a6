"""EldenGym's keys, actions and fights as data, and what a key means to the simulated fight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from soulsgraph_envs.core.config import Between, Where, load, read_file, read_table, read_value
from soulsgraph_envs.core.errors import UnknownNameError
from soulsgraph_envs.core.state import Control

DATA = Path(__file__).parents[3] / "data" / "eldengym"
_SECONDS = Between(0.0, 60.0)


@dataclass(frozen=True)
class Tap:
    """Keys going down one after the other, staying down together, coming up in reverse order."""

    keys: tuple[str, ...] = ()
    hold_ms: Annotated[int, Between(0, 10_000)] = 0
    delay_ms: Annotated[int, Between(0, 10_000)] = 0


@dataclass(frozen=True)
class MenuWay:
    """Keys tapped one after the other to get through a menu, and how long the game takes afterwards."""

    keys: tuple[str, ...]
    hold_ms: Annotated[int, Between(0, 10_000)]
    pause_s: Annotated[float, _SECONDS]
    then_s: Annotated[float, _SECONDS]


@dataclass(frozen=True)
class KeyData:
    """The file `data/eldengym/keys.toml`; what its tables mean stands there."""

    keys: dict[str, Control]
    modified: dict[str, dict[str, Control]]
    without_effect: dict[str, str]
    multi_binary: Tap
    discrete: dict[str, Tap]
    toggled: dict[str, str]
    menu: dict[str, MenuWay]

    @property
    def names(self) -> frozenset[str]:
        """Every key in the file."""
        return frozenset((*self.keys, *self.modified, *self.without_effect))


@cache
def load_keys() -> KeyData:
    """Load the shipped keys and actions.

    Raises:
        DataError: for a value of another type, or a control or key that does not exist.
    """
    where = Where(DATA / "keys.toml")
    data = load(KeyData, where)
    used = {"multi_binary": data.multi_binary.keys} | {name: tap.keys for name, tap in data.discrete.items()}
    for name, keys in (used | {name: (key,) for name, key in data.toggled.items()}).items():
        for key in keys:
            where.at(name).demand(key in data.names, f"one of {', '.join(sorted(data.names))}", repr(key))
    return data


def read_bindings(path: Path) -> dict[str, str]:
    """Read a file of key bindings as version 0.6.0 ships them: JSON, `{"actions": {name: {"index", "key"}}}`.

    Returns the key of every action, in the order of their indices.

    Raises:
        DataError: if the file is not of that kind.
    """
    where, table = Where(path), Mapping[str, Any]
    values = read_value(table, read_file(where, "JSON"), where)
    actions = read_value(Mapping[str, table], values.get("actions"), where.at("actions"))  # type: ignore[valid-type]
    for name, action in actions.items():
        for key, kind in (("index", int), ("key", str)):
            read_value(kind, action.get(key), where.at("actions").at(name).at(key))
    return {name: actions[name]["key"] for name in sorted(actions, key=lambda name: actions[name]["index"])}


@dataclass(frozen=True)
class FightStart:
    """The fog wall, in global coordinates, and what to press before and behind it."""

    fog_wall_m: Annotated[tuple[float, float, float], Between(-1e6, 1e6)]
    mouse_pixels: Annotated[int, Between(-10_000, 10_000)]
    settle_s: Annotated[float, _SECONDS]
    enter: Tap
    #: A player who passed the wall is so far from it at least.
    passed_m: Annotated[float, Between(0.0, 100.0)]
    #: Player and boss who are nearer than this are fighting.
    fight_m: Annotated[float, Between(0.0, 1000.0)]
    inside_s: Annotated[float, _SECONDS]
    lock_on: Tap


def fight_name(scenario: str) -> str:
    """Return a scenario's own name, "margit" for Margit and version 0.6.0's Margit-v0."""
    return scenario.lower().removesuffix("-v0")


def load_fight(scenario: str) -> FightStart:
    """Load how a scenario's fight begins.

    Raises:
        UnknownNameError: if that is not known.
        DataError: for a missing or mistyped value.
    """
    where, name = Where(DATA / "fights.toml"), fight_name(scenario)
    values = read_file(where)
    if name not in values:
        raise UnknownNameError("fight of Elden Ring", scenario, values)
    return read_table(FightStart, values[name], where.at(name))


def without_effect(keys: Iterable[str], supported: Control) -> dict[str, str]:
    """Return those of the keys that do nothing in a fight with these controls, with what they are for."""
    data = load_keys()
    found = {}
    for key in keys:
        meanings = [table[key] for table in (data.keys, *data.modified.values()) if key in table]
        meanings += data.modified.get(key, {}).values()
        if key in data.without_effect:
            found[key] = data.without_effect[key]
        elif not any(meaning & supported for meaning in meanings):
            found[key] = ", ".join(f"{meaning.name}" for meaning in dict.fromkeys(meanings)).lower().replace("_", " ")
    return found


_DIRECTIONS = Control.FORWARD | Control.BACK | Control.LEFT | Control.RIGHT


class KeyTranslator:
    """The keys that are down, and the controls they mean frame by frame."""

    def __init__(self) -> None:
        self._down: list[str] = []
        self._fresh = Control.NONE

    def check(self, keys: Sequence[str]) -> None:
        """Raise `UnknownNameError` for a key that means nothing here."""
        for key in keys:
            if key not in load_keys().names:
                raise UnknownNameError("key", key, sorted(load_keys().names))

    def set(self, key: str, down: bool) -> None:
        """Send a key down or up; nothing happens if it is in that state already."""
        self.check([key])
        if down and key not in self._down:
            self._fresh |= self._meaning(key) & ~_DIRECTIONS
            self._down.append(key)
        elif not down and key in self._down:
            self._down.remove(key)

    def controls(self) -> Control:
        """Return the controls of the next frame: what is held, and what was pressed since the last one."""
        taken, self._fresh = self._fresh, Control.NONE
        for key in self._down:
            taken |= self._meaning(key) & _DIRECTIONS
        return taken

    def _meaning(self, key: str) -> Control:
        data = load_keys()
        tables = [data.modified[other] for other in self._down if other in data.modified]
        return next((table[key] for table in (*tables, data.keys) if key in table), Control.NONE)
