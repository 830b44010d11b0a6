"""SoulsGym's environments, over the simulator or a running game: of any boss, of Iudex and of Vordt."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypedDict, Unpack

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from soulsgraph_envs.compat.soulsgym.fight import (
    ACTIONS,
    DATA,
    NOTHING,
    Floats,
    GameState,
    GameStateError,
    LockOn,
    LockOnFailure,
    Observer,
    ResetError,
    ResetNeeded,
    SoulsGymException,
    load_fight,
    valid_actions,
)
from soulsgraph_envs.compat.soulsgym.worlds import SoulsGymWorld, make_world
from soulsgraph_envs.core.config import Between, Pair, check_arguments
from soulsgraph_envs.core.errors import ActionError, GameError, shown
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.core.scenario import load_player, load_scenario
from soulsgraph_envs.core.seeds import checked_seed
from soulsgraph_envs.core.state import Control
from soulsgraph_envs.games.link import Driver

#: The game has no lock during a throw.
_THROWN = ("ThrowAtk", "ThrowDef")
#: Height and width of a rendered frame.
_RENDERED = (360, 640)


#: Of the game; a running one takes 3 at most.
Speed = Annotated[float, Between(0.01, 1000.0)]


class Options(TypedDict, total=False):
    """What every environment takes beyond SoulsGym's own parameters.

    `driver` is "simulator" or the name of a real-time driver; a file `games` holds a game's settings, its driver among
    them; `world` is an open world to use instead.
    """

    driver: Driver
    games: str | Path
    world: SoulsGymWorld
    render_mode: Literal["rgb_array"] | None


_ATTEMPTS = 3
_STEPS_TO_LOCK_ON = 30
_SEEDS = 2**63


class SoulsEnv(gymnasium.Env[Any, np.int64]):
    """One phase of a boss fight, by the Knight: a step is 0.1 s of the game, which stands still between.

    A class names its boss by `ENV_ID`, one of `data/soulsgym/fights`.

    An action that the player cannot begin yet is left out, as in SoulsGym; `current_valid_actions`
    says which can. With `skip_steps`, steps in which nothing can be done pass at once, and their
    reward is that of the whole span.

    Raises:
        DataError: for a speed, phase, driver or render mode that there is not.
    """

    game_id = "DarkSoulsIII"
    #: What the boss is called in the static tables.
    ENV_ID = ""
    #: Begin at any of the fight's poses, not at the first.
    random_player_pose = False
    #: Seconds of the game in a step.
    step_size = 0.1
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's own attribute
    #: A running game's levels are restored after every step, and HP are counted here: nobody dies, no phase changes.
    refills: ClassVar[bool] = True

    @check_arguments
    def __init__(
        self,
        game_speed: Speed = 1.0,
        phase: Literal[1, 2] = 1,
        skip_steps: bool = False,
        *,
        driver: Driver = "simulator",
        games: str | Path | None = None,
        world: SoulsGymWorld | None = None,
        render_mode: Literal["rgb_array"] | None = None,
    ) -> None:
        # Gymnasium's vectorizers write into it.
        self.metadata = dict(self.metadata)
        self.game_speed, self.skip_steps, self.render_mode = game_speed, skip_steps, render_mode
        self.world = world or make_world(driver, games, game_speed, self.refills)
        self._fight = load_fight(self.ENV_ID)
        scenario = f"{self.ENV_ID}-phase{phase}" if self.refills else f"{self.ENV_ID}-full"
        self._scenario = load_scenario(DATA / "scenarios" / f"{scenario}.toml")
        self._lock = LockOn(load_player(self._scenario.player).camera)
        self._first_phase = phase
        self._observer = Observer(self._fight, self._scenario)
        self.observation_space = self._observer.space
        self.action_space = gymnasium.spaces.Discrete(len(ACTIONS))
        self.terminated = False
        self._state: GameState | None = None
        self._queued = Control.NONE

    @property
    def phase(self) -> int:
        """Return the phase that is fought, that of the first step before the first reset."""
        return self._state.phase if self._state else self._first_phase

    @classmethod
    def compute_reward(cls, game_state: GameState, next_game_state: GameState) -> float:
        """Return SoulsGym's reward, with a term for the place in an arena whose fight has a centre."""
        return load_fight(cls.ENV_ID).reward(game_state, next_game_state)

    @property
    def obs(self) -> Any:
        """Return the observation of the present state: SoulsGym's dictionary."""
        return self._observer.observe(self._present)

    @property
    def info(self) -> dict[str, Any]:
        """Return the actions the player can begin: `action_mask` (20,) bool, and `allowed_actions`, a list."""
        allowed = self.current_valid_actions()
        mask = np.zeros(len(ACTIONS), np.bool_)
        mask[allowed] = True
        return {"action_mask": mask, "allowed_actions": allowed}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with the boss locked on; on the simulator the same seed gives the same one.

        Raises:
            SeedError: for anything but a non-negative integer or None.
            ResetError: if that failed three times, for the reason of the last.
        """
        super().reset(seed=checked_seed(seed))
        failure: GameError | SoulsGymException | None = None
        for _ in range(_ATTEMPTS):
            try:
                self._begin()
                return self.obs, self.info
            except (GameError, SoulsGymException) as error:
                self._state, failure = None, error
        raise ResetError(f"no episode could be begun in {_ATTEMPTS} attempts: {failure}") from failure

    @property
    def game_state(self) -> GameState:
        """Return a copy of the present state, as `game_state()` does too: SoulsGym had both.

        Raises:
            ResetNeeded: before the first reset.
        """
        return self._present.copy()

    @property
    def _present(self) -> GameState:
        if self._state is None:
            raise ResetNeeded("expected an episode under way, found none: call reset first.")
        return self._state

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Carry out an action of 0 to 19; `truncated` is left to Gymnasium's TimeLimit.

        Raises:
            ResetNeeded: before the first reset, and after an episode's end.
            ActionError: for any other action.
            GameStateError: if the game broke the episode off; this step must not be learned from.
        """
        before = self._present
        if self.terminated:
            raise ResetNeeded("expected an episode under way, found it over: call reset first.")
        if not self.action_space.contains(action):
            raise ActionError(f"action: expected one of 0 to {NOTHING}, found {shown(action)}.")
        self._advance(int(action))
        while self.skip_steps and not self.terminated and self.current_valid_actions() == [NOTHING]:
            self._advance(NOTHING)
        reward = self.compute_reward(before, self._present)
        return self.obs, float(reward), self.terminated, False, self.info

    def current_valid_actions(self) -> list[int]:
        """List the actions the player can begin now, in rising order; none before the first reset."""
        return [] if self._state is None else valid_actions(self._state)

    def seed(self, seed: int | None = None) -> list[int]:
        """Seed the coming episodes if the world can repeat a fight; else warn and return [0].

        Raises:
            SeedError: as `reset`.
        """
        seed = checked_seed(seed)
        if not self.world.repeatable:
            warnings.warn("a running game is random: a seed does not make its fights repeatable", stacklevel=2)
            return [0]
        super().reset(seed=seed)
        return [self.np_random_seed]

    def render(self) -> Picture | None:  # type: ignore[override]
        """Draw the present state, (360, 640, 3), if the render mode is "rgb_array"; raises as `step` does."""
        return self._frame(_RENDERED) if self.render_mode and self._present else None

    def close(self) -> None:
        """Close the world, and leave the game playable; a second call does nothing."""
        self.world.close()

    def _frame(self, size: tuple[int, int]) -> Picture:
        with self._losing():
            return self.world.frame(*size)

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """Raise `GameStateError` for an episode that the world breaks off."""
        try:
            yield
        except GameError as lost:
            self.terminated = True
            raise GameStateError(f"the episode was lost: {lost} Call reset to go on.") from lost

    def _begin(self) -> None:
        places = self._fight.coordinates
        anywhere = places.player_init_poses_random if self.random_player_pose else ()
        starts = anywhere or (places.player_init_pose,)
        start = starts[self.np_random.integers(len(starts))]
        seed = int(self.np_random.integers(_SEEDS))
        self._state = self.world.begin(self._fight, self._scenario, start, seed)
        self._observer.check(self._state)
        self.terminated, self._queued = False, Control.NONE
        self._lock.begin()
        for _ in range(_STEPS_TO_LOCK_ON):
            if self._state.lock_on:
                return
            self._lock_on()
            self._advance(NOTHING)
        raise LockOnFailure(f"expected a lock on {self._fight.name} within {_STEPS_TO_LOCK_ON} steps, found none.")

    def _advance(self, action: int) -> None:
        """Advance the world by one step."""
        keys = self._queued | self._apply_action(action)
        self._queued = Control.NONE
        with self._losing():
            self._state = self.world.advance(keys)
        self.terminated = self._state.player_hp <= 0 or self._state.boss_hp <= 0
        if not self._state.lock_on:
            self._lock_on()

    def _apply_action(self, action: int) -> Control:
        """Return the keys of an action; none while the player cannot begin it, as the game would queue it."""
        return ACTIONS[action] if action in self.current_valid_actions() else Control.NONE

    def _lock_on(self, target_pose: Floats | None = None) -> None:
        """Queue for the next step the keys that turn the camera to the boss, or to a pose, and lock on."""
        state = self._present
        if state.player_animation not in _THROWN:
            target = state.boss_pose if target_pose is None else np.asarray(target_pose, float)
            self._queued |= self._lock.keys(state.camera_pose, target)


