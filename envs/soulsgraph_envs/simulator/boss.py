"""The boss's frame: keep the distance, turn, choose a move, wind up, strike, recover, all by its data."""

from __future__ import annotations

from math import cos, floor, inf, sin, sqrt

from soulsgraph_envs.core.compiling import compiled, every_frame
from soulsgraph_envs.core.seeds import Seeds, uniform
from soulsgraph_envs.simulator.layout import (
    FRAME_S,
    NO_MOVE,
    Encounter,
    FightRecords,
    Lane,
    PlayerPose,
    Record,
    Records,
    Sight,
    Stance,
    Tables,
    Want,
    clamped,
    heading_to,
    seen_back,
    turned,
    wrapped,
)
from soulsgraph_envs.simulator.player import above, boss_seen, build_up, invulnerable, open_to_counter, parrying


@compiled
def draw_frames(low: int, high: int, streams: Seeds, index: int) -> int:
    """Draw a whole number of frames from [low, high]."""
    return low + int((high - low + 1) * uniform(streams, index))


@every_frame
def stance_frame(lane: Lane, boss: Record, moves: Records, target: Sight, streams: Seeds, index: int) -> None:
    """Advance a boss between moves by one frame; `target` is the player as the boss sees them."""
    behind = (
        abs(wrapped(target.heading - lane.boss_heading)) > boss.rear_angle_rad
        and target.distance < boss.rear_distance_m
    )
    if lane.stance >= Stance.PARRIED or lane.boss_hp <= boss.transition_below_hp:
        _bound_frame(lane, boss, target.distance, streams, index)
        return
    if not lane.no_attack:
        lane.wait -= 1
    if lane.turn_frames > 0:
        lane.turn_frames -= 1
        _stand(lane, Stance.TURN)
    elif behind and not lane.no_attack and uniform(streams, index) < boss.rear_counter_chance:
        start_move(lane, boss.rear_counter_move)
        return
    elif behind:
        lane.turn_frames = boss.rear_turn_frames
        _stand(lane, Stance.TURN)
    elif lane.wait <= 0 and not lane.no_attack and _attack(lane, boss, moves, target.distance, streams, index):
        return
    else:
        _keep_distance(lane, boss, target.distance)
    lane.boss_heading = turned(lane.boss_heading, target.heading, boss.motion_turn_rad_s * FRAME_S)


@compiled
def _bound_frame(lane: Lane, boss: Record, distance_m: float, streams: Seeds, index: int) -> None:
    """Pass one frame of a boss that cannot act; the end of a transition is handled after the tick."""
    if lane.stance < Stance.PARRIED:
        _stand(lane, Stance.TRANSITION)
        return
    lane.stance_frame += 1
    parried = lane.stance == Stance.PARRIED and lane.stance_frame >= boss.parried_frames
    if parried or (lane.stance == Stance.THROWN and lane.stance_frame >= boss.thrown_frames):
        _stand(lane, Stance.STAND)
        lane.wait = draw_wait(lane, boss, distance_m, streams, index)


@compiled
def start_move(lane: Lane, move: int) -> None:
    """Begin a move at its first frame."""
    lane.move, lane.move_frame, lane.struck = move, 0, 0
    lane.stance, lane.stance_frame = Stance.STAND, 0


@every_frame
def move_motion(lane: Lane, boss: Record, move: Record, first_window: Record, contact_m: float, target: Sight) -> None:
    """Turn, lunge or fly for one frame of a move; draws no random number."""
    frame = lane.move_frame
    if frame < move.tracks_frames:
        most = boss.motion_turn_rad_s * boss.motion_tracking_factor * FRAME_S
        lane.boss_heading = turned(lane.boss_heading, target.heading, most)
    if move.lunge_min_frames <= frame < move.lunge_max_frames and (move.runs_through or target.distance > contact_m):
        lane.boss_x -= sin(lane.boss_heading) * move.lunge_m_s * FRAME_S
        lane.boss_y -= cos(lane.boss_heading) * move.lunge_m_s * FRAME_S
    take_off = first_window.time_min_frames - move.leap_frames
    if move.leap_frames > 0 and take_off <= frame < first_window.time_min_frames:
        if frame == take_off:
            step = max(target.distance - boss.motion_leap_short_m, 0.0) / move.leap_frames
            lane.leap_x, lane.leap_y = target.x * step, target.y * step
        lane.boss_x += lane.leap_x
        lane.boss_y += lane.leap_y


@compiled
def running_through(lane: Lane, moves: Records) -> bool:
    """Return whether the boss is in a charge, which no body stops."""
    if lane.move == NO_MOVE or moves[lane.move].runs_through == 0:
        return False
    move = moves[lane.move]
    return bool(move.lunge_min_frames <= lane.move_frame < move.lunge_max_frames)


