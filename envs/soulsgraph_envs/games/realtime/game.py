"""The driver of one real-time game, whatever link reaches it, and one episode in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, Never

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.errors import NO_COPY, EpisodeLostError, GameError
from soulsgraph_envs.core.game import ActiveLanes, Capabilities, LaneIndices, Picture
from soulsgraph_envs.core.scenario import Scenario, load_boss
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import RAW_SIZE, Control, Controls, Raw, RawValues
from soulsgraph_envs.games.realtime import readings
from soulsgraph_envs.games.realtime.cycle_timer import Clock, CycleReport, CycleTimer, Timing, timed_phase
from soulsgraph_envs.games.realtime.link import GameSettings, Link, LinkError, PicturedLink, Reading
from soulsgraph_envs.games.realtime.operations import DriverState, Moment, NotReachedError, Operations, UnansweredError
from soulsgraph_envs.games.realtime.posing import Look
from soulsgraph_envs.games.realtime.recovery import Recovery
from soulsgraph_envs.games.realtime.start import ArenaSetup, Draw, check_fits, draw_start
from soulsgraph_envs.render.pictures import scaled


class Episode:
    """The state of a driver from tick to tick; it reports the boss's change of phase to the world."""

    def __init__(
        self, scenario: Scenario, world: ArenaSetup, tables: readings.ScenarioAnimations, first: Reading
    ) -> None:
        self._scenario, self._world, self._tables = scenario, world, tables
        self._plausibility = readings.Plausibility(world.arena, first)
        self.effects = readings.KeyEffects(tables.player, first)
        self._flasks = readings.Flasks(scenario.flasks, tables.drinking, first)
        self._phase, self._changing = 0, False

    def check(self, reading: Reading, sent: Control, elapsed_s: float) -> None:
        """Accept or refuse a tick's reading; raises as `Plausibility.check` and `KeyEffects.check` do."""
        self._plausibility.check(reading, elapsed_s)
        self.effects.check(reading, sent)
        if (transition := self._world.arena.transition) is not None:
            self._follow(readings.shows(reading, "boss", transition.animation))

    def row(self, reading: Reading) -> readings.Row:
        """Translate a reading into raw values, (25,)."""
        return readings.translate(reading, self._tables.player, self._tables.phases[self._phase], self._flasks)

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
#: Game time after a hastened reset over which the clock must run at the fight's speed.
_SLOWED_S = 1.0
#: Repeated readings must be unchanged for this long: a busy machine may delay a game.
_STILL_S, _POLL_S = 0.3, 0.002


