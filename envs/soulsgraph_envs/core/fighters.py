"""The contents of the data files: the player's and the boss's animations, timings and numbers.

All times are seconds, lengths metres, angles radians, HP and stamina points. An animation's `id`
is what the skills see, fixed by the data; `name` is its name in the game and `raw_id` the game's
own number, -1 where no public source gives one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from soulsgraph_envs.core.config import Between

Pair = tuple[float, float]


@dataclass(frozen=True)
class Animation:
    """An animation without effect on the fight, played in a loop."""

    id: Annotated[int, Between(0, 999)]
    name: str
    raw_id: Annotated[int, Between(-1, 10**9)] = -1
    length_s: Annotated[float, Between(0.05, 60.0)] = 1.0


@dataclass(frozen=True)
class PlayerAction(Animation):
    """An animation that binds the player until attack, roll and movement may cancel it.

    `hit_s` is the moment an attack lands or a flask heals; -1 where nothing of that kind happens.
    """

    attack_s: Annotated[float, Between(0.0, 60.0)] = 0.0
    roll_s: Annotated[float, Between(0.0, 60.0)] = 0.0
    move_s: Annotated[float, Between(0.0, 60.0)] = 0.0
    hit_s: Annotated[float, Between(-1.0, 60.0)] = -1.0


@dataclass(frozen=True)
class PlayerAnimations:
    """Every animation a player may have, by purpose; None where this player has no such action.

    A heavy attack is two animations, the second following the first: it is raised, then it falls.
    """

    idle: PlayerAction
    run: PlayerAction
    roll: PlayerAction
    backstep: PlayerAction
    light_1: PlayerAction
    light_2: PlayerAction
    light_3: PlayerAction
    rolling_attack: PlayerAction
    estus: PlayerAction
    estus_empty: PlayerAction
    stagger: PlayerAction
    knockdown: PlayerAction
    heavy_1_start: PlayerAction | None = None
    heavy_1: PlayerAction | None = None
    heavy_2_start: PlayerAction | None = None
    heavy_2: PlayerAction | None = None
    weapon_art: PlayerAction | None = None
    parry: PlayerAction | None = None
    riposte: PlayerAction | None = None
    jump: PlayerAction | None = None

    def known(self) -> dict[str, PlayerAction]:
        """Return the animations that the player has, by purpose."""
        return {key: action for key, action in vars(self).items() if action is not None}


@dataclass(frozen=True)
class Body:
    """Size, health and endurance; an action needs stamina above 0 and may take it below.

    `fp` pays for weapon arts; it does not regenerate within a fight.
    """

    hp: Annotated[float, Between(1.0, 1e5)]
    stamina: Annotated[float, Between(1.0, 1e4)]
    radius_m: Annotated[float, Between(0.0, 5.0)]
    regeneration_per_s: Annotated[float, Between(0.0, 1e4)]
    regeneration_delay_s: Annotated[float, Between(0.0, 10.0)]
    regeneration_drinking: Annotated[float, Between(0.0, 1.0)]
    buffer_s: Annotated[float, Between(0.0, 2.0)]
    fp: Annotated[float, Between(0.0, 1e4)] = 0.0


@dataclass(frozen=True)
class Run:
    """Running; the factor slows sideways and backward steps under lock."""

    speed_m_s: Annotated[float, Between(0.0, 20.0)]
    locked_factor: Annotated[float, Between(0.0, 1.0)]


@dataclass(frozen=True)
class Roll:
    """The medium roll and the backstep, which has no invulnerability."""

    cost: Annotated[float, Between(0.0, 1e4)]
    speed_m_s: Annotated[float, Between(0.0, 20.0)]
    invulnerable_s: Annotated[float, Between(0.0, 5.0)]
    slow_after_s: Annotated[float, Between(0.0, 5.0)]
    slow_factor: Annotated[float, Between(0.0, 1.0)]
    backstep_m_s: Annotated[float, Between(0.0, 20.0)]


@dataclass(frozen=True)
class Attack:
    """A blow, such as the light attack: reach from centre to centre, and the angle within which it lands.

    Until it lands, a blow carries the player at `step_m_s` in the direction held as it began.
    """

    cost: Annotated[float, Between(0.0, 1e4)]
    damage: Annotated[Pair, Between(0.0, 1e5)]
    reach_m: Annotated[float, Between(0.0, 50.0)]
    facing_rad: Annotated[float, Between(0.0, 3.2)]
    step_m_s: Annotated[float, Between(0.0, 20.0)] = 0.0


@dataclass(frozen=True)
class WeaponArt(Attack):
    """A weapon art: one blow straight ahead that costs stamina and FP; it needs the FP to begin."""

    fp_cost: Annotated[float, Between(0.0, 1e4)] = 0.0


@dataclass(frozen=True)
class Parry:
    """A parry, and the riposte it allows.

    A parryable blow that arrives within `window_s` of the animation, from within `facing_rad` of
    straight ahead, does no harm and leaves the boss open: a light attack that would land within
    `reach_m` is then a riposte, during which nothing hurts the player. Each of the two costs `cost`.
    """

    cost: Annotated[float, Between(0.0, 1e4)]
    window_s: Annotated[Pair, Between(0.0, 5.0)]
    facing_rad: Annotated[float, Between(0.0, 3.2)]
    reach_m: Annotated[float, Between(0.0, 50.0)]
    damage: Annotated[Pair, Between(0.0, 1e5)]


@dataclass(frozen=True)
class Jump:
    """A leap in the direction held, or ahead: from `airborne_s` until it lands, low blows pass below it."""

    cost: Annotated[float, Between(0.0, 1e4)]
    step_m_s: Annotated[float, Between(0.0, 20.0)]
    airborne_s: Annotated[float, Between(0.0, 5.0)]


@dataclass(frozen=True)
class HitEffects:
    """The effects of a hit on the player besides its damage: (after a stagger, after a knock-down)."""

    invulnerable_s: Annotated[Pair, Between(0.0, 10.0)]
    push_m_s: Annotated[Pair, Between(0.0, 50.0)]
    push_s: Annotated[float, Between(0.0, 10.0)]
    counter_factor: Annotated[float, Between(0.0, 10.0)]


@dataclass(frozen=True)
class Camera:
    """The third-person camera and the lock: taken within view and range, lost beyond `lock_break_m`."""

    yaw_rad_s: Annotated[float, Between(0.0, 50.0)]
    pitch_rad_s: Annotated[float, Between(0.0, 50.0)]
    pitch_limit_rad: Annotated[float, Between(0.0, 1.5)]
    follow_rad_s: Annotated[float, Between(0.0, 100.0)]
    lock_view_rad: Annotated[float, Between(0.0, 3.2)]
    lock_range_m: Annotated[float, Between(0.0, 1000.0)]
    lock_break_m: Annotated[float, Between(0.0, 1000.0)]


@dataclass(frozen=True)
class PlayerData:
    """One player character; it has no action whose group is None, and that action's control has no effect."""

    name: str
    estus_heal: Annotated[float, Between(0.0, 1e5)]
    body: Body
    run: Run
    roll: Roll
    attack: Attack
    hurt: HitEffects
    camera: Camera
    animations: PlayerAnimations
    heavy: Attack | None = None
    weapon_art: WeaponArt | None = None
    parry: Parry | None = None
    jump: Jump | None = None


