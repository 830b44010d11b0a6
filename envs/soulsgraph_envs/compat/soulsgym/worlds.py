"""The worlds below an environment, by the name of their driver: the simulator, or a running game."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from math import cos, sin
from pathlib import Path

import numpy as np

from soulsgraph_envs.compat.soulsgym.fight import (
    BossFight,
    Floats,
    GameState,
    InvalidGameSettings,
    Pose,
    frost_of,
    player_table,
)
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.core.scenario import Scenario, load_boss, load_player
from soulsgraph_envs.core.seeds import Seeds, derive_seeds
from soulsgraph_envs.core.state import RAW_SIZE, Control, Raw
from soulsgraph_envs.games.cycle_timer import Clock
from soulsgraph_envs.games.episode_start import draw_start
from soulsgraph_envs.games.link import SIMULATOR, Driver, GameSettings, Link, LinkError, Reading, load_games
from soulsgraph_envs.games.live_game import LiveGame
from soulsgraph_envs.games.opening import make_link
from soulsgraph_envs.games.readings import Row, arena_of, boss_table
from soulsgraph_envs.games.readings import player_table as animations_of
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.layout import FRAMES_PER_S

_LANE = np.zeros(1, np.int64)
_CAMERA = tuple(f"camera_{what}{axis}" for what in ("position_", "") for axis in "xyz")
_POSES = {who: tuple(f"{who}_{what}" for what in ("x", "y", "z", "angle")) for who in ("player", "boss")}


class SoulsGymWorld(ABC):
    """One fight at a time, standing still between steps of one tick of `game`, 0.1 s of its time.

    `repeatable`: the same seeds and controls give the same fight.
    Everything but `close` raises `GameError` where the game does not answer.
    """

    game: Simulator | LiveGame
    repeatable: bool

    @abstractmethod
    def begin(self, fight: BossFight, scenario: Scenario, start: Pose, seed: int) -> GameState:
        """Begin a fight with the player at `start` and the boss at its own, facing each other with full HP."""

    @abstractmethod
    def advance(self, controls: Control) -> GameState:
        """Hold and press `controls` for one step; return the state at its end."""

    def frame(self, height: int, width: int) -> Picture:
        """Draw the fight, or capture the game's window, which shows what it last drew."""
        return self.game.render(0, (height, width))

    def close(self) -> None:
        """Release every key and leave the game playable; a second call does nothing."""
        self.game.close()

    def _follow(self, fight: BossFight, scenario: Scenario) -> None:
        """Follow the animations and the phase of a fight that begins."""
        self._fight, self._scenario = fight, scenario
        #: The animation of each fighter, and the seconds since it began.
        self._playing = {"player": ("", 0.0), "boss": ("", 0.0)}
        self._phase = load_boss(scenario.boss).phase

    def _state(self, reading: Reading, player: str, boss: str) -> GameState:
        """Return the state that a reading shows, the fighters being in these animations."""
        transition = self._scenario.transition
        if transition is not None and boss == transition.animation.name:
            self._phase = 2
        for who, name, looped in (("player", player, player_table().looped), ("boss", boss, self._fight.looped)):
            before, elapsed_s = self._playing[who]
            # The game's own time starts again with every repeat of a looped one.
            repeats = name == before and name in looped
            time_s = elapsed_s + self.game.tick_s if repeats else float(reading[f"{who}_animation_time_s"])
            self._playing[who] = name, time_s
        full_resistance = float(reading.get("frost_resistance_max", 0.0))
        return GameState(
            phase=self._phase,
            player_hp=float(reading["player_hp"]),
            player_max_hp=float(reading["player_hp_max"]),
            player_sp=float(reading["player_stamina"]),
            player_max_sp=float(reading["player_stamina_max"]),
            boss_hp=float(reading["boss_hp"]),
            boss_max_hp=float(reading["boss_hp_max"]),
            player_pose=_array(reading, _POSES["player"]),
            boss_pose=_array(reading, _POSES["boss"]),
            camera_pose=_array(reading, _CAMERA),
            player_animation=player,
            player_animation_duration=self._playing["player"][1],
            boss_animation=boss,
            boss_animation_duration=self._playing["boss"][1],
            lock_on=float(reading["locked"]) > 0,
            frost_resistance=float(reading["frost_resistance"]) / full_resistance if full_resistance > 0.0 else 1.0,
            frost_effect=float(reading.get("frost_effect", 0.0)),
        )


def _array(reading: Reading, names: Collection[str]) -> Floats:
    return np.array([float(reading[name]) for name in names])


#: Where the simulated camera stands: so far behind the player's head, which is so high. No game says.
_BEHIND_M, _HEAD_M = 4.0, 1.5
#: A press turns the camera to where the player looks, which is to the boss; the next takes the lock.
_PRESSES_TO_LOCK_ON = 2
#: The simulator's values by the names of a running game's.
_FIELDS = [f"player_{raw.name}".lower() if raw.name.startswith("STAMINA") else raw.name.lower() for raw in Raw]


