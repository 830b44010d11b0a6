"""What a fight is made of, read from data files by name: the boss, the player, and the scenario in which they meet.

All times are seconds, lengths metres, angles radians, HP and stamina points. An animation's `id` is what the skills
see, fixed by the data; `name` is its name in the game and `raw_id` the game's own number, -1 where no public source
gives one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
    base_of,
    find,
    load_data,
    read_data,
    require,
    shipped_names,
    validate,
)
from soulsgraph_envs.core.errors import UnknownNameError, plain_number
from soulsgraph_envs.core.state import ALL_CONTROLS, Control

#: The shortest interval of a window that strikes again and again: three frames.
_SHORTEST_EVERY_S = 0.05


#: The controls of the groups of actions that a player need not have.
_GROUP_CONTROLS = {
    "heavy": Control.HEAVY_ATTACK,
    "weapon_art": Control.WEAPON_ART,
    "parry": Control.PARRY,
    "jump": Control.JUMP,
}
#: Animations with a moment at which something happens; a jump lands at its.
_WITH_EFFECT = {"light_1", "light_2", "light_3", "rolling_attack", "estus"} | {
    *("heavy_1", "heavy_2", "weapon_art", "riposte", "jump")
}


def _require_unique(values: Sequence[object], key: str, what: str) -> None:
    repeated = sorted({str(value) for value in values if values.count(value) > 1})
    require(not repeated, key, f"have each of the {what} once, found {', '.join(repeated)} repeated")


def _require_group(needed: tuple[str, ...], animations: Collection[str], has: bool) -> None:
    """Refuse a group of data whose animations are missing, or some of them without it."""
    for key in sorted(needed):
        require(
            (key in animations) == has, f"animations.{key}", "be there" if has else "not be there without its group"
        )


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
    radius_m: Annotated[float, Between(0.0, 5.0)]
    regeneration_per_s: Annotated[float, Between(0.0, 1e4)]
    regeneration_delay_s: Annotated[float, Between(0.0, 10.0)]
    regeneration_drinking: Annotated[float, Between(0.0, 1.0)]
    buffer_s: Annotated[float, Between(0.0, 2.0)]
    fp: Annotated[float, Between(0.0, 1e4)] = 0.0


@dataclass(frozen=True)
class RunSpeed:
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
    damage: Rising[Annotated[float, Between(0.0, 1e5)]]
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
    window_s: Rising[Annotated[float, Between(0.0, 5.0)]]
    facing_rad: Annotated[float, Between(0.0, 3.2)]
    reach_m: Annotated[float, Between(0.0, 50.0)]
    damage: Rising[Annotated[float, Between(0.0, 1e5)]]


@dataclass(frozen=True)
class Jump:
    """A leap in the direction held, or ahead: from `airborne_s` until it lands, low blows pass below it."""

    cost: Annotated[float, Between(0.0, 1e4)]
    step_m_s: Annotated[float, Between(0.0, 20.0)]
    airborne_s: Annotated[float, Between(0.0, 5.0)]


@dataclass(frozen=True)
class HitEffects:
    """The effects of a hit on the player besides its damage: (after a stagger, after a knock-down)."""

    invulnerable_s: Pair[Annotated[float, Between(0.0, 10.0)]]
    push_m_s: Pair[Annotated[float, Between(0.0, 50.0)]]
    push_s: Annotated[float, Between(0.0, 10.0)]
    counter_factor: Annotated[float, Between(0.0, 10.0)]


@dataclass(frozen=True)
class Camera:
    """The third-person camera and the lock: taken within view and range, lost beyond `lock_break_m`.

    For `relock_s` after a lock was released its key does nothing. Below 0, `yaw_rad_s` is that of a reversed axis.
    """

    yaw_rad_s: Annotated[float, Between(-50.0, 50.0)]
    pitch_rad_s: Annotated[float, Between(0.0, 50.0)]
    pitch_limit_rad: Annotated[float, Between(0.0, 1.5)]
    follow_rad_s: Annotated[float, Between(0.0, 100.0)]
    lock_view_rad: Annotated[float, Between(0.0, 3.2)]
    lock_range_m: Annotated[float, Between(0.0, 1000.0)]
    lock_break_m: Annotated[float, Between(0.0, 1000.0)]
    relock_s: Annotated[float, Between(0.0, 60.0)] = 0.0

    def __post_init__(self) -> None:
        require(self.lock_break_m >= self.lock_range_m, "lock_break_m", "be at least lock_range_m")

    def right_key_turns(self, aside_rad: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return whether the key to the right, not the one to the left, turns by angles, positive to the right."""
        return np.not_equal(np.asarray(aside_rad) > 0.0, self.yaw_rad_s < 0.0, dtype=np.bool_)