@every_frame
def window_reaching_player(lane: Lane, move: Record, windows: Records) -> int:
    """Return the move's open hit window that reaches the player and may strike in this frame, or -1.

    `windows` is (moves, windows).
    """
    for number in range(move.windows):
        window = windows[lane.move, number]
        if window.time_min_frames <= lane.move_frame < window.time_max_frames and _strikes(lane, window, number):
            dx, dy = lane.player_x - lane.boss_x, lane.player_y - lane.boss_y
            if window.offset_m != 0.0:
                dx += sin(lane.boss_heading) * window.offset_m
                dy += cos(lane.boss_heading) * window.offset_m
            if dx * dx + dy * dy > window.reach_m * window.reach_m:
                return -1
            offset = abs(wrapped(heading_to(dx, dy) - lane.boss_heading))
            return number if offset <= window.half_arc_rad else -1
    return -1


@compiled
def strike(lane: Lane, player: Record, boss: Record, window: Record, streams: Seeds, index: int) -> None:
    """Hurt the player: damage, build-up, and stagger or knock-down with a push away from the boss."""
    damage = window.damage * (1.0 + boss.damage_spread * (2.0 * uniform(streams, index) - 1.0))
    if open_to_counter(lane):
        damage *= player.hurt_counter_factor
    if enraged(lane, boss):
        damage *= boss.enraged_damage_factor
    if not lane.no_damage:
        lane.player_hp = max(lane.player_hp - floor(damage + 0.5), 0.0)
    if window.build_up > 0.0:
        build_up(lane, player, boss, window.build_up)
    if window.staggers:
        _knock(lane, player, window)


@compiled
def _knock(lane: Lane, player: Record, window: Record) -> None:
    lane.animation = PlayerPose.KNOCKDOWN if window.knockdown else PlayerPose.STAGGER
    lane.animation_frame = 0
    lane.buffered = Want.NOTHING
    push = player.hurt_push_max_m_s if window.knockdown else player.hurt_push_min_m_s
    away = heading_to(lane.player_x - lane.boss_x, lane.player_y - lane.boss_y)
    lane.push_x, lane.push_y = -sin(away) * push, -cos(away) * push
    lane.push_frames = player.hurt_push_frames
    after = player.hurt_invulnerable_max_frames if window.knockdown else player.hurt_invulnerable_min_frames
    lane.invulnerable = after


@compiled
def finish_move(lane: Lane, boss: Record, moves: Records, distance_m: float, streams: Seeds, index: int) -> None:
    """End a move: chain the next one at random, or wait."""
    lane.move = NO_MOVE
    chance = boss.enraged_chain_chance if enraged(lane, boss) else boss.aggression_chain_chance
    if lane.chain_left > 0 and not lane.no_attack and uniform(streams, index) < chance:
        following = _choose(lane, boss, moves, distance_m, streams, index)
        if following != NO_MOVE:
            lane.chain_left -= 1
            start_move(lane, following)
            return
    lane.wait = draw_wait(lane, boss, distance_m, streams, index)


@compiled
def enraged(lane: Lane, boss: Record) -> bool:
    """Return whether the boss's HP is low enough for its rage."""
    return bool(lane.boss_hp < boss.enraged_below_hp)


@compiled
def draw_wait(lane: Lane, boss: Record, distance_m: float, streams: Seeds, index: int) -> int:
    """Draw the frames until the next attack; a player nearby may be given longer."""
    wait = draw_frames(boss.aggression_wait_min_frames, boss.aggression_wait_max_frames, streams, index)
    if distance_m < boss.aggression_near_m:
        low, high = boss.aggression_near_wait_min_frames, boss.aggression_near_wait_max_frames
        wait += draw_frames(low, high, streams, index)
    return int(wait * boss.enraged_wait_factor + 0.5) if enraged(lane, boss) else wait


@compiled
def _attack(lane: Lane, boss: Record, moves: Records, distance_m: float, streams: Seeds, index: int) -> bool:
    move = _choose(lane, boss, moves, distance_m, streams, index)
    if move == NO_MOVE:
        return False
    start_move(lane, move)
    lane.chain_left = boss.aggression_chain_most
    return True


@compiled
def _choose(lane: Lane, boss: Record, moves: Records, distance_m: float, streams: Seeds, index: int) -> int:
    total, rages = 0.0, enraged(lane, boss)
    for number in range(boss.moves):
        if moves[number].distance_min_m <= distance_m <= moves[number].distance_max_m:
            total += _weight(moves[number], rages)
    if total <= 0.0:
        return NO_MOVE
    left, chosen = total * uniform(streams, index), NO_MOVE
    for number in range(boss.moves):
        move = moves[number]
        weight = _weight(move, rages)
        if weight > 0.0 and move.distance_min_m <= distance_m <= move.distance_max_m:
            chosen = number
            left -= weight
            if left < 0.0:
                break
    return chosen


