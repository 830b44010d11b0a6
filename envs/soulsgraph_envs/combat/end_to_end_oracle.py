"""A scripted reference for the end-to-end baseline: what its 16 actions, one at a time, can achieve.

It shows that the actions do not limit the agent: a script that knows the boss's hit windows wins with
these very actions, durations and horizon. Its timings are read from the boss's and the player's data,
so it follows them when they are recalibrated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.combat.episodes import Episodes
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.scripted import (
    CAMERA_IDLE,
    AlignCamera,
    Choices,
    Floats,
    Stateless,
    hits_ahead,
    scripted_fights,
)
from soulsgraph_envs.core.fighters import BossData
from soulsgraph_envs.core.scenario import Scenario, load_boss, load_player
from soulsgraph_envs.core.state import Column, Raw
from soulsgraph_envs.core.streams import Seeds
from soulsgraph_envs.skills import END_TO_END, make_skill

_INDEX = {action.name: index for index, action in enumerate(make_skill(END_TO_END).actions)}
FORWARD, ROLL, IDLE = _INDEX["forward"], _INDEX["dodge_forward"], _INDEX["idle"]
TOGGLE, STRIKE, DRINK = _INDEX["toggle_lock_on"], _INDEX["light_attack"], _INDEX["heal"]
#: The camera skill's actions, in its order, as the baseline has them.
_CAMERA = np.array([_INDEX[name] for name in ("camera_up", "camera_down", "camera_left", "camera_right", "idle")])

#: The tick by which an action may come late.
_TICK_S = 0.1
#: A roll pressed now begins a frame or two later.
_PRESS_S = 0.03
#: With less lead than this it is now or never.
_LAST_CALL_S = 0.15
_DRINK_BELOW = 0.45
_CLOSE_M, _REACH_MARGIN_M, _VIEW_MARGIN_RAD = 0.1, 0.05, 0.05


@dataclass(frozen=True)
class Glance:
    """The present of every lane, arrays (lanes,): metres, seconds, flags.

    `begins_s` and `ends_s` bound the next hit, inf without one; `left_s` is the rest of the
    boss's move and 0 `between` moves.
    """

    distance_m: Floats
    begins_s: Floats
    ends_s: Floats
    left_s: Floats
    between: npt.NDArray[np.bool_]


class OracleEndToEnd(Stateless):
    """Lock, approach, roll through every hit, strike and drink in the gaps; one action at a time."""

    def __init__(self, scenario: Scenario) -> None:
        self._boss, self._player = load_boss(scenario.boss), load_player(scenario.player)
        stances = self._boss.animations
        self._stances = np.array([stances.idle.id, stances.approach.id, stances.back_off.id, stances.turn.id])
        self._soonest_hit_s = _soonest_hit_s(self._boss)

    def choose(self, combat: Combat) -> Choices:
        """Choose the first action that applies: roll, look at the boss, drink, strike, approach, wait."""
        rows, player = combat.rows, self._player
        glance = self._glance(combat)
        unlocked = rows[:, Column.LOCKED] == 0.0
        in_view = rows[:, Column.CAMERA_TARGET_ANGLE] < player.camera.lock_view_rad - _VIEW_MARGIN_RAD
        turn = AlignCamera().choose(combat)
        contact_m = self._boss.radius_m + player.body.radius_m
        cases: list[tuple[npt.NDArray[np.bool_], npt.ArrayLike]] = [
            (self._must_roll(glance), ROLL),
            (unlocked & in_view, TOGGLE),
            (unlocked & (turn != CAMERA_IDLE), _CAMERA[turn]),
            (self._may_drink(combat, glance), DRINK),
            (self._may_strike(combat, glance), STRIKE),
            (glance.distance_m > contact_m + _CLOSE_M, FORWARD),
        ]
        choices = [np.broadcast_to(np.asarray(action, np.int64), combat.lanes) for _, action in cases]
        return np.select([when for when, _ in cases], choices, default=IDLE)

    def _glance(self, combat: Combat) -> Glance:
        begins, ends = hits_ahead(combat)
        between = np.isin(combat.rows[:, Column.BOSS_ANIMATION], self._stances)
        left = combat.raw[:, Raw.BOSS_ANIMATION_LENGTH_S] - combat.raw[:, Raw.BOSS_ANIMATION_TIME_S]
        distance = combat.rows[:, Column.DISTANCE].astype(np.float64)
        return Glance(distance, begins, ends, np.where(between, 0.0, left), between)

    def _must_roll(self, glance: Glance) -> npt.NDArray[np.bool_]:
        covered_s = self._player.roll.invulnerable_s - _PRESS_S
        return (glance.ends_s < covered_s) | (glance.begins_s < _LAST_CALL_S)

    def _may_drink(self, combat: Combat, glance: Glance) -> npt.NDArray[np.bool_]:
        """Return where no move, begun or not, can hit before the player can roll after a drink."""
        rows = combat.rows
        needed = (rows[:, Column.PLAYER_HP] < _DRINK_BELOW) & (rows[:, Column.FLASKS] > 0)
        recovering = np.isinf(glance.begins_s) & ~glance.between
        quiet_s = np.where(recovering, glance.left_s + self._soonest_hit_s, glance.begins_s)
        quiet_s = np.where(glance.between, self._soonest_hit_s, quiet_s)
        return needed & (quiet_s > self._player.animations.estus.roll_s + _TICK_S)

    def _may_strike(self, combat: Combat, glance: Glance) -> npt.NDArray[np.bool_]:
        """Return where a blow lands even if the boss backs off, and leaves time to roll."""
        player, motion = self._player, self._boss.motion
        light = player.animations.light_1
        away_s = np.clip(light.hit_s - glance.left_s, 0.0, light.hit_s)
        backs_off = glance.distance_m < motion.back_off_within_m
        distance = glance.distance_m + np.where(backs_off, away_s * motion.back_off_m_s, 0.0)
        reaches = distance <= player.attack.reach_m - _REACH_MARGIN_M
        affordable = combat.rows[:, Column.STAMINA] * player.body.stamina > player.attack.cost
        return reaches & affordable & (glance.begins_s > light.roll_s + _TICK_S)


def _soonest_hit_s(boss: BossData) -> float:
    """Return how soon after its first frame a move of the boss can hit."""
    return boss.time_factor * min(move.windows[0].time_s[0] for move in boss.moves)


def end_to_end_oracle_fights(scenario: Scenario, seeds: Seeds) -> Episodes:
    """Let the oracle play the baseline's task once from each seed (n,), within the baseline's horizon."""
    skill = make_skill(END_TO_END)
    scripts = {END_TO_END: OracleEndToEnd(scenario)}
    return scripted_fights(scenario, scripts, seeds, None, Horizon(skill.name, skill.horizon))
