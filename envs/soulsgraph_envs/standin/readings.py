"""The values in the stand-in's memory: every field that a map may have."""

from __future__ import annotations

from soulsgraph_envs.catalogue import load_boss
from soulsgraph_envs.simulator.layout import FRAMES_PER_S
from soulsgraph_envs.standin.blocks import Value
from soulsgraph_envs.standin.world import World
from soulsgraph_envs.state import Raw

_CAMERA_BEHIND_M, _CAMERA_ABOVE_M = 4.0, 1.5
#: While a blow shows, the boss's animation has this name; its attack number stays.
_BLEND_NAME = "PartBlend_Default"
#: Fields that are raw values as they stand.
_PLAIN = {
    **{name.lower(): Raw[name] for name in ("PLAYER_X", "PLAYER_Y", "PLAYER_ANGLE", "PLAYER_HP", "PLAYER_HP_MAX")},
    **{f"player_{name.lower()}": Raw[name] for name in ("STAMINA", "STAMINA_MAX")},
    **{name.lower(): Raw[name] for name in ("BOSS_X", "BOSS_Y", "BOSS_Z", "BOSS_ANGLE", "BOSS_HP", "BOSS_HP_MAX")},
    **{name.lower(): Raw[name] for name in ("CAMERA_X", "CAMERA_Y", "CAMERA_Z", "LOCKED", "FLASKS")},
    **{
        f"{who}_animation_{what}_s": Raw[f"{who}_animation_{what}_s".upper()]
        for who in ("player", "boss")
        for what in ("time", "length")
    },
    # No public source gives the game's numbers of these animations: those of the skills stand in for them.
    "player_animation_id": Raw.PLAYER_ANIMATION,
    "boss_animation_id": Raw.BOSS_ANIMATION,
}


class Readings:
    """A function that returns the value of every field of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        boss = load_boss(world.scenario.boss)
        self._idle, self._threshold = boss.animations.idle, boss.status.threshold

    def __call__(self) -> dict[str, Value]:
        """Return every field's value."""
        world, row = self._world, self._world.row()
        values: dict[str, Value] = {name: row[raw] for name, raw in _PLAIN.items()}
        values["player_z"] = z = world.player_z
        values["camera_position_x"] = row[Raw.PLAYER_X] - _CAMERA_BEHIND_M * row[Raw.CAMERA_X]
        values["camera_position_y"] = row[Raw.PLAYER_Y] - _CAMERA_BEHIND_M * row[Raw.CAMERA_Y]
        values["camera_position_z"] = z - _CAMERA_BEHIND_M * row[Raw.CAMERA_Z] + _CAMERA_ABOVE_M
        values["boss_name"] = world.surroundings.boss_name
        values["boss_flags"] = world.boss_flags
        values["online"] = 0.0
        values["play_time_s"] = world.frames / FRAMES_PER_S
        return values | world.switches | self._animations() | self._frost()

    def _animations(self) -> dict[str, Value]:
        world, names = self._world, self._world.simulator.animation_names(0)
        shown: dict[str, Value] = {
            "player_animation": names.player,
            "boss_animation": names.boss if world.fighting else self._idle.name,
            "boss_attack_id": names.boss_attack,
            "boss_attack_id_fallback": names.boss_attack,
        }
        if world.blended > 0:
            shown["boss_animation"] = _BLEND_NAME
        if names.boss_attack >= 0:
            shown["boss_animation_id"] = names.boss_attack
        if world.interlude:
            shown["player_animation"] = world.interlude.name
            shown["player_animation_length_s"] = world.interlude.length_s
            shown["player_animation_time_s"] = min(world.stage_frame / FRAMES_PER_S, world.interlude.length_s)
        return shown

    def _frost(self) -> dict[str, Value]:
        if self._threshold <= 0.0:
            return {"frost_resistance": 0.0, "frost_resistance_max": 0.0, "frost_effect": 0.0}
        fight = self._world.simulator.values(0)
        return {
            "frost_resistance": self._threshold - fight["build_up"],
            "frost_resistance_max": self._threshold,
            "frost_effect": float(fight["slowed_frames"] > 0),
        }
