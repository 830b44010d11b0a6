"""The stand-in's course of events, from the bonfire to a death, and what its memory shows of them."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from math import hypot, isfinite

import numpy as np

from soulsgraph_envs.core.scenario import Scenario, load_boss, load_player
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.games.link import FIELDS, Reading
from soulsgraph_envs.games.readings import RAW_FIELDS
from soulsgraph_envs.games.standin.launch import Interlude, Pose, Surroundings
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.layout import FRAMES_PER_S
from soulsgraph_envs.simulator.scene import Activity, Goal, Scene

_FASTEST = 10.0
#: Bits of the boss's flags, as in Dark Souls III.
DEFEATED, ENCOUNTERED, SWORD_PULLED = 1 << 7, 1 << 6, 1 << 5
#: Ground that is wide enough for the way from the bonfire.
_WIDE_M, _ROUNDING_M = 1000.0, 1e-6
_GATE_REACH_M, _SWORD_REACH_M = 1.5, 3.5
#: How long a blow that lands shows in the boss's animation.
_BLEND_S = 0.4
_ATTACKS = Control.LIGHT_ATTACK | Control.HEAVY_ATTACK | Control.WEAPON_ART | Control.PARRY
_LOOKING = Control.LOCK_ON | Control.CAMERA_UP | Control.CAMERA_DOWN | Control.CAMERA_LEFT | Control.CAMERA_RIGHT
#: What of the fight others may write, and its name in the simulator.
_OF_THE_FIGHT = {
    **{f"{who}_{axis}": f"{who}_{axis}" for who in ("player", "boss") for axis in "xy"},
    **{f"{who}_angle": f"{who}_heading" for who in ("player", "boss")},
    "player_hp": "player_hp",
    "player_stamina": "stamina",
    "flasks": "flasks",
    "boss_hp": "boss_hp",
}
_OF_THE_COURSE = {*_OF_THE_FIGHT, "player_z", "boss_z", "boss_flags"}
#: What the game only keeps.
_KEPT = [name for name, field in FIELDS.items() if field.writable and name not in _OF_THE_COURSE]

_CAMERA_BEHIND_M, _CAMERA_ABOVE_M = 4.0, 1.5
#: While a blow shows, the boss's animation has this name; its attack number stays.
_BLEND_NAME = "PartBlend_Default"
#: Fields that are raw values as they stand.
_PLAIN = {name: raw for raw, name in RAW_FIELDS.items()} | {
    "flasks": Raw.FLASKS,
    # No public source gives the game's numbers of these animations: those of the skills stand in for them.
    "player_animation_id": Raw.PLAYER_ANIMATION,
    "boss_animation_id": Raw.BOSS_ANIMATION,
}


class CourseStage(Enum):
    """The stages of the player's course."""

    PLAYING = "playing"
    PASSING_GATE = "passing the fog gate"
    DYING = "dying"
    LOADING = "loading"
    RISING = "rising"


