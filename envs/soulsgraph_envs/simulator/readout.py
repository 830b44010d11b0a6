"""Write a lane's raw values, as they would be read from a game's memory."""

from __future__ import annotations

from math import cos, sin

from soulsgraph_envs.simulator.compiling import compiled
from soulsgraph_envs.simulator.layout import FRAME_S, NO_MOVE, Encounter, Lane, Player, Tables
from soulsgraph_envs.state import Raw, RawValues

_R = {name: int(value) for name, value in Raw.__members__.items()}
_PLAYER, _BOSS, _CAMERA = _R["PLAYER_X"], _R["BOSS_X"], _R["CAMERA_X"]
_PLAYER_ANGLE, _BOSS_ANGLE = _R["PLAYER_ANGLE"], _R["BOSS_ANGLE"]
_PLAYER_HP, _PLAYER_HP_MAX, _STAMINA, _STAMINA_MAX = (
    _R["PLAYER_HP"],
    _R["PLAYER_HP_MAX"],
    _R["STAMINA"],
    _R["STAMINA_MAX"],
)
_BOSS_HP, _BOSS_HP_MAX, _LOCKED, _FLASKS = _R["BOSS_HP"], _R["BOSS_HP_MAX"], _R["LOCKED"], _R["FLASKS"]
_BOSS_ANIMATION, _PLAYER_ANIMATION = _R["BOSS_ANIMATION"], _R["PLAYER_ANIMATION"]


@compiled
def write_raw(lane: Lane, tables: Tables, raw: RawValues, index: int) -> None:
    """Fill the lane's row of raw (lanes, 25)."""
    encounter, player = tables.encounters[lane.scenario], tables.players[lane.scenario]
    _write_places(lane, encounter, raw, index)
    _write_levels(lane, encounter, player, raw, index)
    if lane.move == NO_MOVE:
        stance = tables.stances[lane.scenario, lane.stance]
        _write_animation(raw, index, _BOSS_ANIMATION, stance.id, lane.stance_frame, stance.length_frames)
    else:
        move = tables.moves[lane.scenario, lane.move]
        _write_animation(raw, index, _BOSS_ANIMATION, move.id, lane.move_frame, move.length_frames)
    action = tables.actions[lane.scenario, lane.animation]
    _write_animation(raw, index, _PLAYER_ANIMATION, action.id, lane.animation_frame, action.length_frames)


@compiled
def _write_places(lane: Lane, encounter: Encounter, raw: RawValues, index: int) -> None:
    raw[index, _PLAYER], raw[index, _PLAYER + 1] = lane.player_x, lane.player_y
    raw[index, _BOSS], raw[index, _BOSS + 1] = lane.boss_x, lane.boss_y
    raw[index, _PLAYER + 2] = raw[index, _BOSS + 2] = encounter.height
    level = cos(lane.camera_pitch)
    raw[index, _CAMERA] = -sin(lane.camera_yaw) * level
    raw[index, _CAMERA + 1] = -cos(lane.camera_yaw) * level
    raw[index, _CAMERA + 2] = sin(lane.camera_pitch)
    raw[index, _PLAYER_ANGLE], raw[index, _BOSS_ANGLE] = lane.player_heading, lane.boss_heading


@compiled
def _write_levels(lane: Lane, encounter: Encounter, player: Player, raw: RawValues, index: int) -> None:
    raw[index, _PLAYER_HP], raw[index, _PLAYER_HP_MAX] = lane.player_hp, player.body_hp
    raw[index, _STAMINA], raw[index, _STAMINA_MAX] = lane.stamina, player.body_stamina
    raw[index, _BOSS_HP], raw[index, _BOSS_HP_MAX] = lane.boss_hp, encounter.boss_hp_full
    raw[index, _LOCKED], raw[index, _FLASKS] = lane.locked, lane.flasks


@compiled
def _write_animation(raw: RawValues, index: int, column: int, animation: int, frame: int, length: int) -> None:
    raw[index, column] = animation
    raw[index, column + 1] = (frame % length) * FRAME_S
    raw[index, column + 2] = length * FRAME_S
