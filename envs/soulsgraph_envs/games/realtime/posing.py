"""Bring fighters, camera and levels to an episode's start, all at once: each is repeated until a reading shows it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import asin, atan2, dist, inf, isfinite, nan
from typing import NamedTuple

from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.state import Control, wrap_angle
from soulsgraph_envs.games.realtime.link import Reading
from soulsgraph_envs.games.realtime.operations import DriverState, NotReachedError, UnansweredError
from soulsgraph_envs.games.realtime.readings import position

_PLACING_S, _AIMING_S, _RESTORING_S = 3.0, 4.0, 3.0
_NEAR_M, _FALLEN_M, _TURNED_RAD, _AIMED_RAD = 0.5, 2.5, 0.3, 0.1
_REST_READINGS = 3
#: The time that the game has to show what was written or tapped, before it is read or repeated.
_SETTLE_S = 0.1
#: Between two looks at a camera that should rest.
_WATCH_S = 0.02


class Part(NamedTuple):
    """One of several things to bring about: the phase of its time, what is expected, and whether a reading shows it.

    `act` is called on every reading that does not; `limit_s` of game time counts from when all before it are shown.
    """

    phase: str
    what: str
    met: Callable[[Reading], bool]
    limit_s: float
    act: Callable[[Reading], None] = lambda _: None
    #: Whether it shows that the game answers to keys.
    answers: bool = False


def bring_about(session: DriverState, parts: Sequence[Part], meanwhile: Callable[[Reading], None]) -> None:
    """Act on all parts at once until one reading shows them all; `meanwhile` is called on each that does not.

    Raises:
        NotReachedError: naming the first part that did not come in time.
        UnansweredError: if it was to show that keys reach the game.
    """

    def act(reading: Reading) -> None:
        for part in parts:
            if not part.met(reading):
                part.act(reading)
        meanwhile(reading)

    for count, part in enumerate(parts, 1):
        awaited = partial(_shown, parts[:count])
        with session.reset_clock.phase(part.phase):
            try:
                session.until(part.what, awaited, part.limit_s, act)
            except NotReachedError as error:
                if part.answers:
                    raise UnansweredError(f"keys do not reach the game: {error}") from error
                raise


def _shown(parts: Sequence[Part], reading: Reading) -> bool:
    return all(part.met(reading) for part in parts)


class SpacedAct:
    """Repeat an act, but only when the game had `game_s` to show the effect of the last time: then it is `settled`.

    It is as long, by the machine's time, with a hastened clock: a game needs frames to show what was done to it.
    """

    def __init__(self, session: DriverState, act: Callable[[], None], game_s: float = _SETTLE_S) -> None:
        self._clock, self._act = session.clock, act
        self._settle_s, self._settled_s = game_s / session.settings.speed, -inf

    def __call__(self, _: Reading | None = None) -> None:
        """Act, unless it is too soon."""
        if self._clock.now() >= self._settled_s:
            self._act()
            self._settled_s = self._clock.now() + self._settle_s

    @property
    def settled(self) -> bool:
        """Whether it was done, and the game had the time to show the effect."""
        return -inf < self._settled_s <= self._clock.now()


class Pose(NamedTuple):
    """A fighter's position (metres, z up) and heading (radians)."""

    x: float
    y: float
    z: float
    angle: float


def placed(session: DriverState, who: str, pose: Pose) -> Part:
    """Teleport the player or the boss: the game may overwrite it, so it is verified after a time, and repeated."""
    operations = session.operations

    def stands_there(reading: Reading) -> bool:
        x, y, z = position(reading, who)
        near = dist((x, y), (pose.x, pose.y)) < _NEAR_M and abs(z - pose.z) < _FALLEN_M
        return near and abs(wrap_angle(float(reading[f"{who}_angle"]) - pose.angle)) < _TURNED_RAD

    def write() -> None:
        if who == "player":
            operations.run("set_gravity", player_no_gravity=1.0)
        operations.run(f"place_{who}", **{f"{who}_{name}": value for name, value in pose._asdict().items()})
        if who == "player":
            operations.run("set_gravity", player_no_gravity=0.0)

    return _written("place", f"the {who} at ({pose.x:.1f}, {pose.y:.1f})", session, write, stands_there, _PLACING_S)


def restored(session: DriverState, scenario: Scenario) -> Part:
    """Write HP, stamina and flasks until the game shows them."""
    operations, reading = session.operations, session.link.read()
    refillable = operations.can("set_flasks") and isfinite(float(reading.get("flasks", nan)))

    def whole(reading: Reading) -> bool:
        full = reading["player_hp"] == reading["player_hp_max"]
        boss = abs(float(reading["boss_hp"]) - scenario.boss_hp[0]) < 1.0
        return full and boss and (not refillable or reading["flasks"] == scenario.flasks)

    def write() -> None:
        operations.run("restore_player", player_hp=float(reading["player_hp_max"]))
        if "player_stamina_max" in reading:
            operations.run("restore_stamina", player_stamina=float(reading["player_stamina_max"]))
        operations.run("set_boss_hp", boss_hp=scenario.boss_hp[0])
        if refillable:
            operations.run("set_flasks", flasks=float(scenario.flasks))

    return _written("restore", "HP, stamina and flasks restored", session, write, whole, _RESTORING_S)


