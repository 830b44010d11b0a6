"""Put rows of recorded fights into the simulator, and play the recorded controls on from there.

Of a recording only what a running game's has is read. What a row does not show (the buffered press, invulnerability,
the delay of stamina, which windows have struck) is guessed from the rows before it, by `hidden_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph.recordings.clock import rebuilt_clock
from soulsgraph.recordings.files import Recording, RecordingError
from soulsgraph.recordings.format import Header
from soulsgraph_envs.combat.rollout import Doubles, Flags, Integers
from soulsgraph_envs.core.scenario import BLOWS, Scenario, load_boss
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import Control, Raw, RawValues
from soulsgraph_envs.games.readings import AnimationTable, boss_table, reading_of
from soulsgraph_envs.simulator import Simulator, layout
from soulsgraph_envs.simulator.layout import (
    FRAME_S,
    FRAMES_PER_S,
    LANE,
    PlayerPose,
    Records,
    Stance,
    Want,
    load_row,
    pack,
)
from soulsgraph_envs.simulator.player import press

#: Lanes that are played at once.
_LANES = 4096
#: What the game calls the boss's animation while a blow that landed on it shows, instead of what it does.
_BLENDS = ("SABlend", "PartBlend")
#: HP below which a change is rounding.
_HURT_HP = 0.5
_KNOCKS = (PlayerPose.STAGGER, PlayerPose.KNOCKDOWN)
#: Animations that follow another one, and those that nobody presses for.
_FOLLOWING = (PlayerPose.HEAVY_1, PlayerPose.HEAVY_2)
_UNASKED = (PlayerPose.IDLE, PlayerPose.RUN, *_KNOCKS, *_FOLLOWING)
#: Animations whose start costs stamina.
_COSTLY = tuple(
    pose for names in BLOWS.values() for name in names if (pose := PlayerPose[name.upper()]) not in _FOLLOWING
)
#: Controls that act while they are held; any other is one press as its tick begins.
HELD = np.uint32(
    Control.FORWARD
    | Control.BACK
    | Control.LEFT
    | Control.RIGHT
    | Control.CAMERA_UP
    | Control.CAMERA_DOWN
    | Control.CAMERA_LEFT
    | Control.CAMERA_RIGHT
)
_PLACED = (Raw.PLAYER_X, Raw.PLAYER_Y, Raw.BOSS_X, Raw.BOSS_Y, Raw.PLAYER_ANGLE, Raw.BOSS_ANGLE)
_TIMED = (Raw.PLAYER_ANIMATION_TIME_S, Raw.BOSS_ANIMATION_TIME_S)


@dataclass(frozen=True)
class FightTrace:
    """What a running game supplies of one fight, a row a tick and one for its end.

    `raw` is (rows, 25) with NaN for what was not read, `controls` (rows,) of bits, `clock_s` (rows,) game time, `hp`
    (rows,) the player's HP before a training scenario refilled it, `phase` (rows,) from 1 and 0 where it is not known,
    `boss_read` (rows,) the boss's animation as the game said it, None where that is not known.
    """

    raw: RawValues
    controls: npt.NDArray[np.uint32]
    clock_s: Doubles
    hp: Doubles
    phase: Integers
    boss_read: tuple[str | None, ...]

    @cached_property
    def frames(self) -> Integers:
        """Game time in whole frames of the simulator, (rows,), never falling."""
        frames = np.maximum.accumulate(np.rint(self.clock_s * FRAMES_PER_S).astype(np.int64))
        return np.asarray(frames - frames[0])


@dataclass(frozen=True)
class ReadFight(FightTrace):
    """A fight as a file of recordings has it, with the file's header."""

    header: Header

    @classmethod
    def of(cls, recording: Recording) -> ReadFight:
        """Return what may be read of a recording.

        Raises:
            RecordingError: if it has a row a decision instead of a tick, and no controls.
        """
        header, raw = recording.header, recording.raw
        if header.source == "fleet":
            found, remedy = "one of a fleet, which has a row a decision and no controls", "leave it out"
            raise RecordingError(recording.path, "a fight with a row a control tick", found, remedy)
        phase = np.nan_to_num(recording.column("phase").astype(np.float64)).astype(np.int64)
        read = tuple(recording.table.column("boss_animation_read").to_pylist())
        return cls(raw, recording.controls, rebuilt_clock(recording), recording.unfilled_hp, phase, read, header)


