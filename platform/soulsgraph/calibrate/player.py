"""What the player's own animations show: speeds, costs, the return of stamina, how long a roll protects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from soulsgraph.calibrate.rows import Doubles, FightRows, Integers
from soulsgraph.calibrate.values import ValueFit, fit, middle
from soulsgraph_envs.core.scenario import PlayerData
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.simulator.layout import FRAMES_PER_S

_FRAME_S = 1.0 / FRAMES_PER_S
_FEWEST = 4
#: How much farther than contact two readings are where no body was in the way between them.
_CLEAR_M = 0.3
#: Stamina within so much of its most is full.
_FULL = 0.01


def player_fits(fights: Sequence[FightRows], player: PlayerData, contact: float) -> list[ValueFit]:
    """Return the player's values; nearer than `contact` m the boss's body is in the way."""
    names = player.animations
    speeds = [_speeds(fight, player, contact + _CLEAR_M) for fight in fights]
    run, roll = (np.concatenate([pair[place] for pair in speeds]) for place in (0, 1))
    regained = np.concatenate([_regained(fight, player) for fight in fights])
    blows = [names.light_1.id, names.light_2.id, names.light_3.id]
    return [
        _mode_fit("run.speed_m_s", "run", player.run.speed_m_s, run),
        _mode_fit("roll.speed_m_s", "roll", player.roll.speed_m_s, roll),
        _mode_fit("roll.cost", "costs", player.roll.cost, _costs(fights, np.array([names.roll.id]))),
        _mode_fit("attack.cost", "costs", player.attack.cost, _costs(fights, np.array(blows))),
        _mode_fit("body.regeneration_per_s", "stamina", player.body.regeneration_per_s, regained),
        _protection_fit(fights, player),
    ]


def _mode_fit(key: str, kind: str, shipped: float, values: Doubles) -> ValueFit:
    """Return the value that most ticks agree on; those cut short by something else are fewer."""
    if len(values) < _FEWEST:
        return ValueFit(key, kind, shipped, count=len(values))
    ordered = np.sort(values)
    # The half of all values that lie closest together.
    half = max(len(ordered) // 2, 2)
    widths = ordered[half - 1 :] - ordered[: len(ordered) - half + 1]
    first = int(np.argmin(widths))
    closest = ordered[first : first + half]
    median, interval, _ = middle(closest, 0.003 * abs(float(np.median(closest))))
    return fit(key, kind, shipped, median, interval, len(values))


def _speeds(fight: FightRows, player: PlayerData, nearest: float) -> tuple[Doubles, Doubles]:
    """Return speeds of running straight ahead and of the quick part of rolls, (n,) each."""
    raw, steps = fight.raw, np.diff(fight.clock_s)
    animation, played = raw[:, Raw.PLAYER_ANIMATION].astype(np.int64), raw[:, Raw.PLAYER_ANIMATION_TIME_S]
    gone = np.hypot(np.diff(raw[:, Raw.PLAYER_X]), np.diff(raw[:, Raw.PLAYER_Y])) / np.maximum(steps, 1e-9)
    distance = np.hypot(raw[:, Raw.PLAYER_X] - raw[:, Raw.BOSS_X], raw[:, Raw.PLAYER_Y] - raw[:, Raw.BOSS_Y])
    both = (np.diff(animation) == 0) & (steps > 0.0) & (np.minimum(distance[1:], distance[:-1]) > nearest)
    aside = fight.pressed(Control.LEFT | Control.RIGHT | Control.BACK)
    ahead = fight.pressed(Control.FORWARD) & ~aside
    running = both & (animation[1:] == player.animations.run.id) & ahead[:-1]
    rolling = both & (animation[1:] == player.animations.roll.id) & (np.diff(played) > 0)
    rolling &= played[1:] < player.roll.slow_after_s - 0.5 * _FRAME_S
    return gone[running], gone[rolling]


def _costs(fights: Sequence[FightRows], animations: Integers) -> Doubles:
    """Return what animations cost a player whose stamina was full, (n,)."""
    found = []
    for fight in fights:
        raw = fight.raw
        stamina, most = raw[:, Raw.STAMINA], raw[:, Raw.STAMINA_MAX]
        playing = np.isin(raw[:, Raw.PLAYER_ANIMATION].astype(np.int64), animations)
        begun = playing[1:] & ~playing[:-1] & (stamina[:-1] >= most[:-1] - _FULL)
        found.append((stamina[:-1] - stamina[1:])[begun])
    return np.concatenate(found)


def _regained(fight: FightRows, player: PlayerData) -> Doubles:
    """Return the stamina a second that came back in ticks in which nothing else happened to it, (n,)."""
    raw, steps = fight.raw, np.diff(fight.clock_s)
    free = np.isin(raw[:, Raw.PLAYER_ANIMATION].astype(np.int64), [player.animations.idle.id, player.animations.run.id])
    stamina = raw[:, Raw.STAMINA]
    gained = np.diff(stamina)
    whole = (gained > 0.0) & (stamina[1:] < raw[1:, Raw.STAMINA_MAX] - _FULL) & free[1:] & free[:-1] & (steps > 0.0)
    return (gained / np.maximum(steps, 1e-9))[whole]


def _protection_fit(fights: Sequence[FightRows], player: PlayerData) -> ValueFit:
    """Return how long a roll protects: blows that waited in an open window for its end come in the frame after."""
    found = []
    roll, names = player.animations.roll.id, player.animations
    for fight in fights:
        raw, clock = fight.raw, fight.clock_s
        animation, played = raw[:, Raw.PLAYER_ANIMATION].astype(np.int64), raw[:, Raw.PLAYER_ANIMATION_TIME_S]
        begun = np.isin(animation[1:], (names.stagger.id, names.knockdown.id)) & (animation[:-1] == roll)
        for row in np.flatnonzero(begun) + 1:
            # The frame that strikes has counted the roll's clock on, and begins that of the blow at 0.
            found.append(float(played[row - 1] + clock[row] - clock[row - 1] - played[row]))
    key, kind, shipped = "roll.invulnerable_s", "protection", player.roll.invulnerable_s
    if len(found) < 2:
        return ValueFit(key, kind, shipped, count=len(found))
    frames = np.round(np.array(found) * FRAMES_PER_S).astype(np.int64)
    values, counts = np.unique(frames, return_counts=True)
    first = int(values[np.argmax(counts)])
    sure = counts.max() >= 3
    moment = (first - 1) * _FRAME_S
    span = 0.5 * _FRAME_S if sure else 4.0 * _FRAME_S
    return fit(key, kind, shipped, moment, (moment - span, moment + span), len(found))


def contact_fit(fights: Sequence[FightRows], shipped: float, player: PlayerData) -> ValueFit:
    """Return the boss's radius: bodies that touch stay so far apart, but for a charge."""
    distances = np.concatenate([
        np.hypot(f.raw[:, Raw.PLAYER_X] - f.raw[:, Raw.BOSS_X], f.raw[:, Raw.PLAYER_Y] - f.raw[:, Raw.BOSS_Y])
        for f in fights
    ])  # fmt: skip
    near = np.sort(distances)[: max(len(distances) // 20, _FEWEST)]
    counts, edges = np.histogram(near, bins=np.arange(near[0] - 0.005, near[-1] + 0.02, 0.01))
    at = int(np.argmax(counts))
    touching = near[(near >= edges[at]) & (near <= edges[at + 1])]
    if counts[at] < _FEWEST or counts[at] < 0.2 * len(near[near <= edges[at + 1]]):
        return ValueFit("radius_m", "radius", shipped, count=int(counts[at]))
    radius = float(np.median(touching)) - player.body.radius_m
    return fit("radius_m", "radius", shipped, radius, (radius - 0.01, radius + 0.01), int(counts[at]))
