"""Begin an episode in a running game as the simulator begins it from the same seed: placed, verified, tried again."""

from __future__ import annotations

from collections.abc import Callable
from math import asin, atan2, dist, isfinite, nan
from typing import NamedTuple

import numpy as np

from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.state import Raw, wrap_angle
from soulsgraph_envs.core.streams import Seeds
from soulsgraph_envs.drivers.realtime.animations import Row, Tables
from soulsgraph_envs.drivers.realtime.link import Reading
from soulsgraph_envs.drivers.realtime.plausibility import LiveArena, position
from soulsgraph_envs.drivers.realtime.session import NotReachedError, Session, UnansweredError
from soulsgraph_envs.simulator import Simulator

_PLACING_S, _AIMING_S = 3.0, 4.0
_NEAR_M, _FALLEN_M, _TURNED_RAD, _AIMED_RAD = 0.5, 2.5, 0.3, 0.1
_REST_READINGS = 3
#: Between two writes of a place the game must have had the time to show it.
_SETTLE_S = 0.1


class Pose(NamedTuple):
    """A fighter's position (metres, z up) and heading (radians)."""

    x: float
    y: float
    z: float
    angle: float


def place(session: Session, who: str, pose: Pose) -> None:
    """Teleport the player or the boss: the game may overwrite it, so it is verified and repeated.

    Raises:
        NotReachedError: if the game does not show the fighter there in time.
    """

    def stands_there(reading: Reading) -> bool:
        x, y, z = position(reading, who)
        near = dist((x, y), (pose.x, pose.y)) < _NEAR_M and abs(z - pose.z) < _FALLEN_M
        return near and abs(wrap_angle(float(reading[f"{who}_angle"]) - pose.angle)) < _TURNED_RAD

    def write(_: Reading | None = None) -> None:
        operations = session.operations
        if who == "player":
            operations.run("set_gravity", player_no_gravity=1.0)
        values = {f"{who}_{axis}": value for axis, value in zip("xyz", pose[:3], strict=True)}
        operations.run(f"place_{who}", **values, **{f"{who}_angle": pose.angle})
        if who == "player":
            operations.run("set_gravity", player_no_gravity=0.0)
        session.wait(_SETTLE_S)

    write()
    if not session.operations.dry_run:
        session.until(f"the {who} at ({pose.x:.1f}, {pose.y:.1f})", stands_there, _PLACING_S, write)


def unlock(session: Session, limit_s: float) -> None:
    """Release the lock, wait for the camera to rest and turn it a little: proof that only our keys move it.

    Checks whose fields cannot be read are left out.

    Raises:
        UnansweredError: if one of these does not happen within its limit.
    """

    def toggle(_: Reading) -> None:
        session.pad.play(Control.LOCK_ON)
        session.wait(_SETTLE_S)

    def turn(_: Reading) -> None:
        # Pressed anew each time: the game may have missed the key going down.
        session.pad.release()
        session.pad.play(Control.CAMERA_LEFT)
        session.wait(_SETTLE_S)

    try:
        unlocked = session.until("the lock released by its key", lambda r: r.get("locked", 0) == 0, limit_s, toggle)
        if _can_aim(session):
            unlocked = session.until("the camera at rest without a key", _Rest(unlocked), limit_s)
            session.until("the camera turned by its key", lambda r: _camera(r) != _camera(unlocked), limit_s, turn)
    except NotReachedError as error:
        raise UnansweredError(f"keys do not reach the game: {error}") from error
    finally:
        session.pad.release()


def aim(session: Session, yaw_rad: float, pitch_rad: float) -> None:
    """Turn the unlocked camera with its keys to a heading and a height, if it can be read.

    Raises:
        NotReachedError: if it does not come there in time.
    """
    if not _can_aim(session):
        return

    def errors(reading: Reading) -> tuple[float, float]:
        x, y, z = _camera(reading)
        return wrap_angle(yaw_rad - atan2(-x, -y)), pitch_rad - asin(max(-1.0, min(1.0, z)))

    def aimed(reading: Reading) -> bool:
        return max(map(abs, errors(reading))) < _AIMED_RAD

    def turn(reading: Reading) -> None:
        aside, upward = errors(reading)
        controls = Control.NONE
        if abs(aside) >= _AIMED_RAD:
            controls |= Control.CAMERA_RIGHT if aside > 0 else Control.CAMERA_LEFT
        if abs(upward) >= _AIMED_RAD:
            controls |= Control.CAMERA_UP if upward > 0 else Control.CAMERA_DOWN
        session.pad.play(controls)

    try:
        session.until("the camera turned by its keys", aimed, _AIMING_S, turn)
    finally:
        session.pad.release()


