"""Scripted play: controllers that need no learning, some of which look ahead."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.combat.loop import Actions, Combat
from soulsgraph_envs.combat.rollout import Flags
from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.core.game import LaneIndices
from soulsgraph_envs.core.scenario import Camera, Scenario, load_boss, load_player
from soulsgraph_envs.core.seeds import Seeds, derive_seeds, uniforms
from soulsgraph_envs.core.state import Column, Raw, StateRows
from soulsgraph_envs.skills import END_TO_END, Skill, make_skill

Choices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CAMERA_UP, CAMERA_DOWN, CAMERA_LEFT, CAMERA_RIGHT, CAMERA_IDLE = range(5)
TOGGLE, LOCK_IDLE = range(2)
FORWARD, MOVE_IDLE = 0, 8
DODGE, DODGE_IDLE = range(2)
STRIKE, DRINK, FIGHT_IDLE = range(3)

_RANDOM_STREAM = 3
_ALIGNED_RAD = 0.1
_LOCKABLE_RAD = 0.55
#: A roll pressed now covers a window that is over by then; with less lead than the second, it is now or never.
_COVERED_S, _LAST_CALL_S = 0.42, 0.15
#: A light attack binds until its roll cancel at 0.8 s, a drink until 1.4 s. How much more to leave, and below which
#: share of the HP to drink, was found in whole fights: with 0.9 s and 45 % it won 88.8 % of those against Vordt.
_STRIKE_SAFE_S, _DRINK_SAFE_S = 1.2, 1.5
_STRIKE_REACH_M, _DRINK_BELOW = 2.35, 0.6


class Script(ABC):
    """Plays one skill in every lane; without a memory of earlier ticks `choose` is all of it."""

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:  # noqa: B027
        """Note that an episode begins in `lanes` (n,), each with its seed (n,)."""

    def watch(self, combat: Combat) -> None:  # noqa: B027
        """Look at a tick before anything is chosen in it, whether or not the skill is due."""

    @abstractmethod
    def choose(self, combat: Combat) -> Choices:
        """Choose an action for every lane, (lanes,); used where the skill is due."""


class DelayedScript(Script):
    """Choose what another script chose some ticks before, as a person reacts; until then the first it would choose."""

    def __init__(self, script: Script, ticks: int) -> None:
        self._script, self._kept = script, deque[Choices](maxlen=ticks + 1)

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Begin the script's episodes; every lane begins at once."""
        self._script.begin(lanes, seeds)
        self._kept.clear()

    def watch(self, combat: Combat) -> None:
        """Keep what the script would choose now."""
        self._kept.append(self._script.choose(combat))

    def choose(self, combat: Combat) -> Choices:
        """Choose the oldest choice kept."""
        return self._kept[0]


@dataclass
class ConstantScript(Script):
    """Choose the same action always."""

    action: int

    def choose(self, combat: Combat) -> Choices:
        """Choose the one action."""
        return np.full(combat.lanes, self.action)


class Uniform(Script):
    """Choose one skill's actions uniformly at random, each lane from its own stream, with the skill's durations.

    `stream` is a number that no other skill of the agent has.
    """

    def __init__(self, skill: Skill, lanes: int, stream: int) -> None:
        self._skill, self._actions, self._stream = skill.name, len(skill.actions), stream
        self._streams = np.zeros(lanes, np.uint64)

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Start the lanes' streams from their seeds."""
        self._streams[lanes] = derive_seeds(seeds, _RANDOM_STREAM, self._stream)

    def choose(self, combat: Combat) -> Choices:
        """Draw an action in lanes where the skill is due, so that no lane's draws depend on another's."""
        due = np.flatnonzero(combat.due[:, combat.position(self._skill)])
        choices = np.zeros(combat.lanes, np.int64)
        choices[due] = (uniforms(self._streams, due) * self._actions).astype(np.int64)
        return choices


class AlignCamera(Script):
    """Turn the camera to the boss: yaw first, then pitch; it knows whether the player's axis is reversed."""

    def __init__(self) -> None:
        self._cameras: dict[str, Camera] = {}

    def choose(self, combat: Combat) -> Choices:
        """Choose the key that reduces the larger error."""
        rows = combat.rows.astype(np.float64)
        dx, dy = rows[:, Column.DIRECTION_X], rows[:, Column.DIRECTION_Y]
        cx, cy, cz = (rows[:, Column.CAMERA_X + i] for i in range(3))
        # Positive when the boss lies to the right: headings grow to the right.
        aside = np.arctan2(cy * dx - cx * dy, cx * dx + cy * dy)
        level = np.where(cz > _ALIGNED_RAD, CAMERA_DOWN, np.where(cz < -_ALIGNED_RAD, CAMERA_UP, CAMERA_IDLE))
        camera = self._camera_of(combat.scenario.player)
        turned = np.where(camera.right_key_turns(aside), CAMERA_RIGHT, CAMERA_LEFT)
        choice = np.where(np.abs(aside) > _ALIGNED_RAD, turned, level)
        return np.where(rows[:, Column.LOCKED] == 1.0, CAMERA_IDLE, choice)

    def _camera_of(self, player: str) -> Camera:
        if player not in self._cameras:
            self._cameras[player] = load_player(player).camera
        return self._cameras[player]


