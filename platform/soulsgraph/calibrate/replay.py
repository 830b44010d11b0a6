"""Put rows of recorded fights into the simulator, and play the recorded controls on from there.

Of a recording only what a running game's has is read. What a row does not show (the buffered press, invulnerability,
the delay of stamina, which windows have struck) is guessed from the rows before it, by `hidden_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from soulsgraph.calibrate.rows import ReadFight
from soulsgraph_envs.combat.rollout import Doubles, Flags, Integers
from soulsgraph_envs.core.scenario import BLOWS, Scenario, load_boss
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import Control, Raw, RawValues
from soulsgraph_envs.games.readings import boss_table, reading_of
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
_CAMERA = Control.CAMERA_UP | Control.CAMERA_DOWN | Control.CAMERA_LEFT | Control.CAMERA_RIGHT
#: Controls that act while they are held; any other is one press as its tick begins.
HELD = np.uint32(Control.FORWARD | Control.BACK | Control.LEFT | Control.RIGHT | _CAMERA)
_PLAYER_M, _BOSS_M = [Raw.PLAYER_X, Raw.PLAYER_Y], [Raw.BOSS_X, Raw.BOSS_Y]
_PLACED = (*_PLAYER_M, *_BOSS_M, Raw.PLAYER_ANGLE, Raw.BOSS_ANGLE)
_TIMED = (Raw.PLAYER_ANIMATION_TIME_S, Raw.BOSS_ANIMATION_TIME_S)
#: Frames since what never began.
_NEVER = np.iinfo(np.int64).max // 2


class ReplayOutcome(NamedTuple):
    """What became of rows that were put into the simulator for a time: raw values (rows, 25), and (rows,) each.

    `struck` is whether a blow arrived until then, `lost_hp` what blows cost the player until then.
    """

    raw: RawValues
    struck: Flags
    lost_hp: Doubles


class RowReplay:
    """The rows of fights by a scenario's data, (rows,) each over all fights, as lanes of the simulator.

    `at` is the frame of each row on one axis of time, `start` the first row of its fight, `before` the row before it in
    that. `phase` counts from 0. `pose` is the player's, `move` and `stance` the boss's, -1 for none; `pose_frame` and
    `boss_frame` how long they have played. `began` and `boss_began` mark the rows in which one is seen for the first
    time; `instance` numbers the boss's animations. `struck` marks rows before which a blow arrived, `lost_hp` what it
    cost, NaN where HP are not known. In rows that are `blended` the game says of the boss what a blow did to it, not
    what it does. `usable` are those that can be put into the simulator.

    Of the data `player` is a record, `actions` (20,), `bosses` (phases,), `stances` (phases, 7), `moves` (phases,
    moves) and `windows` (phases, moves, windows) records, with times in frames.
    """

    def __init__(self, fights: Sequence[ReadFight], scenario: Scenario) -> None:
        self._take_data(scenario)
        hp, said, read = self._join(fights)
        ids = self._phases(said, read)
        raw, before = self.raw, self.before
        self.pose = _places_of(raw[:, Raw.PLAYER_ANIMATION], self.actions)
        self.move, self.stance = np.full((2, len(raw)), -1)
        for number in range(len(self.bosses)):
            own = self.phase == number
            self.move[own], self.stance[own] = (_places_of(ids[own], one[number]) for one in (self.moves, self.stances))
        self.pose_frame, self.boss_frame = (in_frames(raw[:, column]) for column in _TIMED)
        self.began = self._begun(self.pose, self.pose_frame)
        self.boss_began = self._begun(np.where(self.move >= 0, self.move, -2 - self.stance), self.boss_frame)
        self.instance = np.cumsum(self.boss_began)
        self.usable = np.isfinite(raw[:, [*_PLACED, *_TIMED]]).all(axis=1) & (self.pose >= 0)
        self.usable &= (self.move >= 0) | (self.stance >= 0)
        self.lost_hp = np.where(self.first, 0.0, np.maximum(raw[before, Raw.PLAYER_HP] - hp, 0.0))
        knocked = self.began & np.isin(self.pose, _KNOCKS)
        self.struck = (knocked | (np.nan_to_num(self.lost_hp) > _HURT_HP)) & ~self.first

    def _take_data(self, scenario: Scenario) -> None:
        """Take the records of a scenario's data, phase by phase."""
        self.scenario, phases = scenario, scenario.phases()
        tables = pack([load_row(phase) for phase in phases])
        self.player: Any = tables.players.view(layout.PLAYER)[0]
        self.actions: Records = tables.actions.view(layout.ACTION)[0]
        self.bosses: Records = tables.bosses.view(layout.BOSS)
        self.stances: Records = tables.stances.view(layout.ACTION)
        self.moves: Records = tables.moves.view(layout.MOVE)
        self.windows: Records = tables.windows.view(layout.WINDOW)
        self.loaded = [load_boss(phase.boss) for phase in phases]
        self._names = [boss_table(boss, one.transition) for boss, one in zip(self.loaded, phases, strict=True)]

    def _join(self, fights: Sequence[ReadFight]) -> list[npt.NDArray[Any]]:
        """Put the fights' rows one behind the other; return HP, phases and the boss's animations as they were read."""
        counts, lengths = [len(fight.raw) for fight in fights], [int(fight.frames[-1]) + 1 for fight in fights]
        ends, rows = np.cumsum(lengths), np.arange(sum(counts))
        self.start, self.end = np.repeat(np.cumsum([0, *counts[:-1]]), counts), np.repeat(ends, counts)
        self.first: Flags = rows == self.start
        self.before = np.maximum(rows - 1, self.start)
        self.at = np.concatenate([fight.frames for fight in fights]) + np.repeat(ends - lengths, counts)
        names = ("raw", "controls", "hp", "phase", "boss_read")
        self.raw, self.controls, *others = (np.concatenate([getattr(one, name) for one in fights]) for name in names)
        return others

    def _phases(self, said: Integers, read: npt.NDArray[Any]) -> Doubles:
        """Find the phase of every row, and return the id of the boss's animation, (rows,).

        A phase that is not said is the first until the change of phase was seen to end. An animation that the game
        named has the id of that name, and none where the data do not have the name.
        """
        ids, last = self.raw[:, Raw.BOSS_ANIMATION].copy(), len(self.bosses) - 1
        changing = (ids == self.stances["id"][0, Stance.TRANSITION]) & (last > 0)
        changed = (self.latest(changing) >= 0) & ~changing
        self.phase = np.where(said > 0, np.clip(said - self.loaded[0].phase, 0, last), np.where(changed, last, 0))
        self.blended = np.array([name is not None and any(one in name for one in _BLENDS) for name in read], np.bool_)
        named = np.array([name is not None for name in read], np.bool_) & ~self.blended
        for number, name in {*zip(self.phase[named].tolist(), read[named].tolist(), strict=True)}:
            table = self._names[number]
            unknown, found = table.unknown.total(), table.translate(reading_of(name))
            ids[(self.phase == number) & (read == name)] = found if table.unknown.total() == unknown else np.nan
        return ids

    def _begun(self, playing: Integers, frame: Integers) -> Flags:
        """Return whether another animation plays than in the row before, or the same anew, (rows,)."""
        # Halfway: a clock that is read a little late does not begin an animation anew, nor hide that it was.
        late = frame < frame[self.before] + (self.at - self.at[self.before]) / 2
        return np.asarray(self.first | (playing != playing[self.before]) | late)

    def latest(self, marked: Flags) -> Integers:
        """Return the last row of its fight up to each one that is `marked` (rows,), (rows,); -1 where there is none."""
        last = np.maximum.accumulate(np.where(marked, np.arange(len(marked)), -1))
        return np.where(last >= self.start, last, -1)

    def since(self, marked: Flags, begun_at: Integers) -> tuple[Integers, Integers]:
        """Return the last marked row up to each, and the frames since what began there at a frame, many for none."""
        last = self.latest(marked)
        return last, np.where(last >= 0, self.at - begun_at[last], _NEVER)

    @cached_property
    def delays(self) -> Integers:
        """How many frames after its row each press arrived that was answered at once, (presses,)."""
        pressed = (self.controls & ~HELD & ~np.uint32(Control.LOCK_ON)) != 0
        asked = (pressed & np.isin(self.pose, (PlayerPose.IDLE, PlayerPose.RUN)))[self.before]
        rows = np.flatnonzero(self.began & ~self.first & ~np.isin(self.pose, _UNASKED) & asked)
        return np.asarray(np.maximum(self.at[rows] - self.pose_frame[rows] - self.at[self.before[rows]], 0))

    @cached_property
    def delay(self) -> int:
        """The frames after a row at which its controls arrive in the game."""
        return int(np.median(self.delays)) if len(self.delays) else 0

    @cached_property
    def _bits(self) -> npt.NDArray[np.uint32]:
        """The controls frame by frame, each tick's late by the delay: presses in their first frame alone."""
        arrived = np.minimum(self.at + self.delay, self.end - 1)
        tick = np.searchsorted(arrived, np.arange(self.end[-1]), side="right") - 1
        bits = np.where(tick >= 0, self.controls[np.maximum(tick, 0)] & HELD, np.uint32(0))
        np.bitwise_or.at(bits, arrived, self.controls & ~HELD)
        return bits

    @cached_property
    def lanes(self) -> dict[str, npt.NDArray[Any]]:
        """Every field of a simulator's lane for each row, (rows,): what was read, and the `hidden_state`.

        What was not read stands as at the beginning of a fight; the camera then looks at the boss.
        """
        raw, player = self.raw, self.player
        camera = raw[:, [Raw.CAMERA_X, Raw.CAMERA_Y, Raw.CAMERA_Z]]
        seen = np.isfinite(camera).all(axis=1) & (np.abs(camera).sum(axis=1) > 0.0)
        level, moving = np.hypot(camera[:, 0], camera[:, 1]), self.move >= 0
        move_length = self.moves["length_frames"][self.phase, self.move]

        def read(column: Raw, otherwise: float) -> Doubles:
            return np.where(np.isfinite(raw[:, column]), raw[:, column], otherwise)

        lanes = {name: np.zeros(len(raw), LANE[name]) for name in LANE.names or ()}
        lanes |= {
            "player_x": raw[:, Raw.PLAYER_X],
            "player_y": raw[:, Raw.PLAYER_Y],
            "player_heading": raw[:, Raw.PLAYER_ANGLE],
            "player_hp": read(Raw.PLAYER_HP, player.body_hp),
            "stamina": read(Raw.STAMINA, player.body_stamina),
            "animation": self.pose,
            "animation_frame": np.minimum(self.pose_frame, self.actions["length_frames"][self.pose] - 1),
            "flasks": read(Raw.FLASKS, self.scenario.flasks).astype(np.int64),
            "camera_yaw": np.where(seen, _heading(camera), self._to_boss),
            "camera_pitch": np.where(seen, np.arctan2(camera[:, 2], level), 0.0),
            "locked": (read(Raw.LOCKED, 1.0) > 0.5).astype(np.int64),
            "boss_x": raw[:, Raw.BOSS_X],
            "boss_y": raw[:, Raw.BOSS_Y],
            "boss_heading": raw[:, Raw.BOSS_ANGLE],
            "boss_hp": read(Raw.BOSS_HP, self.scenario.boss_hp[0]),
            "move": self.move,
            "move_frame": np.where(moving, np.minimum(self.boss_frame, move_length - 1), 0),
            "stance": np.maximum(self.stance, 0),
            "stance_frame": np.where(moving, 0, self.boss_frame),
            # The phases are numbered from the scenario's own on.
            "scenario": self.phase,
            "slowed_factor": np.ones(len(raw)),
        }
        return lanes | self.hidden_state()

    @property
    def _to_boss(self) -> Doubles:
        return _heading(self.raw[:, _BOSS_M] - self.raw[:, _PLAYER_M])

    def hidden_state(self) -> dict[str, npt.NDArray[Any]]:
        """Guess what a row does not show from the rows before it, by the fields of a lane, (rows,) each.

        The start of an animation dates what began with it: a hit reaction the push and invulnerability after a blow, a
        roll or blow the delay until stamina returns. A press that no start answered waits in the buffer. A roll leads
        where the player faces, a blow where the controls pointed as it began. A window has struck if a blow arrived
        nearest to it. A leap goes on as in the last tick. Build-up of a status effect is taken for none.
        """
        parts = (self._after_costs(), self._after_blows(), self._steps(), self._buffer(), self._boss_hidden())
        return {name: values for part in parts for name, values in part.items()}

    def _after_costs(self) -> dict[str, npt.NDArray[Any]]:
        stamina, art = self.raw[:, Raw.STAMINA], self.began & (self.pose == PlayerPose.WEAPON_ART)
        paid = self.began & np.isin(self.pose, _COSTLY)
        # What began and was broken off within one tick shows in the stamina alone.
        unseen = (stamina < stamina[self.before] - _HURT_HP) & ~paid
        begun_at = np.where(paid, self.at - self.pose_frame, self.at[self.before])
        _, elapsed = self.since(paid | unseen, begun_at)
        # Set within the first frame of the animation, counted down from the second.
        wait = np.maximum(int(self.player.body_regeneration_delay_frames) + 1 - elapsed, 0)
        fp = self.player.body_fp - self.player.weapon_art_fp_cost * self._counted(art)
        return {"regeneration_wait": wait, "fp": fp}

    def _counted(self, marked: Flags) -> Integers:
        """Count the marked rows of the fight up to each one, (rows,)."""
        counts = np.cumsum(marked)
        return np.asarray(counts - (counts - marked)[self.start])

    def _after_blows(self) -> dict[str, npt.NDArray[Any]]:
        player, raw, at = self.player, self.raw, self.at
        last, elapsed = self.since(self.began & np.isin(self.pose, _KNOCKS), at - self.pose_frame)
        down, before = self.pose[last] == PlayerPose.KNOCKDOWN, self.before[last]
        after = np.where(down, player.hurt_invulnerable_max_frames, player.hurt_invulnerable_min_frames)
        speed = np.where(down, player.hurt_push_max_m_s, player.hurt_push_min_m_s)
        # The boss stood where it did in the frame of the blow, between two rows.
        part = np.minimum(self.pose_frame[last] / np.maximum(at[last] - at[before], 1), 1.0)
        boss = raw[last][:, _BOSS_M]
        boss = boss - part[:, None] * (boss - raw[before][:, _BOSS_M])
        away = raw[last][:, _PLAYER_M] - boss
        unit = away / np.maximum(np.hypot(away[:, 0], away[:, 1]), 1e-9)[:, None]
        return {
            "invulnerable": np.maximum(after - elapsed, 0),
            "push_frames": np.maximum(int(player.hurt_push_frames) - elapsed, 0),
            "push_x": unit[:, 0] * speed,
            "push_y": unit[:, 1] * speed,
        }

    def _steps(self) -> dict[str, Doubles]:
        """Guess where the animation under way carries the player: a unit step."""
        raw = self.raw
        started = np.maximum(np.searchsorted(self.at, self.at - self.pose_frame, side="right") - 1, self.start)
        forward, back, right, left = (
            ((self.controls[started] & np.uint32(one)) != 0).astype(np.int64)
            for one in (Control.FORWARD, Control.BACK, Control.RIGHT, Control.LEFT)
        )
        ahead, aside = forward - back, right - left
        looking = _heading(raw[:, [Raw.CAMERA_X, Raw.CAMERA_Y]])
        locked = ~(raw[:, Raw.LOCKED] < 0.5) | ~np.isfinite(looking)
        held = np.where(locked, self._to_boss, looking)[started] + np.arctan2(aside, ahead)
        own = raw[:, Raw.PLAYER_ANGLE]
        straight = np.isin(self.pose, (PlayerPose.ROLL, PlayerPose.JUMP, PlayerPose.WEAPON_ART))
        backward = self.pose == PlayerPose.BACKSTEP
        way = np.where(straight, own, np.where(backward, own + np.pi, held))
        taken = straight | backward | (ahead != 0) | (aside != 0)
        return {"roll_x": np.where(taken, -np.sin(way), 0.0), "roll_y": np.where(taken, -np.cos(way), 0.0)}

    def _buffer(self) -> dict[str, Integers]:
        """Guess the buffered press and how long it waits, and how long the lock's key does nothing after a release."""
        at, controls = self.at, self.controls
        answered = self.began & ~np.isin(self.pose, (PlayerPose.IDLE, PlayerPose.RUN, *_FOLLOWING))
        buffered, frames = np.zeros((2, len(at)), np.int64)
        lane = np.zeros(1, LANE)[0]
        for row in range(1, len(at)):
            press(lane, self.player, controls[row - 1])
            lane.buffer_frames -= at[row] - at[row - 1]
            if self.first[row] or answered[row] or lane.buffer_frames <= 0:
                lane.buffered, lane.buffer_frames = Want.NOTHING, 0
            buffered[row], frames[row] = lane.buffered, lane.buffer_frames
        locked, asked = self.raw[:, Raw.LOCKED] > 0.5, (controls & np.uint32(Control.LOCK_ON)) != 0
        released = (locked & asked)[self.before] & ~locked
        _, elapsed = self.since(released, at[self.before])
        relock = np.maximum(int(self.player.camera_relock_frames) - elapsed, 0)
        return {"buffered": buffered, "buffer_frames": frames, "relock_frames": relock}

    def _boss_hidden(self) -> dict[str, npt.NDArray[Any]]:
        at, boss, moving = self.at, self.bosses[self.phase], self.move >= 0
        turning = self.stance == Stance.TURN
        _, turned = self.since(turning & self.boss_began, at - self.boss_frame)
        rear = boss["rear_turn_frames"]
        moves = self.moves[self.phase, self.move]
        take_off = self.windows["time_min_frames"][self.phase, self.move, 0] - moves["leap_frames"]
        flown, places = self.boss_frame - take_off, self.raw[:, _BOSS_M]
        carried = np.clip(np.minimum(flown, at - at[self.before]), 1, None)
        way = (places - places[self.before]) / carried[:, None]
        leaps = moving & (moves["leap_frames"] > 0) & (flown > 0)
        begun = self.boss_began & moving
        chained = begun & moving[self.before] & ~self.first
        links = self._counted(chained)
        return {
            "turn_frames": np.where(turning, rear - np.mod(turned, rear + 1), 0),
            "leap_x": np.where(leaps, way[:, 0], 0.0),
            "leap_y": np.where(leaps, way[:, 1], 0.0),
            "chain_left": np.maximum(boss["aggression_chain_most"] - (links - links[self.latest(begun & ~chained)]), 0),
            "struck": self._struck_windows(),
        }

    def _struck_windows(self) -> Integers:
        """Guess which windows of the present move have struck, as bits, (rows,)."""
        bits = np.zeros(len(self.move), np.int64)
        for row in np.flatnonzero(self.move >= 0):
            if not self.boss_began[row]:
                bits[row] = bits[row - 1]
            if self.struck[row]:
                # A hit reaction dates the blow to its frame; without one it fell somewhere in the tick.
                dated = self.began[row] and self.pose[row] in _KNOCKS
                ago = self.pose_frame[row] + 1 if dated else (self.at[row] - self.at[row - 1]) // 2
                place, frame = (self.phase[row], self.move[row]), self.boss_frame[row] - ago
                own = self.windows[place][: self.moves["windows"][place]]
                away = np.maximum(own["time_min_frames"] - frame, frame - own["time_max_frames"] + 1)
                bits[row] |= 1 << int(np.argmin(np.maximum(away, 0)))
        return bits

    def play(
        self,
        starts: Integers,
        frames: Integers,
        seeds: Seeds,
        each: Callable[[int, Integers, RawValues], None] | None = None,
        no_attack: int = 0,
    ) -> ReplayOutcome:
        """Put rows `starts` (n,) into lanes and play the recorded controls on for a number of `frames` (n,).

        `seeds` (n,) are the lanes' streams; with `no_attack` the boss begins no move of its own. `each` is called after
        every frame with its number, the lanes that are played, and their raw values.
        """
        count, knocks = len(starts), self.actions["id"][list(_KNOCKS)]
        whole = ReplayOutcome(np.full((count, len(Raw)), np.nan), np.zeros(count, np.bool_), np.full(count, np.nan))
        for first in range(0, count, _LANES):
            part = slice(first, first + _LANES)
            own, longest = starts[part], frames[part]
            game = Simulator(len(own), FRAME_S)
            game.reset(np.arange(len(own)), self.scenario, seeds[part])
            state = game.get_state()
            for name in state["fights"]:
                state["fights"][name][:] = self.lanes[name][own] if name != "no_attack" else no_attack
            game.set_state(state)
            hp, lost, struck = self.lanes["player_hp"][own], np.zeros(len(own)), np.zeros(len(own), np.bool_)
            for frame in range(int(longest.max(initial=0))):
                active, at = longest > frame, self.at[own] + frame
                # Nothing is held or pressed after the end of the fight.
                bits = np.where(at < self.end[own], self._bits[np.minimum(at, len(self._bits) - 1)], np.uint32(0))
                raw = game.step(bits, active)
                fell = np.where(active, hp - raw[:, Raw.PLAYER_HP], 0.0)
                knocked = np.isin(raw[:, Raw.PLAYER_ANIMATION], knocks) & (raw[:, Raw.PLAYER_ANIMATION_TIME_S] == 0.0)
                struck |= active & (knocked | (fell > 0.0))
                lost, hp = lost + np.maximum(fell, 0.0), raw[:, Raw.PLAYER_HP].copy()
                reached = np.flatnonzero(longest == frame + 1)
                for kept, values in zip(whole, (raw, struck, lost), strict=True):
                    kept[first + reached] = values[reached]
                if each is not None:
                    each(frame + 1, first + np.flatnonzero(active), raw[active])
        return whole


def _places_of(ids: Doubles, known: Records) -> Integers:
    """Return the places of animation ids (n,) among the records of some animations, (n,); -1 for one not there."""
    places = {float(one["id"]): place for place, one in enumerate(known) if one["length_frames"] > 0}
    return np.array([places.get(one, -1) for one in ids.tolist()], np.int64)


def in_frames(times_s: Doubles) -> Integers:
    """Return times in whole frames, 0 for what is not known."""
    return np.nan_to_num(np.rint(times_s * FRAMES_PER_S)).astype(np.int64)


def _heading(way: Doubles) -> Doubles:
    """Return the heading that faces along ways (n, 2 or more), in [-pi, pi], as in `layout.heading_to`, (n,)."""
    return np.arctan2(-way[:, 0], -way[:, 1])
