"""The driver of one real-time game, whatever link reaches it: its episodes, and reaching it again after a failure.

The simulator in real time is such a game too: it needs no process and no window.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import nan
from typing import NamedTuple, Never

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.errors import EpisodeLostError, GameError
from soulsgraph_envs.core.game import ActiveLanes, Capabilities, LaneIndices, Picture
from soulsgraph_envs.core.machine import APART
from soulsgraph_envs.core.scenario import Camera, Scenario, load_boss, load_player
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import RAW_SIZE, Control, Controls, Raw, RawValues
from soulsgraph_envs.games import readings
from soulsgraph_envs.games.cycle_timer import Clock, CycleReport, CycleTimer, PhaseClock, Timing
from soulsgraph_envs.games.episode_start import ArenaSetup, Draw, Look, check_fits, draw_start
from soulsgraph_envs.games.link import (
    DriverState,
    GameSettings,
    Link,
    LinkError,
    NotReachedError,
    Operations,
    Reading,
    RefusedError,
    UnansweredError,
    same_moment,
)
from soulsgraph_envs.render.pictures import scaled
from soulsgraph_envs.simulator import Simulator


class Measurement(NamedTuple):
    """What a reading says beside the raw values.

    `elapsed_s` is game time since the episode began by this machine's clock, `game_s` the game's own clock (NaN if it
    cannot be read), `player_hp` before a training scenario refills it, `phase` that of the boss, from 1.
    """

    elapsed_s: float
    game_s: float
    boss_animation: str | None
    player_hp: float
    phase: int


class Episode:
    """The state of a driver from tick to tick; it reports the boss's change of phase to the world."""

    def __init__(
        self, scenario: Scenario, world: ArenaSetup, tables: readings.ScenarioAnimations, first: Reading
    ) -> None:
        self._scenario, self._world, self._tables = scenario, world, tables
        self._plausibility = readings.Plausibility(world.arena, first)
        self.effects = readings.KeyEffects(tables.player, first)
        self._flasks = readings.Flasks(scenario.flasks, tables.drinking, first)
        self._phase, self._changing, self._elapsed_s = 0, False, 0.0

    def check(self, reading: Reading, sent: Control, elapsed_s: float) -> None:
        """Accept or refuse a tick's reading; raises as `Plausibility.check` and `KeyEffects.check` do."""
        self._plausibility.check(reading, elapsed_s)
        self._elapsed_s += elapsed_s
        self.effects.check(reading, sent)
        if (transition := self._world.arena.transition) is not None:
            self._follow(readings.shows(reading, "boss", transition.animation))

    def row(self, reading: Reading) -> readings.Row:
        """Translate a reading into raw values, (25,)."""
        return readings.translate(reading, self._tables.player, self._tables.phases[self._phase], self._flasks)

    def measure(self, reading: Reading, row: readings.Row) -> Measurement:
        """Return what a reading says beside its raw values (25,), which are not refilled yet."""
        game_s, animation = float(reading.get("play_time_s", nan)), readings.boss_animation_as_read(reading)
        phase = self._tables.numbers[self._phase]
        return Measurement(self._elapsed_s, game_s, animation, float(row[Raw.PLAYER_HP]), phase)

    def keep_levels(self, reading: Reading, row: readings.Row, operations: Operations) -> None:
        """Refill in a training scenario, `row` (25,) included; else hold the boss at its lowest HP: it must not die."""
        start, floor = self._scenario.boss_hp
        if self._scenario.refill:
            row[Raw.PLAYER_HP], row[Raw.BOSS_HP] = row[Raw.PLAYER_HP_MAX], start
            if reading["player_hp"] != reading["player_hp_max"]:
                operations.run("restore_player", player_hp=float(reading["player_hp_max"]))
            if reading["boss_hp"] != start:
                operations.run("set_boss_hp", boss_hp=start)
        elif 0.0 < float(reading["boss_hp"]) < max(floor, 1.0):
            operations.run("set_boss_hp", boss_hp=max(floor, 1.0))

    def _follow(self, changing: bool) -> None:
        """Count a phase when the animation of its change is over; one that the scenario lacks ends the episode."""
        if changing and not self._changing:
            self._world.phase += 1
        if self._changing and not changing:
            self._phase += 1
        self._changing = changing
        if changing and self._phase + 1 == len(self._tables.phases):
            raise EpisodeLostError(f"the boss passes into a phase that scenario {self._scenario.name} does not have")


