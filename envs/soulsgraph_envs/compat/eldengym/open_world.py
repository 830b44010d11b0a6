"""The world behind an environment: a Siphon server if there is one, else the simulator in Elden Ring's place."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from soulsgraph_envs.compat.eldengym.client.keys import DATA, KeyTranslator, fight_name, without_effect
from soulsgraph_envs.compat.eldengym.client.world import Answer, World, WorldOptions, done
from soulsgraph_envs.compat.eldengym.errors import SimulatedGameWarning
from soulsgraph_envs.core.access import split_address
from soulsgraph_envs.core.config import Where, load
from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.core.scenario import load_player, load_scenario, supported_controls
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Control, Raw, RawValues
from soulsgraph_envs.simulator.driver import TARGETS, Simulator

_FRAMES_PER_S = 60


@dataclass(frozen=True)
class Attributes:
    """The file `data/eldengym/attributes.toml`; what its tables mean stands there."""

    shown: dict[str, Raw]
    writable: dict[str, str]


def load_attributes(path: Path = DATA / "attributes.toml") -> Attributes:
    """Load the attributes of the simulated fight.

    Raises:
        DataError: for a missing table, or a value that the simulator does not have.
    """
    where = Where(path)
    data = load(Attributes, where)
    for name, target in data.writable.items():
        known = target == "" or target in TARGETS
        where.at("writable").at(name).demand(known, f"one of {', '.join(TARGETS)}, or nothing", repr(target))
    return data


_SHOWN, _WRITABLE = vars(load_attributes()).values()
#: What no raw value shows.
_OTHERS = ("HeroFp", "HeroMaxFp", "gameSpeedVal")


class SimulatedFight(World):
    """One simulated fight.

    Raises:
        UnknownNameError: if no scenario has that name; see `keys.fight_name`.
    """

    simulated = True
    attributes: Mapping[str, str] = {
        name: "int" if name.endswith(("Hp", "Fp", "Sp", "AnimId")) else "float" for name in (*_SHOWN, *_OTHERS)
    }

    def __init__(self, scenario: str, frame_size: tuple[int, int]) -> None:
        self._scenario = load_scenario(fight_name(scenario))
        player = load_player(self._scenario.player)
        #: Controls that mean something in this fight.
        self.supported = supported_controls(player)
        self._fp_max = player.body.fp
        self._simulator = Simulator(1, tick_s=1 / _FRAMES_PER_S)
        self._keyboard = KeyTranslator()
        self._size = frame_size
        self._speed, self._owed_frames = 1.0, 0.0
        self._raw: RawValues | None = None

    def begin(self, seed: int) -> None:
        """Begin a fight from its own seed and lock on to the boss."""
        self._keyboard = KeyTranslator()
        self._owed_frames = 0.0
        self._raw = self._simulator.reset(np.zeros(1, np.int64), self._scenario, derive_seeds(seed))
        self._advance(Control.LOCK_ON)

    def input_key_tap(self, keys: Sequence[str], hold_ms: int = 50, delay_ms: int = 0) -> Answer:
        """Press, hold and release keys while the fight goes on."""
        self._keyboard.check(keys)
        for number, key in enumerate(keys):
            self.wait(delay_ms / 1000 if number else 0.0)
            self._keyboard.set(key, True)
        self.wait(hold_ms / 1000)
        for number, key in enumerate(reversed(keys)):
            self.wait(delay_ms / 1000 if number else 0.0)
            self._keyboard.set(key, False)
        return done("tapped")

    def input_key_toggle(self, key: str, toggle: bool) -> Answer:
        """Send one key down or up, from the next frame on."""
        self._keyboard.set(key, toggle)
        return done("sent")

    def move_mouse(self, delta_x: int, delta_y: int, steps: int = 1) -> Answer:
        """Refuse: the boss is locked on to, and the mouse does not turn the camera."""
        raise GameError("the simulated game: expected keys, found a move of the mouse; leave it out.")

    def wait(self, seconds: float) -> None:
        """Play the frames of this much of the player's time; the fraction of a frame is kept for the next call."""
        self._owed_frames += seconds * self._speed * _FRAMES_PER_S
        # A sum of thirds may fall a hair short of a whole frame.
        while self._owed_frames > 1.0 - 1e-9:
            self._owed_frames -= 1.0
            self._advance(self._keyboard.controls())

    def set_game_speed(self, speed: float) -> None:
        """Set the seconds of the fight that pass in one second of the player's."""
        self._speed = speed

    def read(self, names: Sequence[str]) -> dict[str, float]:
        """Read attributes of the fight."""
        raw, fp = self._begun()[0], self._simulator.values(0)["fp"]
        values = {name: raw[column] for name, column in _SHOWN.items()}
        values |= dict(zip(_OTHERS, (fp, self._fp_max, self._speed), strict=True))
        for name in names:
            if name not in values:
                raise UnknownNameError("attribute of the simulated game", name, sorted(values))
        return {name: float(values[name]) for name in names}

    def write(self, values: Mapping[str, float]) -> None:
        """Write HP, stamina or places; the floor is flat, so heights stay what they are."""
        self._begun()
        for name in values:
            if name not in _WRITABLE:
                raise UnknownNameError("writable attribute of the simulated game", name, sorted(_WRITABLE))
        written = {_WRITABLE[name]: value for name, value in values.items()}
        written.pop("", None)
        self._simulator.override(0, **written)

    def get_frame(self) -> Picture:
        """Draw the fight."""
        self._begun()
        return self._simulator.render(0, self._size)

    def close(self) -> None:
        """Close the simulator."""
        self._simulator.close()

    def _advance(self, controls: Control) -> None:
        self._begun()
        self._raw = self._simulator.step(np.array([controls], np.uint32))

    def _begun(self) -> RawValues:
        if self._raw is None:
            raise GameError("the simulated game: expected a fight, found none: reset the environment first.")
        return self._raw


#: "auto" asks whether a server answers; the other two insist.
DRIVERS = ("auto", "simulator", "siphon")
_ANSWER_S = 1.0


def open_world(options: WorldOptions, keys: Iterable[str]) -> World:
    """Open the world for an environment that uses these keys.

    Raises:
        UnknownNameError: for a driver or a scenario that is not there.
        GameError: with "siphon", if no server answers.
    """
    if options.driver not in DRIVERS:
        raise UnknownNameError("driver", options.driver, DRIVERS)
    if options.driver == "siphon" or (options.driver == "auto" and _answers(options.host)):
        # Imported here: whoever simulates needs no Siphon client.
        from soulsgraph_envs.compat.eldengym.client.elden_client import SiphonWorld

        return SiphonWorld(options)
    world = SimulatedFight(options.scenario, options.frame_size)
    if options.driver == "auto":
        _warn(
            f"no Siphon server answers at {options.host}: a simulated boss of our own invention "
            f"({options.scenario}) stands in for Elden Ring's; driver='simulator' chooses it, driver='siphon' insists"
        )
    idle = without_effect(keys, world.supported)
    if idle:
        told = ", ".join(f"{key} ({meaning})" for key, meaning in idle.items())
        _warn(f"the simulated fight has nothing for some keys, which do nothing: {told}")
    return world


def _warn(told: str) -> None:
    # The caller's caller: whoever made the environment.
    warnings.warn(told, SimulatedGameWarning, stacklevel=4)


def _answers(host: str) -> bool:
    try:
        with socket.create_connection(split_address(host), timeout=_ANSWER_S):
            return True
    except (OSError, ValueError):
        return False
