"""For tests: a Siphon server whose game is Elden Ring, played by the stand-in's world."""

from __future__ import annotations

import time
from pathlib import Path

from fakes.siphon import FakeSiphon
from soulsgraph_envs.compat.eldengym.world import axes, load_keys
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.games.address_map import Entry
from soulsgraph_envs.games.keys import Keyboard, load_bindings
from soulsgraph_envs.games.siphon_attributes import Attribute, load_attributes
from soulsgraph_envs.games.siphon_link import to_siphon
from soulsgraph_envs.games.standin.launch import load_surroundings
from soulsgraph_envs.games.standin.memory import Cell
from soulsgraph_envs.games.standin.world import CourseStage, StandInWorld
from soulsgraph_envs.simulator.layout import FRAMES_PER_S
from soulsgraph_envs.simulator.render import render

#: Attributes beside those that the driver reads, by the world's field: it has one system of coordinates.
_COPIES = {
    name: f"{who}_{axis}"
    for where, who in (("HeroGlobal", "player"), ("NpcLocal", "boss"))
    for name, axis in zip(axes(where), "xyz", strict=True)
}


class FakeEldenRing(FakeSiphon):
    """The server, with a player at the bonfire before Margit; at the title screen nothing can be read."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded = True
        surroundings = load_surroundings(Path(__file__).with_name("margit.toml"))
        self.world = StandInWorld(surroundings, load_scenario(surroundings.scenario), 0, at_bonfire=True)
        self._keyboard = Keyboard(load_bindings("elden-ring"))
        self._cells: list[tuple[str, Cell]] = []
        self._tapped: list[str] = []
        self._played_s = time.monotonic()

    def hear(self, key: str, down: bool) -> None:
        """Send a key down or up; those of the menu lead out of the game and back."""
        super().hear(key, down)
        self.advance()
        (self._keyboard.press if down else self._keyboard.release)(key)
        self._tapped += [to_siphon(key)] * down
        way = load_keys().menu["quit" if self.loaded else "begin"].keys
        if tuple(self._tapped[-len(way) :]) == tuple(way):
            self.loaded, self._tapped = not self.loaded, []
            if self.loaded:
                self.world._begin(CourseStage.LOADING)

    def attribute(self, name: str) -> Attribute:
        """Return an attribute, of the player and the boss in the game alone."""
        self.demand(self.loaded or name.startswith("gameSpeed"), name)
        return super().attribute(name)

    def span(self, attribute: Attribute, at: int = 0, size: int = 0) -> memoryview:
        """View bytes of the game as it is now."""
        self.advance()
        return super().span(attribute, at, size)

    def picture(self) -> Picture:
        """Return what the window shows, (450, 800, 3)."""
        self.advance()
        return render(self.world.scene(), (450, 800))

    def advance(self) -> None:
        """Play up to this moment, between reading what others wrote and showing what became of it."""
        cells = self._all_cells()
        written = {name: value for name, cell in cells if (value := cell.foreign()) is not None}
        if written:
            self.world.write(written)
        speed = self.world.speed
        frames = int((time.monotonic() - self._played_s) * FRAMES_PER_S * speed) if speed else 0
        self._played_s = self._played_s + frames / FRAMES_PER_S / speed if speed else time.monotonic()
        for _ in range(frames):
            self.world.frame(self._keyboard.controls())
        values = self.world.readings()
        for name, cell in cells:
            cell.write(values[name])

    def _all_cells(self) -> list[tuple[str, Cell]]:
        if not self._cells:
            file = load_attributes("elden-ring-1.16.1")
            for name, layout in file.reads.items():
                for field, place in layout.items():
                    span = super().span(file.attributes[name], place.at, place.size)
                    self._cells.append((field, Cell(place, span)))  # type: ignore[arg-type]
            for name, field in _COPIES.items():
                self._cells.append((field, Cell(Entry("", (), type="f32"), super().span(file.attributes[name]))))
        return self._cells
