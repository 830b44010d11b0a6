"""For tests: the contract of game drivers, a small game that checks its caller, and fights in a given state."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

import gymnasium
import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.errors import EpisodeLostError, GameError, SoulsGraphError
from soulsgraph_envs.core.game import ActiveLanes, Capabilities, Game, LaneIndices, RenderableGame, SavableGame
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.core.seeds import Seeds, derive_seeds
from soulsgraph_envs.core.state import ALL_CONTROLS, RAW_SIZE, Control, Controls, Raw, RawValues
from soulsgraph_envs.simulator.driver import Simulator

#: Opens a game with this number of lanes.
MakeGame = Callable[[int], Game]

#: How long a test waits for what an idle machine does in seconds at most: a busy one may take as much longer.
PATIENCE_S = 600.0
#: What drivers report of a game, or of themselves, where a process waited too long for a processor.
_BUSY = ("the game's clock", "no longer change", "stood still")
#: What a fault of a driver looks like as well, and how often it may be the processor's.
_AMBIGUOUS, _AMBIGUOUS_TIMES = ("keys do not reach the game", "did not come", "in time, found none"), 5

_TICKS = 40
_PLAYED, _LEARNED = 40, 34
_SIZE = (18, 32)
_ANGLES = (Raw.PLAYER_ANGLE, Raw.BOSS_ANGLE)
_LEVELS = ((Raw.PLAYER_HP, Raw.PLAYER_HP_MAX), (Raw.STAMINA, Raw.STAMINA_MAX), (Raw.BOSS_HP, Raw.BOSS_HP_MAX))
_CLOCKS = [(Raw[f"{who}_ANIMATION_TIME_S"], Raw[f"{who}_ANIMATION_LENGTH_S"]) for who in ("BOSS", "PLAYER")]

_Answer = TypeVar("_Answer")


def until(condition: Callable[[], _Answer], what: str = "it", timeout_s: float = PATIENCE_S) -> _Answer:
    """Call `condition` until it returns a true value, and return that value.

    Raises:
        AssertionError: if it does not hold in time.
    """
    deadline = time.monotonic() + timeout_s
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"expected {what} within {timeout_s:g} s, found {answer!r} to the end")
        time.sleep(0.02)
    return answer


def undisturbed(attempt: Callable[[], _Answer]) -> _Answer:
    """Return what `attempt` returns, tried again when a busy machine lost its fight.

    A fight in real time is lost when the game or the control loop stands still.

    Raises:
        SoulsGraphError: if that happens for longer than `PATIENCE_S`; after a few times for what a fault of the driver
            would show as well; at once for any other reason.
    """
    deadline, left = time.monotonic() + PATIENCE_S, _AMBIGUOUS_TIMES
    while True:
        try:
            return attempt()
        except SoulsGraphError as lost:
            ambiguous = any(sign in str(lost) for sign in _AMBIGUOUS)
            left -= ambiguous
            busy = ambiguous or any(sign in str(lost) for sign in _BUSY)
            if not busy or left < 0 or time.monotonic() > deadline:
                raise


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


class PredictingAgent(Protocol):
    """An agent like stable-baselines3's: `predict` returns an action, drawn or greedy, and a state."""

    def predict(self, observation: Any) -> tuple[Any, Any]:
        """Choose an action."""


class PaidActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Replace an environment's reward: 1 for an action whose (first) number has the given parity, else 0."""

    def __init__(self, env: gymnasium.Env[Any, Any], parity: int) -> None:
        super().__init__(env)
        self.parity = parity

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step and pay."""
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, float(np.ravel(action)[0] % 2 == self.parity), terminated, truncated, info


def check_agent_learns(
    make_env: Callable[[], gymnasium.Env[Any, Any]], train: Callable[[gymnasium.Env[Any, Any]], PredictingAgent]
) -> None:
    """Train an agent where even actions pay and another where odd ones do: each plays 34 of 40 for its pay.

    False alarms: one that draws its actions without regard to its rewards passes with a probability of 2e-11
    (binomial, one half); one that plays the same whatever it is paid never does.

    Raises:
        AssertionError: if either plays fewer.
    """
    for parity in (0, 1):
        env = PaidActions(make_env(), parity)
        agent, paid = train(env), 0.0
        observation, _ = env.reset(seed=0)
        for _ in range(_PLAYED):
            observation, reward, terminated, truncated, _ = env.step(agent.predict(observation)[0])
            paid += reward
            if terminated or truncated:
                observation, _ = env.reset()
        env.close()  # type: ignore[no-untyped-call]
        if paid < _LEARNED:
            raise AssertionError(f"expected {_LEARNED} of {_PLAYED} actions that pay, found {paid:g}")


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


class FakeGame:
    """A game of scripted raw values that checks its caller: shapes, bits, order of calls.

    Each lane begins with the first frame of `script` (frames, 25) and moves on by one a tick, holding
    the last. `sent` keeps the controls of every tick.

    Raises:
        GameError: for anything that a real driver could not carry out.
    """

    capabilities = Capabilities(supplies=frozenset(Raw.__members__), can_pause=True, can_seed=True)
    tick_s = 0.1

    def __init__(self, lanes: int = 1, script: RawValues | None = None) -> None:
        self.lanes = lanes
        self.script = np.atleast_2d(standing() if script is None else script)
        self.sent: list[Controls] = []
        self.closed = False
        self._frame: npt.NDArray[np.int64] = np.full(lanes, -1)
        self._raw = np.zeros((lanes, RAW_SIZE))

    def reset(self, lanes: LaneIndices, scenario: Scenario, seeds: Seeds) -> RawValues:
        """Put `lanes` (n,) back to the script's first frame."""
        which = np.asarray(lanes)
        self._demand(not self.closed, "an open game", "a closed one")
        self._demand(which.shape == np.shape(seeds), "one seed a lane", f"{which.shape} and {np.shape(seeds)}")
        self._demand(((which >= 0) & (which < self.lanes)).all(), f"lanes below {self.lanes}", which)
        self._demand(isinstance(scenario, Scenario), "a Scenario", type(scenario).__name__)
        self._frame[which] = 0
        return self._show()

    def step(self, controls: Controls, active: ActiveLanes | None = None) -> RawValues:
        """Move the active lanes one frame on."""
        self._demand(not self.closed, "an open game", "a closed one")
        self._demand((self._frame >= 0).all(), "every lane reset before the first step", self._frame.tolist())
        fits = controls.shape == (self.lanes,) and controls.dtype == np.uint32
        self._demand(fits, f"uint32 controls of shape ({self.lanes},)", f"{controls.dtype} of {controls.shape}")
        self._demand(not (controls & ~np.uint32(ALL_CONTROLS)).any(), "known control bits", controls.tolist())
        moving = np.ones(self.lanes, np.bool_) if active is None else active
        self._demand(moving.shape == (self.lanes,), f"an active flag for each of {self.lanes} lanes", moving.shape)
        self.sent.append(controls.copy())
        self._frame[moving] = np.minimum(self._frame[moving] + 1, len(self.script) - 1)
        return self._show()

    def close(self) -> None:
        """Close the game; a second call does nothing."""
        self.closed = True

    def _show(self) -> RawValues:
        self._raw[:] = self.script[np.maximum(self._frame, 0)]
        return self._raw

    def _demand(self, met: Any, expected: str, found: object) -> None:
        if not met:
            raise GameError(f"the caller of the fake game: expected {expected}, found {found}.")


