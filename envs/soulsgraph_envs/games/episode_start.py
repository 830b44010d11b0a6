"""Bring a running game to the start of an episode: into the arena and the phase, placed as the simulator places it.

Fighters, camera and levels are brought there all at once: each is repeated until a reading shows it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import asin, atan2, dist, inf, isfinite, nan
from typing import NamedTuple

import numpy as np

from soulsgraph_envs.core.errors import GameError, plain_number
from soulsgraph_envs.core.scenario import Camera, PhaseChange, Scenario
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import RAW_SIZE, Control, Raw, wrap_angle
from soulsgraph_envs.games.link import DriverState, Moment, NotReachedError, Reading, UnansweredError
from soulsgraph_envs.games.readings import AnimationTable, LiveArena, Row, ScenarioAnimations, position, shows
from soulsgraph_envs.simulator import Simulator

_IDLE_S = 12.0
_STANCES = ("idle", "approach", "back_off", "turn")

#: Gives the raw values (25,) with which an episode of a scenario begins, from a seed (1,).
Draw = Callable[[Scenario, Seeds], Row]


def draw_start(scenario: Scenario, seeds: Seeds) -> Row:
    """Return the raw values (25,) with which the simulator begins an episode from a seed (1,)."""
    assert seeds.shape == (1,)
    row: Row = Simulator(1).reset(np.zeros(1, np.int64), scenario, seeds)[0]
    return row


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
            f"expected a boss of {plain_number(scenario.boss_hp_full)} HP as scenario {scenario.name} "
            f"says, found {plain_number(most)}; "
            "play in the first journey, or with another scenario."
        )


_LOADING_S, _ANSWER_S, _PASSING_S, _TRANSITION_S = 90.0, 3.0, 15.0, 30.0
#: Between two presses of the fog gate's key.
_INTERACT_S = 0.5
#: Beaten, met, its sword pulled: the bits of the boss's flags that are known.
_BOSS_FLAGS = 0b1110_0000
#: How close to where the fog gate leads counts as through it.
_INSIDE_M = 1.0
#: How far below the threshold the boss's HP is put for its second phase: SoulsGym takes 100 of 1037.
_WELL_BELOW = 0.2


class ArenaSetup:
    """Bring the player into the arena, the boss into a phase, both to a start; `phase` is 0 while unknown.

    The second phase is irreversible but by a reload: the player is killed, wakes at the bonfire and
    passes the fog gate again.
    """

    def __init__(self, session: DriverState, arena: LiveArena, player: AnimationTable) -> None:
        self._session, self.arena, self._player = session, arena, player
        self.reset_clock = session.reset_clock
        self.phase = 0
        self.loaded_s = session.clock.now()

    def bring_to(self, phase: int, reading: Reading, look: Look) -> Moment:
        """Put the player into the arena and the boss into a phase; the camera is followed where there is time.

        Return a moment since which the game's clock has run.

        Raises:
            GameError: if it cannot be done in time, naming the step that failed.
        """
        hp, transition, since = float(reading["boss_hp"]), self.arena.transition, self._now()
        if self.phase == 0:
            # A boss whose HP never fell below the threshold is in its first phase.
            late = transition and hp <= transition.below_hp_ratio * float(reading["boss_hp_max"])
            self.phase = 2 if late else 1
        stale_s = self._session.settings.reload_after_s
        stale = stale_s > 0.0 and self._session.clock.now() - self.loaded_s > stale_s
        outside = not self.inside(reading)
        if stale or hp <= 0 or self._asleep(reading) or self.phase > phase:
            with self.reset_clock.phase("reload"):
                self.reload(look)
            since, outside = self._now(), True
        if outside:
            with self.reset_clock.phase("enter"):
                self.enter(look)
        if self.phase != phase:
            with self.reset_clock.phase("transition"):
                self._pass_transition(look)
        return since

    def inside(self, reading: Reading) -> bool:
        """Return whether both fighters are in the arena."""
        within = all(self.arena.holds(*position(reading, who)) for who in ("player", "boss"))
        gate = self.arena.entrance
        outside = gate is not None and dist(position(reading, "player"), gate.outside_m) < 1.0
        return within and not outside

    def reload(self, look: Look) -> None:
        """Kill the player and wait through the loading screen: the boss is in phase 1 then, the player outside.

        Raises:
            GameError: if the arena's data name no entrance, or it takes too long.
        """
        if self.arena.entrance is None:
            raise GameError(
                f"expected data of an entrance to reload {self.arena.name}, found none; "
                "load the encounter in the game by hand, and try again."
            )
        session = self._session

        def lives(reading: Reading) -> bool:
            return float(reading["player_hp"]) > 0

        def rise(reading: Reading) -> None:
            if lives(reading):
                look.follow(reading)

        session.pad.release()
        session.operations.run("mark_arena", **self.arena.reload)
        session.operations.run("kill_player", no_death=0.0, no_damage=0.0, player_hp=0.0)
        session.until("the player dead or the world loading", lambda r: not lives(r), 10.0, loading=True)
        awake = "the player awake after the loading screen"
        session.until(awake, lambda r: lives(r) and self._idle(r), _LOADING_S, rise, loading=True)
        self.phase, self.loaded_s = 1, session.clock.now()

    def enter(self, look: Look) -> None:
        """Teleport to the fog gate and pass it; the camera is turned to it if it does not answer its key at once.

        Raises:
            GameError: if the arena's data name no entrance, or the player does not come in.
        """
        gate, session = self.arena.entrance, self._session
        if gate is None:
            raise GameError(f"expected the player in {self.arena.name}, found them outside; walk in, and try again.")
        inside_m = gate.inside_m
        interact = SpacedAct(session, lambda: session.pad.play(Control.INTERACT), _INTERACT_S)
        answer = "the fog gate to answer its key"

        def came_in(reading: Reading) -> bool:
            return dist(position(reading, "player"), inside_m) < _INSIDE_M

        def answered(reading: Reading) -> bool:
            return came_in(reading) or not self._idle(reading)

        def go_in(reading: Reading) -> None:
            look.follow(reading)
            interact()

        session.link.focus()
        session.operations.run("prevent_death", no_death=1.0)
        outside = placed(session, "player", Pose(*gate.outside_m, gate.outside_angle_rad))
        bring_about(session, [outside], look.follow)
        interact()
        try:
            session.until(answer, answered, _INTERACT_S, look.follow)
        except NotReachedError:
            with look.at((*gate.camera[:2], 0.0)):
                bring_about(session, [look.aimed()], look.follow)
            session.until(answer, answered, _ANSWER_S, interact)
        with self.reset_clock.phase("gate"):
            session.until("the player inside the fog gate", came_in, _PASSING_S, go_in)
            session.until("the player idle inside the arena", self._idle, _PASSING_S, look.follow)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Freeze both fighters, with death disabled from now on; at the end let go.

        Raises:
            GameError: if the map cannot write what a start needs.
        """
        session, operations = self._session, self._session.operations
        operations.run("prevent_death", no_death=1.0)
        operations.run("hold", no_attack=1.0, no_move=1.0, no_damage=1.0)
        try:
            yield
        finally:
            session.pad.release()
            operations.run("let_go", no_attack=0.0, no_move=0.0, no_damage=0.0)

    def rest(self, tables: ScenarioAnimations, look: Look, answer_s: float) -> None:
        """Wait until held fighters are between moves; meanwhile the keys are tried, and the camera begins to turn.

        Raises:
            UnansweredError: if the game does not answer to a key within `answer_s` of their rest.
            NotReachedError: if they do not come to rest.
        """
        rested = False

        def at_rest(reading: Reading) -> bool:
            nonlocal rested
            idle = tables.player.among(reading, ("idle",)) or not tables.player.recognises(reading)
            between = any(one.among(reading, _STANCES) or not one.recognises(reading) for one in tables.phases)
            rested = rested or (idle and between)
            return rested

        rest = Part("rest", "the player idle and the boss between moves", at_rest, _IDLE_S)
        bring_about(self._session, [rest, *look.proofs(answer_s)], look.follow)

    def pose(self, scenario: Scenario, drawn: Row, look: Look) -> None:
        """Bring fighters at rest to a start as `drawn` (25,): teleport, restore, aim, as the paper's reset does.

        Raises:
            NotReachedError: naming the part of the start that failed.
        """

        def at_start(who: str) -> Part:
            x, y, angle = (float(drawn[Raw[f"{who}_{what}".upper()]]) for what in ("x", "y", "angle"))
            return placed(self._session, who, Pose(x, y, self.arena.floor(x, y), angle))

        assert drawn.shape == (RAW_SIZE,)
        parts = [at_start("boss"), at_start("player"), restored(self._session, scenario), look.aimed()]
        bring_about(self._session, parts, look.follow)

    def leave(self) -> None:
        """Restore the game's own rules; a boss in its second phase is left with HP that show the phase."""
        operations = self._session.operations
        if self.phase > 1 and self.arena.transition is not None:
            self._put_below(self.arena.transition)
        operations.run("let_go", no_attack=0.0, no_move=0.0, no_damage=0.0)
        operations.run("allow_death", no_death=0.0)
        self._session.set_speed(1.0)

    def _asleep(self, reading: Reading) -> bool:
        """Return whether the game's flags show the boss as not yet met or as beaten; a reload can set them."""
        awake, found = self.arena.reload.get("boss_flags"), float(reading.get("boss_flags", nan))
        if awake is None or not isfinite(found) or "boss_flags" not in self._session.link.writes:
            return False
        return bool((int(found) ^ int(awake)) & _BOSS_FLAGS)

    def _now(self) -> Moment:
        return self._session.moment(self._session.link.read())

    def _idle(self, reading: Reading) -> bool:
        return self._player.among(reading, ("idle",))

    def _put_below(self, transition: PhaseChange) -> None:
        """Put the boss's HP where it is certainly in, or enters, its second phase."""
        most = float(self._session.link.read()["boss_hp_max"])
        self._session.operations.run("set_boss_hp", boss_hp=round(_WELL_BELOW * transition.below_hp_ratio * most))

    def _pass_transition(self, look: Look) -> None:
        """Put the boss's HP below the threshold and wait until it has changed."""
        transition, session = self.arena.transition, self._session
        if transition is None:
            raise GameError(f"expected a boss with a second phase in {self.arena.name}, found none.")

        def changing(reading: Reading) -> bool:
            return shows(reading, "boss", transition.animation)

        session.operations.run("prevent_death", no_death=1.0)
        session.operations.run("let_go", no_attack=0.0, no_move=0.0)
        self._put_below(transition)
        name = transition.animation.name
        session.until(f"the boss's {name} into its second phase", changing, _TRANSITION_S, look.follow)
        session.until(f"the end of the boss's {name}", lambda r: not changing(r), _TRANSITION_S, look.follow)
        self.phase = 2


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
    """Repeat an act, but only when the game had `game_s` to show the effect of the last time: then it is `settled`."""

    def __init__(self, session: DriverState, act: Callable[[], None], game_s: float = _SETTLE_S) -> None:
        self._clock, self._act = session.clock, act
        self._settle_s, self._settled_s = game_s / session.speed, -inf

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

    def __init__(self, session: DriverState, direction: Sequence[float], turning: Camera) -> None:
        """Turn to a direction, a unit vector (3,) in the game's coordinates, by how the player's keys turn."""
        self._session, self._direction, self._axes = session, tuple(map(float, direction)), turning
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
            controls |= Control.CAMERA_RIGHT if self._axes.right_key_turns(aside) else Control.CAMERA_LEFT
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
