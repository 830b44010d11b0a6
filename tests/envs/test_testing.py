"""The contract test passes sound drivers and finds broken ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fakes.games import LossyGame
from soulsgraph_envs.core.game import Game
from soulsgraph_envs.core.state import Raw, RawValues
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.testing import check_game


@pytest.mark.parametrize(
    ("game", "lanes"), [(Simulator, 4), (Simulator, 1), (lambda lanes: LossyGame(Simulator(lanes), {}), 4)]
)
def test_sound_drivers_keep_the_contract(game: Callable[[int], Game], lanes: int) -> None:
    check_game(game, lanes=lanes)


class Spoilt(Simulator):
    """A simulator whose raw values are altered by a fault."""

    fault: Callable[[RawValues], object]

    def step(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        raw = super().step(*args, **kwargs).copy()
        self.fault(raw)
        return raw


@pytest.mark.parametrize(
    ("column", "value", "promise"),
    [
        (Raw.PLAYER_HP, np.nan, "finite"),
        (Raw.PLAYER_ANGLE, 4.0, "lies in"),
        (Raw.STAMINA, 96.0, "at most"),
        (Raw.BOSS_ANIMATION_TIME_S, 99.0, "within"),
        (Raw.LOCKED, 0.5, "0 or 1"),
    ],
)
def test_contract_finds_a_bad_value(column: Raw, value: float, promise: str) -> None:
    class Broken(Spoilt):
        def fault(self, raw: RawValues) -> object:
            raw[1, column] = value
            return None

    with pytest.raises(AssertionError, match=promise):
        check_game(Broken)


class Greedy(Simulator):
    """Its resets touch other lanes."""

    def reset(self, lanes, scenario, seeds):  # type: ignore[no-untyped-def]
        return super().reset(np.arange(self.lanes), scenario, np.resize(seeds, self.lanes))


class Lenient(Simulator):
    """It swallows unknown controls."""

    def step(self, controls, active=None):  # type: ignore[no-untyped-def]
        return super().step(controls & np.uint32(0xFFF), active)


class Sideways(Simulator):
    """Its pictures have another size."""

    def render(self, lane=0, size=(90, 160)):  # type: ignore[no-untyped-def]
        return super().render(lane, size).swapaxes(0, 1)


class Random(Spoilt):
    """It draws from nowhere."""

    random = np.random.default_rng(0)

    def fault(self, raw: RawValues) -> object:
        raw[:, Raw.PLAYER_X] += self.random.random()
        return None


@pytest.mark.parametrize(
    ("game", "promise"),
    [(Greedy, "other lanes"), (Lenient, "exist"), (Sideways, "height"), (Random, "lanes|stands still|same course")],
)
def test_contract_finds_a_broken_driver(game: type[Simulator], promise: str) -> None:
    with pytest.raises(AssertionError, match=promise):
        check_game(game)