@dataclass
class TakeLock(Script):
    """Toggle the lock on as soon as the boss is within an angle of the view, then keep it."""

    within_rad: float = _LOCKABLE_RAD

    def choose(self, combat: Combat) -> Choices:
        """Toggle the lock where it would succeed."""
        view, locked = combat.rows[:, Column.CAMERA_TARGET_ANGLE], combat.rows[:, Column.LOCKED]
        return np.where((locked == 0.0) & (view < self.within_rad), TOGGLE, LOCK_IDLE)


class OracleDodge(Script):
    """Roll exactly when the roll's invulnerability covers the next hit."""

    def choose(self, combat: Combat) -> Choices:
        """Roll through the hit windows, read in advance."""
        begins, ends = hits_ahead(combat)
        return np.where((ends < _COVERED_S) | (begins < _LAST_CALL_S), DODGE, DODGE_IDLE)


@dataclass
class OracleFight(Script):
    """Strike when no hit comes within `clear_s`, drink when there is time for it.

    The default leaves time to roll after the blow; a player who never rolls needs only the time to land it.
    It strikes from nearer than `reach_m`, and drinks below `drink_below` of the HP.
    """

    clear_s: float = _STRIKE_SAFE_S
    reach_m: float = _STRIKE_REACH_M
    drink_below: float = _DRINK_BELOW

    def choose(self, combat: Combat) -> Choices:
        """Strike and drink between the hit windows, read in advance."""
        rows = combat.rows
        begins, _ = hits_ahead(combat)
        recovering = np.isinf(begins) & (rows[:, Column.BOSS_PROGRESS] > 0.5)
        drinks = (rows[:, Column.PLAYER_HP] < self.drink_below) & (rows[:, Column.FLASKS] > 0)
        drinks &= recovering | (np.isfinite(begins) & (begins > _DRINK_SAFE_S))
        strikes = (rows[:, Column.DISTANCE] < self.reach_m) & (begins > self.clear_s)
        return np.where(drinks, DRINK, np.where(strikes, STRIKE, FIGHT_IDLE))


def hits_ahead(combat: Combat) -> tuple[Floats, Floats]:
    """Return (first, last) second of the next hit on a player who stands still, each (lanes,), inf without a hit.

    Raises:
        GameError: if the game is not the simulator.
    """
    # Imported here, as below: what names a script alone need not wait for the simulator's compiled functions.
    from soulsgraph_envs.simulator import Simulator

    if not isinstance(combat.game, Simulator):
        raise GameError("expected the simulator, found a game that does not know its future: use another script.")
    hits = combat.game.hits_ahead_s()
    return hits[:, 0], hits[:, 1]


class ScriptedPlay:
    """A controller with one script per skill; skills without one are left to other controllers."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self._scripts = dict(scripts)

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Begin the episodes in every script."""
        for script in self._scripts.values():
            script.begin(lanes, seeds)

    def act(self, combat: Combat, actions: Actions) -> None:
        """Write each script's choice where its skill is due."""
        for name, script in self._scripts.items():
            script.watch(combat)
            column = combat.position(name)
            due = combat.due[:, column]
            if due.any():
                actions[due, column] = script.choose(combat)[due]


#: The script that plays each skill for comparison, made for a scenario; projects add those of their own skills.
REFERENCES: dict[str, Callable[[Scenario], Script]] = {
    "camera": lambda _: AlignCamera(),
    "lock_on": lambda _: TakeLock(),
    "movement": lambda _: ConstantScript(FORWARD),
    "dodge": lambda _: OracleDodge(),
    "heal_attack": lambda _: OracleFight(),
    END_TO_END: lambda scenario: OracleEndToEnd(scenario),
}


def references(skills: Sequence[str], scenario: Scenario) -> dict[str, Script]:
    """Return the scripts that play skills of any project for comparison, made for a scenario.

    Raises:
        UnknownNameError: for a skill without one.
    """
    for name in skills:
        if name not in REFERENCES:
            raise UnknownNameError("skill with a scripted reference", name, REFERENCES)
    return {name: REFERENCES[name](scenario) for name in skills}