class _Ground(NamedTuple):
    """What the data say of a scenario: its boss's phase, its arena, its animations."""

    scenario: Scenario
    phase: int
    arena: readings.LiveArena
    tables: readings.ScenarioAnimations


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
        self._session = DriverState(link, settings, clock or Clock())
        self.reset_clock = self._session.reset_clock
        self.capabilities = Capabilities(
            supplies=readings.supplied_raws(link.supplies),
            controls=self._session.pad.bindings.controls,
            can_set_speed="game_speed" in link.writes,
            can_render=isinstance(link, PicturedLink),
        )
        if lacking := sorted(_NEEDED - link.supplies):
            raise GameError(f"expected a map that reads {', '.join(lacking)}, found one that does not; take another.")
        self._session.operations.check()
        self._recovery = Recovery(self._session)
        self._timer = CycleTimer(self.tick_s / settings.speed, self._session.clock)
        self._worlds: dict[str, ArenaSetup] = {}
        self._grounds: dict[str, _Ground] = {}
        self._episode: Episode | None = None
        #: When the clock was slowed down after a reset, until it is seen to run at the fight's speed.
        self._slowed: Moment | None = None
        self._raw = np.zeros((1, RAW_SIZE))
        self._closed = False

    @timed_phase("other")
    def __getstate__(self) -> Never:
        """Refuse to be copied or pickled.

        Raises:
            GameError: always.
        """
        raise GameError(NO_COPY)

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
        for attempt in range(_TRIES):
            try:
                self._session.pad.release()
                recovering = ended is None
                return self._begin(scenario, seeds, recovering, hastened=not recovering and attempt == 0)
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
            GameError: before the first reset, for another lane, or where the link takes no pictures.
            EpisodeLostError: if the window could not be captured.
        """
        link = self._session.link
        if not isinstance(link, PicturedLink):
            raise GameError("expected a link that takes pictures of its game, found one that does not; take another.")
        if lane != 0 or self._episode is None:
            raise GameError(f"expected lane 0 with an episode under way, found lane {lane}: reset first.")
        with self._losing():
            picture = link.capture()
        return picture if size is None else scaled(picture, size)

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
            self._slowed = self._slowed and session.moment(session.link.read())

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

    def _begin(self, scenario: Scenario, seeds: Seeds, recovering: bool, hastened: bool) -> RawValues:
        session = self._session
        interruptions = self._recovery.interruptions
        reading = self._recovery.reach()
        if self._recovery.interruptions != interruptions:
            self._worlds.clear()
        ground = self._ground_of(scenario)
        check_fits(scenario, reading, ground.arena.character)
        if recovering:
            session.pad.loosen()
        # A game in doubt is brought back at the fight's own speed, and its clock is checked by that.
        if hastened:
            session.hasten()
        world = self._worlds.setdefault(ground.arena.name, ArenaSetup(session, ground.arena, ground.tables.player))
        # Another scenario with this boss may be fought elsewhere.
        world.arena = ground.arena
        try:
            drawn = self._draw(scenario, seeds)
            look = Look(session, drawn[Raw.CAMERA_X : Raw.CAMERA_Z + 1].tolist())
            before = session.moment(session.link.read())
            if not session.operations.dry_run:
                before = world.bring_to(ground.phase, reading, look)
            answer_s = session.settings.speed * (_PATIENCE_S if recovering else _PROMPT_S)
            with world.held():
                world.rest(ground.tables, look, answer_s)
                world.pose(scenario, drawn, look)
                session.check_speed(before)
            first = session.link.read()
        except BaseException:
            with suppress(GameError):
                session.slow_down()
            raise
        self._episode = Episode(scenario, world, ground.tables, first)
        self._slowed = session.moment(first) if hastened else None
        self._restart_timer()
        self.reading = first
        self._raw[0] = self._episode.row(first)
        return self._raw

    def _ground_of(self, scenario: Scenario) -> _Ground:
        """Return the data of a scenario, loaded once."""
        known = self._grounds.get(scenario.name)
        if known is None or known.scenario != scenario:
            boss, tables = load_boss(scenario.boss), known.tables if known else readings.ScenarioAnimations(scenario)
            known = _Ground(scenario, boss.phase, readings.arena_of(scenario, boss.name), tables)
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
        with timer.section("keys"):
            if not session.link.focused():
                raise EpisodeLostError("the game's window is no longer in front", doubtful_ticks=1)
            session.pad.play(sent)
        timer.wait()
        with timer.section("read"):
            reading = self._read()
        now_s = session.clock.now()
        elapsed_s = (now_s - self._read_s) * session.settings.speed
        self._read_s = now_s
        episode.check(reading, sent, elapsed_s)
        self._check_slowed(session.moment(reading))
        self.reading = reading
        row = episode.row(reading)
        episode.keep_levels(reading, row, session.operations)
        return row

    def _check_slowed(self, now: Moment) -> None:
        """Refuse a fight whose clock still runs at another speed than its own, once it can be measured."""
        session, since = self._session, self._slowed
        if since is None or now.here_s - since.here_s < _SLOWED_S / session.settings.speed:
            return
        self._slowed = None
        if not session.runs_at_speed(since, now):
            raise EpisodeLostError(f"the game's clock does not run at {session.speed:g} times this machine's")

    def _read(self) -> Reading:
        """Read the game; unchanged values are read again, as a frame may have been late."""
        link, clock = self._session.link, self._session.clock
        reading, end_s = link.read(), clock.now() + _STILL_S
        while readings.same_moment(reading, self.reading) and clock.now() < end_s:
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
