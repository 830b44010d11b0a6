"""The simulator in real time: a game that needs no process and no window, as one of a game PC's games."""

from __future__ import annotations

from dataclasses import replace

from soulsgraph_envs.core.game import ActiveLanes, LaneIndices
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import Controls, RawValues
from soulsgraph_envs.games.realtime.cycle_timer import Clock, CycleTimer, PhaseClock, Timing, timed_phase
from soulsgraph_envs.simulator import Simulator


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

    @timed_phase("start")
    def reset(self, lanes: LaneIndices, scenario: Scenario, seeds: Seeds) -> RawValues:
        """Begin an episode as `Simulator.reset` does."""
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
