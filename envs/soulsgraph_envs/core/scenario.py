"""What a fight is made of, read from data files by name: the boss, the player, and the scenario in which they meet.

All times are seconds, lengths metres, angles radians, HP and stamina points. An animation's `id` is what the skills
see, fixed by the data; `name` is its name in the game and `raw_id` the game's own number, -1 where no public source
gives one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.config import (
    Between,
    NonEmpty,
    Pair,
    Rising,
    Where,
    find,
    load_data,
    read_data,
    require,
    shipped_names,
)
from soulsgraph_envs.core.errors import UnknownNameError, plain_number
from soulsgraph_envs.core.state import ALL_CONTROLS, Control

Seconds = Annotated[float, Between(0.0, 600.0)]
Metres = Annotated[float, Between(0.0, 1000.0)]
#: Metres a second.
Speed = Annotated[float, Between(0.0, 50.0)]
#: Radians a second.
Turning = Annotated[float, Between(0.0, 100.0)]
#: Half a turn at most.
Radians = Annotated[float, Between(0.0, 3.2)]
#: HP, stamina, FP, or a weight.
Points = Annotated[float, Between(0.0, 1e6)]
Ratio = Annotated[float, Between(0.0, 1.0)]
Factor = Annotated[float, Between(0.0, 10.0)]
AnimationId = Annotated[int, Between(0, 999)]
#: The game's own number of an animation.
GameId = Annotated[int, Between(-1, 10**9)]

#: The controls of the groups of actions that a player need not have.
_GROUP_CONTROLS = {
    "heavy": Control.HEAVY_ATTACK,
    "weapon_art": Control.WEAPON_ART,
    "parry": Control.PARRY,
    "jump": Control.JUMP,
}
#: Controls that a player need not answer to.
OPTIONAL_CONTROLS = (*_GROUP_CONTROLS.values(),)
#: Animations with a moment at which something happens; a jump lands at its.
_WITH_EFFECT = {"light_1", "light_2", "light_3", "rolling_attack", "estus"} | {
    *("heavy_1", "heavy_2", "weapon_art", "riposte", "jump")
}


def _require_unique(values: Sequence[object], key: str, what: str) -> None:
    repeated = sorted({str(value) for value in values if values.count(value) > 1})
    require(not repeated, key, f"have each of the {what} once, found {', '.join(repeated)} repeated")


@dataclass(frozen=True)
class Animation:
    """An animation without effect on the fight, played in a loop."""

    id: AnimationId
    name: str
    raw_id: GameId = -1
    length_s: Annotated[float, Between(0.05, 60.0)] = 1.0


@dataclass(frozen=True)
class PlayerAction(Animation):
    """An animation that binds the player until attack, roll and movement may cancel it.

    `hit_s` is the moment an attack lands or a flask heals; -1 where nothing of that kind happens.
    """

    attack_s: Seconds = 0.0
    roll_s: Seconds = 0.0
    move_s: Seconds = 0.0
    hit_s: Annotated[float, Between(-1.0, 60.0)] = -1.0

    def __post_init__(self) -> None:
        for key in ("attack_s", "roll_s", "move_s", "hit_s"):
            require(getattr(self, key) <= self.length_s, key, f"be at most the length, {self.length_s:g} s")


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
    radius_m: Metres
    regeneration_per_s: Points
    regeneration_delay_s: Seconds
    regeneration_drinking: Ratio
    buffer_s: Seconds
    fp: Points = 0.0


@dataclass(frozen=True)
class RunSpeed:
    """Running; the factor slows sideways and backward steps under lock."""

    speed_m_s: Speed
    locked_factor: Ratio


@dataclass(frozen=True)
class Roll:
    """The medium roll and the backstep, which has no invulnerability."""

    cost: Points
    speed_m_s: Speed
    invulnerable_s: Seconds
    slow_after_s: Seconds
    slow_factor: Ratio
    backstep_m_s: Speed


@dataclass(frozen=True)
class Attack:
    """A blow, such as the light attack: reach from centre to centre, and the angle within which it lands.

    Until it lands, a blow carries the player at `step_m_s` in the direction held as it began.
    """

    cost: Points
    damage: Rising[Points]
    reach_m: Metres
    facing_rad: Radians
    step_m_s: Speed = 0.0


@dataclass(frozen=True)
class WeaponArt(Attack):
    """A weapon art: one blow straight ahead that costs stamina and FP; it needs the FP to begin."""

    fp_cost: Points = 0.0


@dataclass(frozen=True)
class Parry:
    """A parry, and the riposte it allows.

    A parryable blow that arrives within `window_s` of the animation, from within `facing_rad` of
    straight ahead, does no harm and leaves the boss open: a light attack that would land within
    `reach_m` is then a riposte, during which nothing hurts the player. Each of the two costs `cost`.
    """

    cost: Points
    window_s: Rising[Seconds]
    facing_rad: Radians
    reach_m: Metres
    damage: Rising[Points]


@dataclass(frozen=True)
class Jump:
    """A leap in the direction held, or ahead: from `airborne_s` until it lands, low blows pass below it."""

    cost: Points
    step_m_s: Speed
    airborne_s: Seconds


@dataclass(frozen=True)
class HitEffects:
    """The effects of a hit on the player besides its damage: (after a stagger, after a knock-down)."""

    invulnerable_s: Pair[Seconds]
    push_m_s: Pair[Speed]
    push_s: Seconds
    counter_factor: Factor


@dataclass(frozen=True)
class Camera:
    """The third-person camera and the lock: taken within view and range, lost beyond `lock_break_m`.

    For `relock_s` after a lock was released its key does nothing. Below 0, `yaw_rad_s` is that of a reversed axis.
    """

    yaw_rad_s: Annotated[float, Between(-50.0, 50.0)]
    pitch_rad_s: Turning
    pitch_limit_rad: Annotated[float, Between(0.0, 1.5)]
    follow_rad_s: Turning
    lock_view_rad: Radians
    lock_range_m: Metres
    lock_break_m: Metres
    relock_s: Seconds = 0.0

    def right_key_turns(self, aside_rad: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return whether the key to the right, not the one to the left, turns by angles, positive to the right."""
        return np.not_equal(np.asarray(aside_rad) > 0.0, self.yaw_rad_s < 0.0, dtype=np.bool_)