class SoulsEnvDemo(SoulsEnv):
    """A whole fight as the game has it: every phase, HP as it is, death and victory."""

    refills = False

    def __init__(self, game_speed: float = 1.0, random_player_pose: bool = False, **options: Unpack[Options]) -> None:
        super().__init__(game_speed, **options)
        self.random_player_pose = random_player_pose


_IUDEX, _VORDT = load_fight("iudex"), load_fight("vordt")
#: What SoulsGym calls the state of a fight with either.
IudexState = VordtState = GameState


class _Iudex(SoulsEnv):
    """What every environment of Iudex Gundyr shares."""

    ENV_ID = "iudex"
    BONFIRE, CAM_SETUP_POSE = _IUDEX.bonfire, list(_IUDEX.camera)
    ARENA_LIM_LOW, ARENA_LIM_HIGH = _IUDEX.limits
    IUDEX_MAX_HP = 1037
    #: Seconds between reloads of a running game; another number goes into `reload_after_s` of the games file.
    HARD_RESET_INTERVAL = 900


class IudexEnv(_Iudex):
    """One phase of Iudex from his full HP to nothing.

    `random_player_pose` begins at any of 11 places around the boss; `init_pose_randomization` is what
    SoulsGym 1.1.0 calls it.

    Raises:
        DataError: for a phase other than 1 and 2, and as `SoulsEnv`.
    """

    def __init__(
        self,
        game_speed: Speed = 1.0,
        phase: Literal[1, 2] = 1,
        random_player_pose: bool = False,
        skip_steps: bool = False,
        init_pose_randomization: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(game_speed, phase, skip_steps, **options)
        self.random_player_pose = random_player_pose or init_pose_randomization


class IudexImgEnv(IudexEnv):
    """One phase of Iudex, seen as a picture (height, width, 3) of red, green and blue, uint8.

    Raises:
        DataError: for a `resolution` other than two whole numbers above 0, and as `IudexEnv`.
    """

    @check_arguments
    def __init__(
        self,
        game_speed: Speed = 1.0,
        phase: Literal[1, 2] = 1,
        random_player_pose: bool = False,
        skip_steps: bool = False,
        resolution: Pair[Annotated[int, Between(1, 10_000)]] = (90, 160),
        **options: Unpack[Options],
    ) -> None:
        super().__init__(game_speed, phase, random_player_pose, skip_steps, **options)
        self.resolution = resolution
        self.observation_space = Box(0, 255, (*resolution, 3), np.uint8)

    @property
    def obs(self) -> Picture:
        """Draw the present state in the environment's resolution."""
        return self._frame(self.resolution)

    @property
    def info(self) -> dict[str, Any]:
        """Return the actions the player can begin, and `boss_hp`, which a picture hardly shows."""
        return {**super().info, "boss_hp": self._present.boss_hp}


class IudexEnvDemo(SoulsEnvDemo, _Iudex):
    """The whole fight with Iudex, his change of phase included."""

    @property
    def info(self) -> dict[str, Any]:
        """Return the actions the player can begin, and `boss_hp`, which SoulsAI's evaluation counts victories by."""
        return {**super().info, "boss_hp": self._present.boss_hp}


class VordtEnv(SoulsEnv):
    """One phase of Vordt of the Boreal Valley, who builds up frost: calm in phase 1, raging in phase 2.

    Raises:
        DataError: for a phase other than 1 and 2, and as `SoulsEnv`.
    """

    ENV_ID = "vordt"
    BONFIRE, CAM_SETUP_POSE = _VORDT.bonfire, list(_VORDT.camera)
    ARENA_LIM_LOW, ARENA_LIM_HIGH = _VORDT.limits
    VORDT_MAX_HP = 1328
