"""Place the fighters and the camera for the start of an episode: by writes or keys, verified and retried."""

from __future__ import annotations

from math import asin, atan2, dist
from typing import NamedTuple

from soulsgraph_envs.controls import Control
from soulsgraph_envs.live.fields import Reading
from soulsgraph_envs.live.plausibility import position
from soulsgraph_envs.live.session import NotReachedError, Session, UnansweredError
from soulsgraph_envs.state import wrap_angle

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
