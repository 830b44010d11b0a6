"""Elden Ring itself, or whatever shows its attributes, through a Siphon server: attributes, keys, frames."""

from __future__ import annotations

import atexit
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import dist
from threading import Condition, Thread

from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.pictures import Picture, scaled
from soulsgraph_envs.drivers.realtime.link import GameSettings, LinkError
from soulsgraph_envs.drivers.realtime.operations import ELDENGYM_OPERATIONS, Operations
from soulsgraph_envs.drivers.siphon.attributes import load_attributes
from soulsgraph_envs.drivers.siphon.calls import SiphonCalls, streamed_picture
from soulsgraph_envs.drivers.siphon.link import SiphonKeys, from_siphon
from soulsgraph_envs.eldengym.client.elden_client import SiphonAttributes, attribute_file
from soulsgraph_envs.eldengym.keys import load_fight
from soulsgraph_envs.eldengym.world import Answer, World, WorldOptions, done

_QUALITY = 85
_FIRST_PICTURE_S = 10.0
#: No control loop waits for the answers: a game PC that is busy, as with loading, may take its time.
_PATIENCE_S = 10.0


class FrameStream:
    """Receive pictures until closed; only the newest is kept, scaled to (height, width)."""

    def __init__(self, calls: SiphonCalls, size: tuple[int, int]) -> None:
        self._calls, self._size = calls, size
        self._news = Condition()
        self._packed: object | None = None
        self._error: LinkError | None = None
        self._answers = calls.stream("StreamFrames", format="jpeg", quality=_QUALITY)
        self._closed = False
        self._thread = Thread(target=self._receive, name="siphon-frames", daemon=True)
        self._thread.start()

    def latest(self) -> Picture:
        """Return the newest picture, (height, width, 3) RGB.

        Raises:
            LinkError: if the stream broke off, or no picture ever came.
        """
        with self._news:
            self._news.wait_for(lambda: self._packed is not None or self._error is not None, _FIRST_PICTURE_S)
            packed, error = self._packed, self._error
        if error is not None:
            raise error
        if packed is None:
            raise LinkError(f"Siphon server: expected a picture within {_FIRST_PICTURE_S:g} s, found none.")
        return scaled(streamed_picture(packed), self._size)

    def close(self) -> None:
        """End the stream; a second call does nothing."""
        self._closed = True

    def _receive(self) -> None:
        try:
            for packed in self._answers:
                with self._news:
                    self._packed = packed
                    self._news.notify_all()
                if self._closed:
                    return
            raise LinkError("Siphon server: expected a stream of pictures, found its end.")
        except LinkError as error:
            with self._news:
                self._error = error
                self._news.notify_all()


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
        path = attribute_file(options.config)
        file = load_attributes(path)
        self.attributes: Mapping[str, str] = {name: attribute.type for name, attribute in file.attributes.items()}
        self._calls = SiphonCalls(GameSettings(driver="siphon", map=str(path), host=options.host), _PATIENCE_S)
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
            if start.passed_m <= gone_m < start.fight_m and self._hp("NpcHp") > 0:
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
        self._game.check(values)
        self._operations.run(operation, **values)
