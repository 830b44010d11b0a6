"""Resolve the bases of an address map in a running game: by their patterns, else by their fixed distance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from soulsgraph_envs.live.link import RefusedError
from soulsgraph_envs.memory.address_map import AddressMap, Base
from soulsgraph_envs.memory.pe import compile_pattern, file_version
from soulsgraph_envs.memory.reader import BadAddressError, Module, Reader


class ResolvedBase(NamedTuple):
    """The address of a base and how it was found: by "pattern" or "rva", with a note on anything unusual."""

    address: int
    dereference: bool
    found_by: str
    note: str = ""

    def start(self, reader: Reader) -> int:
        """Return the address that chains start from, 0 while the game has no object there."""
        return reader.read_pointer(self.address) if self.dereference else self.address


def read_version(reader: Reader, module: Module) -> str:
    """Return the file version of a module, such as "1.15.2.0"; empty if it has none that can be read."""
    header = reader.header(module)
    if header is None or not header.resources[1]:
        return ""
    rva, size = header.resources
    try:
        return file_version(reader.read(module.base + rva, size), rva)
    except BadAddressError:
        return ""


def resolve_bases(reader: Reader, module: Module, address_map: AddressMap) -> dict[str, ResolvedBase]:
    """Find every base that needs no injected code.

    Raises:
        RefusedError: naming the bases that were not found, and the game's version if it is another one.
    """
    version = read_version(reader, module)
    other = bool(version and address_map.version) and version != address_map.version
    bases = {name: base for name, base in address_map.bases.items() if not base.hook}
    patterns = {name: compile_pattern(base.pattern) for name, base in bases.items() if base.pattern}
    matches = reader.scan(module, patterns)
    found = {name: _resolve(reader, module, base, matches.get(name, []), other) for name, base in bases.items()}
    lost = [name for name, resolved in found.items() if resolved is None]
    if lost:
        found_version = f" in version {version}" if version else ""
        raise RefusedError(
            f"{address_map.name}: expected {address_map.game} {address_map.version}, found no {', '.join(lost)}"
            f"{found_version}; use that version of the game, or a map of this one."
        )
    return {name: resolved for name, resolved in found.items() if resolved}


def _resolve(reader: Reader, module: Module, base: Base, matches: list[int], other: bool) -> ResolvedBase | None:
    targets = {_target(reader, base, match) for match in matches}
    fixed = module.base + base.rva
    inside = {target for target in targets if module.base <= target < module.base + module.size}
    if len(inside) == 1 or (base.rva and fixed in inside):
        address = fixed if base.rva and fixed in inside else inside.pop()
        note = "" if not base.rva or address == fixed else f"its rva is {address - module.base:#x} here"
        return ResolvedBase(address, base.dereference, "pattern", note)
    if not base.rva or (other and base.pattern):
        return None
    note = "the game's version is another" if other else ""
    if base.pattern:
        note = f"its pattern was found {len(matches)} times"
    return ResolvedBase(fixed, base.dereference, "rva", note)


def _target(reader: Reader, base: Base, match: int) -> int:
    return match + base.length + int(reader.read_value(match + base.displacement_at, "i32"))


def notes(resolved: Mapping[str, ResolvedBase]) -> list[str]:
    """Return the notes on the bases, one sentence each."""
    return [f"{name}: by {base.found_by}, {base.note}" for name, base in resolved.items() if base.note]
