"""For tests: a running game without a process or a window, on a clock that the test controls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fakes.keys import FakeDevice, KeyEvent
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control, RawValues
from soulsgraph_envs.games.cycle_timer import Clock
from soulsgraph_envs.games.keys import load_bindings
from soulsgraph_envs.games.link import FIELDS, GameSettings, LinkError, Reading
from soulsgraph_envs.games.live_game import LiveGame
from soulsgraph_envs.games.standin.launch import load_surroundings
from soulsgraph_envs.games.standin.world import CourseStage, StandInWorld

_FRAME_S = 1.0 / 60.0


class FakeTime:
    """A clock on which only waiting passes time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.clock = Clock(lambda: self.now_s, self.pass_by)

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += max(seconds, 0.0)


class FakeLink:
    """The stand-in game's world on a clock that the test controls; it can misbehave.

    Set `crashed`, `frozen` (values stand still, the game goes on), `hung` (the game stands still),
    `dropping` (keys are lost), `unfocused`, `blind` (no picture) or `stray` (what replaces values read) to misbehave;
    after `restarts_after` vain attempts to attach, a crashed game runs again. `writes_log` keeps what
    was written.
    """

    bindings = "dark-souls-3"
    encounter = "iudex"
    version = ""
    blind = False

    def __init__(
        self,
        time: FakeTime,
        scenario: str = "iudex-phase1",
        without: frozenset[str] = frozenset(),
        at_bonfire: bool = False,
        met: bool = True,
    ) -> None:
        self.supplies = frozenset(FIELDS) - without - {"window_width", "window_height", "screen_mode"}
        self.writes = frozenset(name for name, field in FIELDS.items() if field.writable) - without
        self._time, self._scenario = time, load_scenario(scenario)
        self._bindings = load_bindings(self.bindings)
        self._taps = Control(sum(Control[name.upper()] for name in self._bindings.tap))
        self.keys = FakeDevice(self._hear)
        self.attached, self.closed = False, False
        self.crashed = self.frozen = self.hung = self.dropping = self.unfocused = False
        self.restarts_after = -1
        self.stray: dict[str, float | str] = {}
        self.writes_log: list[dict[str, float]] = []
        self._begin(at_bonfire, met)

    def _begin(self, at_bonfire: bool, met: bool = True) -> None:
        self.world = StandInWorld(load_surroundings(self.encounter), self._scenario, 0, at_bonfire, met)
        self._played_s, self._presses = self._time.now_s, Control.NONE
        self._shown: dict[str, float | str] = {}

    def play(self) -> None:
        """Advance the game to the present moment."""
        if self.hung or self.crashed or not self.world.speed:
            self._played_s = self._time.now_s
        while self.world.speed and self._played_s + _FRAME_S / self.world.speed <= self._time.now_s + 1e-9:
            self._played_s += _FRAME_S / self.world.speed
            held = Control.NONE if self.dropping else self._bindings.controls_of(self.keys.down) & ~self._taps
            self.world.frame(held | self._presses)
            self._presses = Control.NONE

    def _hear(self, event: KeyEvent) -> None:
        """Play up to the moment of a key, and record one that goes down."""
        self.play()
        if event.action == "press" and not (self.dropping or self.hung or self.crashed):
            self._presses |= self._bindings.controls_of([event.key]) & self._taps

    def attach(self, timeout_s: float, process_id: int = 0) -> None:
        """Find the game, unless it is gone."""
        if self.crashed and self.restarts_after == 0:
            self.crashed = False
            self._begin(at_bonfire=True)
        if self.crashed:
            self.restarts_after -= 1
            self._time.pass_by(timeout_s)
            raise LinkError("expected a running game, found none: start it.")
        self.attached = True

    def read(self) -> Reading:
        """Return every field."""
        self._reach()
        if not (self.frozen and self._shown):
            values = self.world.readings()
            self._shown = {name: values[name] for name in self.supplies}
        return self._shown | self.stray

    def write(self, values: Mapping[str, float]) -> None:
        """Write fields."""
        self._reach()
        if unknown := set(values) - self.writes:
            raise LinkError(f"expected fields that can be written, found {sorted(unknown)}.")
        self.writes_log.append(dict(values))
        self.world.write(values)

    def focus(self) -> None:
        """Bring the window to the front."""
        self._reach(loaded=False)
        self.unfocused = False

    def focused(self) -> bool:
        """Return whether keys reach the game."""
        self._reach(loaded=False)
        return not self.unfocused

    def capture(self) -> Picture:
        """Capture the game's window, (90, 160, 3), unless it is `blind`."""
        self._reach(loaded=False)
        if self.blind:
            raise LinkError("expected a picture of the game's window, found none.")
        return self.world.simulator.render()

    def close(self) -> None:
        """Let go of the game."""
        self.keys.close()
        self.closed = True

    def _reach(self, loaded: bool = True) -> None:
        self.play()
        if self.crashed or not self.attached:
            raise LinkError("the game's process is gone.")
        if loaded and self.world.stage is CourseStage.LOADING:
            raise LinkError("the game is loading.")


class FakeTable:
    """A driver, its fake game and their clock; `link` are arguments of `FakeLink`."""

    def __init__(self, settings: GameSettings | None = None, **link: Any) -> None:
        self.time = FakeTime()
        self.link = FakeLink(self.time, **link)
        self.game = LiveGame(self.link, settings or GameSettings(), self.time.clock)

    def reset(self, scenario: Scenario | None = None, seed: int = 0) -> RawValues:
        """Begin an episode, of the first phase by default, and return a copy of raw (1, 25)."""
        begun = scenario or load_scenario("iudex-phase1")
        return self.game.reset(np.zeros(1, np.int64), begun, derive_seeds(np.array([seed]), 1)).copy()

    def step(self, control: Control = Control.NONE) -> RawValues:
        """Play one tick and return a copy of raw (1, 25)."""
        return self.game.step(np.full(1, int(control), np.uint32)).copy()

    def play(self, control: Control, ticks: int) -> None:
        """Send the same controls for some ticks."""
        for _ in range(ticks):
            self.step(control)