@dataclass(frozen=True)
class PlayerData:
    """One player character; it has no action whose group is None, and that action's control has no effect."""

    name: str
    estus_heal: Points
    body: Body
    run: RunSpeed
    roll: Roll
    attack: Attack
    hurt: HitEffects
    camera: Camera
    animations: PlayerAnimations
    heavy: Attack | None = None
    weapon_art: WeaponArt | None = None
    parry: Parry | None = None
    jump: Jump | None = None

    def __post_init__(self) -> None:
        actions = self.animations.known()
        _require_unique([action.id for action in actions.values()], "animations", "ids")
        for key in sorted(_WITH_EFFECT & actions.keys()):
            require(actions[key].hit_s >= 0, f"animations.{key}.hit_s", "be the moment of the effect")
        for group in _GROUP_CONTROLS:
            for key in BLOWS[group] if getattr(self, group) is not None else ():
                require(key in actions, f"animations.{key}", f"be there with {group}")


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

    time_s: Pair[Seconds]
    reach_m: Metres
    half_arc_rad: Radians
    damage: Points
    knockdown: bool = False
    staggers: bool = True
    every_s: Seconds = 0.0
    offset_m: Annotated[float, Between(-50.0, 50.0)] = 0.0
    build_up: Points = 0.0
    low: bool = False

    def __post_init__(self) -> None:
        require(self.every_s == 0.0 or self.every_s >= 0.05, "every_s", "be 0, or at least three frames, 0.05 s")


@dataclass(frozen=True)
class Move:
    """One attack: wind-up, hit windows, recovery.

    The boss turns after the player until `tracks_s`, advances at `lunge_m_s` during `lunge_s`, and
    with a `leap_s` flies that long before its first window and lands short of the player. A lunge
    stops at the player's body; one that `runs_through` is a charge: it keeps its line, through where
    the player was when it began, and nothing is in its way. `enraged_weight` replaces the weight of
    an enraged boss; -1 where it is the same. `parryable` counts with a boss that can be parried at all.
    """

    id: AnimationId
    name: str
    title: str
    raw_id: GameId
    length_s: Annotated[float, Between(0.1, 60.0)]
    windows: NonEmpty[HitWindow]
    tracks_s: Seconds
    distance_m: Rising[Metres]
    weight: Points
    lunge_m_s: Speed = 0.0
    lunge_s: Rising[Seconds] = (0.0, 0.0)
    leap_s: Seconds = 0.0
    runs_through: bool = False
    enraged_weight: Annotated[float, Between(-1.0, 1e6)] = -1.0
    parryable: bool = True

    def __post_init__(self) -> None:
        require(self.leap_s <= self.windows[0].time_s[0], "leap_s", "be at most the start of the first window")
        charges = self.lunge_m_s > 0.0 and self.tracks_s <= self.lunge_s[0]
        said = "be true only with a lunge that begins when the boss no longer tracks, at tracks_s or later"
        require(charges or not self.runs_through, "runs_through", said)
        earlier_s = 0.0
        for index, window in enumerate(self.windows):
            begins_s, ends_s = window.time_s
            inside = earlier_s <= begins_s < ends_s <= self.length_s
            said = f"end after it begins, behind the window before, and within the length, {self.length_s:g} s"
            require(inside, f"windows[{index}].time_s", said)
            earlier_s = ends_s