def _written(
    phase: str,
    what: str,
    session: DriverState,
    write: Callable[[], None],
    shown: Callable[[Reading], bool],
    limit_s: float,
) -> Part:
    """Return a part that is written at least once; of a dry run, where nothing is, no reading is asked."""
    spaced, dry_run = SpacedAct(session, write), session.operations.dry_run
    return Part(phase, what, lambda r: spaced.settled and (dry_run or shown(r)), limit_s, spaced)


class Look:
    """The unlocked camera, which keys alone turn: `follow` every reading to prove that they do, and to turn it.

    Where the camera cannot be read it is left as it is.
    """

    def __init__(self, session: DriverState, direction: Sequence[float]) -> None:
        """Turn to a direction, a unit vector (3,) in the game's coordinates."""
        self._session, self._direction = session, tuple(map(float, direction))
        self._seen = "camera_x" in session.link.supplies and Control.CAMERA_LEFT in session.pad.bindings.controls
        self._latest: deque[tuple[float, ...]] = deque(maxlen=_REST_READINGS + 1)
        self._proven, self._turning = not self._seen, False
        self._toggle = SpacedAct(session, self._press_lock)
        self._try = SpacedAct(session, self._press_camera)
        self._watch = SpacedAct(session, lambda: self._latest.append(self._camera), _WATCH_S)
        self._wanted, self._camera = Control.NONE, (0.0, 0.0, 0.0)

    @contextmanager
    def at(self, direction: Sequence[float]) -> Iterator[None]:
        """Turn to another direction, a unit vector (3,), for the time of a block."""
        own, self._direction = self._direction, tuple(map(float, direction))
        try:
            yield
        finally:
            self._direction = own

    def proofs(self, limit_s: float) -> list[Part]:
        """Return what has to happen before the keys count as reaching the game, each within a limit."""
        expected: list[tuple[str, Callable[[Reading], bool]]] = [
            ("the lock released by its key", _unlocked),
            ("the camera at rest without a key", lambda _: self._proven or self._rests),
            ("the camera turned by its key", lambda _: self._proven),
        ]
        return [Part("unlock", what, met, limit_s, answers=True) for what, met in expected]

    def aimed(self) -> Part:
        """Return the camera's rest at its heading and height, unlocked."""

        def there(reading: Reading) -> bool:
            aside, upward = self._errors(reading)
            return not self._turning and max(abs(aside), abs(upward)) < _AIMED_RAD

        aimed = "the camera turned by its keys"
        return Part("aim", aimed, lambda r: not self._seen or (_unlocked(r) and there(r)), _AIMING_S)

    def follow(self, reading: Reading) -> None:
        """Release the lock, see the camera rest, see it turn by a key, then turn it to where it belongs."""
        if not _unlocked(reading):
            self._latest.clear()
            self._toggle()
        elif self._seen:
            self._camera = position(reading, "camera")
            self._turn(self._way(reading))

    def _turn(self, way: Control) -> None:
        self._proven = self._proven or (self._rests and self._camera != self._latest[-1])
        if self._proven:
            self._play(way)
        elif self._rests:
            self._wanted = way or Control.CAMERA_LEFT
            self._try()
        else:
            self._watch()

    @property
    def _rests(self) -> bool:
        return len(self._latest) > _REST_READINGS and len(set(self._latest)) == 1

    def _errors(self, reading: Reading) -> tuple[float, float]:
        yaw_rad, pitch_rad = _angles(self._direction)
        yaw_now_rad, pitch_now_rad = _angles(position(reading, "camera"))
        return wrap_angle(yaw_rad - yaw_now_rad), pitch_rad - pitch_now_rad

    def _way(self, reading: Reading) -> Control:
        aside, upward = self._errors(reading)
        controls = Control.NONE
        if abs(aside) >= _AIMED_RAD:
            controls |= Control.CAMERA_RIGHT if aside > 0 else Control.CAMERA_LEFT
        if abs(upward) >= _AIMED_RAD:
            controls |= Control.CAMERA_UP if upward > 0 else Control.CAMERA_DOWN
        return controls

    def _play(self, controls: Control) -> None:
        self._turning = bool(controls)
        self._session.pad.play(controls)

    def _press_lock(self) -> None:
        # Nothing else is held: a key of the camera would turn it once it is free.
        self._session.pad.release()
        self._session.pad.play(Control.LOCK_ON)

    def _press_camera(self) -> None:
        # Pressed anew each time: the game may have missed the key going down.
        self._session.pad.release()
        self._play(self._wanted)


def _angles(direction: tuple[float, ...]) -> tuple[float, float]:
    """Return yaw and pitch of a unit vector (3,)."""
    x, y, z = direction
    return atan2(-x, -y), asin(max(-1.0, min(1.0, z)))


def _unlocked(reading: Reading) -> bool:
    return reading.get("locked", 0) == 0
