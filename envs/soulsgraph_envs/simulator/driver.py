"""The simulator as a game, and the compiled fight that begins its lanes, advances them by a tick and looks ahead.

Nothing of a lane is read from another, so a lane's course never depends on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import cos, inf, pi, sin, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core import compiling, scenario, seeds, state
from soulsgraph_envs.core.compiling import cached, checksum, compiled, every_frame
from soulsgraph_envs.core.config import Where, validate
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.game import ActiveLanes, Capabilities, LaneIndices, Picture
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.seeds import Seeds, uniform
from soulsgraph_envs.core.state import ALL_CONTROLS, RAW_SIZE, Control, Controls, Raw, RawValues
from soulsgraph_envs.simulator import layout
from soulsgraph_envs.simulator.boss import boss_blow, draw_wait, keep_apart, move_motion, next_hit, stance_frame
from soulsgraph_envs.simulator.layout import (
    FRAME_S,
    FRAMES_PER_S,
    LANE,
    NO_MOVE,
    PLAYER,
    Encounter,
    FightData,
    FightRecords,
    Lane,
    Record,
    Stance,
    Tables,
    as_bytes,
    heading_to,
    load_row,
    pack,
    seen_back,
    wrapped,
)
from soulsgraph_envs.simulator.player import boss_seen, camera_frame, player_frame, press, status_frame, toggle_lock
from soulsgraph_envs.simulator.scene import Scene, scene_of


class Target(NamedTuple):
    """One value that may be written: the raw value that shows it, if one does, and the one that bounds it."""

    shown: Raw | None
    most: Raw | float = inf
    least: float = 0.0


#: What `Simulator.override` writes, by the names of `layout.Lane`.
TARGETS = {
    "player_x": Target(Raw.PLAYER_X, least=-inf),
    "player_y": Target(Raw.PLAYER_Y, least=-inf),
    "player_heading": Target(Raw.PLAYER_ANGLE, pi, -pi),
    "player_hp": Target(Raw.PLAYER_HP, Raw.PLAYER_HP_MAX),
    "stamina": Target(Raw.STAMINA, Raw.STAMINA_MAX, -inf),
    "fp": Target(None),
    "flasks": Target(Raw.FLASKS, 99.0),
    "boss_x": Target(Raw.BOSS_X, least=-inf),
    "boss_y": Target(Raw.BOSS_Y, least=-inf),
    "boss_heading": Target(Raw.BOSS_ANGLE, pi, -pi),
    "boss_hp": Target(Raw.BOSS_HP, Raw.BOSS_HP_MAX),
    "no_attack": Target(None, 1.0),
    "no_move": Target(None, 1.0),
    "no_damage": Target(None, 1.0),
}


class AnimationNames(NamedTuple):
    """The game's names of the animations that play; the boss's attack number is -1 if it has none."""

    player: str
    boss: str
    boss_attack: int


class Simulator:
    """Fight in `lanes` lanes at once, at 60 frames a second inside each tick of `tick_s`.

    It never ends an episode: HP stays at 0 and the fight goes on until `reset`. Movement and camera
    bits are held for the tick; any other bit set in a tick is one press in the tick's first frame,
    without effect for a player that has no such action (`scenario.supported_controls`). Same
    seeds and controls give bit-identical lanes on one kind of processor; another's last bits may differ.

    Raises:
        GameError: if `tick_s` is not a whole number of frames.
    """

    capabilities = Capabilities(
        supplies=frozenset(column.name for column in Raw), can_pause=True, can_seed=True, can_render=True
    )

    def __init__(self, lanes: int, tick_s: float = 0.1) -> None:
        self._frames = round(tick_s * FRAMES_PER_S)
        if self._frames < 1 or abs(self._frames - tick_s * FRAMES_PER_S) > 1e-6:
            raise GameError(f"expected a tick of whole frames of 1/{FRAMES_PER_S} s, found {tick_s} s: use 0.1.")
        self.lanes, self.tick_s = lanes, tick_s
        self._fights = np.zeros(lanes, LANE)
        self._fights["scenario"] = -1
        self._fight_bytes = as_bytes(self._fights)
        self._streams = np.zeros(lanes, np.uint64)
        self._raw = np.zeros((lanes, RAW_SIZE))
        self._everyone = np.ones(lanes, np.bool_)
        self._rows: list[FightData] = []
        self._tables: Tables
        self._begun = False

    def reset(self, lanes: LaneIndices, scenario: Scenario, seeds: Seeds) -> RawValues:
        """Begin a new episode in `lanes` (n,), each from its own seed (n,); return raw (all lanes, 25).

        Raises:
            GameError: for a lane that is not there, or another number of seeds than of lanes.
        """
        which, seeds = np.asarray(lanes, np.int64), np.asarray(seeds, np.uint64)
        if which.ndim != 1 or which.shape != seeds.shape:
            raise GameError(f"expected one seed a lane, found {which.shape} lanes and {seeds.shape} seeds.")
        if which.size and not (which.min() >= 0 and which.max() < self.lanes):
            raise GameError(f"expected lanes from 0 to {self.lanes - 1}, found {which.min()} to {which.max()}.")
        number = self._number(scenario)
        KERNELS.begin(self._fight_bytes, self._tables, self._streams, self._raw, which, number, seeds)
        if not self._begun:
            self._begun = bool((self._fights["scenario"] >= 0).all())
        return self._raw

    def step(self, controls: Controls, active: ActiveLanes | None = None) -> RawValues:
        """Apply one tick's controls (lanes,) and return the raw values (lanes, 25) at its end.

        Raises:
            GameError: for lanes never reset, controls of another shape or type, or an unknown bit.
        """
        if not self._begun:
            raise GameError("expected every lane to be reset before the first step: reset the others too.")
        self._check(controls, np.uint32, "controls")
        if active is None:
            active = self._everyone
        else:
            self._check(active, np.bool_, "active")
        wrong = KERNELS.advance(
            self._fight_bytes, self._tables, self._streams, self._raw, controls, active, self._frames
        )
        if wrong >= 0:
            known = ", ".join(control.name or "" for control in Control if control)
            raise GameError(f"lane {wrong}: expected bits of {known}; found {int(controls[wrong]):#x}.")
        return self._raw

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def hits_ahead_s(self) -> npt.NDArray[np.float64]:
        """Look ahead in the boss's current move: when it next reaches the player if neither changes course.

        Simulator only, for oracles and tests: no real game knows this. Returns (lanes, 2): seconds
        until the first frame of the next window that would reach the player standing where they
        stand now, and until it no longer does; inf where none would. Invulnerability is ignored.
        """
        out = np.empty((self.lanes, 2))
        KERNELS.look_ahead(self._fight_bytes, self._tables, as_bytes(np.zeros(1, LANE)), out)
        return out

    def phases(self) -> npt.NDArray[np.int64]:
        """Return the phase of every lane's boss, (lanes,), as its data number it; 0 in a lane never reset."""
        return np.array([self._rows[row].boss.phase if row >= 0 else 0 for row in self._fights["scenario"]], np.int64)

    def animation_names(self, lane: int) -> AnimationNames:
        """Return the game's names of the animations that play in a lane."""
        fight, row = self._begun_fight(lane)
        player = list(vars(row.player.animations).values())[fight.animation]
        boss = row.stances[fight.stance] if fight.move == NO_MOVE else row.boss.moves[fight.move]
        assert boss is not None, "no boss takes a stance that it does not have"
        return AnimationNames(player.name, boss.name, boss.raw_id)

    def values(self, lane: int) -> dict[str, float]:
        """Return all values of one lane, named as in `layout.Lane`: also FP and build-up, which raw lacks."""
        return dict(zip(self._fights.dtype.names or (), self._begun_fight(lane)[0].item(), strict=True))

    def override(self, lane: int, **values: float) -> None:
        """Set values of one lane between ticks, as a program that writes a game's memory would.

        The names are those of `TARGETS`: places (the arena's edge holds them in the next frame),
        headings, HP, stamina, FP and flasks, which are held within their bounds, and the flags
        `no_attack` (the boss begins no move, its wait stands still), `no_move` (nobody leaves the spot
        or turns) and `no_damage` (nobody loses HP), which last until the lane's next reset. The camera
        stays where it looks; a boss set below the HP of its transition changes its phase as soon as its
        move is over.
        """
        self._begun_fight(lane)
        for name, value in values.items():
            shown, most, least = TARGETS[name]
            bound = self._raw[lane, most] if isinstance(most, Raw) else most
            self._fights[name][lane] = min(max(value, least), bound)
            if shown is not None:
                self._raw[lane, shown] = self._fights[name][lane]

    def render(self, lane: int = 0, size: tuple[int, int] = (90, 160)) -> Picture:
        """Draw a lane's fight from above as a picture of `size` (height, width): (height, width, 3) uint8."""
        # Imported here: shapes and fonts take a moment that nobody who draws nothing need wait for.
        from soulsgraph_envs.simulator.render import render

        return render(self.scene(lane), size)

    def scene(self, lane: int = 0) -> Scene:
        """Return what a picture of a lane's fight shows."""
        fight, row = self._begun_fight(lane)
        player = self._tables.players.view(PLAYER)[fight.scenario]
        return scene_of(fight, row, player, self._raw[lane])

    def play_on(self, lane: int, scenario: Scenario) -> None:
        """Continue a lane's fight, in its phase, under a scenario of the same boss and player in another arena.

        Raises:
            GameError: if no phase of that scenario has the same boss and player.
        """
        now = self._begun_fight(lane)[1].scenario
        number = self._number(scenario)
        for row, phase in enumerate(scenario.phases(), number):
            if (phase.boss, phase.player) == (now.boss, now.player):
                self._fights["scenario"][lane] = row
                return
        raise GameError(f"{scenario.name}: expected a phase of {now.boss} for {now.player}, found none: reset instead.")

    def follow(self, other: Simulator) -> None:
        """Take up the state of a simulator of as many lanes, whatever its tick: at less cost than by `set_state`."""
        if other._rows:
            self._rows, self._tables = list(other._rows), other._tables
        self._fights[:], self._streams[:], self._raw[:] = other._fights, other._streams, other._raw
        self._begun = other._begun

    def get_state(self) -> dict[str, Any]:
        """Return everything the next tick depends on: arrays over lanes, and the scenarios as plain values."""
        fields = {name: self._fights[name].copy() for name in self._fights.dtype.names or ()}
        return {
            "fights": fields,
            "streams": self._streams.copy(),
            "raw": self._raw.copy(),
            "scenarios": [asdict(row.scenario) for row in self._rows],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue, on one kind of processor bit for bit, from `get_state` of a simulator with as many lanes."""
        self._rows = []
        where = Where("saved simulator state")
        self._pack([validate(Scenario, values, where) for values in state["scenarios"]])
        for name, values in state["fights"].items():
            self._fights[name] = values
        self._streams[:] = state["streams"]
        self._raw[:] = state["raw"]
        self._begun = bool((self._fights["scenario"] >= 0).all())

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Pickled or copied, a view of an array becomes an array of its own.
        self._fight_bytes = as_bytes(self._fights)

    def _number(self, scenario: Scenario) -> int:
        for number, row in enumerate(self._rows):
            if row.scenario is scenario or row.scenario == scenario:
                return number
        number = len(self._rows)
        self._pack(scenario.phases())
        return number

    def _pack(self, further: Sequence[Scenario]) -> None:
        self._rows += [load_row(scenario) for scenario in further]
        if self._rows:
            self._tables = pack(self._rows)

    def _begun_fight(self, lane: int) -> tuple[Any, FightData]:
        """Return the record of a lane that has been reset, and the data it fights by."""
        if not (0 <= lane < self.lanes and self._fights["scenario"][lane] >= 0):
            raise GameError(f"expected a lane that has been reset, below {self.lanes}; found {lane}.")
        fight = self._fights[lane]
        return fight, self._rows[fight.scenario]

    def _check(self, values: npt.NDArray[Any], dtype: type[np.generic], what: str) -> None:
        if values.shape != (self.lanes,) or values.dtype != dtype:
            expected = f"{np.dtype(dtype).name} of shape ({self.lanes},)"
            raise GameError(f"{what}: expected {expected}, found {values.dtype} of shape {values.shape}.")


_ROUGHLY_FACING_RAD = 0.5


@compiled
def begin_lane(lane: Lane, encounter: Encounter, player: Record, boss: Record, streams: Seeds, index: int) -> None:
    """Set a lane of zeros to the start of an episode, drawing its poses from the lane's stream."""
    _place(lane, encounter, player, boss, streams, index)
    lane.refill = encounter.refill
    lane.player_hp, lane.stamina, lane.flasks = player.body_hp, player.body_stamina, encounter.flasks
    lane.boss_hp, lane.fp = encounter.boss_hp, player.body_fp
    lane.move, lane.slowed_factor = NO_MOVE, 1.0
    lane.wait = draw_wait(lane, boss, boss_seen(lane).distance, streams, index)


@compiled
def begin_phase(lane: Lane, boss: Record, streams: Seeds, index: int) -> None:
    """Replace the boss by that of the next phase, the scenario's next row, at the same place."""
    lane.scenario += 1
    lane.stance, lane.stance_frame = Stance.STAND, 0
    lane.wait = draw_wait(lane, boss, boss_seen(lane).distance, streams, index)


@compiled
def _any_heading(streams: Seeds, index: int) -> float:
    heading: float = pi * (2.0 * uniform(streams, index) - 1.0)
    return heading


@compiled
def _place(lane: Lane, encounter: Encounter, player: Record, boss: Record, streams: Seeds, index: int) -> None:
    span = encounter.distance_max - encounter.distance_min
    distance = encounter.distance_min + span * uniform(streams, index)
    # The midpoint of the two is uniform over the disc in which both are inside, whatever their bearing.
    room = encounter.radius - player.body_radius_m - boss.radius_m - 0.5 * distance
    away, bearing = _any_heading(streams, index), _any_heading(streams, index)
    offset = max(room, 0.0) * sqrt(uniform(streams, index))
    x, y = encounter.centre_x - sin(away) * offset, encounter.centre_y - cos(away) * offset
    dx, dy = -0.5 * distance * sin(bearing), -0.5 * distance * cos(bearing)
    lane.player_x, lane.player_y = x - dx, y - dy
    lane.boss_x, lane.boss_y = x + dx, y + dy
    if encounter.facing:
        lane.player_heading = lane.camera_yaw = bearing
        lane.camera_pitch = 0.0
        spread = _ROUGHLY_FACING_RAD * (2.0 * uniform(streams, index) - 1.0)
        lane.boss_heading = wrapped(heading_to(-dx, -dy) + spread)
    else:
        lane.player_heading, lane.camera_yaw = _any_heading(streams, index), _any_heading(streams, index)
        lane.camera_pitch = player.camera_pitch_limit_rad * (2.0 * uniform(streams, index) - 1.0)
        lane.boss_heading = _any_heading(streams, index)


@compiled
def write_raw(lane: Lane, tables: Tables, raw: RawValues, index: int) -> None:
    """Fill the lane's row of raw (lanes, 25)."""
    encounter, player = tables.encounters[lane.scenario], tables.players[lane.scenario]
    raw[index, Raw.PLAYER_X], raw[index, Raw.PLAYER_Y] = lane.player_x, lane.player_y
    raw[index, Raw.BOSS_X], raw[index, Raw.BOSS_Y] = lane.boss_x, lane.boss_y
    raw[index, Raw.PLAYER_Z] = raw[index, Raw.BOSS_Z] = encounter.height
    level = cos(lane.camera_pitch)
    raw[index, Raw.CAMERA_X] = -sin(lane.camera_yaw) * level
    raw[index, Raw.CAMERA_Y] = -cos(lane.camera_yaw) * level
    raw[index, Raw.CAMERA_Z] = sin(lane.camera_pitch)
    raw[index, Raw.PLAYER_ANGLE], raw[index, Raw.BOSS_ANGLE] = lane.player_heading, lane.boss_heading
    raw[index, Raw.PLAYER_HP], raw[index, Raw.PLAYER_HP_MAX] = lane.player_hp, player.body_hp
    raw[index, Raw.STAMINA], raw[index, Raw.STAMINA_MAX] = lane.stamina, player.body_stamina
    raw[index, Raw.BOSS_HP], raw[index, Raw.BOSS_HP_MAX] = lane.boss_hp, encounter.boss_hp_full
    raw[index, Raw.LOCKED], raw[index, Raw.FLASKS] = lane.locked, lane.flasks
    if lane.move == NO_MOVE:
        stance = tables.stances[lane.scenario, lane.stance]
        _write_animation(raw, index, Raw.BOSS_ANIMATION, stance.id, lane.stance_frame, stance.length_frames)
    else:
        move = tables.moves[lane.scenario, lane.move]
        _write_animation(raw, index, Raw.BOSS_ANIMATION, move.id, lane.move_frame, move.length_frames)
    action = tables.actions[lane.scenario, lane.animation]
    _write_animation(raw, index, Raw.PLAYER_ANIMATION, action.id, lane.animation_frame, action.length_frames)


@compiled
def _write_animation(raw: RawValues, index: int, column: int, animation: int, frame: int, length: int) -> None:
    raw[index, column] = animation
    raw[index, column + 1] = (frame % length) * FRAME_S
    raw[index, column + 2] = length * FRAME_S


_LOCK_ON, _KNOWN = np.uint32(Control.LOCK_ON), np.uint32(ALL_CONTROLS)
Bytes = npt.NDArray[np.uint8]
Kernel = Callable[..., Any]


class Kernels(NamedTuple):
    """The compiled entry points: `begin`, `advance`, `look_ahead`."""

    begin: Kernel
    advance: Kernel
    look_ahead: Kernel


@compiled
def _records(data: Tables) -> Tables:
    """View byte tables as records, the inverse of `layout.as_bytes`."""
    return Tables(
        data.encounters.view(layout.ENCOUNTER),
        data.players.view(layout.PLAYER),
        data.actions.view(layout.ACTION),
        data.bosses.view(layout.BOSS),
        data.stances.view(layout.ACTION),
        data.moves.view(layout.MOVE),
        data.windows.view(layout.WINDOW),
    )


@every_frame
def _fight_frame(lane: Lane, data: FightRecords, bits: int, streams: Seeds, index: int) -> None:
    encounter, player, actions, boss, moves, windows = data
    target = boss_seen(lane)
    player_frame(lane, player, actions, bits, target, streams, index)
    status_frame(lane, boss)
    if lane.move == NO_MOVE:
        stance_frame(lane, boss, moves, seen_back(target), streams, index)
    if lane.move != NO_MOVE:
        contact = player.body_radius_m + boss.radius_m
        move_motion(lane, boss, moves[lane.move], windows[lane.move, 0], contact, seen_back(target))
    keep_apart(lane, encounter, player, boss, moves)
    if lane.move != NO_MOVE:
        boss_blow(lane, data, streams, index)
    camera_frame(lane, player, bits, target)


@compiled
def _note_changes(lane: Lane, player_hp: float, boss_hp: float, frames: int) -> None:
    lane.player_change_frames += frames
    lane.boss_change_frames += frames
    if lane.player_hp != player_hp:
        lane.player_change, lane.player_change_frames = lane.player_hp - player_hp, 0
    if lane.boss_hp != boss_hp:
        lane.boss_change, lane.boss_change_frames = lane.boss_hp - boss_hp, 0


@compiled
def _tick(lane: Lane, tables: Tables, bits: int, frames: int, streams: Seeds, index: int) -> None:
    scenario = lane.scenario
    encounter, player, boss = tables.encounters[scenario], tables.players[scenario], tables.bosses[scenario]
    data = (encounter, player, tables.actions[scenario], boss, tables.moves[scenario], tables.windows[scenario])
    player_hp, boss_hp = lane.player_hp, lane.boss_hp
    press(lane, player, bits)
    if bits & _LOCK_ON:
        toggle_lock(lane, player, boss_seen(lane))
    for _ in range(frames):
        spots = (lane.player_x, lane.player_y, lane.player_heading, lane.boss_x, lane.boss_y, lane.boss_heading)
        _fight_frame(lane, data, bits, streams, index)
        if lane.no_move:
            lane.player_x, lane.player_y, lane.player_heading, lane.boss_x, lane.boss_y, lane.boss_heading = spots
    _note_changes(lane, player_hp, boss_hp, frames)
    if lane.stance == Stance.TRANSITION and lane.stance_frame >= boss.transition_frames:
        begin_phase(lane, tables.bosses[scenario + 1], streams, index)
    if lane.refill:
        lane.player_hp = player.body_hp
        lane.boss_hp = encounter.boss_hp


def build_kernels(sources: int) -> Kernels:
    """Compile the entry points, cached on disk.

    `sources`, the checksum of every file the code comes from, is enclosed by each of them. Records are
    passed as bytes, whose types numba recognises about ten times as fast in a call.
    """
    options = {"error_model": "numpy", "_nrt": False}

    @cached(**options)
    def begin(
        fights: Bytes, data: Tables, streams: Seeds, raw: RawValues, which: LaneIndices, scenario: int, seeds: Seeds
    ) -> int:
        lanes, tables = fights.view(layout.LANE), _records(data)
        for i in range(len(which)):
            index = which[i]
            fights[index * layout.LANE_SIZE : (index + 1) * layout.LANE_SIZE] = 0
            lane = lanes[index]
            streams[index] = seeds[i]
            lane.scenario = scenario
            begin_lane(
                lane, tables.encounters[scenario], tables.players[scenario], tables.bosses[scenario], streams, index
            )
            write_raw(lane, tables, raw, index)
        return sources

    @cached(**options)
    def advance(
        fights: Bytes, data: Tables, streams: Seeds, raw: RawValues, bits: Controls, active: ActiveLanes, frames: int
    ) -> int:
        """Advance every active lane; return the first lane with an unknown control, nothing advanced, or -1."""
        lanes, tables = fights.view(layout.LANE), _records(data)
        for index in range(len(lanes)):
            if bits[index] & ~_KNOWN:
                return index
        for index in range(len(lanes)):
            if active[index]:
                _tick(lanes[index], tables, bits[index], frames, streams, index)
                write_raw(lanes[index], tables, raw, index)
        return -1 if sources >= 0 else 0

    @cached(**options)
    def look_ahead(fights: Bytes, data: Tables, scratch_fight: Bytes, out: npt.NDArray[np.float64]) -> int:
        lanes, scratch, tables = fights.view(layout.LANE), scratch_fight.view(layout.LANE), _records(data)
        for index in range(len(lanes)):
            out[index, 0] = out[index, 1] = inf
            if lanes[index].move != NO_MOVE:
                scratch[0] = lanes[index]
                out[index, 0], out[index, 1] = next_hit(scratch[0], tables)
        return sources

    return Kernels(begin, advance, look_ahead)


def sources_checksum() -> int:
    """Return a checksum of every source file that goes into the compiled code."""
    modules = (compiling, scenario, seeds, state)
    return checksum([*Path(__file__).parent.glob("*.py"), *(Path(str(module.__file__)) for module in modules)])


KERNELS = build_kernels(sources_checksum())
