"""Elden Ring, or whatever shows its attributes, through a Siphon server: EldenGym's client, an environment's world."""

from __future__ import annotations

import atexit
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from math import dist
from numbers import Integral
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from soulsgraph_envs.compat.eldengym.world import (
    Answer,
    GameNames,
    MenuWay,
    World,
    WorldOptions,
    done,
    load_fight,
    load_keys,
)
from soulsgraph_envs.core.config import find
from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.games.link import ELDENGYM_OPERATIONS, LinkError, Operations
from soulsgraph_envs.games.siphon_attributes import PYTHON_TYPES, AttributeFile, load_attributes
from soulsgraph_envs.games.siphon_link import (
    SEARCH_TIMEOUT_S,
    SiphonCalls,
    SiphonClient,
    SiphonKeys,
    from_siphon,
    streamed_picture,
)
from soulsgraph_envs.render.pictures import scaled

__all__ = ["EldenClient", "SiphonClient"]


class EldenClient(SiphonClient, GameNames):
    """A Siphon server's game by EldenGym's names, beside every call of pysiphon's own client.

    Raises:
        GameError: by its own names, for a call that the server reports as failed; pysiphon's own calls return
            "success" as False there.
    """

    @cached_property
    def scenarios(self) -> dict[str, dict[str, Any]]:
        """The fights that can be started, with their fog walls in global coordinates."""
        return {"Margit-v0": {"boss_name": "Margit", "fog_wall_location": load_fight("margit").fog_wall_m}}

    def load_config_from_file(self, config_filepath: str, wait_time: float = 2) -> dict[str, Answer]:
        """Send a file of attributes, and have the server find the game, its keys and its window.

        Raises:
            UnknownNameError: for a file that is not there.
            GameError: if the server does not find one of them.
        """
        results = {"config": self.set_process_config(str(attribute_file(config_filepath)))}
        _demand("config", results["config"])
        self.wait(wait_time)
        for part in ("memory", "input", "capture"):
            results[part] = getattr(self, f"initialize_{part}")()
            _demand(part, results[part])
        return results

    def quit_to_title(self) -> None:
        """Press the keys that lead to the title screen; Siphon's own server is not known to have all of them."""
        self._go(load_keys().menu["quit"])

    def enter_menu(self) -> None:
        """Press the keys that lead from the title screen into the game."""
        self._go(load_keys().menu["begin"])

    #: The name in the documentation.
    bypass_menu = enter_menu

    def get_frame(self) -> Picture:
        """Photograph the window, (height, width, 3) RGB."""
        image = self.capture_frame()
        if image is None:
            raise GameError("capture_frame: expected a picture, found none; initialize the capture.")
        return np.asarray(image.convert("RGB"))

    def read(self, names: Sequence[str]) -> dict[str, float]:
        """Read attributes, one call each."""
        return {name: _demand(name, self.get_attribute(name))["value"] for name in names}

    def write(self, values: Mapping[str, float]) -> None:
        """Write attributes, each by the server's type of its value."""
        for name, value in values.items():
            kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, Integral) else "float"
            _demand(name, self.set_attribute(name, value, kind))

    def wait(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def _go(self, way: MenuWay) -> None:
        for key in way.keys:
            _demand(key, self.input_key_tap([key], way.hold_ms))
            self.wait(way.pause_s)
        self.wait(way.then_s)


def _demand(what: str, answer: Answer) -> Answer:
    """Return the answer of a call that succeeded; raises `GameError` for one that failed."""
    if not answer["success"]:
        raise GameError(f"Siphon server: {what} failed: {answer['message']}")
    return answer


#: EldenGym's names of its attribute file, in its documentation and in version 0.6.0, and ours of the same attributes.
_THEIR_FILES, _OUR_FILE = ("ER_1_16_1.toml", "er_siphon_config.toml"), "elden-ring-1.16.1"


def attribute_file(config: str | Path | None) -> Path:
    """Find a file of attributes: the shipped one for None or EldenGym's name of it, whatever its folder there.

    Raises:
        UnknownNameError: for a name that nothing shipped has.
    """
    shipped = config is None or (Path(config).name in _THEIR_FILES and not Path(config).exists())
    return find("attribute file", _OUR_FILE if shipped else str(config))


class SiphonAttributes:
    """Read and write the attributes of a file; `writes` names them all, the caller decides which of them to write.

    Raises:
        LinkError: if the server does not answer or does not find the game.
    """

    def __init__(self, calls: SiphonCalls, file: AttributeFile) -> None:
        self._calls, self._file = calls, file
        self.writes = frozenset(file.attributes)
        calls.configure(file.process_info, file.attributes)
        for part in ("InitializeInput", "InitializeCapture"):
            calls.call(part, SEARCH_TIMEOUT_S)

    def read(self, names: Sequence[str]) -> dict[str, float]:
        """Read attributes, all calls under way at once."""
        return dict(zip(names, map(_number, self._calls.get(names)), strict=True))

    def write(self, values: Mapping[str, float]) -> None:
        """Write attributes, one call each."""
        for name, value in values.items():
            kind = self._file.attributes[name].type
            sent: dict[str, Any] = {f"{kind}_value": PYTHON_TYPES[kind](value)}
            self._calls.call("SetAttribute", attributeName=name, **sent)


def _number(answer: Any) -> float:
    kind = answer.WhichOneof("value")
    if kind not in ("int_value", "float_value", "bool_value"):
        raise LinkError(f"Siphon: expected a number, found {kind or 'no value'}: choose another attribute.")
    return float(getattr(answer, kind))


_QUALITY = 85
_FIRST_PICTURE_S = 10.0
#: No control loop waits for the answers: a game PC that is busy, as with loading, may take its time.
_PATIENCE_S = 10.0


class FrameStream:
    """Receive pictures until closed; only the newest is kept, scaled to (height, width)."""

    def __init__(self, calls: SiphonCalls, size: tuple[int, int]) -> None:
        self._size = size
        self._packed: object | None = None
        self._error: LinkError | None = None
        self._answers = calls.stream("StreamFrames", format="jpeg", quality=_QUALITY)
        self._begun, self._closed = Event(), False
        Thread(target=self._receive, name="siphon-frames", daemon=True).start()

    def latest(self) -> Picture:
        """Return the newest picture, (height, width, 3) RGB.

        Raises:
            LinkError: if the stream broke off, or no picture ever came.
        """
        self._begun.wait(_FIRST_PICTURE_S)
        if self._error is not None:
            raise self._error
        if self._packed is None:
            raise LinkError(f"Siphon server: expected a picture within {_FIRST_PICTURE_S:g} s, found none.")
        return scaled(streamed_picture(self._packed), self._size)

    def close(self) -> None:
        """End the stream; a second call does nothing."""
        self._closed = True

    def _receive(self) -> None:
        try:
            for packed in self._answers:
                self._packed = packed
                self._begun.set()
                if self._closed:
                    return
            raise LinkError("Siphon server: expected a stream of pictures, found its end.")
        except LinkError as error:
            self._error = error
            self._begun.set()


#: Dying, the loading screen and waking up take about so long at most.
_RETURN_TIMEOUT_S = 90.0
_ENTER_TRIES = 3
_POLL_S = 0.2


class SiphonWorld(World):
    """One game behind a Siphon server.

    Raises:
        UnknownNameError: if it is not known how the scenario's fight begins.
        GameError: if the server does not answer or does not find the game.
    """

    simulated = False

    def __init__(self, options: WorldOptions) -> None:
        self._scenario, self._start = options.scenario, load_fight(options.scenario)
        file = load_attributes(attribute_file(options.config))
        self.attributes: Mapping[str, str] = {name: attribute.type for name, attribute in file.attributes.items()}
        self._calls = SiphonCalls(options.host, _PATIENCE_S)
        self._keys = SiphonKeys(self._calls)
        self._down: set[str] = set()
        self._died = False
        # 0: unknown, as whoever played before may have left the game frozen.
        self._speed = 0.0 if "gameSpeedVal" in self.attributes else 1.0
        self._game = SiphonAttributes(self._calls, file)
        self._operations = Operations(self._game, options.dry_run, ELDENGYM_OPERATIONS)
        self._stream = FrameStream(self._calls, options.frame_size)
        # Siphon's own server leaves down what a client that ended, say by Ctrl-C, held.
        atexit.register(self.close)

    def begin(self, seed: int) -> None:
        """Begin a fight: through the fog wall, or if one is under way by restoring everybody's HP.

        The game has its own randomness; `seed` has no effect.

        Raises:
            GameError: if the player does not come back to life, the boss is gone, or the fight does not begin.
        """
        self._release()
        if self._died or self._hp("HeroHp") <= 0 or not self._near_a_boss():
            self._return()
            self._enter()
        levels = self.read(["HeroMaxHp", "NpcMaxHp"])
        self._operations.run("fill_hp", HeroHp=levels["HeroMaxHp"], NpcHp=levels["NpcMaxHp"])
        self._died = False

    def input_key_tap(self, keys: Sequence[str], hold_ms: int = 50, delay_ms: int = 0) -> Answer:
        """Have the server press, hold and release keys; it answers when all are up."""
        self._keys.tap([from_siphon(key) for key in keys], hold_ms / 1000, delay_ms / 1000)
        return done("tapped")

    def input_key_toggle(self, key: str, toggle: bool) -> Answer:
        """Send one key down or up, unless it is in that state already."""
        if toggle != (key in self._down):
            send = self._keys.press if toggle else self._keys.release
            send(from_siphon(key))
            self._down.symmetric_difference_update({key})
        return done("sent")

    def move_mouse(self, delta_x: int, delta_y: int, steps: int = 1) -> Answer:
        """Move the mouse by pixels."""
        self._keys.move_mouse(delta_x, delta_y, steps)
        return done("moved")

    def wait(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def set_game_speed(self, speed: float) -> None:
        """Set the game's speed; raises `UnknownNameError` if its attribute file has none and another is wanted."""
        if speed != self._speed:
            self._write("set_speed", {"gameSpeedFlag": 1.0, "gameSpeedVal": speed})
            self._speed = speed

    def read(self, names: Sequence[str]) -> dict[str, float]:
        """Read attributes, all calls under way at once."""
        values = self._game.read(names)
        # A dead player wakes up somewhere else, even if nothing was read before.
        self._died |= values.get("HeroHp", 1.0) <= 0
        return values

    def write(self, values: Mapping[str, float]) -> None:
        """Write attributes that the operation `set_attribute` lists, one call each."""
        self._write("set_attribute", values)

    def get_frame(self) -> Picture:
        """Return the newest picture of the server's stream, scaled to the frame's size."""
        return self._stream.latest()

    def close(self) -> None:
        """Release every key, let the game run at its own speed, end the stream and leave the server."""
        atexit.unregister(self.close)
        self._stream.close()
        with suppress(LinkError):
            self._release()
            self.set_game_speed(1.0)
        self._calls.close()

    def _return(self) -> None:
        """Wait for the player to be alive and in the game again."""
        give_up = time.monotonic() + _RETURN_TIMEOUT_S
        while self._hp("HeroHp") <= 0:
            if time.monotonic() > give_up:
                raise GameError(
                    f"Elden Ring: expected the player alive within {_RETURN_TIMEOUT_S:g} s, found nobody: "
                    "load a save by hand and reset again."
                )
            time.sleep(_POLL_S)

    def _enter(self) -> None:
        """Go through the fog wall and lock on to the boss."""
        start = self._start
        for _ in range(_ENTER_TRIES):
            self.start_scenario(self._scenario)
            self.wait(_POLL_S)
            gone_m = dist(start.fog_wall_m[:2], self.global_player_coords[:2])
            # Who turned the wrong way walks as far from the wall, but away from the boss.
            if gone_m >= start.passed_m and self._near_a_boss():
                return
        raise GameError(
            f"Elden Ring: expected to pass the fog wall and find a boss, did not in {_ENTER_TRIES} tries: "
            "one that is beaten comes back only with a save from before."
        )

    def _near_a_boss(self) -> bool:
        """Return whether a fight is under way."""
        return self._hp("NpcHp") > 0 and self.target_player_distance < self._start.fight_m

    def _hp(self, name: str) -> float:
        """Read a fighter's HP; 0 while there is none, as on a loading screen."""
        try:
            return self.get(name)
        except LinkError:
            # A server that is gone, though, does not come back by waiting.
            self._calls.call("GetServerStatus")
            return 0.0

    def _release(self) -> None:
        self._keys.close()
        self._down.clear()

    def _write(self, operation: str, values: Mapping[str, float]) -> None:
        for name in values:
            if name not in self.attributes:
                raise UnknownNameError("attribute of the Siphon file", name, self.attributes)
        self._operations.run(operation, **values)