class _Rest:
    """Detect when the camera has been unchanged in several readings in a row."""

    def __init__(self, reading: Reading) -> None:
        self._last, self._same = _camera(reading), 0

    def __call__(self, reading: Reading) -> bool:
        now = _camera(reading)
        self._same = self._same + 1 if now == self._last else 0
        self._last = now
        return self._same >= _REST_READINGS


def _can_aim(session: Session) -> bool:
    return "camera_x" in session.link.supplies and Control.CAMERA_LEFT in session.pad.bindings.controls


def _camera(reading: Reading) -> tuple[float, float, float]:
    x, y, z = (float(reading[f"camera_{axis}"]) for axis in "xyz")
    return x, y, z


_STANCES = ("idle", "approach", "back_off", "turn")
_RESTORING_S, _IDLE_S = 3.0, 12.0

#: Gives the raw values (25,) with which an episode of a scenario begins, from a seed (1,).
Draw = Callable[[Scenario, Seeds], Row]


def draw_start(scenario: Scenario, seeds: Seeds) -> Row:
    """Return the raw values (25,) with which the simulator begins an episode from a seed (1,)."""
    row: Row = Simulator(1).reset(np.zeros(1, np.int64), scenario, seeds)[0]
    return row


class Start:
    """Freeze both fighters, restore, teleport, aim, release: the paper's reset, with death disabled throughout."""

    def __init__(self, session: Session, arena: LiveArena, tables: Tables) -> None:
        self._session, self._arena, self._tables = session, arena, tables

    def begin(self, scenario: Scenario, drawn: Row, answer_s: float) -> Reading:
        """Return the first reading of an episode that begins as `drawn` (25,).

        Raises:
            UnansweredError: if the game does not answer to a key within `answer_s`.
            NotReachedError: naming the part of the start that failed.
            GameError: if the map cannot write what a start needs.
        """
        session, operations = self._session, self._session.operations
        operations.run("prevent_death", no_death=1.0)
        operations.run("hold", no_attack=1.0, no_move=1.0, no_damage=1.0)
        try:
            session.until("the player idle and the boss between moves", self._at_rest, _IDLE_S)
            unlock(session, answer_s)
            self._place(drawn)
            aim(session, atan2(-drawn[Raw.CAMERA_X], -drawn[Raw.CAMERA_Y]), asin(drawn[Raw.CAMERA_Z]))
            self._restore(scenario)
        finally:
            session.pad.release()
            operations.run("let_go", no_attack=0.0, no_move=0.0, no_damage=0.0)
        return session.link.read()

    def _at_rest(self, reading: Reading) -> bool:
        player, phases = self._tables.player, self._tables.phases
        idle = player.among(reading, ("idle",)) or not player.recognises(reading)
        return idle and any(boss.among(reading, _STANCES) or not boss.recognises(reading) for boss in phases)

    def _place(self, drawn: Row) -> None:
        for who, at, facing in (("boss", Raw.BOSS_X, Raw.BOSS_ANGLE), ("player", Raw.PLAYER_X, Raw.PLAYER_ANGLE)):
            x, y = float(drawn[at]), float(drawn[at + 1])
            place(self._session, who, Pose(x, y, self._arena.floor(x, y), float(drawn[facing])))

    def _restore(self, scenario: Scenario) -> None:
        """Write HP, stamina and flasks until the game shows them."""

        def whole(reading: Reading) -> bool:
            full = reading["player_hp"] == reading["player_hp_max"]
            boss = abs(float(reading["boss_hp"]) - scenario.boss_hp[0]) < 1.0
            return full and boss and (not refillable or reading["flasks"] == scenario.flasks)

        def write(reading: Reading) -> None:
            operations.run("restore_player", player_hp=float(reading["player_hp_max"]))
            if "player_stamina_max" in reading:
                operations.run("restore_stamina", player_stamina=float(reading["player_stamina_max"]))
            operations.run("set_boss_hp", boss_hp=scenario.boss_hp[0])
            if refillable:
                operations.run("set_flasks", flasks=float(scenario.flasks))

        operations, reading = self._session.operations, self._session.link.read()
        refillable = operations.can("set_flasks") and isfinite(float(reading.get("flasks", nan)))
        write(reading)
        if not operations.dry_run:
            self._session.until("HP, stamina and flasks restored", whole, _RESTORING_S, write)


def check_fits(scenario: Scenario, reading: Reading, character: str) -> None:
    """Refuse a game that cannot be the scenario's: another boss, or another journey.

    Raises:
        GameError: naming what does not fit.
    """
    found = str(reading.get("boss_name", character))
    if character and found and found != character:
        raise GameError(f"expected the boss {character} of scenario {scenario.name}, found {found}; go to its arena.")
    most = float(reading["boss_hp_max"])
    if abs(most - scenario.boss_hp_full) > 1.0:
        raise GameError(
            f"expected a boss of {scenario.boss_hp_full:g} HP as scenario {scenario.name} says, found {most:g}; "
            "play in the first journey, or with another scenario."
        )
