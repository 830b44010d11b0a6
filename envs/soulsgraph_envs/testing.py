"""Checks for whoever writes a game driver: the contract of games."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, cast

import numpy as np

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.game import Game, RenderableGame, SavableGame
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.core.seeds import Seeds, derive_seeds
from soulsgraph_envs.core.state import ALL_CONTROLS, RAW_SIZE, Control, Controls, Raw, RawValues

#: Opens a game with this number of lanes.
MakeGame = Callable[[int], Game]


_TICKS = 40
_SIZE = (18, 32)
_ANGLES = (Raw.PLAYER_ANGLE, Raw.BOSS_ANGLE)
_LEVELS = ((Raw.PLAYER_HP, Raw.PLAYER_HP_MAX), (Raw.STAMINA, Raw.STAMINA_MAX), (Raw.BOSS_HP, Raw.BOSS_HP_MAX))
_CLOCKS = [(Raw[f"{who}_ANIMATION_TIME_S"], Raw[f"{who}_ANIMATION_LENGTH_S"]) for who in ("BOSS", "PLAYER")]


def check_game(make_game: MakeGame, scenario: Scenario | None = None, lanes: int = 3) -> None:
    """Check a driver against the contract of `game.Game`; use `lanes=1` for a driver of a single fight.

    Raises:
        AssertionError: naming the first rule that is broken.
    """
    fought = scenario or load_scenario("iudex-phase1")
    game = make_game(lanes)
    try:
        _check_declaration(game, lanes)
        _check_values(game, fought)
        _check_partial_reset(game, fought)
        _check_unknown_control(game)
        if game.capabilities.can_pause:
            _check_standing_still(game)
        if game.capabilities.can_render:
            _check_picture(game)
    finally:
        game.close()
        game.close()
    if game.capabilities.can_seed:
        _check_seeds(make_game, fought, lanes)
    if isinstance(game, SavableGame):
        _check_resume(make_game, fought, lanes)


def sample_controls(lanes: int, ticks: int, seed: int = 0) -> Controls:
    """Draw valid controls, (ticks, lanes)."""
    rng = np.random.default_rng(seed)
    return (rng.integers(0, int(ALL_CONTROLS) + 1, (ticks, lanes)) & int(ALL_CONTROLS)).astype(np.uint32)


def play(game: Game, scenario: Scenario, seeds: Seeds, controls: Controls) -> RawValues:
    """Reset every lane and apply controls (ticks, lanes): raw values (ticks + 1, lanes, 25)."""
    course = [game.reset(np.arange(game.lanes), scenario, seeds).copy()]
    course += [game.step(tick).copy() for tick in controls]
    return np.array(course)


def _promise(kept: Any, promise: str) -> None:
    if not kept:
        raise AssertionError(f"the game contract is not kept: {promise}")


def _seeds(lanes: int) -> Seeds:
    return derive_seeds(np.arange(lanes), 1)


def _controls(game: Game) -> Controls:
    possible = np.uint32(game.capabilities.controls)
    return sample_controls(game.lanes, _TICKS) & possible


def _check_declaration(game: Game, lanes: int) -> None:
    _promise(isinstance(game, Game), "a game has lanes, tick_s, capabilities, reset, step and close")
    _promise(game.lanes == lanes, f"lanes is the number asked for, {lanes}")
    _promise(game.tick_s > 0, "tick_s is above 0")
    unknown = game.capabilities.supplies - {column.name for column in Raw}
    _promise(not unknown, f"supplies names raw values only, not {sorted(unknown)}")


def _check_values(game: Game, scenario: Scenario) -> None:
    course = play(game, scenario, _seeds(game.lanes), _controls(game))
    _promise(
        course.shape == (_TICKS + 1, game.lanes, RAW_SIZE), f"raw is (lanes, {RAW_SIZE}), found {course.shape[1:]}"
    )
    _promise(course.dtype == np.float64, f"raw is float64, found {course.dtype}")
    supplied = [Raw[name] for name in sorted(game.capabilities.supplies)]
    _promise(np.isfinite(course[:, :, supplied]).all(), "every supplied raw value is finite")
    for angle in _ANGLES:
        _promise((np.abs(course[:, :, angle]) <= np.pi + 1e-6).all(), f"{angle.name} lies in [-pi, pi]")
    for value, most in _LEVELS:
        _promise((course[:, :, value] <= course[:, :, most]).all(), f"{value.name} is at most {most.name}")
    for time_s, length_s in _CLOCKS:
        _promise((course[:, :, time_s] >= 0).all(), f"{time_s.name} is at least 0")
        _promise((course[:, :, time_s] <= course[:, :, length_s]).all(), f"{time_s.name} is within {length_s.name}")
    _promise(np.isin(course[:, :, Raw.LOCKED], (0.0, 1.0)).all(), "LOCKED is 0 or 1")


def _check_partial_reset(game: Game, scenario: Scenario) -> None:
    play(game, scenario, _seeds(game.lanes), _controls(game))
    before = game.step(np.zeros(game.lanes, np.uint32)).copy()
    after = game.reset(np.array([0]), scenario, derive_seeds(99, 1)).copy()
    _promise(after.shape == (game.lanes, RAW_SIZE), "reset gives the raw values of all lanes")
    _promise((after[1:] == before[1:]).all() or not game.capabilities.can_pause, "reset leaves other lanes alone")
    _promise(after[0, Raw.PLAYER_HP] == after[0, Raw.PLAYER_HP_MAX], "a new episode begins with full HP")


def _check_unknown_control(game: Game) -> None:
    try:
        game.step(np.full(game.lanes, 1 << 31, np.uint32))
    except GameError:
        return
    _promise(False, "a control bit that does not exist raises GameError")


def _check_standing_still(game: Game) -> None:
    before = game.step(np.zeros(game.lanes, np.uint32)).copy()
    active = np.arange(game.lanes) > 0
    after = game.step(np.full(game.lanes, int(Control.FORWARD), np.uint32), active)
    _promise((after[0] == before[0]).all(), "a lane that is not active stands still")


def _check_picture(game: Game) -> None:
    _promise(isinstance(game, RenderableGame), "a game that can render has render")
    picture = cast(RenderableGame, game).render(0, _SIZE)
    _promise(picture.shape == (*_SIZE, 3), f"a picture is (height, width, 3), found {picture.shape}")
    _promise(picture.dtype == np.uint8, f"a picture is uint8, found {picture.dtype}")


def _check_seeds(make_game: MakeGame, scenario: Scenario, lanes: int) -> None:
    seeds, controls = _seeds(lanes), sample_controls(lanes, _TICKS)
    courses = []
    for which in (slice(None), slice(None), slice(-1, None)):
        with closing(make_game(len(seeds[which]))) as game:
            courses.append(play(game, scenario, seeds[which], controls[:, which]))
    first, again, alone = courses
    _promise((first == again).all(), "same seeds and same controls give the same course")
    _promise((alone[:, 0] == first[:, -1]).all(), "a lane's course does not depend on the other lanes")


def _check_resume(make_game: MakeGame, scenario: Scenario, lanes: int) -> None:
    controls = sample_controls(lanes, _TICKS)
    with closing(make_game(lanes)) as first, closing(make_game(lanes)) as second:
        if isinstance(first, SavableGame) and isinstance(second, SavableGame):
            play(first, scenario, _seeds(lanes), controls)
            second.set_state(first.get_state())
            for tick in controls:
                _promise((first.step(tick) == second.step(tick)).all(), "set_state continues where get_state was")
