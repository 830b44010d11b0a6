"""What the player's own animations show: speeds, costs, the return of stamina, how long a roll protects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from soulsgraph.calibrate.rows import FightRows, joined, pairs_of
from soulsgraph.calibrate.values import ValueFit, middle
from soulsgraph_envs.combat.rollout import Doubles
from soulsgraph_envs.core.scenario import PlayerData
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.simulator.layout import FRAME_S, FRAMES_PER_S

_FEWEST = 4
#: How much farther than contact two readings are where no body was in the way between them.
_CLEAR_M = 0.3
#: Stamina within so much of its most is full.
_FULL = 0.01


def player_fits(fights: Sequence[FightRows], player: PlayerData, contact: float) -> list[ValueFit]:
    """Return the player's values; nearer than `contact` m the boss's body is in the way."""
    names, (before, after) = player.animations, pairs_of(fights)
    lasted_s, was, now = after.clock_s - before.clock_s, before.player, after.player
    clear = np.minimum(before.distance_m, after.distance_m) > contact + _CLEAR_M
    same = (was == now) & (lasted_s > 0.0) & clear
    speeds = np.hypot(*(after.player_m - before.player_m).T) / np.maximum(lasted_s, 1e-9)
    ahead = before.pressed(Control.FORWARD) & ~before.pressed(Control.LEFT | Control.RIGHT | Control.BACK)
    quick = (after.player_s > before.player_s) & (after.player_s < player.roll.slow_after_s - 0.5 * FRAME_S)
    (begins, ends), full = (one.raw[:, Raw.STAMINA] for one in (before, after)), after.raw[:, Raw.STAMINA_MAX] - _FULL
    fresh = begins >= before.raw[:, Raw.STAMINA_MAX] - _FULL
    blows = (names.light_1.id, names.light_2.id, names.light_3.id)
    roll, light = (np.isin(now, ids) & ~np.isin(was, ids) & fresh for ids in ((names.roll.id,), blows))
    # Ticks in which nothing else happened to stamina.
    free = np.isin(was, (names.idle.id, names.run.id)) & np.isin(now, (names.idle.id, names.run.id))
    gained = ends - begins
    whole = (gained > 0.0) & (ends < full) & free & (lasted_s > 0.0)
    regained = gained / np.maximum(lasted_s, 1e-9)
    struck = (was == names.roll.id) & np.isin(now, (names.stagger.id, names.knockdown.id))
    # The frame that strikes has counted the roll's clock on, and begins that of the blow at 0.
    protected_s = before.player_s + after.clock_s - before.clock_s - after.player_s
    return [
        _mode_fit(ValueFit("run.speed_m_s", "run", player.run.speed_m_s), speeds[same & (now == names.run.id) & ahead]),
        _mode_fit(
            ValueFit("roll.speed_m_s", "roll", player.roll.speed_m_s), speeds[same & (now == names.roll.id) & quick]
        ),
        _mode_fit(ValueFit("roll.cost", "costs", player.roll.cost), (begins - ends)[roll]),
        _mode_fit(ValueFit("attack.cost", "costs", player.attack.cost), (begins - ends)[light]),
        _mode_fit(ValueFit("body.regeneration_per_s", "stamina", player.body.regeneration_per_s), regained[whole]),
        _protection_fit(ValueFit("roll.invulnerable_s", "protection", player.roll.invulnerable_s), protected_s[struck]),
    ]


def _mode_fit(value: ValueFit, values: Doubles) -> ValueFit:
    """Return the value that most ticks agree on; those cut short by something else are fewer."""
    if len(values) < _FEWEST:
        return replace(value, count=len(values))
    ordered = np.sort(values)
    # The half of all values that lie closest together.
    half = max(len(ordered) // 2, 2)
    first = int(np.argmin(ordered[half - 1 :] - ordered[: len(ordered) - half + 1]))
    closest = ordered[first : first + half]
    median, interval, _ = middle(closest, 0.003 * abs(float(np.median(closest))))
    return value.fit(median, interval, len(values))


def _protection_fit(value: ValueFit, moments_s: Doubles) -> ValueFit:
    """Return how long a roll protects: blows that waited in an open window for its end come in the frame after."""
    if len(moments_s) < 2:
        return replace(value, count=len(moments_s))
    frames, counts = np.unique(np.round(moments_s * FRAMES_PER_S).astype(np.int64), return_counts=True)
    moment = (int(frames[np.argmax(counts)]) - 1) * FRAME_S
    span = 0.5 * FRAME_S if counts.max() >= 3 else 4.0 * FRAME_S
    return value.fit(moment, (moment - span, moment + span), len(moments_s))


def contact_fit(fights: Sequence[FightRows], shipped: float, player: PlayerData) -> ValueFit:
    """Return the boss's radius: bodies that touch stay so far apart, but for a charge."""
    distances = joined(fights).distance_m
    near = np.sort(distances)[: max(len(distances) // 20, _FEWEST)]
    counts, edges = np.histogram(near, bins=np.arange(near[0] - 0.005, near[-1] + 0.02, 0.01))
    at = int(np.argmax(counts))
    touching = near[(near >= edges[at]) & (near <= edges[at + 1])]
    few = counts[at] < _FEWEST or counts[at] < 0.2 * len(near[near <= edges[at + 1]])
    radius = np.nan if few else float(np.median(touching)) - player.body.radius_m
    return ValueFit("radius_m", "radius", shipped).fit(radius, (radius - 0.01, radius + 0.01), int(counts[at]))
