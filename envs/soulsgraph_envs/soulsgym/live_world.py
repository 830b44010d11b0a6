"""A running game as a world."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import cos, sin

import numpy as np

from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.pictures import Picture
from soulsgraph_envs.core.scenario import Scenario, load_boss, load_player
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.core.streams import Seeds, derive_seeds
from soulsgraph_envs.drivers.realtime.cycle_timer import Clock
from soulsgraph_envs.drivers.realtime.game import LiveGame
from soulsgraph_envs.drivers.realtime.link import GameSettings, Link, LinkError, Reading
from soulsgraph_envs.drivers.realtime.readings import Row, arena_of, boss_table
from soulsgraph_envs.drivers.realtime.readings import player_table as animations_of
from soulsgraph_envs.drivers.realtime.start import draw_start
from soulsgraph_envs.soulsgym.core.game_state import Floats, GameState
from soulsgraph_envs.soulsgym.data import Fight, Pose, player_table
from soulsgraph_envs.soulsgym.exception import InvalidGameSettings
from soulsgraph_envs.soulsgym.world import AnimationClock

_LANE = np.zeros(1, np.int64)
#: A driver that keeps everyone alive leaves them this much.
_LAST_POINT = 1.0
_CAMERA = tuple(f"camera_{what}{axis}" for what in ("position_", "") for axis in "xyz")
_NEEDED = frozenset(
    {
        *(f"{who}_{what}" for who in ("player", "boss") for what in ("x", "y", "z", "angle", "hp", "hp_max")),
        *(f"{who}_{what}" for who in ("player", "boss") for what in ("animation", "animation_time_s")),
        *(*_CAMERA, "player_stamina", "player_stamina_max", "locked"),
    }
)


class LiveWorld:
    """Fight in a running game, its clock stopped between steps where the map has it.

    With `refills` its levels are restored after every step, and HP are counted here, so that no phase
    changes by itself. Without, HP are the game's own. In both cases nobody dies in the game, as that
    would unload the fight: a fighter left with the last point counts as dead.

    Raises:
        InvalidGameSettings: if the link lacks something that SoulsGym's agents are shown.
    """

    repeatable = False

    def __init__(self, link: Link, settings: GameSettings, refills: bool, clock: Clock | None = None) -> None:
        if missing := sorted(_NEEDED - link.supplies):
            raise InvalidGameSettings(
                f"driver {settings.driver}: expected a map that supplies {', '.join(missing)}, found one that does "
                "not: take another map."
            )
        self._game = LiveGame(link, settings, clock, draw=self._draw)
        self.draws = self._game.capabilities.can_render
        self._refills = refills
        self.step_s = self._game.tick_s
        self._hp: dict[str, float] = {}
        self._phase = 0

    def controls(self, scenario: Scenario) -> Control:
        """Return the controls that have a key.

        Raises:
            InvalidGameSettings: for a later phase of a boss that passes into none by itself.
        """
        boss = load_boss(scenario.boss)
        if boss.phase > 1 and arena_of(scenario, boss.name).transition is None:
            raise InvalidGameSettings(
                f"phase {boss.phase} of {boss.name}: a running game cannot be kept in it: take 1."
            )
        return self._game.capabilities.controls

    def begin(self, fight: Fight, scenario: Scenario, start: Pose, seed: int) -> GameState:
        """Begin a fight with the player at `start`, the boss at its own, the camera on it."""
        self._fight, self._poses = fight, (start, fight.coordinates.boss_init_pose)
        self._clocks = AnimationClock(player_table().looped), AnimationClock(fight.looped)
        self._scenario, boss = scenario, load_boss(scenario.boss)
        self._names = animations_of(load_player(scenario.player)), boss_table(boss)
        self._phase = boss.phase
        self._stand_still(False)
        self._game.reset(_LANE, replace(scenario, refill=self._refills), derive_seeds(seed))
        self._hp = {who: float(self._game.reading[f"{who}_hp"]) for who in ("player", "boss")}
        self._stand_still(True)
        return self._look(self._game.reading)

    def advance(self, controls: Control) -> GameState:
        """Hold and press `controls` for one step; return the state at its end."""
        self._stand_still(False)
        self._game.step(np.array([controls], np.uint32))
        self._stand_still(True)
        for who in self._hp:
            self._count(who, self._game.reading)
        return self._look(self._game.reading)

    def frame(self, height: int, width: int) -> Picture:
        """Capture the game's window, which shows what the game last drew."""
        return self._game.render(0, (height, width))

    def close(self) -> None:
        """Let the game's clock run, release every key and disconnect from the game."""
        self._stand_still(False)
        self._game.close()

    def _stand_still(self, still: bool) -> None:
        # A game that is away says so in the next reset or step, which let go of the keys as well.
        with suppress(LinkError):
            self._game.stand_still(still)

    def _draw(self, scenario: Scenario, seeds: Seeds) -> Row:
        """Return the start that the environment asked for, the camera looking where the player does."""
        row, (player, boss) = draw_start(scenario, seeds).copy(), self._poses
        row[Raw.PLAYER_X : Raw.PLAYER_Z + 1], row[Raw.PLAYER_ANGLE] = player[:3], player[3]
        row[Raw.BOSS_X : Raw.BOSS_Z + 1], row[Raw.BOSS_ANGLE] = boss[:3], boss[3]
        row[Raw.CAMERA_X : Raw.CAMERA_Z + 1] = -sin(player[3]), -cos(player[3]), 0.0
        return row

    def _count(self, who: str, reading: Reading) -> None:
        hp = _number(reading, f"{who}_hp")
        hp = 0.0 if hp <= _LAST_POINT else hp
        if not self._refills:
            self._hp[who] = hp
            return
        full = _number(reading, "player_hp_max") if who == "player" else self._scenario.boss_hp[0]
        self._hp[who] = max(self._hp[who] - (full - hp), 0.0)

    def _look(self, reading: Reading) -> GameState:
        player, boss = (str(table.key(reading)) for table in self._names)
        # A running game has names of its own; the stand-in has the simulator's.
        boss = self._fight.in_game(boss)
        transition = self._scenario.transition
        if transition is not None and boss == transition.animation.name:
            self._phase = 2
        elapsed_s = [
            clock.elapsed_s(name, _number(reading, f"{who}_animation_time_s"), self.step_s)
            for clock, who, name in zip(self._clocks, ("player", "boss"), (player, boss), strict=True)
        ]
        return GameState(
            phase=self._phase,
            player_hp=self._hp["player"],
            player_max_hp=_number(reading, "player_hp_max"),
            player_sp=_number(reading, "player_stamina"),
            player_max_sp=_number(reading, "player_stamina_max"),
            boss_hp=self._hp["boss"],
            boss_max_hp=_number(reading, "boss_hp_max"),
            player_pose=_array(reading, "player_x", "player_y", "player_z", "player_angle"),
            boss_pose=_array(reading, "boss_x", "boss_y", "boss_z", "boss_angle"),
            camera_pose=_array(reading, *_CAMERA),
            player_animation=player,
            player_animation_duration=elapsed_s[0],
            boss_animation=boss,
            boss_animation_duration=elapsed_s[1],
            lock_on=_number(reading, "locked") > 0,
            frost_resistance=_share(reading, "frost_resistance"),
            frost_effect=float(reading.get("frost_effect", 0.0)),
        )


def _number(reading: Reading, name: str) -> float:
    return float(reading[name])


def _array(reading: Reading, *names: str) -> Floats:
    return np.array([_number(reading, name) for name in names])


def _share(reading: Reading, name: str) -> float:
    """Return a level as a share of its maximum; 1 if the game has neither."""
    most = float(reading.get(f"{name}_max", 0.0))
    return float(reading[name]) / most if most > 0.0 else 1.0
