"""The contract test must find broken drivers, and the fake game broken callers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import gymnasium
import numpy as np
import pytest

from fakes.games import FakeGame, standing
from fakes.waiting import undisturbed
from soulsgraph_envs.core.errors import EpisodeLostError, GameError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import Control, Raw, RawValues
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.testing import check_agent_learns, check_game, sample_controls


def test_a_fight_is_tried_again_for_a_busy_machine_and_for_nothing_else() -> None:
    lost = [EpisodeLostError("the control loop stood still for 1.0 s of the fight"), EpisodeLostError("the boss left")]
    fights = iter([*lost, None])

    def fight() -> str:
        found = next(fights)
        if found is not None:
            raise found
        return "fought"

    with pytest.raises(EpisodeLostError, match="the boss left"):
        undisturbed(fight)
    assert undisturbed(fight) == "fought"


def test_simulator_keeps_the_contract() -> None:
    check_game(Simulator)


def test_fake_game_keeps_the_contract() -> None:
    check_game(FakeGame)


def test_contract_holds_for_a_single_lane() -> None:
    check_game(Simulator, lanes=1)


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


def test_contract_finds_hidden_randomness() -> None:
    rng = np.random.default_rng(0)

    class Random(Spoilt):
        def fault(self, raw: RawValues) -> object:
            raw[:, Raw.PLAYER_X] += rng.random()
            return None

    with pytest.raises(AssertionError, match=r"leaves other lanes alone|stands still|same course"):
        check_game(Random)


def test_contract_finds_a_reset_that_touches_other_lanes() -> None:
    class Greedy(Simulator):
        def reset(self, lanes, scenario, seeds):  # type: ignore[no-untyped-def]
            return super().reset(np.arange(self.lanes), scenario, np.resize(seeds, self.lanes))

    with pytest.raises(AssertionError, match="leaves other lanes alone"):
        check_game(Greedy)


def test_contract_finds_a_driver_that_swallows_unknown_controls() -> None:
    class Lenient(Simulator):
        def step(self, controls, active=None):  # type: ignore[no-untyped-def]
            return super().step(controls & np.uint32(0xFFF), active)

    with pytest.raises(AssertionError, match="does not exist"):
        check_game(Lenient)


def test_contract_finds_a_picture_of_another_size() -> None:
    class Sideways(Simulator):
        def render(self, lane=0, size=(90, 160)):  # type: ignore[no-untyped-def]
            return super().render(lane, size).swapaxes(0, 1)

    with pytest.raises(AssertionError, match="height, width"):
        check_game(Sideways)


def test_fake_game_refuses_what_no_driver_could_do() -> None:
    game, scenario = FakeGame(2), load_scenario("iudex-phase1")
    with pytest.raises(GameError, match="reset before"):
        game.step(np.zeros(2, np.uint32))
    with pytest.raises(GameError, match="one seed a lane"):
        game.reset(np.arange(2), scenario, np.zeros(1, np.uint64))
    game.reset(np.arange(2), scenario, np.zeros(2, np.uint64))
    with pytest.raises(GameError, match="known control bits"):
        game.step(np.full(2, 1 << 20, np.uint32))
    with pytest.raises(GameError, match="uint32 controls"):
        game.step(np.zeros(3, np.uint32))
    game.close()
    with pytest.raises(GameError, match="open game"):
        game.step(np.zeros(2, np.uint32))


def test_fake_game_plays_its_script_and_keeps_what_was_sent() -> None:
    script = np.array([standing(BOSS_HP=hp) for hp in (1037.0, 1000.0, 900.0)])
    game = FakeGame(1, script)
    game.reset(np.arange(1), load_scenario("iudex-phase1"), np.zeros(1, np.uint64))
    seen = [game.step(np.array([int(Control.ROLL)], np.uint32))[0, Raw.BOSS_HP] for _ in range(3)]
    assert seen == [1000.0, 900.0, 900.0]
    assert [int(sent[0]) for sent in game.sent] == [int(Control.ROLL)] * 3


def test_sampled_controls_are_valid_and_various() -> None:
    controls = sample_controls(4, 200)
    assert controls.shape == (200, 4)
    union = np.bitwise_or.reduce(controls, axis=None)
    assert union == sum(Control)


@dataclass
class Indifferent:
    """An agent that ignores its rewards."""

    choose: Callable[[], int]

    def predict(self, observation: object) -> tuple[int, None]:
        return self.choose(), None


@pytest.mark.parametrize("choose", [lambda: 0, lambda: 1, partial(np.random.default_rng(0).integers, 2)])
def test_an_agent_that_learned_nothing_is_found_out(choose: Callable[[], int]) -> None:
    with pytest.raises(AssertionError, match="34 of 40 actions that pay"):
        check_agent_learns(lambda: gymnasium.make("CartPole-v1"), lambda env: Indifferent(choose))
