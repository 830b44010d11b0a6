"""The world around the fight: into the arena, into the second phase, and back by a reload."""

from __future__ import annotations

from math import atan2, dist, isfinite, nan

from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.scenario import Transition
from soulsgraph_envs.drivers.realtime.animations import AnimationTable, shows
from soulsgraph_envs.drivers.realtime.link import Reading
from soulsgraph_envs.drivers.realtime.placing import Pose, aim, place
from soulsgraph_envs.drivers.realtime.plausibility import LiveArena, position
from soulsgraph_envs.drivers.realtime.session import Session, set_speed

_LOADING_S, _ANSWER_S, _PASSING_S, _TRANSITION_S = 90.0, 3.0, 15.0, 30.0
#: Beaten, met, its sword pulled: the bits of the boss's flags that are known.
_BOSS_FLAGS = 0b1110_0000
#: How close to where the fog gate leads counts as through it.
_INSIDE_M = 1.0
#: How far below the threshold the boss's HP is put for its second phase: SoulsGym takes 100 of 1037.
_WELL_BELOW = 0.2


class World:
    """Bring the player into the arena and the boss into a phase; `phase` is 0 while unknown.

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
        if self.phase == 0:
            self.phase = self._guess_phase(reading)
        stale_s = self._session.settings.reload_after_s
        stale = stale_s > 0.0 and self._session.clock.now() - self.loaded_s > stale_s
        beaten = float(reading["boss_hp"]) <= 0
        if stale or beaten or self._asleep(reading) or self.phase > phase:
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
        session.until_reachable("the player dead or the world loading", _dead, 10.0)
        session.until_reachable("the player awake after the loading screen", self._awake, _LOADING_S)
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
        session.link.focus()
        session.operations.run("prevent_death", no_death=1.0)
        place(session, "player", Pose(*gate.outside_m, gate.outside_angle_rad))
        aim(session, atan2(-gate.camera[0], -gate.camera[1]), 0.0)
        session.until("the fog gate to answer its key", self._answers, _ANSWER_S, self._interact)
        session.until("the player inside the fog gate", self._came_in, _PASSING_S, self._interact)
        session.until("the player idle inside the arena", self._idle, _PASSING_S)

    def leave(self) -> None:
        """Restore the game's own rules; a boss in its second phase is left with HP that show the phase."""
        operations = self._session.operations
        if self.phase > 1 and self.arena.transition is not None:
            operations.run("set_boss_hp", boss_hp=self._below(self.arena.transition))
        operations.run("let_go", no_attack=0.0, no_move=0.0, no_damage=0.0)
        operations.run("allow_death", no_death=0.0)
        set_speed(self._session, 1.0)

    def _asleep(self, reading: Reading) -> bool:
        """Return whether the game's flags show the boss as not yet met or as beaten; a reload can set them."""
        awake, found = self.arena.reload.get("boss_flags"), float(reading.get("boss_flags", nan))
        if awake is None or not isfinite(found) or "boss_flags" not in self._session.link.writes:
            return False
        return bool((int(found) ^ int(awake)) & _BOSS_FLAGS)

    def _interact(self, _: Reading) -> None:
        self._session.pad.play(Control.INTERACT)
        self._session.wait(0.5)

    def _answers(self, reading: Reading) -> bool:
        return self._came_in(reading) or not self._idle(reading)

    def _came_in(self, reading: Reading) -> bool:
        gate = self.arena.entrance
        return gate is not None and dist(position(reading, "player"), gate.inside_m) < _INSIDE_M

    def _awake(self, reading: Reading) -> bool:
        return float(reading["player_hp"]) > 0 and self._idle(reading)

    def _idle(self, reading: Reading) -> bool:
        return self._player.among(reading, ("idle",))

    def _guess_phase(self, reading: Reading) -> int:
        """Assume the first phase for a boss whose HP never fell below the threshold."""
        transition = self.arena.transition
        if transition is None:
            return 1
        return 2 if float(reading["boss_hp"]) <= transition.below_hp_ratio * float(reading["boss_hp_max"]) else 1

    def _below(self, transition: Transition) -> float:
        """Return HP at which the boss is certainly in, or enters, its second phase."""
        return round(_WELL_BELOW * transition.below_hp_ratio * float(self._session.link.read()["boss_hp_max"]))

    def _pass_transition(self) -> None:
        """Put the boss's HP below the threshold and wait until it has changed."""
        transition, session = self.arena.transition, self._session
        if transition is None:
            raise GameError(f"expected a boss with a second phase in {self.arena.name}, found none.")

        def changing(reading: Reading) -> bool:
            return shows(reading, "boss", transition.animation)

        session.operations.run("prevent_death", no_death=1.0)
        session.operations.run("let_go", no_attack=0.0, no_move=0.0)
        session.operations.run("set_boss_hp", boss_hp=self._below(transition))
        session.until(f"the boss's {transition.animation.name} into its second phase", changing, _TRANSITION_S)
        session.until(f"the end of the boss's {transition.animation.name}", lambda r: not changing(r), _TRANSITION_S)
        self.phase = 2


def _dead(reading: Reading) -> bool:
    return float(reading["player_hp"]) <= 0
