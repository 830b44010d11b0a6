"""Checks of a reading of the game, by any driver: whether it can be played."""

from __future__ import annotations

import time
from collections.abc import Callable

from soulsgraph_envs.doctor.check import Checks
from soulsgraph_envs.live.fields import FIELDS, Reading
from soulsgraph_envs.live.translation import supplied_raws
from soulsgraph_envs.memory.address_map import AddressMap
from soulsgraph_envs.memory.map_report import EntryReport, implausible
from soulsgraph_envs.skills import SKILL_NAMES, make_skill

_TIMED_READS = 50
#: Share of a control tick of 100 ms that reading may take.
_MOST_READ_MS = 20.0
#: SoulsGym's windows have this size, and its pictures are made of them.
_RESOLUTION = (800, 450)
_OFFLINE = "play offline (System, Network Settings, Launch Setting: Play Offline): online, others would be cheated"
_STANDING = "load a character, stand before the boss and run this again; if it stays, the map is not of this version"


def check_skills(checks: Checks, fields: frozenset[str]) -> None:
    """Check which skills can play on what the fields supply."""
    supplied = supplied_raws(fields)
    missing = {name: sorted({raw.name for raw in make_skill(name).needs} - supplied) for name in SKILL_NAMES}
    lacking = {name: raws for name, raws in missing.items() if raws}
    if not lacking:
        checks.ok("skills", f"all can play: {', '.join(SKILL_NAMES)}")
        return
    told = "; ".join(f"{name} lacks {', '.join(raws).lower()}" for name, raws in lacking.items())
    checks.warn("skills", told, "play by SoulsEnv or EldenGymEnv, or use a map that has these fields")


def check_entry(checks: Checks, entry: EntryReport) -> None:
    """Check one field that was read."""
    found = entry.problem or _shown(entry)
    if entry.verified:
        if entry.plausible:
            checks.ok(entry.name, found)
        else:
            checks.fail(entry.name, found, _STANDING)
    elif entry.plausible:
        checks.warn(entry.name, f"{found}, unverified", f"compare it with the game; in its place: {entry.fallback}")
    else:
        checks.warn(entry.name, f"{found}, unverified", f"nothing to do, in its place: {entry.fallback}")


def _shown(entry: EntryReport) -> str:
    shown = repr(entry.value)
    if isinstance(entry.value, float | int):
        unit = FIELDS[entry.name].unit
        number = f"{entry.value:.{0 if entry.value == int(entry.value) else 3}f}"
        shown = f"{number} ({unit})" if " " in unit else f"{number} {unit}"
    return shown if entry.address is None else f"{shown} at {entry.address:#x}"


def unaddressed(reading: Reading, address_map: AddressMap | None) -> list[EntryReport]:
    """Return the entries of a reading over the network, which has no addresses; its map says which are verified."""
    reports = []
    for name in sorted(reading):
        entry, problem = address_map and address_map.entry(name), implausible(name, reading)
        verified, fallback, source = (entry.verified, entry.fallback, entry.source) if entry else (True, "", "")
        reports.append(EntryReport(name, None, reading[name], not problem, verified, fallback, source, problem))
    return reports


def check_online(checks: Checks, reading: Reading) -> None:
    """Check that the game is offline, or warn if that cannot be read."""
    if "online" not in reading:
        checks.warn("offline mode", "cannot be read by this map", _OFFLINE)
    elif reading["online"]:
        checks.fail("offline mode", "the game is online", _OFFLINE)
    else:
        checks.ok("offline mode", "the game is offline")


def check_resolution(checks: Checks, width: int, height: int) -> None:
    """Check the size of the game's window."""
    remedy = "for pictures like SoulsGym's choose 800 x 450, windowed; states are not affected"
    checks.judge("resolution", (width, height) == _RESOLUTION, f"{width} x {height}", remedy)


def check_read_time(checks: Checks, read: Callable[[], Reading]) -> None:
    """Time whole readings; a failing one raises as `read` does."""
    times_ms = []
    for _ in range(_TIMED_READS):
        began_s = time.perf_counter()
        read()
        times_ms.append(1000 * (time.perf_counter() - began_s))
    median_ms = sorted(times_ms)[_TIMED_READS // 2]
    found = f"median {median_ms:.2f}, longest {max(times_ms):.2f} ms"
    remedy = "use a faster way to the game PC, such as a cable, and end programs that keep this one busy"
    checks.judge("time of a reading", median_ms < _MOST_READ_MS, found, remedy)