def engaging() -> dict[str, Script]:
    """Return scripts of camera, lock-on and movement: look at the boss, lock, walk towards it."""
    return {"camera": AlignCamera(), "lock_on": TakeLock(), "movement": ConstantScript(FORWARD)}


_COMBINED = {action.name: index for index, action in enumerate(make_skill(END_TO_END).actions)}
#: The camera skill's actions, in its order, as the baseline has them.
_CAMERA = np.array([_COMBINED[name] for name in ("camera_up", "camera_down", "camera_left", "camera_right", "idle")])
#: The tick by which an action may come late; a roll pressed now begins a frame or two later.
_TICK_S, _PRESS_S = 0.1, 0.03
_CLOSE_M, _REACH_MARGIN_M, _VIEW_MARGIN_RAD = 0.1, 0.05, 0.05


class OracleEndToEnd(Script):
    """Lock, approach, roll through every hit, strike and drink in the gaps; one of the baseline's actions at a time.

    It shows that the baseline's 16 actions do not limit the agent: a script that knows the boss's hit windows wins
    with these very actions, durations and horizon. Its timings are read from the boss's and the player's data, so it
    follows them when they are recalibrated.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._boss, self._player, self._camera = load_boss(scenario.boss), load_player(scenario.player), AlignCamera()
        stances = self._boss.animations
        self._stances = np.array([stances.idle.id, stances.approach.id, stances.back_off.id, stances.turn.id])
        #: How soon after its first frame a move of the boss can hit.
        self._soonest_hit_s = self._boss.time_factor * min(move.windows[0].time_s[0] for move in self._boss.moves)

    def choose(self, combat: Combat) -> Choices:
        """Choose the first action that applies: roll, look at the boss, drink, strike, approach, wait."""
        rows, player = combat.rows, self._player
        begins_s, ends_s = hits_ahead(combat)
        between = np.isin(rows[:, Column.BOSS_ANIMATION], self._stances)
        left_s = combat.raw[:, Raw.BOSS_ANIMATION_LENGTH_S] - combat.raw[:, Raw.BOSS_ANIMATION_TIME_S]
        left_s = np.where(between, 0.0, left_s)
        unlocked = rows[:, Column.LOCKED] == 0.0
        in_view = rows[:, Column.CAMERA_TARGET_ANGLE] < player.camera.lock_view_rad - _VIEW_MARGIN_RAD
        turn = self._camera.choose(combat)
        contact_m = self._boss.radius_m + player.body.radius_m
        must_roll = (ends_s < player.roll.invulnerable_s - _PRESS_S) | (begins_s < _LAST_CALL_S)
        cases: list[tuple[Flags, npt.ArrayLike]] = [
            (must_roll, _COMBINED["dodge_forward"]),
            (unlocked & in_view, _COMBINED["toggle_lock_on"]),
            (unlocked & (turn != CAMERA_IDLE), _CAMERA[turn]),
            (self._may_drink(rows, begins_s, between, left_s), _COMBINED["heal"]),
            (self._may_strike(rows, begins_s, left_s), _COMBINED["light_attack"]),
            (rows[:, Column.DISTANCE].astype(np.float64) > contact_m + _CLOSE_M, _COMBINED["forward"]),
        ]
        choices = [np.broadcast_to(np.asarray(action, np.int64), combat.lanes) for _, action in cases]
        return np.select([when for when, _ in cases], choices, default=_COMBINED["idle"])

    def _may_drink(self, rows: StateRows, begins_s: Floats, between: Flags, left_s: Floats) -> Flags:
        """Return where no move, begun or not, can hit before the player can roll after a drink."""
        needed = (rows[:, Column.PLAYER_HP] < _DRINK_BELOW) & (rows[:, Column.FLASKS] > 0)
        recovering = np.isinf(begins_s) & ~between
        quiet_s = np.where(recovering, left_s + self._soonest_hit_s, begins_s)
        quiet_s = np.where(between, self._soonest_hit_s, quiet_s)
        return needed & (quiet_s > self._player.animations.estus.roll_s + _TICK_S)

    def _may_strike(self, rows: StateRows, begins_s: Floats, left_s: Floats) -> Flags:
        """Return where a blow lands even if the boss backs off, and leaves time to roll."""
        player, motion, light = self._player, self._boss.motion, self._player.animations.light_1
        away_s = np.clip(light.hit_s - left_s, 0.0, light.hit_s)
        distance_m = rows[:, Column.DISTANCE].astype(np.float64)
        distance_m += np.where(distance_m < motion.back_off_within_m, away_s * motion.back_off_m_s, 0.0)
        reaches = distance_m <= player.attack.reach_m - _REACH_MARGIN_M
        affordable = rows[:, Column.STAMINA] * player.body.stamina > player.attack.cost
        return reaches & affordable & (begins_s > light.roll_s + _TICK_S)