class FightNumbers:
    """The numbers of a scenario's data as the simulator holds them, in frames: of the player, and of each phase.

    `player` is one record, `actions` (20,) records; `bosses` (phases,), `stances` (phases, 7), `moves` (phases, moves)
    and `windows` (phases, moves, windows) records.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        phases = scenario.phases()
        tables = pack([load_row(phase) for phase in phases])
        self.players: Records = tables.players.view(layout.PLAYER)
        self.actions: Records = tables.actions.view(layout.ACTION)[0]
        self.bosses: Records = tables.bosses.view(layout.BOSS)
        self.stances: Records = tables.stances.view(layout.ACTION)
        self.moves: Records = tables.moves.view(layout.MOVE)
        self.windows: Records = tables.windows.view(layout.WINDOW)
        self.names = [boss_table(load_boss(phase.boss), phase.transition) for phase in phases]

    @property
    def player(self) -> Any:
        """The player's record."""
        return self.players[0]

    def poses(self, ids: Doubles) -> Integers:
        """Return the player's pose by animation id, (rows,); -1 for one that this player does not have."""
        return _index_of(ids, self.actions["id"], self.actions["length_frames"] > 0)

    def moves_of(self, ids: Doubles, phase: int) -> Integers:
        """Return the move of a phase by animation id, (rows,); -1 for none."""
        moves = self.moves[phase]
        return _index_of(ids, moves["id"], np.arange(len(moves)) < self.bosses["moves"][phase])

    def stances_of(self, ids: Doubles, phase: int) -> Integers:
        """Return the stance of a phase by animation id, (rows,); -1 for none."""
        stances = self.stances[phase]
        return _index_of(ids, stances["id"], stances["length_frames"] > 0)


def _index_of(ids: Doubles, known: Integers, there: Flags) -> Integers:
    index = {int(one): place for place, one in enumerate(known) if there[place]}
    return np.array([index.get(int(one), -1) if np.isfinite(one) else -1 for one in ids], np.int64)


@dataclass(frozen=True)
class ReplayRows:
    """One fight's rows by a scenario's data, (rows,) each; `usable` are those that can be put into the simulator.

    `phase` counts from 0. `pose` is the player's, `move` and `stance` the boss's, -1 for none; `pose_frame` and
    `boss_frame` how long they have played. `began` and `boss_began` mark the rows in which one is seen for the first
    time. `struck` marks rows before which a blow arrived, `lost_hp` what it cost, NaN where HP are not known. In rows
    that are `blended` the game says of the boss what a blow did to it, not what it does.
    """

    fight: FightTrace
    phase: Integers
    pose: Integers
    move: Integers
    stance: Integers
    pose_frame: Integers
    boss_frame: Integers
    began: Flags
    boss_began: Flags
    struck: Flags
    lost_hp: Doubles
    usable: Flags
    blended: Flags

    @classmethod
    def of(cls, fight: FightTrace, numbers: FightNumbers) -> ReplayRows:
        """Return a fight's rows as a scenario's data name them."""
        raw, at = fight.raw, fight.frames
        phase, ids = _phases(fight, numbers)
        pose = numbers.poses(raw[:, Raw.PLAYER_ANIMATION])
        move, stance = np.full(len(at), -1), np.full(len(at), -1)
        for number in range(len(numbers.bosses)):
            own = phase == number
            move[own] = numbers.moves_of(ids[own], number)
            stance[own] = numbers.stances_of(ids[own], number)
        frame, boss_frame = (np.nan_to_num(np.rint(raw[:, at] * FRAMES_PER_S)).astype(np.int64) for at in _TIMED)
        began = _begun(pose, frame, at)
        boss_began = _begun(np.where(move >= 0, move, -2 - stance), boss_frame, at)
        usable = np.isfinite(raw[:, [*_PLACED, *_TIMED]]).all(axis=1) & (pose >= 0) & ((move >= 0) | (stance >= 0))
        blended = np.array([_is_blend(name) for name in fight.boss_read], np.bool_)
        lost = np.append(0.0, np.maximum(raw[:-1, Raw.PLAYER_HP] - fight.hp[1:], 0.0))
        struck = (began & np.isin(pose, _KNOCKS)) | (np.nan_to_num(lost) > _HURT_HP)
        struck[0] = False
        return cls(
            fight, phase, pose, move, stance, frame, boss_frame, began, boss_began, struck, lost, usable, blended
        )

    @cached_property
    def instance(self) -> Integers:
        """The number of the boss's animation within the fight, (rows,): two of one number lie within one animation."""
        return np.cumsum(self.boss_began)

    def latest(self, marked: Flags) -> Integers:
        """Return the last row up to each one that is `marked` (rows,), (rows,); -1 where there is none."""
        return np.maximum.accumulate(np.where(marked, np.arange(len(marked)), -1))