@dataclass(frozen=True)
class BossMotion:
    """How the boss keeps its distance: approaches beyond one, backs off within the other."""

    walk_m_s: Speed
    approach_beyond_m: Metres
    back_off_m_s: Speed
    back_off_within_m: Metres
    turn_rad_s: Turning
    tracking_factor: Factor
    leap_short_m: Metres


@dataclass(frozen=True)
class Aggression:
    """When the boss attacks: waits between attacks, longer with the player near, and chains."""

    wait_s: Rising[Seconds]
    near_m: Metres
    near_wait_s: Rising[Seconds]
    chain_chance: Ratio
    chain_most: Annotated[int, Between(0, 20)]


@dataclass(frozen=True)
class Rear:
    """The boss's reaction to a player behind it: a random counter-attack, else a turn."""

    angle_rad: Radians
    distance_m: Metres
    counter: str
    counter_chance: Ratio
    turn_s: Seconds


@dataclass(frozen=True)
class Rage:
    """How the boss fights below a share of its full HP; its moves may then have other weights."""

    below_hp_ratio: Ratio
    damage_factor: Factor
    wait_factor: Factor
    chain_chance: Ratio


@dataclass(frozen=True)
class Status:
    """A status effect that strikes build up, such as frost.

    The build-up decays until it reaches the threshold. Then it bursts: it costs a share of full HP,
    slows the return of stamina for a time, and restarts at 0.
    """

    name: str
    threshold: Annotated[float, Between(0.1, 1e6)]
    decay_per_s: Points
    burst_hp_ratio: Ratio
    regeneration_factor: Ratio
    slowed_s: Seconds


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
    radius_m: Metres
    time_factor: Annotated[float, Between(0.1, 10.0)]
    damage_factor: Factor
    damage_spread: Ratio
    motion: BossMotion
    aggression: Aggression
    rear: Rear
    animations: BossAnimations
    moves: NonEmpty[Move]
    enraged: Rage = NEVER_ENRAGED
    status: Status = NO_STATUS

    def __post_init__(self) -> None:
        titles, parried, thrown = [move.title for move in self.moves], self.animations.parried, self.animations.thrown
        _require_unique(self.ids, "moves", "animation ids")
        _require_unique(titles, "moves", "titles")
        require((parried is None) == (thrown is None), "animations.thrown", "be there if parried is, and only then")
        enraged = [move.weight if move.enraged_weight < 0 else move.enraged_weight for move in self.moves]
        require(max(move.weight for move in self.moves) > 0, "moves", "have a weight above 0")
        require(max(enraged) > 0, "moves", "have an enraged_weight above 0")
        said = f"be the title of a move: one of {', '.join(titles)}; found {self.rear.counter!r}"
        require(self.rear.counter in titles, "rear.counter", said)

    @property
    def ids(self) -> list[int]:
        """The ids of its moves and of its other animations."""
        return [move.id for move in self.moves] + [other.id for other in self.animations.known().values()]


#: The ways an episode can begin; a scenario gives each its ranges.
StartName = Literal["scattered", "mid", "long"]
START_NAMES: tuple[StartName, ...] = get_args(StartName)


@dataclass(frozen=True)
class Start:
    """Where an episode begins: the distance range, and whether poses are random or face the boss."""

    distance_m: Rising[Metres]
    facing: bool


@dataclass(frozen=True)
class Arena:
    """The flat disc on which the fight takes place, in the game's coordinates (x, y; z is up)."""

    centre_m: Pair[Annotated[float, Between(-1e6, 1e6)]] = (0.0, 0.0)
    height_m: Annotated[float, Between(-1e6, 1e6)] = 0.0
    radius_m: Annotated[float, Between(2.0, 1000.0)] = 14.0


@dataclass(frozen=True)
class PhaseChange:
    """The change of phase: between moves, at or below a share of full HP, the boss plays `animation`, then is `boss`.

    Meanwhile it neither moves nor strikes, but can be hit.
    """

    below_hp_ratio: Ratio
    boss: str
    animation: Animation


