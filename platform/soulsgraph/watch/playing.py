"""A person against the boss: controls by keyboard or gamepad, the fight at the game's speed in a window, keys below."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from soulsgraph.runs.evaluate import evaluation_seeds
from soulsgraph_envs.combat.rollout import Outcome
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.core.scenario import Scenario, load_player, load_scenario, scenario_names, supported_controls
from soulsgraph_envs.core.state import Control, Controls, Raw, RawValues
from soulsgraph_envs.games.cycle_timer import Clock, CycleTimer
from soulsgraph_envs.games.keys import Bindings, Inputs, Keyboard
from soulsgraph_envs.render import palette
from soulsgraph_envs.render.canvas import Canvas, fitted
from soulsgraph_envs.render.palette import Colour
from soulsgraph_envs.render.pictures import PictureWindow, import_pygame
from soulsgraph_envs.simulator.driver import Simulator
from soulsgraph_envs.simulator.render import render
from soulsgraph_envs.simulator.scene import Scene

if TYPE_CHECKING:
    from soulsgraph.recordings.recording import FightWriter, Seen

BAND_HEIGHT = 100
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
    """Pictures of the keys of some bindings, of the controls that are `supported`, and of the window's own."""

    def __init__(self, bindings: Bindings, supported: Control, width: int) -> None:
        self._width, self._cells, bound = width, list[_Cell](), bindings.hold | bindings.tap
        for name, controls in (*_TOGETHER.items(), *((name, (name,)) for name in bindings.tap)):
            keys, pad = (
                _together(tuple(key for control in controls for key in table.get(control, ())))
                for table in (bound, bindings.also)
            )
            meant = Control(sum(Control[control.upper()] for control in controls if control in bound))
            if meant & supported & ~_UNANSWERED and keys:
                self._cells.append(_Cell(_NAMES.get(name, name.replace("_", " ")), keys, pad, meant))
        for name, (key, *others) in {"again": AGAIN, "pause": PAUSE, "end": END}.items():
            self._cells.append(_Cell(name, key_name(key), " ".join(map(key_name, others)), Control.NONE))
        self.picture = lru_cache(256)(self._drawn)

    def _drawn(self, controls: Control) -> Picture:
        """Draw the keys, those that mean `controls` marked: (BAND_HEIGHT, width, 3)."""
        canvas = Canvas.blank((BAND_HEIGHT, self._width), palette.PANEL)
        across = -(-len(self._cells) // _ROWS)
        wide, high = self._width / across, BAND_HEIGHT / _ROWS
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


#: Height and width of the fight, and of the window.
FIGHT_SIZE = (540, 960)
SIZE = (FIGHT_SIZE[0] + BAND_HEIGHT, FIGHT_SIZE[1])
#: Pictures of a control tick: what is pressed counts from the next tick on, what is seen moves more evenly.
_PICTURES = 3
_TITLE = "soulsgraph: your fight"
_BY_AN_AGENT = "watch an agent, whose fights are also written as files with `gif` or `mp4`"
#: What a tick holds; any other control of it is one press at its begin.
_HELD = Control.FORWARD | Control.BACK | Control.LEFT | Control.RIGHT
_HELD |= Control.CAMERA_UP | Control.CAMERA_DOWN | Control.CAMERA_LEFT | Control.CAMERA_RIGHT

#: Keys of the window itself.
AGAIN, PAUSE, END = ("enter", "pad_start"), ("tab", "pad_back"), ("escape",)
#: By the word across the picture.
_OUTCOMES: Mapping[str, Outcome] = {"VICTORY": "won", "YOU DIED": "died", "": "cut"}


@dataclass(frozen=True)
class PlayedFight:
    """A fight that a person played: raw values at its begin and after every tick, (ticks + 1, 25), and the controls.

    `outcome` is "cut" where the person ended it; `recorded` is its file, if it was recorded.
    """

    number: int
    seed: int
    scenario: Scenario
    tick_s: float
    raws: RawValues
    controls: Controls
    outcome: Outcome
    recorded: Path | None = None

    @property
    def seconds(self) -> float:
        """How long it took, in seconds of the game."""
        return len(self.controls) * self.tick_s

    def summary(self) -> dict[str, Any]:
        """Return the fight's number, scenario, seed, end, length and the HP that were left as plain values."""
        last = self.raws[-1]
        left = {"player_hp": float(last[Raw.PLAYER_HP]), "boss_hp": float(last[Raw.BOSS_HP])}
        about = {"fight": self.number, "scenario": self.scenario.name, "seed": self.seed}
        file = None if self.recorded is None else str(self.recorded)
        return {**about, "outcome": self.outcome, "seconds": self.seconds, **left, "recorded": file}

    def __str__(self) -> str:
        words = {"died": "you died", "cut": "ended by you"}.get(self.outcome, self.outcome)
        left = f"boss at {self.raws[-1][Raw.BOSS_HP]:.0f} HP"
        file = "" if self.recorded is None else f"; recorded: {self.recorded}"
        about = f"fight {self.number}: {self.scenario.name}, seed {self.seed}"
        return f"{about}: {words} after {self.seconds:.1f} s, {left}{file}"


def scenario_against(boss: str) -> str:
    """Return the shipped scenario in which a boss is fought: of several the one of its own name, or else the first.

    Raises:
        UnknownNameError: if no shipped scenario has that boss.
    """
    found: dict[str, list[str]] = {}
    for name in scenario_names():
        found.setdefault(load_scenario(name).boss, []).append(name)
    if boss not in found:
        raise UnknownNameError("boss", boss, sorted(found))
    return boss if boss in found[boss] else found[boss][0]


class PlayWindow(PictureWindow):
    """A window that shows a fight of a scenario above the keys, and hears the person.

    `closing` is whether the person ends it, `paused` whether they paused; `again` is whether another fight was asked
    for since it was last set to False.

    Raises:
        SoulsGraphError: if the bindings use a key of the window's own.
        GameError: if pygame is not installed, or there is no display.
    """

    def __init__(self, scenario: Scenario, bindings: Bindings) -> None:
        bound = (bindings.hold, bindings.tap, bindings.also)
        known = {key for table in bound for keys in table.values() for key in keys}
        if taken := sorted(known & {*AGAIN, *PAUSE, *END}):
            raise SoulsGraphError(
                f"bindings {bindings.name}: expected keys that the window has not, found {', '.join(taken)}; choose "
                "others."
            )
        super().__init__(_TITLE, SIZE, 0.0, _BY_AN_AGENT)
        self._inputs = Inputs(import_pygame())
        self._inputs.open_pads()
        self.keyboard = Keyboard(bindings)
        # The player need not have every action.
        supported = supported_controls(load_player(scenario.player))
        self._band = KeyBand(bindings, supported, SIZE[1])
        self.paused = self.again = False

    def show(self, scene: Scene, controls: Control = Control.NONE) -> None:
        """Show a moment of a fight and the controls that count in it, and hear what was pressed."""
        self.draw(np.vstack([render(scene, FIGHT_SIZE), self._band.picture(controls)]))
        for kind, key in self._inputs.read(self.events):
            if kind == "close" or (kind == "press" and key in END):
                self.closing = True
            elif kind == "blur":
                self.keyboard.release_all()
            elif kind == "release":
                self.keyboard.release(key)
            elif key in PAUSE:
                self.paused = not self.paused
            elif key in AGAIN:
                self.again = True
            else:
                self.keyboard.press(key)


@dataclass(frozen=True)
class Recorder:
    """Write fights of a person into a folder: the name or path of their scenario, and who plays, as they say."""

    folder: Path
    scenario: str
    player: str

    def begin(self, scenario: Scenario, seed: int, number: int) -> FightWriter:
        """Begin to record a fight; nothing is written before it ends.

        Raises:
            RecordingError: if a file of its name is there.
        """
        # Imported here, as below: to play without a recording needs nothing of it.
        from soulsgraph.recordings.format import SIMULATOR, make_header
        from soulsgraph.recordings.recording import FightWriter

        # Two windows may record into one folder at the same moment.
        fight = f"play-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}-{number}"
        who = {"source": "person", "driver": SIMULATOR, "player": self.player}
        return FightWriter(self.folder, make_header(scenario, fight=fight, scenario=self.scenario, seed=seed, **who))


def _seen_simulated(game: Simulator) -> Seen:
    """Return what a recording has of the simulator beside its raw values."""
    from soulsgraph.recordings.recording import seen_simulated

    return seen_simulated(game)


class Play:
    """Fights of a person in a scenario, in a window, at the game's speed; with a `recorder` each becomes a file.

    The controls of a tick are those pressed until it begins: a fight has the same clock as an agent's.
    """

    def __init__(
        self, scenario: Scenario, window: PlayWindow, clock: Clock | None = None, recorder: Recorder | None = None
    ) -> None:
        self._scenario, self._window, self._clock = scenario, window, clock or Clock()
        self._recorder = recorder
        self._game = Simulator(1)
        # It shows what happens within a tick, and goes back to the game's own state at the end of each.
        self._between = Simulator(1, self._game.tick_s / _PICTURES)

    def fights(self, seed: int, episodes: int | None = None) -> Iterator[PlayedFight]:
        """Yield fights, from the seeds of an evaluation's episodes, each once the person asks for it.

        Raises:
            SoulsGraphError: if a seed or a number is out of range.
        """
        for number in count(1) if episodes is None else range(1, episodes + 1):
            yield self.fight(int(evaluation_seeds(seed, number)[-1]), number, asked=number > 1)
            if not self._asked("" if number == episodes else "again"):
                return

    def fight(self, seed: int, number: int = 1, asked: bool = True) -> PlayedFight:
        """Let the person fight from a seed until they win, die or end it; it waits for a key if they have not `asked`.

        Raises:
            WriteError: if the fight cannot be recorded.
        """
        game, window = self._game, self._window
        writer = None if self._recorder is None else self._recorder.begin(self._scenario, seed, number)
        first = np.zeros(1, np.int64)
        raws = [game.reset(first, self._scenario, np.array([seed], np.uint64))[0].copy()]
        taken: list[int] = []
        window.show(game.scene(0))
        if not asked:
            self._asked("begin")
        self._forget_keys()  # What was pressed before the fight is not part of it.
        window.paused = False
        timer = CycleTimer(game.tick_s, self._clock)
        while not window.closing and not game.scene(0).banner:
            timer.wait()
            controls = Control(window.keyboard.controls())
            if writer is not None:
                writer.add(raws[-1], int(controls), _seen_simulated(game))
            raws.append(self._tick(controls))
            taken.append(int(controls))
            if window.paused:
                while window.paused and not window.closing:
                    self._wait(f"paused: {key_name(PAUSE[0])} goes on")
                # What was pressed meanwhile is not part of the fight.
                self._forget_keys()
        outcome = _OUTCOMES[game.scene(0).banner]
        file = writer.finish(raws[-1], outcome, _seen_simulated(game)) if writer is not None and taken else None
        controls_taken = np.array(taken, np.uint32)
        return PlayedFight(number, seed, self._scenario, game.tick_s, np.array(raws), controls_taken, outcome, file)

    def _tick(self, controls: Control) -> Any:
        """Advance the game by a tick, showing what there is time for, and return its raw values (25,)."""
        begun_s, part_s = self._clock.now(), self._game.tick_s / _PICTURES
        self._between.follow(self._game)
        raw = self._game.step(np.array([controls], np.uint32))[0].copy()
        for part in range(1, _PICTURES):
            bits = controls if part == 1 else controls & _HELD
            self._between.step(np.array([bits], np.uint32))
            # A machine that draws slowly shows less, and the fight keeps its speed.
            if self._clock.now() - begun_s < part * part_s:
                self._window.show(self._between.scene(0), controls)
                self._clock.sleep(max(begun_s + part * part_s - self._clock.now(), 0.0))
        self._window.show(self._game.scene(0), controls)
        return raw

    def _forget_keys(self) -> None:
        self._window.keyboard.release_all()
        self._window.keyboard.controls()

    def _asked(self, what: str) -> bool:
        """Wait until the person asks for a fight or ends it; `what` says which fight, empty if there is none."""
        self._window.again = False
        fight = f"{key_name(AGAIN[0])}: {what}, " if what else ""
        while not self._window.closing and not self._window.again:
            self._wait(f"{fight}{key_name(END[0])}: end")
        return self._window.again and not self._window.closing

    def _wait(self, hint: str) -> None:
        self._window.show(replace(self._game.scene(0), hint=hint))
        self._clock.sleep(self._game.tick_s / _PICTURES)