class LossyGame:
    """A game that breaks off at chosen ticks, and whose resets fail at first, as a real-time one may.

    `losses` maps the number of a step, from 0 on, to the error it raises instead of being carried out;
    the resets after the first one raise `failures`, one each.
    """

    def __init__(self, game: Game, losses: Mapping[int, EpisodeLostError], failures: Sequence[GameError] = ()) -> None:
        self._game, self._losses, self._failures = game, losses, list(failures)
        self.lanes, self.tick_s = game.lanes, game.tick_s
        self.capabilities = replace(game.capabilities, can_render=False)
        self.steps = self.resets = 0
        self.closed = False

    def reset(self, lanes: LaneIndices, scenario: Scenario, seeds: Seeds) -> RawValues:
        """Reset the game, or fail to."""
        self.resets += 1
        if self.resets > 1 and self._failures:
            raise self._failures.pop(0)
        return self._game.reset(lanes, scenario, seeds)

    def step(self, controls: Controls, active: ActiveLanes | None = None) -> RawValues:
        """Step the game, or lose the episode."""
        loss = self._losses.get(self.steps)
        self.steps += 1
        if loss is not None:
            raise loss
        return self._game.step(controls, active)

    def close(self) -> None:
        """Close the game."""
        self.closed = True
        self._game.close()


def standing(**values: float) -> RawValues:
    """Make one frame, (25,): player and boss with full HP, 6 m apart, face to face, with `values` by column name."""
    frame = np.zeros(RAW_SIZE)
    levels = {"PLAYER_HP": 454.0, "STAMINA": 95.0, "BOSS_HP": 1037.0}
    most = {f"{name}_MAX": level for name, level in levels.items()}
    lengths = dict.fromkeys(("BOSS_ANIMATION_LENGTH_S", "PLAYER_ANIMATION_LENGTH_S"), 1.0)
    others = {"BOSS_Y": -6.0, "CAMERA_Y": -1.0, "FLASKS": 1.0}
    for name, value in {**levels, **most, **lengths, **others, **values}.items():
        frame[Raw[name]] = value
    return frame


FRAME_S = 1.0 / 60.0
#: Longer than any test lasts.
_REST_FRAMES = 60 * 3600

#: Raw values of some ticks, (ticks, lanes, 25).
Course = npt.NDArray[np.float64]


def open_fight(scenario: Scenario, lanes: int = 1, tick_s: float = FRAME_S, **fields: object) -> Simulator:
    """Open a fight with the boss 6 m south of the player, both facing each other at rest, and `fields` set.

    The fields are those of `layout.Lane`; each is set in every lane.
    """
    sim = Simulator(lanes, tick_s)
    sim.reset(np.arange(lanes), scenario, derive_seeds(np.arange(lanes), 1))
    x, y = scenario.arena.centre_m
    places = {"player_x": x, "player_y": y, "boss_x": x, "boss_y": y - 6.0, "boss_heading": np.pi}
    state = sim.get_state()
    at_rest = {"player_heading": 0.0, "camera_yaw": 0.0, "wait": _REST_FRAMES}
    for name, value in {**places, **at_rest, **fields}.items():
        state["fights"][name][:] = value
    sim.set_state(state)
    return sim


def press(sim: Simulator, control: Control, ticks: int = 1, then: Control = Control.NONE) -> Course:
    """Press in the first tick, hold `then` afterwards; raw values (ticks, lanes, 25)."""
    bits = [control] + [then] * (ticks - 1)
    return np.array([sim.step(np.full(sim.lanes, int(bit), np.uint32)).copy() for bit in bits])
