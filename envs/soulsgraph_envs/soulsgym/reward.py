"""SoulsGym's reward of a boss fight, in named terms."""

from __future__ import annotations

from math import hypot

from soulsgraph_envs.soulsgym.core.game_state import GameState

_END = 0.1
_APPROACH = 0.01
#: Nothing is gained by coming closer to the middle of the arena than this.
_NEAR_M = 4.0


def fight_reward(before: GameState, after: GameState, centre_m: tuple[float, float] | None) -> float:
    """Reward HP taken and kept, victory and, while the fight lasts, standing near `centre_m` if there is one.

    HP counts as a share of its maximum, about -1 to 1 over a fight; the end is worth 0.1 more, or less
    (source: SoulsGym's Iudex environments).
    """
    taken = (before.boss_hp - after.boss_hp) / after.boss_max_hp
    kept = (after.player_hp - before.player_hp) / after.player_max_hp
    return taken + kept + _base(before, after, centre_m)


def _base(before: GameState, after: GameState, centre_m: tuple[float, float] | None) -> float:
    if after.boss_hp <= 0:
        return _END
    if after.player_hp <= 0:
        return -_END
    if centre_m is None:
        return 0.0
    was_m, is_m = (_distance_m(state, centre_m) for state in (before, after))
    return _APPROACH * (was_m - is_m) if is_m > _NEAR_M else 0.0


def _distance_m(state: GameState, centre_m: tuple[float, float]) -> float:
    return hypot(state.player_pose[0] - centre_m[0], state.player_pose[1] - centre_m[1])