def _phases(fight: FightTrace, numbers: FightNumbers) -> tuple[Integers, Doubles]:
    """Return the phase from 0 and the boss's animation id of every row, (rows,).

    A phase that is not said is the first until the change of phase was seen to end. An animation that the game named
    has the id of that name, and none where the data do not have the name.
    """
    ids, last = fight.raw[:, Raw.BOSS_ANIMATION].copy(), len(numbers.bosses) - 1
    change = numbers.stances["id"][:, Stance.TRANSITION]
    changing = (ids == change[0]) & (last > 0)
    over = np.logical_or.accumulate(changing) & ~changing
    first = load_boss(numbers.scenario.boss).phase
    phase = np.where(fight.phase > 0, np.clip(fight.phase - first, 0, last), np.where(over, last, 0))
    for (number, name), rows in _alike(zip(phase.tolist(), fight.boss_read, strict=True)):
        if name is not None and not _is_blend(name):
            ids[rows] = _id_of(numbers.names[number], name)
    return phase, ids


def _is_blend(name: str | None) -> bool:
    return name is not None and any(blend in name for blend in _BLENDS)


def _alike(keys: Iterable[tuple[int, str | None]]) -> Iterable[tuple[tuple[int, str | None], list[int]]]:
    rows: dict[tuple[int, str | None], list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    return rows.items()


def _id_of(names: AnimationTable, name: str) -> float:
    before = names.unknown.total()
    found = names.translate(reading_of(name))
    return found if names.unknown.total() == before else np.nan


def _begun(playing: Integers, frame: Integers, at: Integers) -> Flags:
    """Return whether another animation plays than in the row before, or the same anew, (rows,)."""
    begun = np.ones(len(at), np.bool_)
    # Halfway: a clock that is read a little late does not begin an animation anew, nor hide that it was.
    late = frame[1:] < frame[:-1] + (at[1:] - at[:-1]) / 2
    begun[1:] = (playing[1:] != playing[:-1]) | late
    return begun


def lanes_of(rows: ReplayRows, numbers: FightNumbers) -> dict[str, npt.NDArray[Any]]:
    """Return every field of a simulator's lane for each row, (rows,): what was read, and the `hidden_state`.

    What was not read stands as at the beginning of a fight; the camera then looks at the boss.
    """
    raw, player, scenario = rows.fight.raw, numbers.player, numbers.scenario
    lanes = {name: np.zeros(len(raw), LANE[name]) for name in LANE.names or ()}
    camera = raw[:, [Raw.CAMERA_X, Raw.CAMERA_Y, Raw.CAMERA_Z]]
    seen = np.isfinite(camera).all(axis=1) & (np.abs(camera).sum(axis=1) > 0.0)
    facing = heading(raw[:, Raw.BOSS_X] - raw[:, Raw.PLAYER_X], raw[:, Raw.BOSS_Y] - raw[:, Raw.PLAYER_Y])
    level = np.hypot(camera[:, 0], camera[:, 1])
    move_length = numbers.moves["length_frames"][rows.phase, rows.move]
    lanes |= {
        "player_x": raw[:, Raw.PLAYER_X],
        "player_y": raw[:, Raw.PLAYER_Y],
        "player_heading": raw[:, Raw.PLAYER_ANGLE],
        "player_hp": _read_or(raw[:, Raw.PLAYER_HP], player.body_hp),
        "stamina": _read_or(raw[:, Raw.STAMINA], player.body_stamina),
        "animation": rows.pose,
        "animation_frame": np.minimum(rows.pose_frame, numbers.actions["length_frames"][rows.pose] - 1),
        "flasks": _read_or(raw[:, Raw.FLASKS], scenario.flasks).astype(np.int64),
        "camera_yaw": np.where(seen, heading(camera[:, 0], camera[:, 1]), facing),
        "camera_pitch": np.where(seen, np.arctan2(camera[:, 2], level), 0.0),
        "locked": (_read_or(raw[:, Raw.LOCKED], 1.0) > 0.5).astype(np.int64),
        "boss_x": raw[:, Raw.BOSS_X],
        "boss_y": raw[:, Raw.BOSS_Y],
        "boss_heading": raw[:, Raw.BOSS_ANGLE],
        "boss_hp": _read_or(raw[:, Raw.BOSS_HP], scenario.boss_hp[0]),
        "move": rows.move,
        "move_frame": np.where(rows.move >= 0, np.minimum(rows.boss_frame, move_length - 1), 0),
        "stance": np.maximum(rows.stance, 0),
        "stance_frame": np.where(rows.move >= 0, 0, rows.boss_frame),
        # The phases are numbered from the scenario's own on.
        "scenario": rows.phase,
        "slowed_factor": np.ones(len(raw)),
    }
    return lanes | hidden_state(rows, numbers)


def _read_or(values: Doubles, otherwise: float) -> Doubles:
    return np.where(np.isfinite(values), values, otherwise)


def heading(dx: Doubles, dy: Doubles) -> Doubles:
    """Return the heading that faces along (dx, dy), in [-pi, pi], as in `layout.heading_to`, (n,) each."""
    return np.arctan2(-dx, -dy)


def hidden_state(rows: ReplayRows, numbers: FightNumbers) -> dict[str, npt.NDArray[Any]]:
    """Guess what a row does not show from the rows before it, by the fields of a lane, (rows,) each.

    The start of an animation dates what began with it: a hit reaction the push and invulnerability after a blow, a
    roll or blow the delay until stamina returns. A press that no start answered waits in the buffer. A roll leads where
    the player faces, a blow where the controls pointed as it began. A window has struck if a blow arrived nearest to
    it. A leap goes on as in the last tick. Build-up of a status effect is taken for none.
    """
    return {
        **_stamina_delay(rows, numbers),
        **_after_blows(rows, numbers),
        **_steps(rows),
        **_buffer(rows, numbers),
        **_boss_hidden(rows, numbers),
        "fp": numbers.player.body_fp
        - numbers.player.weapon_art_fp_cost * np.cumsum(rows.began & (rows.pose == PlayerPose.WEAPON_ART)),
    }


def _elapsed(rows: ReplayRows, marked: Flags, begun_at: Integers) -> tuple[Integers, Integers]:
    """Return the last marked row up to each, and the frames since what began there at a frame, far more for none."""
    last = rows.latest(marked)
    return last, np.where(last >= 0, rows.fight.frames - begun_at[last], np.iinfo(np.int64).max // 2)


def _stamina_delay(rows: ReplayRows, numbers: FightNumbers) -> dict[str, Integers]:
    at, stamina = rows.fight.frames, rows.fight.raw[:, Raw.STAMINA]
    paid = rows.began & np.isin(rows.pose, _COSTLY)
    # What began and was broken off within one tick shows in the stamina alone.
    unseen = np.append(False, stamina[1:] < stamina[:-1] - _HURT_HP) & ~paid
    begun_at = np.where(paid, at - rows.pose_frame, np.append(0, at[:-1]))
    _, elapsed = _elapsed(rows, paid | unseen, begun_at)
    delay = int(numbers.player.body_regeneration_delay_frames)
    # Set within the first frame of the animation, counted down from the second.
    return {"regeneration_wait": np.maximum(delay + 1 - elapsed, 0)}


def _after_blows(rows: ReplayRows, numbers: FightNumbers) -> dict[str, npt.NDArray[Any]]:
    player, raw, at = numbers.player, rows.fight.raw, rows.fight.frames
    knocked = rows.began & np.isin(rows.pose, _KNOCKS)
    last, elapsed = _elapsed(rows, knocked, at - rows.pose_frame)
    down = rows.pose[last] == PlayerPose.KNOCKDOWN
    after = np.where(down, player.hurt_invulnerable_max_frames, player.hurt_invulnerable_min_frames)
    speed = np.where(down, player.hurt_push_max_m_s, player.hurt_push_min_m_s)
    # The boss stood where it did in the frame of the blow, between two rows.
    before, ticks = np.maximum(last - 1, 0), np.maximum(at[last] - at[np.maximum(last - 1, 0)], 1)
    part = np.minimum(rows.pose_frame[last] / ticks, 1.0)
    boss = raw[last][:, [Raw.BOSS_X, Raw.BOSS_Y]]
    boss = boss - part[:, None] * (boss - raw[before][:, [Raw.BOSS_X, Raw.BOSS_Y]])
    away = raw[last][:, [Raw.PLAYER_X, Raw.PLAYER_Y]] - boss
    unit = away / np.maximum(np.hypot(away[:, 0], away[:, 1]), 1e-9)[:, None]
    return {
        "invulnerable": np.maximum(after - elapsed, 0),
        "push_frames": np.maximum(int(player.hurt_push_frames) - elapsed, 0),
        "push_x": unit[:, 0] * speed,
        "push_y": unit[:, 1] * speed,
    }


def _steps(rows: ReplayRows) -> dict[str, Doubles]:
    """Guess where the animation under way carries the player: a unit step."""
    raw, at, controls = rows.fight.raw, rows.fight.frames, rows.fight.controls
    started = np.searchsorted(at, at - rows.pose_frame, side="right") - 1
    started = np.clip(started, 0, len(at) - 1)
    bits = controls[started]
    ahead = _held(bits, Control.FORWARD) - _held(bits, Control.BACK)
    aside = _held(bits, Control.RIGHT) - _held(bits, Control.LEFT)
    to_boss = heading(raw[:, Raw.BOSS_X] - raw[:, Raw.PLAYER_X], raw[:, Raw.BOSS_Y] - raw[:, Raw.PLAYER_Y])
    looking = heading(raw[:, Raw.CAMERA_X], raw[:, Raw.CAMERA_Y])
    locked = ~(raw[:, Raw.LOCKED] < 0.5) | ~np.isfinite(looking)
    held = np.where(locked, to_boss, looking)[started] + np.arctan2(aside, ahead)
    own = raw[:, Raw.PLAYER_ANGLE]
    straight = np.isin(rows.pose, (PlayerPose.ROLL, PlayerPose.JUMP, PlayerPose.WEAPON_ART))
    backward = rows.pose == PlayerPose.BACKSTEP
    way = np.where(straight, own, np.where(backward, own + np.pi, held))
    taken = straight | backward | (ahead != 0) | (aside != 0)
    return {"roll_x": np.where(taken, -np.sin(way), 0.0), "roll_y": np.where(taken, -np.cos(way), 0.0)}


def _held(bits: npt.NDArray[np.uint32], control: Control) -> Integers:
    return np.asarray((bits & np.uint32(control)) != 0, np.int64)


def _buffer(rows: ReplayRows, numbers: FightNumbers) -> dict[str, Integers]:
    """Guess the buffered press and how long it waits, and how long the lock's key does nothing after a release."""
    at, controls, player = rows.fight.frames, rows.fight.controls, numbers.player
    answered = rows.began & ~np.isin(rows.pose, (PlayerPose.IDLE, PlayerPose.RUN, *_FOLLOWING))
    buffered, frames = np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
    lane = np.zeros(1, LANE)[0]
    for row in range(1, len(at)):
        press(lane, player, controls[row - 1])
        lane.buffer_frames -= at[row] - at[row - 1]
        if answered[row] or lane.buffer_frames <= 0:
            lane.buffered, lane.buffer_frames = Want.NOTHING, 0
        buffered[row], frames[row] = lane.buffered, lane.buffer_frames
    locked = rows.fight.raw[:, Raw.LOCKED] > 0.5
    asked = (controls[:-1] & np.uint32(Control.LOCK_ON)) != 0
    released = np.append(False, locked[:-1] & ~locked[1:] & asked)
    _, elapsed = _elapsed(rows, released, np.append(0, at[:-1]))
    relock = np.maximum(int(player.camera_relock_frames) - elapsed, 0)
    return {"buffered": buffered, "buffer_frames": frames, "relock_frames": relock}


def _boss_hidden(rows: ReplayRows, numbers: FightNumbers) -> dict[str, npt.NDArray[Any]]:
    raw, at, boss = rows.fight.raw, rows.fight.frames, numbers.bosses[rows.phase]
    turning = rows.stance == Stance.TURN
    _, turned = _elapsed(rows, turning & rows.boss_began, at - rows.boss_frame)
    rear = boss["rear_turn_frames"]
    moves = numbers.moves[rows.phase, rows.move]
    take_off = numbers.windows["time_min_frames"][rows.phase, rows.move, 0] - moves["leap_frames"]
    flown = rows.boss_frame - take_off
    ticks = np.append(1, at[1:] - at[:-1])
    carried = np.clip(np.minimum(flown, ticks), 1, None)
    way = np.vstack([np.zeros(2), np.diff(raw[:, [Raw.BOSS_X, Raw.BOSS_Y]], axis=0)]) / carried[:, None]
    leaps = (rows.move >= 0) & (moves["leap_frames"] > 0) & (flown > 0)
    before = np.append(-1, rows.move[:-1])
    chained = rows.boss_began & (rows.move >= 0) & (before >= 0)
    free = rows.latest(rows.boss_began & (rows.move >= 0) & ~chained)
    links = np.cumsum(chained)
    return {
        "turn_frames": np.where(turning, rear - np.mod(turned, rear + 1), 0),
        "leap_x": np.where(leaps, way[:, 0], 0.0),
        "leap_y": np.where(leaps, way[:, 1], 0.0),
        "chain_left": np.maximum(boss["aggression_chain_most"] - (links - links[free]), 0),
        "struck": _struck_windows(rows, numbers),
    }


def _struck_windows(rows: ReplayRows, numbers: FightNumbers) -> Integers:
    """Guess which windows of the present move have struck, as bits, (rows,)."""
    at, bits = rows.fight.frames, np.zeros(len(rows.move), np.int64)
    for row in range(1, len(bits)):
        if rows.move[row] < 0:
            continue
        if not rows.boss_began[row]:
            bits[row] = bits[row - 1]
        if rows.struck[row]:
            # A hit reaction dates the blow to its frame; without one it fell somewhere in the tick.
            dated = rows.began[row] and rows.pose[row] in _KNOCKS
            ago = rows.pose_frame[row] + 1 if dated else (at[row] - at[row - 1]) // 2
            bits[row] |= 1 << _nearest_window(
                numbers, int(rows.phase[row]), int(rows.move[row]), rows.boss_frame[row] - ago
            )
    return bits


def _nearest_window(numbers: FightNumbers, phase: int, move: int, frame: int) -> int:
    windows = numbers.windows[phase, move, : numbers.moves["windows"][phase, move]]
    away = np.maximum(windows["time_min_frames"] - frame, frame - windows["time_max_frames"] + 1)
    return int(np.argmin(np.maximum(away, 0)))


@dataclass(frozen=True)
class ReplayOutcome:
    """What became of rows that were put into the simulator, at several moments each: (rows, moments, ...).

    `raw` (rows, moments, 25) are NaN where there is no such moment. `struck` is whether a blow arrived until then,
    `lost_hp` what blows cost the player until then.
    """

    raw: RawValues
    struck: Flags
    lost_hp: Doubles


class RowReplay:
    """Rows of fights as lanes of the simulator by one scenario's data, and their controls frame by frame.

    Rows are numbered over all fights; `at` (rows,) is the frame of each on one axis of time. `delay` are the frames
    after a row at which its controls arrive in the game.
    """

    def __init__(self, fights: Sequence[FightTrace], scenario: Scenario) -> None:
        self.numbers, self.scenario = FightNumbers(scenario), scenario
        self.parts = [ReplayRows.of(fight, self.numbers) for fight in fights]
        lengths = [int(part.fight.frames[-1]) + 1 for part in self.parts]
        firsts = np.cumsum([0, *lengths[:-1]])
        self.at = np.concatenate([part.fight.frames + first for part, first in zip(self.parts, firsts, strict=True)])
        delays = arrival_delays(self.parts)
        self.delay = int(np.median(delays)) if len(delays) else 0
        self._bits = np.concatenate([_frame_bits(part.fight, self.delay) for part in self.parts])
        self._ends = np.repeat(firsts + np.array(lengths), [len(part.pose) for part in self.parts])
        lanes = [lanes_of(part, self.numbers) for part in self.parts]
        self._lanes = {name: np.concatenate([one[name] for one in lanes]) for name in lanes[0]}

    def joined(self, name: str) -> npt.NDArray[Any]:
        """Return an array of all fights' rows by its name in `ReplayRows`, (rows,)."""
        return np.concatenate([getattr(part, name) for part in self.parts])

    def by(self, scenario: Scenario) -> RowReplay:
        """Return the same rows played by other values of the same data; what a row hides stays as it was guessed."""
        other = copy(self)
        other.scenario = scenario
        return other

    def play(
        self,
        starts: Integers,
        frames: Integers,
        seeds: Seeds,
        each: Callable[[int, Integers, RawValues], None] | None = None,
        **fixed: npt.ArrayLike,
    ) -> ReplayOutcome:
        """Put rows `starts` (n,) into lanes and play the recorded controls on; report the moments `frames` (n, m).

        A moment is a number of frames, -1 for none. `seeds` (n,) are the lanes' streams; `fixed` are fields of the
        lanes that are set otherwise than the rows say. `each` is called after every frame with its number, the lanes
        that are played, and their raw values.
        """
        whole = ReplayOutcome(*_room(*frames.shape))
        for first in range(0, len(starts), _LANES):
            part = slice(first, first + _LANES)
            own = {name: np.broadcast_to(value, starts.shape)[part] for name, value in fixed.items()}
            self._play(part, starts[part], frames[part], seeds[part], own, whole, each)
        return whole

    def _play(
        self,
        part: slice,
        starts: Integers,
        frames: Integers,
        seeds: Seeds,
        fixed: Mapping[str, npt.NDArray[Any]],
        whole: ReplayOutcome,
        each: Callable[[int, Integers, RawValues], None] | None,
    ) -> None:
        game, lanes = Simulator(len(starts), FRAME_S), np.arange(len(starts))
        game.reset(lanes, self.scenario, seeds)
        state = game.get_state()
        for name in state["fights"]:
            state["fights"][name][:] = fixed.get(name, self._lanes[name][starts])
        game.set_state(state)
        hp, lost, struck = self._lanes["player_hp"][starts], np.zeros(len(starts)), np.zeros(len(starts), np.bool_)
        longest = frames.max(axis=1)
        knocks = self.numbers.actions["id"][list(_KNOCKS)]
        for frame in range(int(longest.max(initial=0))):
            active = longest > frame
            raw = game.step(self._bits_at(starts, frame), active)
            fell = np.where(active, hp - raw[:, Raw.PLAYER_HP], 0.0)
            knocked = np.isin(raw[:, Raw.PLAYER_ANIMATION], knocks) & (raw[:, Raw.PLAYER_ANIMATION_TIME_S] == 0.0)
            struck |= active & (knocked | (fell > 0.0))
            lost, hp = lost + np.maximum(fell, 0.0), raw[:, Raw.PLAYER_HP].copy()
            rows, moments = np.nonzero(frames == frame + 1)
            at = part.start + rows
            whole.raw[at, moments], whole.struck[at, moments], whole.lost_hp[at, moments] = (
                raw[rows],
                struck[rows],
                lost[rows],
            )
            if each is not None:
                each(frame + 1, part.start + np.flatnonzero(active), raw[active])

    def _bits_at(self, starts: Integers, frame: int) -> npt.NDArray[np.uint32]:
        """Return the controls of lanes a number of frames after their rows; nothing after the end of the fight."""
        at = self.at[starts] + frame
        return np.where(at < self._ends[starts], self._bits[np.minimum(at, len(self._bits) - 1)], np.uint32(0))


def _room(rows: int, moments: int) -> tuple[RawValues, Flags, Doubles]:
    shape = (rows, moments)
    return np.full((*shape, len(Raw)), np.nan), np.zeros(shape, np.bool_), np.full(shape, np.nan)


def arrival_delays(parts: Sequence[ReplayRows]) -> Integers:
    """Return how many frames after its row each press arrived that was answered at once, (presses,)."""
    found: list[int] = []
    for part in parts:
        at, pressed = part.fight.frames, (part.fight.controls & ~HELD & ~np.uint32(Control.LOCK_ON)) != 0
        free = np.isin(part.pose, (PlayerPose.IDLE, PlayerPose.RUN))
        rows = np.flatnonzero(part.began[1:] & ~np.isin(part.pose[1:], _UNASKED) & free[:-1] & pressed[:-1])
        found += np.maximum(at[rows + 1] - part.pose_frame[rows + 1] - at[rows], 0).tolist()
    return np.array(found, np.int64)


def _frame_bits(fight: FightTrace, delay: int) -> npt.NDArray[np.uint32]:
    """Return a fight's controls frame by frame, each tick's `delay` frames late: presses in their first frame alone."""
    at = fight.frames
    arrived = np.minimum(at + delay, at[-1])
    tick = np.searchsorted(arrived, np.arange(at[-1] + 1), side="right") - 1
    bits = np.where(tick >= 0, fight.controls[np.maximum(tick, 0)] & HELD, np.uint32(0))
    np.bitwise_or.at(bits, arrived, fight.controls & ~HELD)
    return bits
