"""The simulator as the world below an environment, and every world by the name of its driver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.errors import UnknownNameError
from soulsgraph_envs.core.pictures import Picture
from soulsgraph_envs.core.scenario import Scenario, load_player, supported_controls
from soulsgraph_envs.core.state import RAW_SIZE, Raw
from soulsgraph_envs.core.streams import derive_seeds
from soulsgraph_envs.drivers.opening import DRIVERS, SIMULATOR, make_link
from soulsgraph_envs.drivers.realtime.link import GameSettings, load_games
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.layout import FRAMES_PER_S
from soulsgraph_envs.soulsgym.core.game_state import Floats, GameState
from soulsgraph_envs.soulsgym.data import Fight, Pose, frost_of, player_table
from soulsgraph_envs.soulsgym.exception import InvalidGameSettings
from soulsgraph_envs.soulsgym.world import AnimationClock, World

_LANE = np.zeros(1, np.int64)
#: Where the simulated camera stands: so far behind the player's head, which is so high. No game says.
_BEHIND_M, _HEAD_M = 4.0, 1.5
#: A press turns the camera to where the player looks, which is to the boss; the next takes the lock.
_PRESSES_TO_LOCK_ON = 2
_TIMES = Raw.PLAYER_ANIMATION_TIME_S, Raw.BOSS_ANIMATION_TIME_S


class SimulatedWorld:
    """Fight in the simulator; HP really moves, and a fight repeats exactly."""

    repeatable = draws = True

    def __init__(self) -> None:
        self.game = Simulator(1)
        self.step_s = self.game.tick_s
        self._raw = np.zeros((1, RAW_SIZE))

    def controls(self, scenario: Scenario) -> Control:
        """Return the controls that have an effect in a scenario."""
        return supported_controls(load_player(scenario.player))

    def begin(self, fight: Fight, scenario: Scenario, start: Pose, seed: int) -> GameState:
        """Begin a fight with the player at `start`, the boss at its own, the lock taken."""
        self._fight = fight
        self._clocks = AnimationClock(player_table().looped), AnimationClock(fight.looped)
        self._frost = frost_of(scenario.boss)
        self._transition = scenario.transition and scenario.transition.animation.name
        self._raw = self.game.reset(_LANE, scenario, derive_seeds(seed))
        self._place("player", start)
        self._place("boss", fight.coordinates.boss_init_pose)
        self.game.override(0, no_attack=1.0, no_move=1.0)
        for _ in range(_PRESSES_TO_LOCK_ON):
            if not self._raw[0, Raw.LOCKED]:
                self._step(Control.LOCK_ON)
        self.game.override(0, no_attack=0.0, no_move=0.0)
        return self._look()

    def advance(self, controls: Control) -> GameState:
        """Hold and press `controls` for one step; return the state at its end."""
        self._step(controls)
        return self._look()

    def frame(self, height: int, width: int) -> Picture:
        """Draw the fight."""
        return self.game.render(0, (height, width))

    def close(self) -> None:
        """Close the simulator."""
        self.game.close()

    def _step(self, controls: Control) -> None:
        self._raw = self.game.step(np.array([controls], np.uint32))
        for who, x in (("player", Raw.PLAYER_X), ("boss", Raw.BOSS_X)):
            self._keep_in(who, *self._raw[0, x : x + 2])

    def _keep_in(self, who: str, x: float, y: float) -> None:
        """Stop a fighter at the arena's limits: the simulator's own ground is a disc, and may be wider."""
        (low_x, low_y, _), (high_x, high_y, _) = self._fight.arena.low_m, self._fight.arena.high_m
        within = min(max(x, low_x), high_x), min(max(y, low_y), high_y)
        if within != (x, y):
            self.game.override(0, **{f"{who}_x": within[0], f"{who}_y": within[1]})

    def _place(self, who: str, pose: Pose) -> None:
        x, y, _, angle = pose
        self.game.override(0, **{f"{who}_x": x, f"{who}_y": y, f"{who}_heading": angle})

    def _look(self) -> GameState:
        raw = self._raw[0].tolist()
        names = self.game.animation_names(0)
        boss = self._fight.in_game(names.boss)
        player_s, boss_s = (
            clock.elapsed_s(name, raw[time_s], self.step_s)
            for clock, name, time_s in zip(self._clocks, (names.player, boss), _TIMES, strict=True)
        )
        resistance, effect = self._frost_left()
        return GameState(
            phase=2 if names.boss == self._transition else int(self.game.phases()[0]),
            player_hp=raw[Raw.PLAYER_HP],
            player_max_hp=raw[Raw.PLAYER_HP_MAX],
            player_sp=raw[Raw.STAMINA],
            player_max_sp=raw[Raw.STAMINA_MAX],
            boss_hp=raw[Raw.BOSS_HP],
            boss_max_hp=raw[Raw.BOSS_HP_MAX],
            player_pose=np.array([*raw[Raw.PLAYER_X : Raw.PLAYER_Z + 1], raw[Raw.PLAYER_ANGLE]]),
            boss_pose=np.array([*raw[Raw.BOSS_X : Raw.BOSS_Z + 1], raw[Raw.BOSS_ANGLE]]),
            camera_pose=self._camera(),
            player_animation=names.player,
            player_animation_duration=player_s,
            boss_animation=boss,
            boss_animation_duration=boss_s,
            lock_on=raw[Raw.LOCKED] > 0,
            frost_resistance=resistance,
            frost_effect=effect,
        )

    def _camera(self) -> Floats:
        looks = self._raw[0, Raw.CAMERA_X : Raw.CAMERA_Z + 1]
        head = self._raw[0, Raw.PLAYER_X : Raw.PLAYER_Z + 1] + (0.0, 0.0, _HEAD_M)
        return np.concatenate((head - _BEHIND_M * looks, looks))

    def _frost_left(self) -> tuple[float, float]:
        """Return the shares that are left of the resistance and of the effect."""
        if self._frost is None:
            return 1.0, 0.0
        values = self.game.values(0)
        slowed_s = values["slowed_frames"] / FRAMES_PER_S
        return 1.0 - values["build_up"] / self._frost.threshold, slowed_s / self._frost.slowed_s


#: No game keeps up with more.
_FASTEST = 3.0


def make_world(driver: str, games: str | Path | None, game_speed: float, refills: bool) -> World:
    """Open the world of a driver; a running game is the first of the file `games`.

    `game_speed` replaces the speed in that file unless it is 1; the simulator ignores it.

    Raises:
        UnknownNameError: if no driver has that name.
        InvalidGameSettings: for a `games` file of another driver, or a speed that no running game reaches.
    """
    if driver == SIMULATOR and games is not None:
        raise InvalidGameSettings(f"games: expected a driver for {games}, found {driver}: name its driver too.")
    if driver == SIMULATOR:
        return SimulatedWorld()
    if driver not in DRIVERS:
        raise UnknownNameError("game driver", driver, DRIVERS)
    settings = GameSettings(driver=driver) if games is None else load_games(Path(games))[0]
    if settings.driver != driver:
        raise InvalidGameSettings(
            f"{games}: expected a game of driver {driver}, found {settings.driver}: name another."
        )
    if game_speed > _FASTEST:
        raise InvalidGameSettings(
            f"game_speed: expected at most {_FASTEST:g} for a running game, found {game_speed:g}."
        )
    # Imported here: on a machine that only simulates, nothing of a game PC need be there.
    from soulsgraph_envs.soulsgym.live_world import LiveWorld

    if game_speed != 1.0:
        settings = replace(settings, speed=game_speed)
    return LiveWorld(make_link(settings), settings, refills)