#: Fields without which no episode can be evaluated.
_NEEDED = frozenset(f"{who}_{what}" for who in ("player", "boss") for what in ("x", "y", "z", "hp", "hp_max"))
#: Tries of a start before the game counts as beyond help.
_TRIES = 2
#: How soon, by the machine's time, keys must be answered after an episode that seemed to go well, and in a recovery.
_PROMPT_S, _PATIENCE_S = 0.5, 3.0
#: Repeated readings must be unchanged for this long: a busy machine may delay a game.
_STILL_S, _POLL_S = 0.3, 0.002


class _Ground(NamedTuple):
    """What the data say of a scenario: its boss's phase, its arena, its animations, its player's camera."""

    scenario: Scenario
    phase: int
    arena: readings.LiveArena
    tables: readings.ScenarioAnimations
    camera: Camera


class LiveGame:
    """Play one running game as a `Game` of a single lane: one control tick is `tick_s` of game time.

    Every step sends the tick's controls as keys, waits until the tick is over, reads and checks. A
    reading that cannot be a moment of the fight, or an unreachable game, raises `EpisodeLostError` with
    every key released; `reset` then recovers, or raises the reason why it cannot.
    """

    lanes, tick_s = 1, 0.1

    def __init__(self, link: Link, settings: GameSettings, clock: Clock | None = None, draw: Draw = draw_start) -> None:
        self._draw = draw
        #: The latest reading: its levels are the game's own, even where a training scenario is refilled.
        self.reading: Reading = {}
        #: What the latest reading says beside the raw values; None before the first reset.
        self.measurement: Measurement | None = None
        self._session = DriverState(link, settings, clock or Clock())
        self.reset_clock = self._session.reset_clock
        self.capabilities = Capabilities(
            supplies=readings.supplied_raws(link.supplies),
            controls=self._session.pad.bindings.controls,
            can_set_speed="game_speed" in link.writes,
            can_render=True,
        )
        if lacking := sorted(_NEEDED - link.supplies):
            raise GameError(f"expected a map that reads {', '.join(lacking)}, found one that does not; take another.")
        self._session.operations.check()
        self._recovery = Recovery(self._session)
        self._timer = CycleTimer(self.tick_s / settings.speed, self._session.clock)
        self._worlds: dict[str, ArenaSetup] = {}
        self._grounds: dict[str, _Ground] = {}
        self._episode: Episode | None = None
        self._raw = np.zeros((1, RAW_SIZE))
        self._closed = False

    def __getstate__(self) -> Never:
        """Refuse to be copied or pickled.

        Raises:
            GameError: always.
        """
        raise GameError("environment to copy: expected a simulated fight, found a running game, of which there is one.")

    def reset(self, lanes: LaneIndices, scenario: Scenario, seeds: Seeds) -> RawValues:
        """Begin a new episode from a seed (1,), recovering the game first if needed; return raw (1, 25).

        Raises:
            GameError: if the game is not there, does not fit the scenario, or could not be brought to its start.
            EpisodeLostError: if keys no longer reach the game, which puts the end of the last episode in doubt.
        """
        if list(lanes) != [0] or np.shape(seeds) != (1,) or self._closed:
            raise GameError(f"expected lane 0 of an open game and one seed, found lanes {list(lanes)}.")
        ended, self._episode = self._episode, None
        failure: GameError | None = None
        for _ in range(_TRIES):
            try:
                self._session.pad.release()
                with self.reset_clock.phase("other"):
                    return self._begin(scenario, seeds, recovering=ended is None)
            except BaseException as error:
                self._release()
                if isinstance(error, UnansweredError) and ended is not None:
                    raise EpisodeLostError(str(error), ended.effects.doubtful_ticks) from error
                if not isinstance(error, LinkError | NotReachedError | EpisodeLostError):
                    raise
                failure = error
        raise GameError(f"the game could not be brought to the start of an episode: {failure}") from failure

    def step(self, controls: Controls, active: ActiveLanes | None = None) -> RawValues:
        """Hold and tap one tick's controls (1,) and return the raw values (1, 25) at its end.

        Raises:
            GameError: before the first reset, for a lane that should stand still, or a control without a key.
            EpisodeLostError: if the game was lost, or a reading is implausible.
        """
        sent = self._check(controls, active)
        if self._episode is None:
            raise GameError("expected a reset before the step, found no episode under way: reset first.")
        with self._losing():
            self._raw[0] = self._play(self._episode, sent)
        return self._raw

    def render(self, lane: int = 0, size: tuple[int, int] | None = None) -> Picture:
        """Capture the game's window, (height, width, 3) uint8, scaled to `size` (height, width) if one is given.

        Raises:
            GameError: before the first reset, or for another lane.
            EpisodeLostError: if the window could not be captured.
        """
        if lane != 0 or self._episode is None:
            raise GameError(f"expected lane 0 with an episode under way, found lane {lane}: reset first.")
        with self._losing():
            picture = self._session.link.capture()
        return picture if size is None else scaled(picture, size)

    @property
    def version(self) -> str:
        """Version of the game, such as "1.15.2.0"; empty where it cannot be read."""
        return self._session.link.version

    def close(self) -> None:
        """Release every key, restore the game's own rules and disconnect from it; a second call does nothing."""
        if self._closed:
            return
        self._closed, self._episode = True, None
        self._release()
        # A game that is gone has no rules to restore.
        with suppress(GameError):
            for world in self._worlds.values():
                world.leave()
        self._session.link.close()

    def stand_still(self, still: bool) -> None:
        """Stop the game's clock between two ticks, or let it run again; does nothing if the map cannot.

        Raises:
            LinkError: if the game cannot be reached.
        """
        if not self.capabilities.can_set_speed:
            return
        session = self._session
        session.set_speed(0.0 if still else session.settings.speed)
        if not still:
            self._restart_timer()

    def report(self) -> CycleReport:
        """Return how punctual the ticks were."""
        return self._timer.report()

    def timing(self) -> Timing:
        """Return how punctual it is; another thread than its player's may ask."""
        return Timing(self._timer.recent_lateness(), self.reset_clock.seconds)

    def unknown_animations(self) -> dict[str, int]:
        """Count the ticks that showed an animation which the data do not name, by the game's name."""
        tables = (table for one in self._grounds.values() for table in (one.tables.player, *one.tables.phases))
        return dict(sum((table.unknown for table in tables), Counter[str]()))

    def _begin(self, scenario: Scenario, seeds: Seeds, recovering: bool) -> RawValues:
        session = self._session
        interruptions = self._recovery.interruptions
        with self.reset_clock.phase("reach"):
            reading = self._recovery.reach()
        if self._recovery.interruptions != interruptions:
            self._worlds.clear()
        ground = self._ground_of(scenario)
        check_fits(scenario, reading, ground.arena.character)
        if recovering:
            session.pad.loosen()
        world = self._worlds.setdefault(ground.arena.name, ArenaSetup(session, ground.arena, ground.tables.player))
        # Another scenario with this boss may be fought elsewhere.
        world.arena = ground.arena
        drawn = self._draw(scenario, seeds)
        look = Look(session, drawn[Raw.CAMERA_X : Raw.CAMERA_Z + 1].tolist(), ground.camera)
        before = session.moment(session.link.read())
        if not session.operations.dry_run:
            before = world.bring_to(ground.phase, reading, look)
        answer_s = session.settings.speed * (_PATIENCE_S if recovering else _PROMPT_S)
        with world.held():
            with self.reset_clock.phase("rest"):
                world.rest(ground.tables, look, answer_s)
            world.pose(scenario, drawn, look)
            session.check_speed(before)
        first = session.link.read()
        self._episode = Episode(scenario, world, ground.tables, first)
        self._restart_timer()
        self.reading = first
        self._raw[0] = self._episode.row(first)
        self.measurement = self._episode.measure(first, self._raw[0])
        return self._raw

    def _ground_of(self, scenario: Scenario) -> _Ground:
        """Return the data of a scenario, loaded once."""
        known = self._grounds.get(scenario.name)
        if known is None or known.scenario != scenario:
            boss, tables = load_boss(scenario.boss), known.tables if known else readings.ScenarioAnimations(scenario)
            arena, camera = readings.arena_of(scenario, boss.name), load_player(scenario.player).camera
            known = _Ground(scenario, boss.phase, arena, tables, camera)
            self._grounds[scenario.name] = known
        return known

    def _restart_timer(self) -> None:
        self._timer.restart()
        self._read_s = self._session.clock.now()

    def _play(self, episode: Episode, sent: Control) -> npt.NDArray[np.float64]:
        session, timer = self._session, self._timer
        if session.clock.now() - self._read_s > 0.5 * timer.period_s:
            # The caller took its time: this tick's controls still get a whole tick.
            timer.restart()
        if not session.link.focused():
            raise EpisodeLostError("the game's window is no longer in front", doubtful_ticks=1)
        session.pad.play(sent)
        timer.wait()
        reading = self._read()
        now_s = session.clock.now()
        elapsed_s = (now_s - self._read_s) * session.settings.speed
        self._read_s = now_s
        episode.check(reading, sent, elapsed_s)
        self.reading = reading
        row = episode.row(reading)
        self.measurement = episode.measure(reading, row)
        episode.keep_levels(reading, row, session.operations)
        return row

    def _read(self) -> Reading:
        """Read the game; unchanged values are read again, as a frame may have been late."""
        link, clock = self._session.link, self._session.clock
        reading, end_s = link.read(), clock.now() + _STILL_S
        while same_moment(reading, self.reading) and clock.now() < end_s:
            clock.sleep(_POLL_S)
            reading = link.read()
        return reading

    def _check(self, controls: Controls, active: ActiveLanes | None) -> Control:
        if controls.shape != (1,) or controls.dtype != np.uint32:
            raise GameError(f"controls: expected uint32 of shape (1,), found {controls.dtype} of {controls.shape}.")
        if active is not None and not np.all(active):
            raise GameError("expected an active lane, found one that should stand still: a running game cannot.")
        possible, sent = self.capabilities.controls, int(controls[0])
        if sent & ~int(possible):
            raise GameError(f"expected controls with a key, {possible!r}; found {sent:#x}.")
        return Control(sent)

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """Release the keys and end the episode if anything fails; with a link that fails it counts as lost."""
        try:
            yield
        except BaseException as error:
            self._episode = None
            self._release()
            if isinstance(error, LinkError):
                raise EpisodeLostError(str(error)) from error
            raise

    def _release(self) -> None:
        """Release every key, without replacing an error that is being raised."""
        with suppress(GameError):
            self._session.pad.release()


