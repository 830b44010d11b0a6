"""All checks of one game's settings, in the order of the page."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.doctor.check import Check, Checks
from soulsgraph_envs.doctor.machine import check_keyboard, check_machine
from soulsgraph_envs.doctor.memory_game import check_memory_game, check_siphon_game
from soulsgraph_envs.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.games import DRIVERS, SIMULATOR
from soulsgraph_envs.live.settings import GameSettings
from soulsgraph_envs.memory.address_map import load_address_map
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.streams import derive_seeds

_SCENARIO, _TICKS = "iudex-phase1", 1000


def examine(games: Sequence[GameSettings]) -> list[Check]:
    """Check this machine, then everything that each game's driver needs.

    Raises:
        UnknownNameError: if no driver has a game's name for it.
    """
    for settings in games:
        if settings.driver not in DRIVERS:
            raise UnknownNameError("game driver", settings.driver, DRIVERS)
    made = check_machine(reads_memory=any(settings.driver == "memory" for settings in games))
    for number, settings in enumerate(games, start=1):
        prefix = f"Game {number}: " if len(games) > 1 else ""
        made += [replace(check, topic=prefix + check.topic) for check in _EXAMINERS[settings.driver](settings)]
    return made


def _examine_memory(settings: GameSettings) -> list[Check]:
    return check_keyboard(settings.display, _bindings(settings)) + check_memory_game(settings)


def _bindings(settings: GameSettings) -> str:
    """Return the name of the settings' bindings, else their map's; "" for a map that cannot be read."""
    try:
        return settings.bindings or load_address_map(settings.map).bindings
    except SoulsGraphError:
        return ""


def _examine_simulator(settings: GameSettings) -> list[Check]:
    checks = Checks("The simulator")
    began_s = time.perf_counter()
    game = Simulator(1)
    game.reset(np.arange(1), load_scenario(_SCENARIO), derive_seeds(0, 1))
    game.step(np.zeros(1, np.uint32))
    compiled_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    for _ in range(_TICKS):
        game.step(np.zeros(1, np.uint32))
    rate = _TICKS / (time.perf_counter() - began_s)
    game.close()
    checks.ok("fight", f"{_SCENARIO}: ready in {compiled_s:.1f} s, {rate:,.0f} ticks a second of one lane")
    return checks.made


_EXAMINERS: Mapping[str, Callable[[GameSettings], list[Check]]] = {
    SIMULATOR: _examine_simulator,
    "memory": _examine_memory,
    "siphon": check_siphon_game,
}