class SimulatedWorld(SoulsGymWorld):
    """Fight in the simulator; HP really moves, and a fight repeats exactly."""

    repeatable = True

    def __init__(self) -> None:
        self.game: Simulator = Simulator(1)
        self._raw = np.zeros((1, RAW_SIZE))

    def begin(self, fight: BossFight, scenario: Scenario, start: Pose, seed: int) -> GameState:
        """Begin a fight with the player at `start`, the boss at its own, the lock taken."""
        self._follow(fight, scenario)
        self._frost = frost_of(scenario.boss)
        self._raw = self.game.reset(_LANE, scenario, derive_seeds(seed))
        for who, (x, y, _, angle) in (("player", start), ("boss", fight.coordinates.boss_init_pose)):
            self.game.override(0, **{f"{who}_x": x, f"{who}_y": y, f"{who}_heading": angle})
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

    def _step(self, controls: Control) -> None:
        self._raw = self.game.step(np.array([controls], np.uint32))
        # Fighters stop at the arena's limits: the simulator's own ground is a disc, and may be wider.
        low, high = self._fight.arena_low_m[:2], self._fight.arena_high_m[:2]
        for who, x in (("player", Raw.PLAYER_X), ("boss", Raw.BOSS_X)):
            place = self._raw[0, x : x + 2]
            within = np.clip(place, low, high)
            if (within != place).any():
                self.game.override(0, **{f"{who}_x": within[0], f"{who}_y": within[1]})

    def _look(self) -> GameState:
        raw, names = self._raw[0], self.game.animation_names(0)
        looks = raw[Raw.CAMERA_X : Raw.CAMERA_Z + 1]
        head = raw[Raw.PLAYER_X : Raw.PLAYER_Z + 1] + np.array((0.0, 0.0, _HEAD_M))
        reading = dict(zip(_FIELDS, raw.tolist(), strict=True))
        reading |= dict(zip(_CAMERA, (*(head - _BEHIND_M * looks), *looks), strict=True))
        if self._frost is not None:
            values = self.game.values(0)
            # The shares that are left.
            reading["frost_resistance"] = 1.0 - values["build_up"] / self._frost.threshold
            reading["frost_resistance_max"] = 1.0
            reading["frost_effect"] = values["slowed_frames"] / FRAMES_PER_S / self._frost.slowed_s
        return self._state(reading, names.player, self._fight.in_game(names.boss))


#: A driver that keeps everyone alive leaves them this much.
_LAST_POINT = 1.0


class LiveWorld(SoulsGymWorld):
    """Fight in a running game, its clock stopped between steps where the map has it.

    With `refills` its levels are restored after every step, and HP are counted here, so that no phase
    changes by itself. Without, HP are the game's own. In both cases nobody dies in the game, as that
    would unload the fight: a fighter left with the last point counts as dead.
    """

    repeatable = False

    def __init__(self, link: Link, settings: GameSettings, refills: bool, clock: Clock | None = None) -> None:
        self.game: LiveGame = LiveGame(link, settings, clock, draw=self._draw)
        self._refills = refills

    def begin(self, fight: BossFight, scenario: Scenario, start: Pose, seed: int) -> GameState:
        """Begin a fight with the player at `start`, the boss at its own, the camera on it.

        Raises:
            InvalidGameSettings: for a later phase of a boss that passes into none by itself.
        """
        boss = load_boss(scenario.boss)
        if boss.phase > 1 and arena_of(scenario, boss.name).transition is None:
            raise InvalidGameSettings(
                f"phase {boss.phase} of {boss.name}: a running game cannot be kept in it: take 1."
            )
        self._follow(fight, scenario)
        self._starts = start, fight.coordinates.boss_init_pose
        self._animations = animations_of(load_player(scenario.player)), boss_table(boss)
        self._stand_still(False)
        self.game.reset(_LANE, replace(scenario, refill=self._refills), derive_seeds(seed))
        self._hp = {name: float(self.game.reading[name]) for name in ("player_hp", "boss_hp")}
        self._stand_still(True)
        return self._look()

    def advance(self, controls: Control) -> GameState:
        """Hold and press `controls` for one step; return the state at its end."""
        self._stand_still(False)
        self.game.step(np.array([controls], np.uint32))
        self._stand_still(True)
        full = {"player_hp": float(self.game.reading["player_hp_max"]), "boss_hp": self._scenario.boss_hp[0]}
        for name, before in self._hp.items():
            hp = float(self.game.reading[name])
            hp = hp if hp > _LAST_POINT else 0.0
            self._hp[name] = max(before - (full[name] - hp), 0.0) if self._refills else hp
        return self._look()

    def close(self) -> None:
        """Let the game's clock run, release every key and disconnect from the game."""
        self._stand_still(False)
        super().close()

    def _stand_still(self, still: bool) -> None:
        # A game that is away says so in the next reset or step, which let go of the keys as well.
        with suppress(LinkError):
            self.game.stand_still(still)

    def _draw(self, scenario: Scenario, seeds: Seeds) -> Row:
        """Return the start that the environment asked for, the camera looking where the player does."""
        row, (player, boss) = draw_start(scenario, seeds).copy(), self._starts
        row[Raw.PLAYER_X : Raw.PLAYER_Z + 1], row[Raw.PLAYER_ANGLE] = player[:3], player[3]
        row[Raw.BOSS_X : Raw.BOSS_Z + 1], row[Raw.BOSS_ANGLE] = boss[:3], boss[3]
        row[Raw.CAMERA_X : Raw.CAMERA_Z + 1] = -sin(player[3]), -cos(player[3]), 0.0
        return row

    def _look(self) -> GameState:
        player, boss = (str(table.key(self.game.reading)) for table in self._animations)
        # A running game has names of its own; the stand-in has the simulator's.
        return self._state({**self.game.reading, **self._hp}, player, self._fight.in_game(boss))


def make_world(driver: Driver, games: str | Path | None, game_speed: float, refills: bool) -> SoulsGymWorld:
    """Open the world of a driver, or of the first game of the file `games`.

    `game_speed` replaces the speed in that file unless it is 1; the simulator ignores it.
    """
    settings = GameSettings(driver=driver) if games is None else load_games(Path(games))[0]
    if settings.driver == SIMULATOR:
        return SimulatedWorld()
    if game_speed != 1.0:
        settings = replace(settings, speed=game_speed)
    return LiveWorld(make_link(settings), settings, refills)
