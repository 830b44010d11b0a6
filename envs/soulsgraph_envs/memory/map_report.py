"""Read and check every entry of an address map once, for a report of what is reliable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite, pi

from soulsgraph_envs.live.fields import FIELDS, Reading
from soulsgraph_envs.memory.address_map import AddressMap
from soulsgraph_envs.memory.game_memory import GameMemory
from soulsgraph_envs.memory.reader import BadAddressError

#: What a plausible number lies in, by unit.
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "m": (-1e5, 1e5),
    "rad": (-pi - 1e-3, pi + 1e-3),
    "points": (-100.0, 1e7),
    "count": (0.0, 99.0),
    "flag": (0.0, 1.0),
    "flag for everyone": (0.0, 1.0),
    "unit vector": (-1.001, 1.001),
    "s": (0.0, 1e7),
    "factor": (0.0, 10.0),
    "pixels": (1.0, 16384.0),
}
_LEVELS = ("player_hp", "player_stamina", "boss_hp", "frost_resistance")


@dataclass(frozen=True)
class EntryReport:
    """One entry, read once: its address and value, or the reason why it cannot be read.

    An entry that is not `verified` names in `fallback` what is used if it is wrong.
    """

    name: str
    address: int | None
    value: float | str | None
    plausible: bool
    verified: bool
    fallback: str
    source: str
    problem: str = ""


def inspect_map(memory: GameMemory) -> list[EntryReport]:
    """Read every readable entry by itself, so that a broken one hides no other.

    Raises:
        ProcessGoneError: if the game has ended.
    """
    names = sorted(memory.address_map.readable())
    found: dict[str, tuple[int, float | str]] = {}
    problems: dict[str, str] = {}
    for name in names:
        try:
            found[name] = memory.look_up(name)
        except BadAddressError as error:
            problems[name] = str(error)
    values = {name: value for name, (_, value) in found.items()}
    problems |= {name: trouble for name in values if (trouble := implausible(name, values))}
    return [_report(memory.address_map, name, found.get(name, (None, None)), problems.get(name, "")) for name in names]


def implausible(name: str, values: Reading) -> str:
    """Return what is wrong with a field's value, given the others; an empty text if nothing is."""
    value = values[name]
    if isinstance(value, str):
        return "" if value.isprintable() and value else f"expected a name, found {value!r}"
    low, high = _BOUNDS.get(FIELDS[name].unit, (-inf, inf))
    if not isfinite(value) or not low <= value <= high:
        return f"expected {FIELDS[name].unit} from {low:g} to {high:g}, found {value:g}"
    most = values.get(f"{name}_max", inf)
    if name in _LEVELS and isinstance(most, float) and value > most:
        return f"expected at most {name}_max, {most:g}, found {value:g}"
    return ""


def _report(
    address_map: AddressMap, name: str, found: tuple[int | None, float | str | None], problem: str
) -> EntryReport:
    entry = address_map.entry(name)
    source = entry.source or address_map.source
    return EntryReport(name, *found, not problem, entry.verified, entry.fallback, source, problem)
