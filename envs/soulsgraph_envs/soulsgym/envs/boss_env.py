"""The base of environments with one boss: the start of an episode, its observation and info."""

from __future__ import annotations

from typing import Any

import numpy as np

from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.soulsgym.data import DATA, load_fight
from soulsgraph_envs.soulsgym.envs.soulsenv import SoulsEnv
from soulsgraph_envs.soulsgym.exception import InvalidGameSettings, LockOnFailure, ResetError, SoulsGymException
from soulsgraph_envs.soulsgym.observation import ACTIONS, NOTHING, LockOn, Observer

_ATTEMPTS = 3
_STEPS_TO_LOCK_ON = 30
_SEEDS = 2**63


def checked_phase(phase: int) -> int:
    """Return a phase as 1 or 2; raises `InvalidGameSettings` for another."""
    if phase not in (1, 2):
        raise InvalidGameSettings(f"phase: expected 1 or 2, found {phase!r}: choose one.")
    return int(phase)


class BossEnv(SoulsEnv):
    """A boss of Dark Souls III, fought by the Knight."""

    #: Begin at any of the fight's poses, not at the first.
    random_player_pose = False

    def prepare(self, scenario: str) -> None:
        """Load the fight of `ENV_ID` and a scenario of `data/soulsgym`, and define the spaces.

        Raises:
            InvalidGameSettings: if the world cannot carry out one of the 20 actions.
        """
        self._fight = load_fight(self.ENV_ID)
        self._scenario = load_scenario(DATA / "scenarios" / f"{scenario}.toml")
        self._observer = Observer(self._fight, self._scenario)
        self.observation_space = self._observer.space
        able = self.world.controls(self._scenario)
        lacking = [number for number, keys in enumerate(ACTIONS) if keys & ~able]
        if lacking:
            raise InvalidGameSettings(
                f"{type(self).__name__}: expected a driver for {len(ACTIONS)} actions, found none of {lacking}: "
                "take another driver, bind their keys, or give the scenario another player."
            )

    @property
    def game_id(self) -> str:
        """Return the name of the game."""
        return "DarkSoulsIII"

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
            ResetError: if that failed three times, for the reason of the last.
        """
        super().reset(seed=seed)
        failure: GameError | SoulsGymException | None = None
        for _ in range(_ATTEMPTS):
            try:
                self._begin()
                return self.obs, self.info
            except (GameError, SoulsGymException) as error:
                self._state, failure = None, error
        raise ResetError(f"no episode could be begun in {_ATTEMPTS} attempts: {failure}") from failure

    def _begin(self) -> None:
        places = self._fight.coordinates
        anywhere = places.player_init_poses_random if self.random_player_pose else ()
        starts = anywhere or (places.player_init_pose,)
        start = starts[self.np_random.integers(len(starts))]
        seed = int(self.np_random.integers(_SEEDS))
        self._state = self.world.begin(self._fight, self._scenario, start, seed)
        self._observer.check(self._state)
        self.terminated, self._queued, self._lock = False, Control.NONE, LockOn()
        for _ in range(_STEPS_TO_LOCK_ON):
            if self._state.lock_on:
                return
            self._lock_on()
            self._advance(NOTHING)
        raise LockOnFailure(f"expected a lock on {self._fight.name} within {_STEPS_TO_LOCK_ON} steps, found none.")