@every_frame
def _weight(move: Record, rages: bool) -> float:
    weight: float = move.enraged_weight if rages else move.weight
    return weight


@every_frame
def _strikes(lane: Lane, window: Record, number: int) -> bool:
    """Return whether an open window strikes in this frame: at its interval, or once."""
    if window.every_frames > 0:
        return bool((lane.move_frame - window.time_min_frames) % window.every_frames == 0)
    return bool((lane.struck >> number) & 1 == 0)


@every_frame
def _keep_distance(lane: Lane, boss: Record, distance_m: float) -> None:
    speed = 0.0
    if distance_m > boss.motion_approach_beyond_m:
        speed = boss.motion_walk_m_s
        _stand(lane, Stance.APPROACH)
    elif distance_m < boss.motion_back_off_within_m:
        speed = -boss.motion_back_off_m_s
        _stand(lane, Stance.BACK_OFF)
    else:
        _stand(lane, Stance.STAND)
    if speed != 0.0:
        lane.boss_x -= sin(lane.boss_heading) * speed * FRAME_S
        lane.boss_y -= cos(lane.boss_heading) * speed * FRAME_S


@every_frame
def _stand(lane: Lane, stance: int) -> None:
    if lane.stance == stance:
        lane.stance_frame += 1
    else:
        lane.stance = stance
        lane.stance_frame = 0


@every_frame
def keep_apart(lane: Lane, encounter: Encounter, player: Record, boss: Record, moves: Records) -> None:
    """Keep both inside the arena, and the player outside a boss that is not running through."""
    cx, cy = encounter.centre_x, encounter.centre_y
    x, y = clamped(lane.boss_x - cx, lane.boss_y - cy, encounter.radius - boss.radius_m)
    lane.boss_x, lane.boss_y = cx + x, cy + y
    dx, dy = lane.player_x - lane.boss_x, lane.player_y - lane.boss_y
    contact = player.body_radius_m + boss.radius_m
    squared = dx * dx + dy * dy
    if 0.0 < squared < contact * contact and not running_through(lane, moves):
        factor = contact / sqrt(squared)
        lane.player_x, lane.player_y = lane.boss_x + dx * factor, lane.boss_y + dy * factor
    x, y = clamped(lane.player_x - cx, lane.player_y - cy, encounter.radius - player.body_radius_m)
    lane.player_x, lane.player_y = cx + x, cy + y


@every_frame
def boss_blow(lane: Lane, data: FightRecords, streams: Seeds, index: int) -> None:
    """Let an open window strike, then advance to the move's next frame or past its end."""
    _, player, actions, boss, moves, windows = data
    number = window_reaching_player(lane, moves[lane.move], windows)
    if number >= 0 and not invulnerable(lane, player):
        window = windows[lane.move, number]
        if boss.parried_frames > 0 and moves[lane.move].parryable and parrying(lane, player, boss_seen(lane)):
            # The move breaks off, and the boss stands open to a riposte.
            lane.move, lane.stance, lane.stance_frame, lane.turn_frames = NO_MOVE, Stance.PARRIED, 0, 0
            return
        if not (window.low and above(lane, player, actions)):
            strike(lane, player, boss, window, streams, index)
            lane.struck |= 1 << number
    lane.move_frame += 1
    if lane.move_frame >= moves[lane.move].length_frames:
        finish_move(lane, boss, moves, boss_seen(lane).distance, streams, index)


@compiled
def next_hit(lane: Lane, tables: Tables) -> tuple[float, float]:
    """Simulate the move to its end with the player standing still: (first, last) second of the next hit."""
    player, boss = tables.players[lane.scenario], tables.bosses[lane.scenario]
    contact = player.body_radius_m + boss.radius_m
    moves, windows = tables.moves[lane.scenario], tables.windows[lane.scenario]
    move = moves[lane.move]
    begins = -1
    started = lane.move_frame
    while lane.move_frame < move.length_frames:
        move_motion(lane, boss, move, windows[lane.move, 0], contact, seen_back(boss_seen(lane)))
        keep_apart(lane, tables.encounters[lane.scenario], player, boss, moves)
        reaches = window_reaching_player(lane, move, windows) >= 0
        if begins < 0 and reaches:
            begins = lane.move_frame
        if begins >= 0 and not reaches:
            return (begins - started) * FRAME_S, (lane.move_frame - started) * FRAME_S
        lane.move_frame += 1
    return (inf, inf) if begins < 0 else ((begins - started) * FRAME_S, (lane.move_frame - started) * FRAME_S)