class StandInWorld:
    """The game behind the window, frame by frame.

    `switches` are the flags and numbers that the game keeps as they are written. `died` is whether the player died and
    has not come back through the fog gate. `loads` counts loading screens, after each of which all addresses are new. A
    boss that was never `met` rests until the player wakes it.
    """

    def __init__(
        self, surroundings: Surroundings, scenario: Scenario, seed: int, at_bonfire: bool, met: bool = True
    ) -> None:
        self.surroundings, self.scenario = surroundings, scenario
        self.switches = dict.fromkeys(_KEPT, 0.0) | {"game_speed": 1.0, "game_speed_on": 1.0} | surroundings.switches
        self.simulator = Simulator(1, 1.0 / FRAMES_PER_S)
        self._ground = self._wide = replace(scenario, arena=replace(scenario.arena, radius_m=_WIDE_M))
        boss = load_boss(scenario.boss)
        self._idle, self._threshold = boss.animations.idle.name, boss.status.threshold
        self._edges_m = {
            "player": scenario.arena.radius_m - load_player(scenario.player).body.radius_m + _ROUNDING_M,
            "boss": scenario.arena.radius_m - boss.radius_m + _ROUNDING_M,
        }
        self._seed, self._controls = seed, np.zeros(1, np.uint32)
        self.frames = self.loads = self.blended = 0
        self.boss_flags = surroundings.awake_flags if met else 0
        self.stage, self.stage_frame = CourseStage.PLAYING, 0
        self.inside, self.died, self._boss_lives = False, False, True
        self._z, self._resting = 0.0, dict[str, float]()
        self._interludes = {
            CourseStage.PASSING_GATE: surroundings.pass_gate,
            CourseStage.DYING: surroundings.die,
            CourseStage.LOADING: surroundings.load,
            CourseStage.RISING: surroundings.rise,
        }
        # Both grounds once, and a frame on them, so that neither tables nor code are made in the midst of a fight.
        self._reset(scenario)
        self.simulator.step(self._controls)
        self._wake_at_bonfire()
        if not at_bonfire:
            self._reset(scenario)
            self.inside = True
            self._rest()

    @property
    def speed(self) -> float:
        """The factor of the game's clock; 0 stops it."""
        factor = self.switches["game_speed"] if self.switches["game_speed_on"] else 1.0
        return min(max(factor, 0.0), _FASTEST) if isfinite(factor) else 1.0

    @property
    def fighting(self) -> bool:
        """Whether the boss is awake and the player in its arena."""
        awake = self.surroundings.awake_flags
        ready = self.boss_flags & (awake | DEFEATED) == awake
        return self.inside and ready and self.stage is CourseStage.PLAYING and self._in_arena("player")

    @property
    def goal(self) -> Goal | None:
        """Where the player has to walk next, and interact there; None while there is a fight, or nothing left to do."""
        if self.boss_flags & DEFEATED or self.stage not in (CourseStage.PLAYING, CourseStage.RISING):
            return None
        if not self.inside:
            return Goal(*self.surroundings.places.gate_outside[:2], "the fog gate")
        awake = self.surroundings.awake_flags
        resting = self.boss_flags & awake != awake
        return Goal(self[Raw.BOSS_X], self[Raw.BOSS_Y], "the boss's sword") if resting else None

    def scene(self) -> Scene:
        """Return what the window draws: the fight, whether the player died, and where to go."""
        scene = replace(self.simulator.scene(0), goal=self.goal)
        if not self.fighting and self.stage is not CourseStage.DYING:
            scene = replace(scene, boss=Activity("rests", 0.0))
        if self.stage is CourseStage.DYING:
            return replace(scene, banner="YOU DIED", hint="You wake at the bonfire in a moment.")
        return scene if self.inside else replace(scene, banner="")

    @property
    def interlude(self) -> Interlude | None:
        """The interlude that binds the player, if any."""
        return self._interludes.get(self.stage)

    @property
    def player_z(self) -> float:
        """The player's height."""
        if self.switches["player_no_gravity"]:
            return self._z
        if self.inside and self._in_arena("player"):
            return self.scenario.arena.height_m
        return self.surroundings.places.ground_z(self[Raw.PLAYER_X], self[Raw.PLAYER_Y])

    def __getitem__(self, value: Raw) -> float:
        return float(self._raw[0, value])

    def frame(self, controls: Control) -> None:
        """Advance by one frame of 1/60 s, with what is held and pressed in it."""
        self.frames += 1
        self.stage_frame += 1
        if self.stage is not CourseStage.LOADING:
            self._advance(controls if self.stage is CourseStage.PLAYING else Control.NONE)
        if self.interlude and self.stage_frame >= self.interlude.length_s * FRAMES_PER_S:
            self._end_stage()

    def write(self, values: Reading) -> None:
        """Apply what other programs wrote to the fields that may be written."""
        numbers = {name: float(value) for name, value in values.items() if isfinite(float(value))}
        self.boss_flags = int(numbers.pop("boss_flags", self.boss_flags))
        self._z = numbers.get("player_z", self._z)
        self.switches |= {name: value for name, value in numbers.items() if name in self.switches}
        self._put(**{_OF_THE_FIGHT[name]: value for name, value in numbers.items() if name in _OF_THE_FIGHT})
        self._rest()
        if numbers.get("player_hp", 1.0) <= 0.0:
            self.kill_player()

    def kill_player(self) -> None:
        """Let the player die, whatever the flags say."""
        if self.stage not in (CourseStage.DYING, CourseStage.LOADING):
            self._put(player_hp=0.0)
            self.died = True
            self._begin(CourseStage.DYING)

    def readings(self) -> dict[str, float | str]:
        """Return the value of every field but those of the window."""
        row: list[float] = self._raw[0].tolist()
        values: dict[str, float | str] = {name: row[raw] for name, raw in _PLAIN.items()}
        values["player_z"] = z = self.player_z
        values["camera_position_x"] = row[Raw.PLAYER_X] - _CAMERA_BEHIND_M * row[Raw.CAMERA_X]
        values["camera_position_y"] = row[Raw.PLAYER_Y] - _CAMERA_BEHIND_M * row[Raw.CAMERA_Y]
        values["camera_position_z"] = z - _CAMERA_BEHIND_M * row[Raw.CAMERA_Z] + _CAMERA_ABOVE_M
        values |= {"boss_name": self.surroundings.boss_name, "boss_flags": self.boss_flags, "online": 0.0}
        values["play_time_s"] = self.frames / FRAMES_PER_S
        return values | self.switches | self._animations() | self._frost()

    def _advance(self, controls: Control) -> None:
        if Control.INTERACT in controls:
            self._interact()
        boss_hp = self[Raw.BOSS_HP]
        self._choose_ground()
        self._hold()
        self._controls[0] = int(self._permitted(controls))
        self.simulator.step(self._controls)
        if not self.fighting or self.switches["no_ai"]:
            self._put(**self._resting)
        self._rest()
        self._judge(boss_hp)

    def _choose_ground(self) -> None:
        """Hold both in the arena once they are there; a teleport out of it is followed."""
        within = self.inside and self._in_arena("player") and self._in_arena("boss")
        ground = self.scenario if within else self._wide
        if ground is not self._ground:
            self._ground = ground
            self.simulator.play_on(0, ground)

    def _permitted(self, controls: Control) -> Control:
        if self.switches["no_move"]:
            return controls & _LOOKING
        return controls & ~(_ATTACKS if self.switches["no_attack"] else Control.NONE)

    def _hold(self) -> None:
        flags = self.switches
        self.simulator.override(
            0,
            no_attack=float(not self.fighting or flags["no_attack"] > 0 or flags["no_ai"] > 0 or flags["no_move"] > 0),
            no_move=flags["no_move"],
            no_damage=float(flags["no_damage"] > 0 or flags["no_hit"] > 0),
        )

    def _judge(self, boss_hp: float) -> None:
        """Find who was hit and who died in a frame before which the boss had `boss_hp`."""
        self.blended = round(_BLEND_S * FRAMES_PER_S) if self[Raw.BOSS_HP] < boss_hp else self.blended - 1
        if self.switches["no_death"]:
            self._put(player_hp=max(self[Raw.PLAYER_HP], 1.0), boss_hp=max(self[Raw.BOSS_HP], 1.0))
        if self._boss_lives and self[Raw.BOSS_HP] <= 0.0:
            self._boss_lives = False
            self.boss_flags |= DEFEATED
        if self[Raw.PLAYER_HP] <= 0.0:
            self.kill_player()

    def _interact(self) -> None:
        places = self.surroundings.places
        if self._distance("player", places.gate_outside) < _GATE_REACH_M:
            self._begin(CourseStage.PASSING_GATE)
        elif self.inside and self._distance("player", (self[Raw.BOSS_X], self[Raw.BOSS_Y])) < _SWORD_REACH_M:
            self.boss_flags |= SWORD_PULLED

    def _begin(self, stage: CourseStage) -> None:
        self.stage, self.stage_frame = stage, 0

    def _end_stage(self) -> None:
        ended = self.stage
        self._begin(
            {CourseStage.DYING: CourseStage.LOADING, CourseStage.LOADING: CourseStage.RISING}.get(
                ended, CourseStage.PLAYING
            )
        )
        if ended is CourseStage.LOADING:
            self.loads += 1
            self._wake_at_bonfire()
        elif ended is CourseStage.PASSING_GATE:
            self.inside, self.died = True, False
            self.boss_flags |= ENCOUNTERED
            self._put_player(self.surroundings.places.gate_inside)

    def _wake_at_bonfire(self) -> None:
        self._reset(self._wide)
        self.inside = False
        x, y, _, angle = self.surroundings.places.boss
        self._put(boss_x=x, boss_y=y, boss_heading=angle)
        self._boss_lives = not self.boss_flags & DEFEATED
        if not self._boss_lives:
            self._put(boss_hp=0.0)
        self._put_player(self.surroundings.places.bonfire)
        self._rest()

    def _reset(self, ground: Scenario) -> None:
        self._ground = ground
        self._raw = self.simulator.reset(np.zeros(1, np.int64), ground, derive_seeds(self._seed, self.loads))

    def _put_player(self, pose: Pose) -> None:
        x, y, self._z, angle = pose
        self._put(player_x=x, player_y=y, player_heading=angle)

    def _put(self, **values: float) -> None:
        self.simulator.override(0, **values)

    def _rest(self) -> None:
        """Store the place where the boss stays while it rests."""
        x, y, heading = self[Raw.BOSS_X], self[Raw.BOSS_Y], self[Raw.BOSS_ANGLE]
        self._resting = {"boss_x": x, "boss_y": y, "boss_heading": heading}

    def _in_arena(self, who: str) -> bool:
        return self._distance(who, self.scenario.arena.centre_m) <= self._edges_m[who]

    def _distance(self, who: str, place: tuple[float, ...]) -> float:
        x, y = (Raw.PLAYER_X, Raw.PLAYER_Y) if who == "player" else (Raw.BOSS_X, Raw.BOSS_Y)
        return hypot(self[x] - place[0], self[y] - place[1])

    def _animations(self) -> dict[str, float | str]:
        names = self.simulator.animation_names(0)
        shown: dict[str, float | str] = {
            "player_animation": names.player,
            "boss_animation": names.boss if self.fighting else self._idle,
            "boss_attack_id": names.boss_attack,
            "boss_attack_id_fallback": names.boss_attack,
        }
        if self.blended > 0:
            shown["boss_animation"] = _BLEND_NAME
        if names.boss_attack >= 0:
            shown["boss_animation_id"] = names.boss_attack
        if self.interlude:
            shown["player_animation"] = self.interlude.name
            shown["player_animation_length_s"] = self.interlude.length_s
            shown["player_animation_time_s"] = min(self.stage_frame / FRAMES_PER_S, self.interlude.length_s)
        return shown

    def _frost(self) -> dict[str, float]:
        if self._threshold <= 0.0:
            return dict.fromkeys(("frost_resistance", "frost_resistance_max", "frost_effect"), 0.0)
        fight = self.simulator.values(0)
        return {
            "frost_resistance": self._threshold - fight["build_up"],
            "frost_resistance_max": self._threshold,
            "frost_effect": float(fight["slowed_frames"] > 0),
        }
