"""EldenGym's client of a Siphon server: pysiphon's, with the names and attributes of Elden Ring."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from soulsgraph_envs.core.data_files import find
from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.core.pictures import Picture
from soulsgraph_envs.drivers.realtime.link import LinkError
from soulsgraph_envs.drivers.siphon.attributes import AttributeFile
from soulsgraph_envs.drivers.siphon.calls import SiphonCalls, SiphonClient, attribute_message
from soulsgraph_envs.eldengym.keys import MenuWay, load_fight, load_keys
from soulsgraph_envs.eldengym.world import Answer, GameNames

#: A server may search all of a large module when it is first asked for an attribute.
_SEARCH_TIMEOUT_S = 30.0
_VALUES = {"int": ("int_value", int), "float": ("float_value", float), "bool": ("bool_value", bool)}

#: EldenGym's own name of its attribute file, and ours of the same attributes.
_THEIR_FILE, _OUR_FILE = "ER_1_16_1.toml", "elden-ring-1.16.1"


def attribute_file(config: str | Path | None) -> Path:
    """Find a file of attributes: the shipped one for None or EldenGym's name of it, whatever its folder there.

    Raises:
        UnknownNameError: for a name that nothing shipped has.
    """
    shipped = config is None or (Path(config).name == _THEIR_FILE and not Path(config).exists())
    return find("attribute file", _OUR_FILE if shipped else str(config))


class SiphonAttributes:
    """Read and write the attributes of a file; `writes` names them all, the caller decides which of them to write.

    Raises:
        LinkError: if the server does not answer or does not find the game.
    """

    def __init__(self, calls: SiphonCalls, file: AttributeFile) -> None:
        self._calls, self._file = calls, file
        self.writes = frozenset(file.attributes)
        attributes = [attribute_message(name, attribute) for name, attribute in file.attributes.items()]
        calls.call(
            "SetProcessConfig",
            process_name=file.process_info.name,
            process_window_name=file.process_info.window_name,
            attributes=attributes,
        )
        for part in ("InitializeMemory", "InitializeInput", "InitializeCapture"):
            calls.call(part, _SEARCH_TIMEOUT_S)

    def check(self, names: Iterable[str]) -> None:
        """Raise `UnknownNameError` for a name that is not in the file."""
        for name in names:
            if name not in self.writes:
                raise UnknownNameError("attribute of the Siphon file", name, sorted(self.writes))

    def read(self, names: Sequence[str]) -> dict[str, float]:
        """Read attributes, all calls under way at once."""
        self.check(names)
        calls = [self._calls.start("GetAttribute", attributeName=name) for name in names]
        return {name: _number(self._calls.finish(call)) for name, call in zip(names, calls, strict=True)}

    def write(self, values: Mapping[str, float]) -> None:
        """Write attributes, one call each."""
        self.check(values)
        for name, value in values.items():
            field, kind = _VALUES[self._file.attributes[name].type]
            self._calls.call("SetAttribute", attributeName=name, **{field: kind(value)})


def _number(answer: Any) -> float:
    kind = answer.WhichOneof("value")
    if kind not in ("int_value", "float_value", "bool_value"):
        raise LinkError(f"Siphon: expected a number, found {kind or 'no value'}: choose another attribute.")
    return float(getattr(answer, kind))


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
