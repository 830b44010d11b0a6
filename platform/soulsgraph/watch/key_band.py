"""The keys below a fight that a person plays: what each does, and which count now."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from soulsgraph_envs.core.canvas import Canvas, Colour, fitted
from soulsgraph_envs.core.controls import Control
from soulsgraph_envs.core.pictures import Picture
from soulsgraph_envs.drivers.keyboard.device import Bindings
from soulsgraph_envs.simulator import palette

HEIGHT = 100
_ROWS, _NAME_SIZE, _KEY_SIZE = 2, 11, 13
_DOWN: Colour = (60, 84, 130)
_WAYS = ("up", "down", "left", "right")
#: Directions that are shown together.
_TOGETHER = {
    "move": ("forward", "left", "back", "right"),
    "camera": ("camera_left", "camera_right", "camera_up", "camera_down"),
}


#: What a control is called here where its own name says less; nothing in an arena answers to the last one.
_NAMES = {"use_item": "drink a flask"}
_UNANSWERED = Control.INTERACT


class _Cell(NamedTuple):
    """What keys do, the keys, the gamepad's buttons, and the controls that light it up."""

    name: str
    keys: str
    pad: str
    controls: Control


def key_name(key: str) -> str:
    """Return a key as people read it."""
    return key.removeprefix("pad_").replace("_", " ").upper()


def _together(keys: tuple[str, ...]) -> str:
    """Return several keys in words: those of a stick, of the arrows, or each."""
    sticks = {key.rpartition("_")[0] for key in keys if key.rpartition("_")[2] in _WAYS}
    if len(keys) == len(_WAYS) and len(sticks) == 1:
        (stick,) = sticks
        return key_name(stick) if stick else "ARROWS"
    return " ".join(map(key_name, keys))


class KeyBand:
    """Pictures of the keys of some bindings, of the controls that are `supported`, and of the `window`'s own."""

    def __init__(
        self, bindings: Bindings, supported: Control, window: Mapping[str, tuple[str, ...]], width: int
    ) -> None:
        self._width = width
        shown = [*_TOGETHER.items(), *((name, (name,)) for name in bindings.tap)]
        cells = [_cell(bindings, name, controls) for name, controls in shown]
        self._cells = [cell for cell in cells if cell.controls & supported & ~_UNANSWERED and cell.keys]
        for name, (key, *pad) in window.items():
            self._cells.append(_Cell(name, key_name(key), " ".join(map(key_name, pad)), Control.NONE))
        self.picture = lru_cache(256)(self._drawn)

    def _drawn(self, controls: Control) -> Picture:
        """Draw the keys, those that mean `controls` marked: (HEIGHT, width, 3)."""
        canvas = Canvas.blank((HEIGHT, self._width), palette.PANEL)
        across = -(-len(self._cells) // _ROWS)
        wide, high = self._width / across, HEIGHT / _ROWS
        for number, cell in enumerate(self._cells):
            left, top = (number % across) * wide, (number // across) * high
            if cell.controls & controls:
                canvas.rectangle((left + 2, top + 2, left + wide - 2, top + high - 2), _DOWN)
            room = wide - 12
            canvas.text((left + 6, top + 4), fitted(cell.name, _NAME_SIZE, room), _NAME_SIZE, palette.FAINT)
            canvas.text((left + 6, top + 17), fitted(cell.keys, _KEY_SIZE, room), _KEY_SIZE, palette.TEXT)
            pad = fitted(cell.pad, _NAME_SIZE - 1, room)
            canvas.text((left + 6, top + 34), pad, _NAME_SIZE - 1, palette.STATUS)
        canvas.rectangle((0, 0, self._width, 1), palette.EDGE)
        return canvas.picture()


def _cell(bindings: Bindings, name: str, controls: tuple[str, ...]) -> _Cell:
    bound = bindings.hold | bindings.tap
    keys = tuple(key for control in controls for key in bound.get(control, ()))
    pad = tuple(key for control in controls for key in bindings.also.get(control, ()))
    meant = Control(sum(Control[control.upper()] for control in controls if control in bound))
    return _Cell(_NAMES.get(name, name.replace("_", " ")), _together(keys), _together(pad), meant)
