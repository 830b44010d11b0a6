"""The simulator in place of Elden Ring: the same attributes and keys, frame by frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from soulsgraph_envs.catalogue import load_player, load_scenario, supported_controls
from soulsgraph_envs.controls import Control
from soulsgraph_envs.eldengym.keys import Keyboard
from soulsgraph_envs.eldengym.world import Frame, fight_name
from soulsgraph_envs.errors import GameError, UnknownNameError
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.state import Raw, RawValues
from soulsgraph_envs.streams import derive_seeds

_FRAMES_PER_S = 60
_PLACES = {f"Hero{place}Pos{axis}": Raw[f"PLAYER_{axis}"] for place in ("Local", "Global") for axis in "XYZ"}
_PLACES |= {f"Npc{place}Pos{axis}": Raw[f"BOSS_{axis}"] for place in ("Local", "Global") for axis in "XYZ"}
#: Where an attribute of EldenGym lies among the simulator's raw values; the simulator has one coordinate frame.
_COLUMNS = _PLACES | {
    "HeroHp": Raw.PLAYER_HP,
    "HeroMaxHp": Raw.PLAYER_HP_MAX,
    "HeroSp": Raw.STAMINA,
    "HeroMaxSp": Raw.STAMINA_MAX,
    "HeroAngle": Raw.PLAYER_ANGLE,
    "HeroAnimId": Raw.PLAYER_ANIMATION,
    "HeroAnimLength": Raw.PLAYER_ANIMATION_LENGTH_S,
    "NpcHp": Raw.BOSS_HP,
    "NpcMaxHp": Raw.BOSS_HP_MAX,
    "NpcGlobalPosAngle": Raw.BOSS_ANGLE,
    "NpcLocalPosAngle": Raw.BOSS_ANGLE,
    "NpcAnimId": Raw.BOSS_ANIMATION,
    "NpcAnimLength": Raw.BOSS_ANIMATION_LENGTH_S,
}
#: What no raw value shows.
_OTHERS = ("HeroFp", "HeroMaxFp", "gameSpeedVal")
_WRITABLE = {
    "HeroHp": "player_hp",
    "HeroSp": "stamina",
    "HeroFp": "fp",
    "NpcHp": "boss_hp",
    "HeroLocalPosX": "player_x",
    "HeroLocalPosY": "player_y",
    "NpcLocalPosX": "boss_x",
    "NpcLocalPosY": "boss_y",
}
#: Heights may be written too, to no effect: the arena is flat.
_FLAT = {"HeroLocalPosZ", "NpcLocalPosZ"}


class SimulatedWorld:
    """One simulated fight; see `world.World`.

    Raises:
        UnknownNameError: if no scenario has that name; see `fights.fight_name`.
    """

    simulated = True
    attributes: Mapping[str, str] = {
        name: "int" if name.endswith(("Hp", "Fp", "Sp", "AnimId")) else "float" for name in (*_COLUMNS, *_OTHERS)
    }

    def __init__(self, scenario: str, frame_size: tuple[int, int]) -> None:
        self._scenario = load_scenario(fight_name(scenario))
        player = load_player(self._scenario.player)
        #: Controls that mean something in this fight.
        self.supported = supported_controls(player)
        self._fp_max = player.body.fp
        self._simulator = Simulator(1, tick_s=1 / _FRAMES_PER_S)
        self._keyboard = Keyboard()
        self._size = frame_size
        self._speed, self._owed_frames = 1.0, 0.0
        self._raw: RawValues | None = None

    def begin(self, seed: int) -> None:
        """Begin a fight from its own seed and lock on to the boss."""
        self._keyboard.release()
        self._owed_frames = 0.0
        self._raw = self._simulator.reset(np.zeros(1, np.int64), self._scenario, derive_seeds(seed))
        self._advance(Control.LOCK_ON)

    def tap(self, keys: Sequence[str], hold_ms: int, delay_ms: int) -> None:
        """Press, hold and release keys while the fight goes on."""
        self._keyboard.check(keys)
        for number, key in enumerate(keys):
            self.wait(delay_ms / 1000 if number else 0.0)
            self._keyboard.set(key, True)
        self.wait(hold_ms / 1000)
        for number, key in enumerate(reversed(keys)):
            self.wait(delay_ms / 1000 if number else 0.0)
            self._keyboard.set(key, False)

    def set_key(self, key: str, down: bool) -> None:
        """Send one key down or up, from the next frame on."""
        self._keyboard.set(key, down)

    def move_mouse(self, right: int, down: int, steps: int = 1) -> None:
        """Refuse: the boss is locked on to, and the mouse does not turn the camera."""
        raise GameError("the simulated game: expected keys, found a move of the mouse; leave it out.")

    def wait(self, seconds: float) -> None:
        """Play the frames of this much of the player's time; the fraction of a frame is kept for the next call."""
        self._owed_frames += seconds * self._speed * _FRAMES_PER_S
        # A sum of thirds may fall a hair short of a whole frame.
        while self._owed_frames > 1.0 - 1e-9:
            self._owed_frames -= 1.0
            self._advance(self._keyboard.controls())

    def set_speed(self, factor: float) -> None:
        """Set the seconds of the fight that pass in one second of the player's."""
        self._speed = factor

    def read(self, names: Sequence[str]) -> dict[str, float]:
        """Read attributes of the fight."""
        raw = self._begun()[0]
        return {name: float(raw[_COLUMNS[name]]) if name in _COLUMNS else self._other(name) for name in names}

    def write(self, values: Mapping[str, float]) -> None:
        """Write HP, stamina or places; the floor is flat, so heights stay what they are."""
        self._begun()
        for name in values:
            if name not in _WRITABLE.keys() | _FLAT:
                raise UnknownNameError("writable attribute of the simulated game", name, sorted(_WRITABLE))
        written = {_WRITABLE[name]: value for name, value in values.items() if name in _WRITABLE}
        self._simulator.override(0, **written)

    def frame(self) -> Frame:
        """Draw the fight."""
        self._begun()
        return self._simulator.render(0, self._size)

    def close(self) -> None:
        """Close the simulator."""
        self._simulator.close()

    def _other(self, name: str) -> float:
        if name not in _OTHERS:
            raise UnknownNameError("attribute of the simulated game", name, sorted(self.attributes))
        others = {"HeroFp": self._simulator.values(0)["fp"], "HeroMaxFp": self._fp_max, "gameSpeedVal": self._speed}
        return float(others[name])

    def _advance(self, controls: Control) -> None:
        self._begun()
        self._raw = self._simulator.step(np.array([controls], np.uint32))

    def _begun(self) -> RawValues:
        if self._raw is None:
            raise GameError("the simulated game: expected a fight, found none: reset the environment first.")
        return self._raw