@dataclass(frozen=True)
class Scenario:
    """One encounter, validated at load by `load_scenario`.

    The boss begins at `boss_hp[0]` and is beaten below `boss_hp[1]` (points); the player is dead
    below `death_hp_ratio` of full HP. With `refill` both get full HP after every tick and nobody
    dies or wins: the training scenario of the upstream skills. A `transition` makes it a whole
    fight in two phases.
    """

    name: str
    boss: str
    player: str
    flasks: Annotated[int, Between(0, 99)]
    boss_hp: Pair[Points]
    #: Points that the boss HP column is measured against in every phase; the boss data's `hp_max`.
    boss_hp_full: Annotated[float, Between(1.0, 1e6)]
    death_hp_ratio: Annotated[float, Between(0.0, 0.99)]
    arena: Arena
    starts: dict[str, Start]
    start: StartName = "mid"
    refill: bool = False
    transition: PhaseChange | None = None

    def __post_init__(self) -> None:
        (start, end), most = self.boss_hp, plain_number(self.boss_hp_full)
        said = f"be its start and a lower end, at most {most}, the boss's hp_max"
        require(end < start <= self.boss_hp_full, "boss_hp", said)
        require({*self.starts} == {*START_NAMES}, "starts", f"be exactly {', '.join(START_NAMES)}")

    @property
    def boss_hp_ratios(self) -> tuple[float, float]:
        """Return the HP window as values of the boss HP column: (at the start, at the end)."""
        return self.boss_hp[0] / self.boss_hp_full, self.boss_hp[1] / self.boss_hp_full

    def phases(self) -> tuple[Scenario, ...]:
        """Return the scenario of every phase: this one, and after a transition the same with the next boss."""
        if self.transition is None:
            return (self,)
        return self, replace(self, boss=self.transition.boss, transition=None)


def started_at(scenario: Scenario, start: str | None) -> Scenario:
    """Return the scenario with another one of its starts.

    Raises:
        UnknownNameError: if the scenario has no start of that name.
    """
    if start is None:
        return scenario
    if start not in scenario.starts:
        raise UnknownNameError("start", start, scenario.starts)
    return replace(scenario, start=cast(StartName, start))


def scenario_names() -> tuple[str, ...]:
    """Name the scenarios that are shipped."""
    return shipped_names("scenario")


def load_scenario(name_or_path: str | Path) -> Scenario:
    """Load one encounter with the boss and the player it names.

    Raises:
        UnknownNameError: if no shipped scenario has that name.
        DataError: for a missing, misspelt, mistyped or out-of-range value.
    """
    scenario = load_data("scenario", Scenario, name_or_path, _with_hp)
    where = Where(find("scenario", name_or_path))
    boss = load_boss(scenario.boss)
    with where.at("player").referring():
        player = load_player(scenario.player)
    if scenario.transition is not None:
        at, own = where.at("transition"), scenario.transition.animation.id
        with at.at("boss").referring():
            following = load_boss(scenario.transition.boss)
        many, found = plain_number(boss.hp_max), f"{plain_number(following.hp_max)} of {following.name}"
        at.at("boss").demand(following.hp_max == boss.hp_max, f"a boss whose hp_max is {many}", found)
        at.at("animation.id").demand(own not in (*boss.ids, *following.ids), "an id that neither boss has", own)
    contact_m = boss.radius_m + player.body.radius_m
    most_m = 2 * (scenario.arena.radius_m - contact_m)
    for key, start in scenario.starts.items():
        inside = contact_m <= start.distance_m[0] and start.distance_m[1] <= most_m
        expected = f"distances from {contact_m:g} (contact) to {most_m:g} (arena)"
        where.at("starts", key, "distance_m").demand(inside, expected, list(start.distance_m))
    return scenario


def _with_hp(values: dict[str, Any], where: Where) -> dict[str, Any]:
    """Return the tables of a scenario with its boss's HP, which no file of a scenario says."""
    where.at("boss_hp_full").demand("boss_hp_full" not in values, "the boss's hp_max alone to say this", "a value")
    with where.at("boss").referring():
        return {**values, "boss_hp_full": load_boss(values["boss"]).hp_max} if "boss" in values else values


def fight_tables(name_or_path: str | Path) -> list[dict[str, Any]]:
    """Return everything that the files of a fight say: its scenario, player and bosses, each a table.

    They name neither each other nor the files that they are based on. What a file that may be wrong says is checked by
    `load_scenario`, before.
    """
    fight = read_data("scenario", find("scenario", name_or_path))
    parts = [(kind, fight.pop(kind)) for kind in ("player", "boss")]
    if "transition" in fight:
        parts.append(("boss", fight["transition"].pop("boss")))
    return [fight, *(read_data(kind, find(kind, part)) for kind, part in parts)]


def load_boss(name_or_path: str | Path) -> BossData:
    """Load one phase of a boss; raises as `load_scenario` does."""
    return load_data("boss", BossData, name_or_path)


def load_player(name_or_path: str | Path) -> PlayerData:
    """Load one player character; raises as `load_scenario` does."""
    return load_data("player", PlayerData, name_or_path)


def supported_controls(player: PlayerData) -> Control:
    """Return the controls that a player answers to; it takes no notice of the others.

    INTERACT is among them though nothing in an arena answers: the fog gate lies outside.
    """
    supported = ALL_CONTROLS
    for group, control in _GROUP_CONTROLS.items():
        if getattr(player, group) is None:
            supported &= ~control
    return supported
