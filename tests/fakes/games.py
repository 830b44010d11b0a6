"""Games that check their caller, lose readings, or stand still."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.errors import EpisodeLostError, GameError
from soulsgraph_envs.core.game import ActiveLanes, Capabilities, Game, LaneIndices
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import ALL_CONTROLS, RAW_SIZE, Controls, Raw, RawValues


class FakeGame:
    """A game of scripted raw values that checks its caller: shapes, bits, order of calls.

    Each lane begins with the first frame of `script` (frames, 25) and moves on by one a tick, holding
    the last. `sent` keeps the controls of every tick.

    Raises:
        GameError: for anything that a real driver could not carry out.
    """

    capabilities = Capabilities(supplies=frozenset(Raw.__members__), can_pause=True, can_seed=True)
    tick_s = 0.1

    def __init__(self, lanes: int = 1, script: RawValues | None = None) -> None:
        self.lanes = lanes
        self.script = np.atleast_2d(standing() if script is None else script)
        self.sent: list[Controls] = []
        self.closed = False
        self._frame: npt.NDArray[np.int64] = np.full(lanes, -1)
        self._raw = np.zeros((lanes, RAW_SIZE))

    def reset(self, lanes: LaneIndices, scenario: Scenario, seeds: Seeds) -> RawValues:
        """Put `lanes` (n,) back to the script's first frame."""
        which = np.asarray(lanes)
        self._demand(not self.closed, "an open game", "a closed one")
        self._demand(which.shape == np.shape(seeds), "one seed a lane", f"{which.shape} and {np.shape(seeds)}")
        self._demand(((which >= 0) & (which < self.lanes)).all(), f"lanes below {self.lanes}", which)
        self._demand(isinstance(scenario, Scenario), "a Scenario", type(scenario).__name__)
        self._frame[which] = 0
        return self._show()

    def step(self, controls: Controls, active: ActiveLanes | None = None) -> RawValues:
        """Move the active lanes one frame on."""
        self._demand(not self.closed, "an open game", "a closed one")
        self._demand((self._frame >= 0).all(), "every lane reset before the first step", self._frame.tolist())
        fits = controls.shape == (self.lanes,) and controls.dtype == np.uint32
        self._demand(fits, f"uint32 controls of shape ({self.lanes},)", f"{controls.dtype} of {controls.shape}")
        self._demand(not (controls & ~np.uint32(ALL_CONTROLS)).any(), "known control bits", controls.tolist())
        moving = np.ones(self.lanes, np.bool_) if active is None else active
        self._demand(moving.shape == (self.lanes,), f"an active flag for each of {self.lanes} lanes", moving.shape)
        self.sent.append(controls.copy())
        self._frame[moving] = np.minimum(self._frame[moving] + 1, len(self.script) - 1)
        return self._show()

    def close(self) -> None:
        """Close the game; a second call does nothing."""
        self.closed = True

    def _show(self) -> RawValues:
        self._raw[:] = self.script[np.maximum(self._frame, 0)]
        return self._raw

    def _demand(self, met: Any, expected: str, found: object) -> None:
        if not met:
            raise GameError(f"the caller of the fake game: expected {expected}, found {found}.")


class LossyGame:
    """A game that breaks off at chosen ticks, and whose resets fail at first, as a real-time one may.

    `losses` maps the number of a step, from 0 on, to the error it raises instead of being carried out;
    the resets after the first one raise `failures`, one each.
    """

    def __init__(self, game: Game, losses: Mapping[int, EpisodeLostError], failures: Sequence[GameError] = ()) -> None:
        self._game, self._losses, self._failures = game, losses, list(failures)
        self.lanes, self.tick_s = game.lanes, game.tick_s
        self.capabilities = replace(game.capabilities, can_render=False)
        self.steps = self.resets = 0
        self.closed = False

    def reset(self, lanes: LaneIndices, scenario: Scenario, seeds: Seeds) -> RawValues:
        """Reset the game, or fail to."""
        self.resets += 1
        if self.resets > 1 and self._failures:
            raise self._failures.pop(0)
        return self._game.reset(lanes, scenario, seeds)

    def step(self, controls: Controls, active: ActiveLanes | None = None) -> RawValues:
        """Step the game, or lose the episode."""
        loss = self._losses.get(self.steps)
        self.steps += 1
        if loss is not None:
            raise loss
        return self._game.step(controls, active)

    def close(self) -> None:
        """Close the game."""
        self.closed = True
        self._game.close()


def standing(**values: float) -> RawValues:
    """Make one frame, (25,): player and boss with full HP, 6 m apart, face to face, with `values` by column name."""
    frame = np.zeros(RAW_SIZE)
    levels = {"PLAYER_HP": 454.0, "STAMINA": 95.0, "BOSS_HP": 1037.0}
    most = {f"{name}_MAX": level for name, level in levels.items()}
    lengths = dict.fromkeys(("BOSS_ANIMATION_LENGTH_S", "PLAYER_ANIMATION_LENGTH_S"), 1.0)
    others = {"BOSS_Y": -6.0, "CAMERA_Y": -1.0, "FLASKS": 1.0}
    for name, value in {**levels, **most, **lengths, **others, **values}.items():
        frame[Raw[name]] = value
    return frame