@dataclass(frozen=True)
class PlayerData:
    """One player character; it has no action whose group is None, and that action's control has no effect."""

    name: str
    estus_heal: Annotated[float, Between(0.0, 1e5)]
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
            _require_group(BLOWS[group], actions, getattr(self, group) is not None)
        if self.parry is not None:
            ends = self.parry.window_s[1] <= actions["parry"].length_s
            require(ends, "parry.window_s", "end within the animation")
        if self.jump is not None:
            require(self.jump.airborne_s < actions["jump"].hit_s, "jump.airborne_s", "be before the jump lands")


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

    time_s: Pair[Annotated[float, Between(0.0, 60.0)]]
    reach_m: Annotated[float, Between(0.0, 100.0)]
    half_arc_rad: Annotated[float, Between(0.0, 3.2)]
    damage: Annotated[float, Between(0.0, 1e5)]
    knockdown: bool = False
    staggers: bool = True
    every_s: Annotated[float, Between(0.0, 60.0)] = 0.0
    offset_m: Annotated[float, Between(-50.0, 50.0)] = 0.0
    build_up: Annotated[float, Between(0.0, 1e5)] = 0.0
    low: bool = False

    def __post_init__(self) -> None:
        require(not 0.0 < self.every_s < _SHORTEST_EVERY_S, "every_s", f"be 0, or at least {_SHORTEST_EVERY_S:g} s")
        require(self.staggers or not self.knockdown, "staggers", "be true in a window that knocks down")


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
    windows: NonEmpty[HitWindow]
    tracks_s: Annotated[float, Between(0.0, 60.0)]
    distance_m: Rising[Annotated[float, Between(0.0, 1000.0)]]
    weight: Annotated[float, Between(0.0, 1e6)]
    lunge_m_s: Annotated[float, Between(0.0, 50.0)] = 0.0
    lunge_s: Rising[Annotated[float, Between(0.0, 60.0)]] = (0.0, 0.0)
    leap_s: Annotated[float, Between(0.0, 10.0)] = 0.0
    runs_through: bool = False
    enraged_weight: Annotated[float, Between(-1.0, 1e6)] = -1.0
    parryable: bool = True

    def __post_init__(self) -> None:
        within = f"lie within the length, {self.length_s:g} s"
        require(self.tracks_s <= self.length_s, "tracks_s", within)
        require(self.lunge_s[1] <= self.length_s, "lunge_s", within)
        require(self.leap_s <= self.windows[0].time_s[0], "leap_s", "be at most the start of the first window")
        charges = self.lunge_m_s > 0.0 and self.tracks_s <= self.lunge_s[0]
        said = "be true only with a lunge that begins when the boss no longer tracks, at tracks_s or later"
        require(charges or not self.runs_through, "runs_through", said)
        earlier_s = 0.0
        for index, window in enumerate(self.windows):
            begins_s, ends_s = window.time_s
            inside = earlier_s <= begins_s < ends_s <= self.length_s
            require(inside, f"windows[{index}].time_s", f"end after it begins, behind the window before, and {within}")
            earlier_s = ends_s


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

    def __post_init__(self) -> None:
        near = self.back_off_within_m <= self.approach_beyond_m
        require(near, "back_off_within_m", "be at most approach_beyond_m")


