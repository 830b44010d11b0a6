"""EldenGym's client of a Siphon server: pysiphon's, with the names of Elden Ring."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np

from soulsgraph_envs.eldengym.client.names import Answer, GameNames
from soulsgraph_envs.eldengym.keys import MenuWay, load_keys
from soulsgraph_envs.eldengym.siphon_attributes import attribute_file
from soulsgraph_envs.eldengym.world import Frame, load_fight
from soulsgraph_envs.errors import GameError
from soulsgraph_envs.siphon.protocol import SiphonClient

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
        self._wait(wait_time)
        for part in ("memory", "input", "capture"):
            results[part] = getattr(self, f"initialize_{part}")()
            _demand(part, results[part])
        return results

    def launch_game(self) -> None:
        """Refuse: it would run a program on the game PC."""
        raise GameError("launch_game: not offered, it runs programs on the game PC; start the game there by hand.")

    def copy_save_file(self, save_file_name: str, save_file_dir: str | None = None, timeout_seconds: int = 10) -> None:
        """Refuse: it would run a program on the game PC."""
        raise GameError(f"copy_save_file: not offered, it runs programs on the game PC; copy {save_file_name} by hand.")

    def quit_to_title(self) -> None:
        """Press the keys that lead to the title screen; Siphon's own server is not known to have all of them."""
        self._go(load_keys().menu["quit"])

    def enter_menu(self) -> None:
        """Press the keys that lead from the title screen into the game."""
        self._go(load_keys().menu["begin"])

    def bypass_menu(self) -> None:
        """Do as `enter_menu` does."""
        self.enter_menu()

    def get_frame(self) -> Frame:
        """Photograph the window, (height, width, 3) RGB."""
        image = self.capture_frame()
        if image is None:
            raise GameError("capture_frame: expected a picture, found none; initialize the capture.")
        return np.asarray(image.convert("RGB"))

    def _go(self, way: MenuWay) -> None:
        for key in way.keys:
            _demand(key, self.input_key_tap([key], way.hold_ms))
            self._wait(way.pause_s)
        self._wait(way.then_s)

    def _read(self, names: Sequence[str]) -> list[float]:
        answers = [self.get_attribute(name) for name in names]
        return [_demand(name, answer)["value"] for name, answer in zip(names, answers, strict=True)]

    def _write(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, Integral) else "float"
            _demand(name, self.set_attribute(name, value, kind))

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds)


def _demand(what: str, answer: Answer) -> Answer:
    """Return the answer of a call that succeeded; raises `GameError` for one that failed."""
    if not answer["success"]:
        raise GameError(f"Siphon server: {what} failed: {answer['message']}")
    return answer
