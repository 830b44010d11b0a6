"""The records of the compiled code: one per lane, and one per table row of the data.

A record's class gives its fields and their types; `dtype_of` makes the numpy layout from it. All
times in them are whole frames.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_type_hints

import numpy as np
import numpy.typing as npt

FRAMES_PER_S = 60
FRAME_S = 1.0 / FRAMES_PER_S

Records = npt.NDArray[Any]

#: The player's animations in the order of `PlayerAnimations`.
PLAYER_ANIMATIONS = 20
IDLE, RUN, ROLL, BACKSTEP, LIGHT_1, LIGHT_2, LIGHT_3, ROLLING_ATTACK, ESTUS, ESTUS_EMPTY, STAGGER, KNOCKDOWN = range(12)
HEAVY_1_START, HEAVY_1, HEAVY_2_START, HEAVY_2, WEAPON_ART, PARRY, RIPOSTE, JUMP = range(12, PLAYER_ANIMATIONS)
#: What the one-slot input buffer holds.
NOTHING, WANT_ITEM, WANT_ATTACK, WANT_ROLL, WANT_HEAVY, WANT_WEAPON_ART, WANT_PARRY, WANT_JUMP = range(8)
#: The boss's stances between moves, in the order of `BossAnimations`, then the change of phase. From
#: `PARRIED` on it is bound: it does nothing of its own until they end.
BOSS_STANCES = 7
STAND, APPROACH, BACK_OFF, TURN, PARRIED, THROWN, TRANSITION = range(BOSS_STANCES)
#: `Lane.move` between moves.
NO_MOVE = -1


class Lane:
    """One fight. Headings are the game's angles: heading a faces (-sin a, -cos a)."""

    scenario: int
    refill: int
    player_x: float
    player_y: float
    player_heading: float
    player_hp: float
    stamina: float
    regeneration_wait: int
    animation: int
    animation_frame: int
    roll_x: float
    roll_y: float
    invulnerable: int
    push_x: float
    push_y: float
    push_frames: int
    buffered: int
    buffer_frames: int
    flasks: int
    camera_yaw: float
    camera_pitch: float
    locked: int
    boss_x: float
    boss_y: float
    boss_heading: float
    boss_hp: float
    stance: int
    stance_frame: int
    move: int
    move_frame: int
    struck: int
    chain_left: int
    wait: int
    turn_frames: int
    leap_x: float
    leap_y: float
    build_up: float
    slowed_frames: int
    slowed_factor: float
    fp: float
    #: Set from outside a fight: the boss begins no move, nobody leaves the spot or turns, nobody loses HP.
    no_attack: int
    no_move: int
    no_damage: int


class Encounter:
    """A scenario's own numbers."""

    centre_x: float
    centre_y: float
    height: float
    radius: float
    flasks: int
    boss_hp: float
    boss_hp_full: float
    distance_min: float
    distance_max: float
    facing: int
    refill: int


class Player:
    """The player's numbers, named after the groups and keys of the data."""

    #: The bits of `Control` that this player answers to.
    controls: int
    estus_heal: float
    body_hp: float
    body_stamina: float
    body_fp: float
    body_radius_m: float
    body_regeneration_per_s: float
    body_regeneration_delay_frames: int
    body_buffer_frames: int
    run_speed_m_s: float
    run_locked_factor: float
    roll_speed_m_s: float
    roll_invulnerable_frames: int
    roll_slow_after_frames: int
    roll_slow_factor: float
    roll_backstep_m_s: float
    weapon_art_fp_cost: float
    parry_window_min_frames: int
    parry_window_max_frames: int
    parry_facing_rad: float
    parry_reach_m: float
    jump_airborne_frames: int
    hurt_invulnerable_min_frames: int
    hurt_invulnerable_max_frames: int
    hurt_push_min_m_s: float
    hurt_push_max_m_s: float
    hurt_push_frames: int
    hurt_counter_factor: float
    camera_yaw_rad_s: float
    camera_pitch_rad_s: float
    camera_pitch_limit_rad: float
    camera_follow_rad_s: float
    camera_lock_view_rad: float
    camera_lock_range_m: float
    camera_lock_break_m: float


class Action:
    """One animation of the player, with its blow if it is one, or a stance of the boss (id and length alone).

    `regeneration` is the share of stamina that comes back meanwhile. Until `hit_frames` the animation
    carries the player at `step_m_s`.
    """

    id: int
    length_frames: int
    attack_frames: int
    roll_frames: int
    move_frames: int
    hit_frames: int
    cost: float
    regeneration: float
    damage_min: float
    damage_max: float
    reach_m: float
    facing_rad: float
    step_m_s: float


class Boss:
    """The boss's numbers, named after the groups and keys of the data; those of its transition are the scenario's.

    A missing stance takes 0 frames; a missing transition is at an HP below 0.
    """

    moves: int
    parried_frames: int
    thrown_frames: int
    transition_below_hp: float
    transition_frames: int
    radius_m: float
    damage_spread: float
    motion_walk_m_s: float
    motion_approach_beyond_m: float
    motion_back_off_m_s: float
    motion_back_off_within_m: float
    motion_turn_rad_s: float
    motion_tracking_factor: float
    motion_leap_short_m: float
    aggression_wait_min_frames: int
    aggression_wait_max_frames: int
    aggression_near_m: float
    aggression_near_wait_min_frames: int
    aggression_near_wait_max_frames: int
    aggression_chain_chance: float
    aggression_chain_most: int
    rear_angle_rad: float
    rear_distance_m: float
    rear_counter_move: int
    rear_counter_chance: float
    rear_turn_frames: int
    enraged_below_hp: float
    enraged_damage_factor: float
    enraged_wait_factor: float
    enraged_chain_chance: float
    status_threshold: float
    status_decay_per_s: float
    status_burst_hp_ratio: float
    status_regeneration_factor: float
    status_slowed_frames: int


class Move:
    """One move of the boss, its times already stretched by the boss's time factor."""

    id: int
    windows: int
    length_frames: int
    tracks_frames: int
    lunge_m_s: float
    lunge_min_frames: int
    lunge_max_frames: int
    leap_frames: int
    distance_min_m: float
    distance_max_m: float
    weight: float
    runs_through: int
    enraged_weight: float
    parryable: int


class Window:
    """One hit window, its damage already scaled by the boss's damage factor."""

    time_min_frames: int
    time_max_frames: int
    reach_m: float
    half_arc_rad: float
    damage: float
    knockdown: int
    staggers: int
    every_frames: int
    offset_m: float
    build_up: float
    low: int


class Tables(NamedTuple):
    """All scenarios' data as record arrays; the first axis is the scenario, or a phase of one.

    encounters, players, bosses (s,); actions (s, 20); stances (s, 7); moves (s, moves);
    windows (s, moves, windows). A scenario with a transition is followed by its next phase.
    """

    encounters: Records
    players: Records
    actions: Records
    bosses: Records
    stances: Records
    moves: Records
    windows: Records


def dtype_of(record: type) -> np.dtype[np.void]:
    """Make the numpy record layout of a record class: int64 and float64 fields in its order.

    Scalars of it have their fields as attributes, so that the code also runs without being compiled.
    """
    kinds = {int: np.int64, float: np.float64}
    return np.dtype((np.record, [(name, kinds[hint]) for name, hint in get_type_hints(record).items()]))


def as_bytes(records: Records) -> Records:
    """View records as bytes: the last axis grows by the record's size, the memory is shared."""
    return records.view(np.uint8)