@dataclass(frozen=True)
class Aggression:
    """When the boss attacks: waits between attacks, longer with the player near, and chains."""

    wait_s: Rising[Annotated[float, Between(0.0, 60.0)]]
    near_m: Annotated[float, Between(0.0, 100.0)]
    near_wait_s: Rising[Annotated[float, Between(0.0, 60.0)]]
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
    moves: NonEmpty[Move]
    enraged: Rage = NEVER_ENRAGED
    status: Status = NO_STATUS

    def __post_init__(self) -> None:
        others, titles = self.animations.known(), [move.title for move in self.moves]
        _require_unique(self.ids, "moves", "animation ids")
        _require_unique(titles, "moves", "titles")
        _require_group(("parried", "thrown"), others, "parried" in others)
        enraged = [move.weight if move.enraged_weight < 0 else move.enraged_weight for move in self.moves]
        require(max(move.weight for move in self.moves) > 0, "moves", "have a weight above 0")
        require(max(enraged) > 0, "moves", "have an enraged_weight above 0")
        for index, move in enumerate(self.moves):
            rages = self.enraged.below_hp_ratio > 0 or move.enraged_weight < 0
            require(rages, f"moves[{index}].enraged_weight", "have a table [enraged]")
            for number, window in enumerate(move.windows):
                builds = window.build_up <= 0 or self.status != NO_STATUS
                require(builds, f"moves[{index}].windows[{number}].build_up", "have a table [status]")
        counter = self.rear.counter
        said = f"be the title of a move: one of {', '.join(titles)}; found {counter!r}"
        require(counter in titles, "rear.counter", said)

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

    distance_m: Rising[Annotated[float, Between(0.0, 100.0)]]
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

    below_hp_ratio: Annotated[float, Between(0.0, 1.0)]
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
    boss_hp: Pair[Annotated[float, Between(0.0, 1e6)]]
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
    path = find("scenario", name_or_path)
    if base := base_of("scenario", path):
        load_scenario(base)
    values, where = read_data("scenario", path), Where(path)
    for key in ("boss", "player"):
        where.at(key).demand(key in values, "a name or the path of a TOML file", "no such key")
    where.at("boss_hp_full").demand("boss_hp_full" not in values, "the boss's hp_max alone to say this", "a value")
    with where.at("boss").referring():
        boss = load_boss(values["boss"])
    with where.at("player").referring():
        player = load_player(values["player"])
    scenario = validate(Scenario, {**values, "boss_hp_full": boss.hp_max}, where)
    _check_transition(scenario, boss, where.at("transition"))
    contact_m = boss.radius_m + player.body.radius_m
    most_m = 2 * (scenario.arena.radius_m - contact_m)
    for key, start in scenario.starts.items():
        inside = contact_m <= start.distance_m[0] and start.distance_m[1] <= most_m
        expected = f"distances from {contact_m:g} (contact) to {most_m:g} (arena)"
        where.at("starts", key, "distance_m").demand(inside, expected, list(start.distance_m))
    return scenario


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


def fight_parts(scenario: Scenario) -> list[tuple[str, str]]:
    """Return the player and the bosses of a fight, each by its kind of file and its name."""
    return [("player", scenario.player), *(("boss", phase.boss) for phase in scenario.phases())]


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


def _check_transition(scenario: Scenario, boss: BossData, where: Where) -> None:
    if scenario.transition is None:
        return
    with where.at("boss").referring():
        following = load_boss(scenario.transition.boss)
    found, own = f"hp_max {plain_number(following.hp_max)} of {following.name}", scenario.transition.animation.id
    where.at("boss").demand(
        following.hp_max == boss.hp_max, f"a boss of as many HP, {plain_number(boss.hp_max)}", found
    )
    where.at("animation.id").demand(own not in (*boss.ids, *following.ids), "an id that neither boss has", own)
