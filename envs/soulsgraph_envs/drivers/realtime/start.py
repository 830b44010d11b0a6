"""Bring a running game to the start of an episode: into the arena and the phase, placed as the simulator places it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import asin, atan2, dist, isfinite, nan
from typing import NamedTuple

import numpy as np

from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.scenario import Scenario, Transition
from soulsgraph_envs.core.state import Raw, wrap_angle
from soulsgraph_envs.core.streams import Seeds
from soulsgraph_envs.drivers.realtime.link import Reading
from soulsgraph_envs.drivers.realtime.operations import NotReachedError, Session, UnansweredError
from soulsgraph_envs.drivers.realtime.readings import AnimationTable, LiveArena, Row, Tables, position, shows
from soulsgraph_envs.simulator import Simulator

_PLACING_S, _AIMING_S, _RESTORING_S, _IDLE_S = 3.0, 4.0, 3.0, 12.0
_NEAR_M, _FALLEN_M, _TURNED_RAD, _AIMED_RAD = 0.5, 2.5, 0.3, 0.1
_REST_READINGS = 3
#: Between two writes of a place the game must have had the time to show it.
_SETTLE_S = 0.1
_STANCES = ("idle", "approach", "back_off", "turn")

#: Gives the raw values (25,) with which an episode of a scenario begins, from a seed (1,).
Draw = Callable[[Scenario, Seeds], Row]


def draw_start(scenario: Scenario, seeds: Seeds) -> Row:
    """Return the raw values (25,) with which the simulator begins an episode from a seed (1,)."""
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
            f"expected a boss of {scenario.boss_hp_full:g} HP as scenario {scenario.name} says, found {most:g}; "
            "play in the first journey, or with another scenario."
        )


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
        operations.run(f"place_{who}", **{f"{who}_{name}": value for name, value in pose._asdict().items()})
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
    latest: deque[tuple[float, ...]] = deque(maxlen=_REST_READINGS + 1)

    def rests(reading: Reading) -> bool:
        latest.append(position(reading, "camera"))
        return len(latest) > _REST_READINGS and len(set(latest)) == 1

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
            latest.append(position(unlocked, "camera"))
            session.until("the camera at rest without a key", rests, limit_s)
            session.until("the camera turned by its key", lambda r: position(r, "camera") != latest[-1], limit_s, turn)
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
        x, y, z = position(reading, "camera")
        return wrap_angle(yaw_rad - atan2(-x, -y)), pitch_rad - asin(max(-1.0, min(1.0, z)))

    def turn(reading: Reading) -> None:
        aside, upward = errors(reading)
        controls = Control.NONE
        if abs(aside) >= _AIMED_RAD:
            controls |= Control.CAMERA_RIGHT if aside > 0 else Control.CAMERA_LEFT
        if abs(upward) >= _AIMED_RAD:
            controls |= Control.CAMERA_UP if upward > 0 else Control.CAMERA_DOWN
        session.pad.play(controls)

    try:
        aimed = "the camera turned by its keys"
        session.until(aimed, lambda r: max(map(abs, errors(r))) < _AIMED_RAD, _AIMING_S, turn)
    finally:
        session.pad.release()


def _can_aim(session: Session) -> bool:
    return "camera_x" in session.link.supplies and Control.CAMERA_LEFT in session.pad.bindings.controls


_LOADING_S, _ANSWER_S, _PASSING_S, _TRANSITION_S = 90.0, 3.0, 15.0, 30.0
#: Beaten, met, its sword pulled: the bits of the boss's flags that are known.
_BOSS_FLAGS = 0b1110_0000
#: How close to where the fog gate leads counts as through it.
_INSIDE_M = 1.0
#: How far below the threshold the boss's HP is put for its second phase: SoulsGym takes 100 of 1037.
_WELL_BELOW = 0.2


class World:
    """Bring the player into the arena, the boss into a phase, both to a start; `phase` is 0 while unknown.

    The second phase is irreversible but by a reload: the player is killed, wakes at the bonfire and
    passes the fog gate again.
    """

    def __init__(self, session: Session, arena: LiveArena, player: AnimationTable) -> None:
        self._session, self.arena, self._player = session, arena, player
        self.phase = 0
        self.loaded_s = session.clock.now()

    def bring_to(self, phase: int, reading: Reading) -> None:
        """Put the player into the arena and the boss into a phase.

        Raises:
            GameError: if it cannot be done in time, naming the step that failed.
        """
        hp, transition = float(reading["boss_hp"]), self.arena.transition
        if self.phase == 0:
            # A boss whose HP never fell below the threshold is in its first phase.
            late = transition and hp <= transition.below_hp_ratio * float(reading["boss_hp_max"])
            self.phase = 2 if late else 1
        stale_s = self._session.settings.reload_after_s
        stale = stale_s > 0.0 and self._session.clock.now() - self.loaded_s > stale_s
        if stale or hp <= 0 or self._asleep(reading) or self.phase > phase:
            self.reload()
        elif not self.inside(reading):
            self.enter()
        if self.phase != phase:
            self._pass_transition()

    def inside(self, reading: Reading) -> bool:
        """Return whether both fighters are in the arena."""
        within = all(self.arena.holds(*position(reading, who)) for who in ("player", "boss"))
        gate = self.arena.entrance
        outside = gate is not None and dist(position(reading, "player"), gate.outside_m) < 1.0
        return within and not outside

    def reload(self) -> None:
        """Kill the player, wait through the loading screen, and enter the arena again, in phase 1.

        Raises:
            GameError: if the arena's data name no entrance, or it takes too long.
        """
        if self.arena.entrance is None:
            raise GameError(
                f"expected data of an entrance to reload {self.arena.name}, found none; "
                "load the encounter in the game by hand, and try again."
            )
        session = self._session
        session.pad.release()
        session.operations.run("mark_arena", **self.arena.reload)
        session.operations.run("kill_player", no_death=0.0, no_damage=0.0, player_hp=0.0)
        session.until_reachable("the player dead or the world loading", lambda r: float(r["player_hp"]) <= 0, 10.0)
        awake = "the player awake after the loading screen"
        session.until_reachable(awake, lambda r: float(r["player_hp"]) > 0 and self._idle(r), _LOADING_S)
        self.phase, self.loaded_s = 1, session.clock.now()
        self.enter()

    def enter(self) -> None:
        """Teleport to the fog gate, turn to it, and pass it.

        Raises:
            GameError: if the arena's data name no entrance, or the player does not come in.
        """
        gate, session = self.arena.entrance, self._session
        if gate is None:
            raise GameError(f"expected the player in {self.arena.name}, found them outside; walk in, and try again.")
        inside_m = gate.inside_m

        def came_in(reading: Reading) -> bool:
            return dist(position(reading, "player"), inside_m) < _INSIDE_M

        def interact(_: Reading) -> None:
            session.pad.play(Control.INTERACT)
            session.wait(0.5)

        session.link.focus()
        session.operations.run("prevent_death", no_death=1.0)
        place(session, "player", Pose(*gate.outside_m, gate.outside_angle_rad))
        aim(session, atan2(-gate.camera[0], -gate.camera[1]), 0.0)
        answers = "the fog gate to answer its key"
        session.until(answers, lambda r: came_in(r) or not self._idle(r), _ANSWER_S, interact)
        session.until("the player inside the fog gate", came_in, _PASSING_S, interact)
        session.until("the player idle inside the arena", self._idle, _PASSING_S)

    def begin(self, scenario: Scenario, tables: Tables, drawn: Row, answer_s: float) -> Reading:
        """Freeze both fighters, restore, teleport, aim, release: the paper's reset, with death disabled throughout.

        Returns the first reading of an episode that begins as `drawn` (25,).

        Raises:
            UnansweredError: if the game does not answer to a key within `answer_s`.
            NotReachedError: naming the part of the start that failed.
            GameError: if the map cannot write what a start needs.
        """

        def at_rest(reading: Reading) -> bool:
            idle = tables.player.among(reading, ("idle",)) or not tables.player.recognises(reading)
            return idle and any(boss.among(reading, _STANCES) or not boss.recognises(reading) for boss in tables.phases)

        session, operations = self._session, self._session.operations
        operations.run("prevent_death", no_death=1.0)
        operations.run("hold", no_attack=1.0, no_move=1.0, no_damage=1.0)
        try:
            session.until("the player idle and the boss between moves", at_rest, _IDLE_S)
            unlock(session, answer_s)
            for who in ("boss", "player"):
                x, y, angle = (float(drawn[Raw[f"{who}_{what}".upper()]]) for what in ("x", "y", "angle"))
                place(session, who, Pose(x, y, self.arena.floor(x, y), angle))
            aim(session, atan2(-drawn[Raw.CAMERA_X], -drawn[Raw.CAMERA_Y]), asin(drawn[Raw.CAMERA_Z]))
            self._restore(scenario)
        finally:
            session.pad.release()
            operations.run("let_go", no_attack=0.0, no_move=0.0, no_damage=0.0)
        return session.link.read()

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

    def _idle(self, reading: Reading) -> bool:
        return self._player.among(reading, ("idle",))

    def _put_below(self, transition: Transition) -> None:
        """Put the boss's HP where it is certainly in, or enters, its second phase."""
        most = float(self._session.link.read()["boss_hp_max"])
        self._session.operations.run("set_boss_hp", boss_hp=round(_WELL_BELOW * transition.below_hp_ratio * most))

    def _pass_transition(self) -> None:
        """Put the boss's HP below the threshold and wait until it has changed."""
        transition, session = self.arena.transition, self._session
        if transition is None:
            raise GameError(f"expected a boss with a second phase in {self.arena.name}, found none.")

        def changing(reading: Reading) -> bool:
            return shows(reading, "boss", transition.animation)

        session.operations.run("prevent_death", no_death=1.0)
        session.operations.run("let_go", no_attack=0.0, no_move=0.0)
        self._put_below(transition)
        session.until(f"the boss's {transition.animation.name} into its second phase", changing, _TRANSITION_S)
        session.until(f"the end of the boss's {transition.animation.name}", lambda r: not changing(r), _TRANSITION_S)
        self.phase = 2