#: The animations that each group of a player's data pays for.
BLOWS = {
    "roll": ("roll", "backstep"),
    "attack": ("light_1", "light_2", "light_3", "rolling_attack"),
    "heavy": ("heavy_1_start", "heavy_1", "heavy_2_start", "heavy_2"),
    "weapon_art": ("weapon_art",),
    "parry": ("parry", "riposte"),
    "jump": ("jump",),
}


@dataclass(frozen=True)
class HitWindow:
    """One hit window of a move: when, how far from centre to centre, how wide, how hard.

    It strikes once, or with `every_s` again and again while it is open, from its first frame on: a
    breath. The sector is centred `offset_m` ahead of the boss's centre (behind it if negative): a
    limb of a large body. A strike that does not stagger only costs HP and adds `build_up`. A `low` one
    passes below a jump.
    """

    time_s: Annotated[Pair, Between(0.0, 60.0)]
    reach_m: Annotated[float, Between(0.0, 100.0)]
    half_arc_rad: Annotated[float, Between(0.0, 3.2)]
    damage: Annotated[float, Between(0.0, 1e5)]
    knockdown: bool = False
    staggers: bool = True
    every_s: Annotated[float, Between(0.0, 60.0)] = 0.0
    offset_m: Annotated[float, Between(-50.0, 50.0)] = 0.0
    build_up: Annotated[float, Between(0.0, 1e5)] = 0.0
    low: bool = False


@dataclass(frozen=True)
class Move:
    """One attack: wind-up, hit windows, recovery.

    The boss turns after the player until `tracks_s`, advances at `lunge_m_s` during `lunge_s`, and
    with a `leap_s` flies that long before its first window and lands short of the player. A lunge
    stops at the player's body; one that `runs_through` is a charge: it keeps its line, through where
    the player was when it began, and nothing is in its way. `enraged_weight` replaces the weight of
    an enraged boss; -1 where it is the same. `parryable` counts with a boss that can be parried at all.
    """

    id: Annotated[int, Between(0, 999)]
    name: str
    title: str
    raw_id: Annotated[int, Between(-1, 10**9)]
    length_s: Annotated[float, Between(0.1, 60.0)]
    windows: tuple[HitWindow, ...]
    tracks_s: Annotated[float, Between(0.0, 60.0)]
    distance_m: Annotated[Pair, Between(0.0, 1000.0)]
    weight: Annotated[float, Between(0.0, 1e6)]
    lunge_m_s: Annotated[float, Between(0.0, 50.0)] = 0.0
    lunge_s: Annotated[Pair, Between(0.0, 60.0)] = (0.0, 0.0)
    leap_s: Annotated[float, Between(0.0, 10.0)] = 0.0
    runs_through: bool = False
    enraged_weight: Annotated[float, Between(-1.0, 1e6)] = -1.0
    parryable: bool = True


