"""How a driver of a real-time game brings it to a start: everything at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from fakes.realtime import FakeTable
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.games.episode_start import draw_start
from soulsgraph_envs.games.link import GameSettings

SCENARIO = load_scenario("iudex-phase1")


@pytest.mark.parametrize("reload_after_s", [1e-6, 900.0])
def test_keys_that_reach_nobody_end_the_reset(reload_after_s: float) -> None:
    table = FakeTable(GameSettings(reload_after_s=reload_after_s))
    table.reset()
    table.step()
    table.link.dropping = True
    with pytest.raises(GameError, match="keys"):
        table.reset(seed=1)


def spent_on_reset(table: FakeTable, seed: int) -> dict[str, float]:
    """Return the seconds by phase of a reset."""
    before = table.game.timing().reset_s
    table.reset(seed=seed)
    return {phase: spent - before.get(phase, 0.0) for phase, spent in table.game.timing().reset_s.items()}


def test_a_gate_that_answers_only_who_looks_at_it_is_passed() -> None:
    table = FakeTable(GameSettings(reload_after_s=1e-6))
    table.reset()
    world, tries = table.link.world, 0
    interact = world._interact
    seen = np.array([0.378, 0.926])

    def look_first() -> None:
        nonlocal tries
        tries += 1
        if np.array([world[Raw.CAMERA_X], world[Raw.CAMERA_Y]]) @ seen > 0.95:
            interact()

    world._interact = look_first  # type: ignore[method-assign]
    for seed in range(1, 4):
        table.step()
        spent_on_reset(table, seed)
        assert world.fighting
    assert tries > 3


def test_a_place_that_the_game_overwrites_is_written_again(table: FakeTable) -> None:
    write, play, undo_s = table.link.write, table.link.play, list[float]()

    def write_in_vain(values: Mapping[str, float]) -> None:
        write(values)
        if "boss_x" in values:
            undo_s.append(table.time.now_s + 0.05)

    def undo() -> None:
        """Undo the first two places soon after they were shown."""
        if len(undo_s) <= 2 and undo_s and undo_s[-1] < table.time.now_s:
            table.link.world.write({"boss_x": 141.0, "boss_y": 592.0})
        play()

    table.link.write, table.link.play = write_in_vain, undo  # type: ignore[method-assign]
    raw, drawn = table.reset(seed=4)[0], draw_start(SCENARIO, derive_seeds(np.array([4]), 1))
    assert len(undo_s) == 3
    np.testing.assert_allclose(raw[[Raw.BOSS_X, Raw.BOSS_Y]], drawn[[Raw.BOSS_X, Raw.BOSS_Y]], atol=0.2)


def test_the_clock_of_a_short_reset_is_measured_all_the_same() -> None:
    table = FakeTable(GameSettings(speed=3.0), without=frozenset({"game_speed"}))
    table.link.world.switches["game_speed"] = 3.0
    table.reset()
    table.step()
    # In the same place nothing has to be waited for.
    table.reset()
    table.link.world.switches["game_speed"] = 1.5
    with pytest.raises(GameError, match="speed"):
        table.reset()