_ATTACHING_S, _LAUNCHING_S, _LOADING_S, _FOCUSING_S = 3.0, 180.0, 60.0, 3.0
#: Values that stand still for the first time are a hang; the second is for a look at them from anew.
_STOPPED_S, _STILL_HANGING_S = 3.0, 1.0
_LOOK_S, _FIRST_LOOK_S = 0.05, 0.002


class Recovery:
    """Reach a game again after any failure; with a launch command, start it when it is gone or hangs.

    `interruptions` counts how often it was out of reach: its world may have been reloaded. Time limits
    are in the machine's time.
    """

    def __init__(self, session: DriverState) -> None:
        self._session = session
        self._process: subprocess.Popen[bytes] | None = None
        self.interruptions = 0

    def reach(self) -> Reading:
        """Return a reading of a game that can be played.

        Raises:
            GameError: with the reason, if it cannot be fixed from here.
        """
        link = self._session.link
        if not self._readable():
            self._attach_anew()
        self._wait(self._readable, _LOADING_S, "the game's world loaded")
        if link.read().get("online", 0) == 1:
            raise GameError("expected the game in offline mode, found it online; switch over, then try again.")
        # Before the game's clock shows whether it runs: it may have been stopped on purpose.
        self._session.set_speed(self._session.settings.speed)
        if not self._moves(_STOPPED_S):
            self._attach_anew()
            if not self._moves(_STILL_HANGING_S):
                self._restart()
        if not link.focused():
            link.focus()
            self._wait(link.focused, _FOCUSING_S, "the game's window in front")
        return link.read()

    def _attach_anew(self) -> None:
        session = self._session
        try:
            session.link.attach(_ATTACHING_S)
        except RefusedError as error:
            raise GameError(str(error)) from error
        except LinkError as error:
            if not session.settings.launch:
                raise GameError(f"{error} A launch command in the settings would start it again.") from error
            self._launch()
        self.interruptions += 1
        session.pad.check()

    def _launch(self) -> None:
        """Start the game and wait until its world is there."""
        session = self._session
        command = session.settings.launch
        try:
            # It outlives this program, whose own output a reader would otherwise never see end.
            nowhere = subprocess.DEVNULL
            self._process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere, **APART)
        except OSError as error:
            raise GameError(f"launch: expected a command that runs, found {command[0]}: {error}.") from error
        # A launcher may end long before its game, which outlives this program: somebody has to notice.
        threading.Thread(target=self._process.wait, name="launched game", daemon=True).start()
        self._attach_launched(self._process)
        self._wait(self._readable, _LAUNCHING_S, "the world of the game just launched")

    def _attach_launched(self, process: subprocess.Popen[bytes]) -> None:
        """Attach to the game of a launched process, or to one that it starts before it ends."""
        session = self._session
        # Only a game that was named by its process is looked for by its process.
        process_id = process.pid if session.settings.pid else 0
        end_s = session.clock.now() + _LAUNCHING_S
        while True:
            try:
                session.link.attach(_ATTACHING_S, process_id)
                return
            except LinkError as error:
                if code := process.poll():
                    command = " ".join(session.settings.launch)
                    raise GameError(
                        f"launch: expected a game, found that its command ended with {code}; run it by hand: {command}"
                    ) from error
                if session.clock.now() > end_s:
                    raise GameError(str(error)) from error
                session.clock.sleep(_LOOK_S)

    def _restart(self) -> None:
        """End a game that hangs, and launch it again."""
        settings = self._session.settings
        if not settings.launch or not settings.pid:
            raise GameError(
                f"expected a running game, found one whose values have not changed for {_STOPPED_S:g} s; end it and "
                "start it again, or name launch and pid in the settings so that it can be done from here."
            )
        if self._process:
            # Nothing is sent once it has ended: its id may be another's by then.
            self._process.kill()
            self._process.wait()
        else:
            with suppress(ProcessLookupError):
                os.kill(settings.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        self._launch()

    def _moves(self, limit_s: float) -> bool:
        """Return whether the values change within a time."""
        first = self._session.link.read()
        return self._soon(lambda: not same_moment(first, self._session.link.read()), limit_s)

    def _readable(self) -> bool:
        try:
            self._session.link.read()
        except LinkError:
            return False
        return True

    def _wait(self, met: Callable[[], bool], limit_s: float, what: str) -> None:
        if not self._soon(met, limit_s):
            raise GameError(f"expected {what} within {limit_s:g} s, and it did not come; look at the game.")

    def _soon(self, met: Callable[[], bool], limit_s: float) -> bool:
        clock = self._session.clock
        end_s, look_s = clock.now() + limit_s, _FIRST_LOOK_S
        while not met():
            if clock.now() > end_s:
                return False
            clock.sleep(look_s)
            look_s = min(2.0 * look_s, _LOOK_S)
        return True


class PacedSimulator(Simulator):
    """A simulator whose every tick takes its time at a speed; it does not wait for whoever plays it.

    Resets take no more time than they compute.
    """

    capabilities = replace(Simulator.capabilities, can_pause=False)

    def __init__(self, lanes: int = 1, speed: float = 1.0, clock: Clock | None = None) -> None:
        super().__init__(lanes)
        self.timer = CycleTimer(self.tick_s / speed, *(() if clock is None else (clock,)))
        self.reset_clock = PhaseClock()
        self._playing = False

    def reset(self, lanes: LaneIndices, scenario: Scenario, seeds: Seeds) -> RawValues:
        """Begin an episode as `Simulator.reset` does."""
        with self.reset_clock.phase("start"):
            return super().reset(lanes, scenario, seeds)

    def timing(self) -> Timing:
        """Return how punctual it is; another thread than its player's may ask."""
        return Timing(self.timer.recent_lateness(), self.reset_clock.seconds)

    def step(self, controls: Controls, active: ActiveLanes | None = None) -> RawValues:
        """Apply one tick's controls (lanes,), wait until it is over, and return the raw values (lanes, 25) at its end.

        Raises:
            GameError: as `Simulator.step`.
            StoppedError: if the clock was stopped.
        """
        if not self._playing:
            self.timer.restart()
            self._playing = True
        raw = super().step(controls, active)
        self.timer.wait()
        return raw