@dataclass(frozen=True)
class BossMotion:
    """How the boss keeps its distance: approaches beyond one, backs off within the other."""

    walk_m_s: Annotated[float, Between(0.0, 20.0)]
    approach_beyond_m: Annotated[float, Between(0.0, 100.0)]
    back_off_m_s: Annotated[float, Between(0.0, 20.0)]
    back_off_within_m: Annotated[float, Between(0.0, 100.0)]
    turn_rad_s: Annotated[float, Between(0.0, 50.0)]
    tracking_factor: Annotated[float, Between(0.0, 10.0)]
    leap_short_m: Annotated[float, Between(0.0, 20.0)]


@dataclass(frozen=True)
class Aggression:
    """When the boss attacks: waits between attacks, longer with the player near, and chains."""

    wait_s: Annotated[Pair, Between(0.0, 60.0)]
    near_m: Annotated[float, Between(0.0, 100.0)]
    near_wait_s: Annotated[Pair, Between(0.0, 60.0)]
    chain_chance: Annotated[float, Between(0.0, 1.0)]
    chain_most: Annotated[int, Between(0, 20)]


@dataclass(frozen=True)
class Rear:
    """The boss's reaction to a player behind it: a random counter-attack, else a turn."""

    angle_rad: Annotated[float, Between(0.0, 3.2)]
    distance_m: Annotated[float, Between(0.0, 100.0)]
    counter: str
    counter_chance: Annotated[float, Between(0.0, 1.0)]
    turn_s: Annotated[float, Between(0.0, 10.0)]


@dataclass(frozen=True)
class Rage:
    """How the boss fights below a share of its full HP; its moves may then have other weights."""

    below_hp_ratio: Annotated[float, Between(0.0, 1.0)]
    damage_factor: Annotated[float, Between(0.0, 10.0)]
    wait_factor: Annotated[float, Between(0.0, 10.0)]
    chain_chance: Annotated[float, Between(0.0, 1.0)]


@dataclass(frozen=True)
class Status:
    """A status effect that strikes build up, such as frost.

    The build-up decays until it reaches the threshold. Then it bursts: it costs a share of full HP,
    slows the return of stamina for a time, and restarts at 0.
    """

    name: str
    threshold: Annotated[float, Between(0.1, 1e6)]
    decay_per_s: Annotated[float, Between(0.0, 1e6)]
    burst_hp_ratio: Annotated[float, Between(0.0, 1.0)]
    regeneration_factor: Annotated[float, Between(0.0, 1.0)]
    slowed_s: Annotated[float, Between(0.0, 600.0)]


#: A boss that never rages, and blows that build nothing up.
NEVER_ENRAGED = Rage(below_hp_ratio=0.0, damage_factor=1.0, wait_factor=1.0, chain_chance=0.0)
NO_STATUS = Status("none", threshold=1.0, decay_per_s=0.0, burst_hp_ratio=0.0, regeneration_factor=1.0, slowed_s=0.0)


@dataclass(frozen=True)
class BossAnimations:
    """The boss's animations outside its moves.

    A boss without `parried`, open to a riposte, and `thrown`, suffering one, cannot be parried.
    """

    idle: Animation
    approach: Animation
    back_off: Animation
    turn: Animation
    parried: Animation | None = None
    thrown: Animation | None = None

    def known(self) -> dict[str, Animation]:
        """Return the animations that the boss has, by purpose."""
        return {key: animation for key, animation in vars(self).items() if animation is not None}


@dataclass(frozen=True)
class BossData:
    """One phase of a boss; `time_factor` stretches its moves, `damage_factor` scales its damage."""

    name: str
    phase: Annotated[int, Between(1, 9)]
    hp_max: Annotated[float, Between(1.0, 1e6)]
    radius_m: Annotated[float, Between(0.0, 20.0)]
    time_factor: Annotated[float, Between(0.1, 10.0)]
    damage_factor: Annotated[float, Between(0.0, 10.0)]
    damage_spread: Annotated[float, Between(0.0, 1.0)]
    motion: BossMotion
    aggression: Aggression
    rear: Rear
    animations: BossAnimations
    moves: tuple[Move, ...]
    enraged: Rage = NEVER_ENRAGED
    status: Status = NO_STATUS
