"""A person's fights: injected keys and gamepad events, a clock of the test's own, no display."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from soulsgraph.recordings.check import check
from soulsgraph.recordings.files import read_recording
from soulsgraph.watch.playing import FIGHT_SIZE, SIZE, Play, PlayWindow, Recorder, scenario_against
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import Control, Raw
from soulsgraph_envs.games.cycle_timer import Clock
from soulsgraph_envs.games.keys import load_bindings
from soulsgraph_envs.render.pictures import import_pygame
from soulsgraph_envs.simulator.driver import Simulator

SCENARIO = load_scenario("iudex-phase1")


class Person:
    """Post events at moments of a clock that only waits: `at(seconds, event)`."""

    def __init__(self, pygame: Any) -> None:
        self.pygame, self.now_s = pygame, 0.0
        self._waiting: list[tuple[float, Any]] = []
        #: What every reading of the clock takes, and what is done in every sleep.
        self.read_s = 0.0
        self.always: Callable[[], object] = lambda: None

    @property
    def clock(self) -> Clock:
        return Clock(self._read, self.sleep)

    def _read(self) -> float:
        self.now_s += self.read_s
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        due = [event for at_s, event in self._waiting if at_s <= self.now_s]
        self._waiting = [one for one in self._waiting if one[0] > self.now_s]
        for event in due:
            self.pygame.event.post(event)
        self.always()
        assert self.now_s < 600.0, "the fight did not end"

    def at(self, seconds: float, kind: int, **values: Any) -> None:
        self._waiting.append((seconds, self.pygame.event.Event(kind, **values)))

    def press(self, seconds: float, key: int, for_s: float = 0.02) -> None:
        self.at(seconds, self.pygame.KEYDOWN, key=key)
        self.at(seconds + for_s, self.pygame.KEYUP, key=key)


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Person:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    return Person(import_pygame())


@pytest.fixture
def window(person: Person) -> Iterator[PlayWindow]:
    opened = PlayWindow(SCENARIO, load_bindings("play"))
    person.pygame.event.get()
    yield opened
    opened.close()


def _controls(fight: Any) -> list[Control]:
    return [Control(bits) for bits in fight.controls.tolist()]


def test_what_is_pressed_counts_from_the_next_tick_on(person: Person, window: PlayWindow) -> None:
    pygame = person.pygame
    person.press(0.25, pygame.K_w, for_s=0.5)
    person.press(0.45, pygame.K_SPACE, for_s=0.3)
    person.press(1.05, pygame.K_q)
    person.press(1.15, pygame.K_RIGHT)
    person.press(1.55, pygame.K_j)
    person.press(1.85, pygame.K_r)
    person.press(2.35, pygame.K_ESCAPE)
    fight = Play(SCENARIO, window, person.clock).fight(7)
    found = _controls(fight)
    walked = [number for number, controls in enumerate(found) if Control.FORWARD in controls]
    assert 5 <= len(walked) <= 7
    assert walked == list(range(walked[0], walked[-1] + 1))
    # Each is one press, however long the key stays down.
    for control in (Control.ROLL, Control.LOCK_ON, Control.CAMERA_RIGHT, Control.LIGHT_ATTACK, Control.USE_ITEM):
        assert sum(control in controls for controls in found) == 1, control
    assert fight.outcome == "cut"
    assert len(fight.raws) == len(found) + 1
    assert fight.seconds == pytest.approx(2.4, abs=0.2)


def test_a_gamepad_fights_too(person: Person, window: PlayWindow) -> None:
    pygame = person.pygame
    axis = {"axis": pygame.CONTROLLER_AXIS_LEFTY, "instance_id": 0}
    person.at(0.25, pygame.CONTROLLERAXISMOTION, value=-32768, **axis)
    person.at(0.75, pygame.CONTROLLERAXISMOTION, value=0, **axis)
    for down in (pygame.CONTROLLERBUTTONDOWN, pygame.CONTROLLERBUTTONUP):
        person.at(1.05, down, button=pygame.CONTROLLER_BUTTON_B, instance_id=0)
        person.at(1.55, down, button=pygame.CONTROLLER_BUTTON_RIGHTSHOULDER, instance_id=0)
    person.press(2.0, pygame.K_ESCAPE)
    found = _controls(Play(SCENARIO, window, person.clock).fight(7))
    assert 4 <= sum(Control.FORWARD in controls for controls in found) <= 6
    assert sum(Control.ROLL in controls for controls in found) == 1
    assert sum(Control.LIGHT_ATTACK in controls for controls in found) == 1


@pytest.mark.slow
def test_death_is_said_and_a_key_fights_again(person: Person, window: PlayWindow) -> None:
    pygame = person.pygame
    person.read_s = 0.05  # A machine that draws slowly: pictures within a tick are left out.
    enter = pygame.event.Event(pygame.KEYDOWN, key=pygame.K_RETURN)
    person.always = lambda: pygame.event.post(enter)
    fights = Play(SCENARIO, window, person.clock).fights(3)
    first, second = next(fights), next(fights)
    assert [(fight.number, fight.outcome) for fight in (first, second)] == [(1, "died"), (2, "died")]
    assert first.raws[-1][Raw.PLAYER_HP] < 0.05 * first.raws[-1][Raw.PLAYER_HP_MAX]
    assert second.seed != first.seed
    person.always = lambda: pygame.event.post(pygame.event.Event(pygame.QUIT))
    assert list(fights) == []
    assert window.closing


def test_the_first_fight_begins_with_a_key(person: Person, window: PlayWindow) -> None:
    pygame = person.pygame
    person.press(0.5, pygame.K_w, for_s=1.0)
    person.press(2.0, pygame.K_RETURN)
    person.press(4.0, pygame.K_ESCAPE)
    (fight,) = Play(SCENARIO, window, person.clock).fights(7)
    assert fight.seconds == pytest.approx(2.0, abs=0.2)
    assert not any(_controls(fight))


def test_a_victory_is_said(person: Person, window: PlayWindow) -> None:
    pygame = person.pygame
    # The first blow that lands wins.
    scenario = replace(SCENARIO, boss_hp=(1037.0, 1036.0))
    person.press(0.15, pygame.K_q)
    person.press(0.25, pygame.K_w, for_s=60.0)
    for number in range(60):
        person.press(1.0 + 0.5 * number, pygame.K_j)
    fight = Play(scenario, window, person.clock).fight(7)
    assert fight.outcome == "won"
    assert fight.raws[-1][Raw.BOSS_HP] < 1036.0


def test_a_pause_takes_no_time_of_the_fight(person: Person, window: PlayWindow) -> None:
    pygame = person.pygame
    person.press(0.45, pygame.K_TAB)
    # What is pressed in a pause is not part of the fight.
    person.press(1.0, pygame.K_SPACE)
    person.press(2.45, pygame.K_TAB)
    person.press(3.0, pygame.K_ESCAPE)
    fight = Play(SCENARIO, window, person.clock).fight(7)
    assert fight.seconds == pytest.approx(1.1, abs=0.3)
    assert not any(controls & Control.ROLL for controls in _controls(fight))


def test_a_pause_at_a_fights_end_does_not_hold_up_the_next_one(person: Person, window: PlayWindow) -> None:
    window.paused = True
    person.press(0.5, person.pygame.K_ESCAPE)
    assert Play(SCENARIO, window, person.clock).fight(7).seconds > 0.2


def test_keys_of_the_window_itself_are_refused_as_controls(person: Person) -> None:
    bindings = load_bindings("play")
    with pytest.raises(SoulsGraphError, match="tab"):
        PlayWindow(SCENARIO, replace(bindings, tap={**bindings.tap, "roll": ("tab",)}))


def test_the_keys_of_what_the_player_can_do_are_shown_and_light_up(window: PlayWindow, person: Person) -> None:
    game = Simulator(1)
    game.reset(np.array([0]), SCENARIO, np.array([7], np.uint64))
    pictures = []
    for controls in (Control.NONE, Control.ROLL):
        window.show(game.scene(0), controls)
        pictures.append(person.pygame.surfarray.array3d(person.pygame.display.get_surface()).swapaxes(0, 1))
    assert pictures[0].shape == (*SIZE, 3)
    assert (pictures[0][: FIGHT_SIZE[0]] == pictures[1][: FIGHT_SIZE[0]]).all()
    assert (pictures[0][FIGHT_SIZE[0] :] != pictures[1][FIGHT_SIZE[0] :]).any()


def test_a_boss_is_fought_in_a_shipped_scenario(tmp_path: Path) -> None:
    assert scenario_against("vordt") == "vordt"
    assert scenario_against("iudex-phase1") == "iudex-phase1"


def test_a_recorded_fight_is_whole_and_can_be_played_again(person: Person, window: PlayWindow, tmp_path: Path) -> None:
    pygame = person.pygame
    for number in range(8):
        person.press(0.13 + 0.31 * number, [pygame.K_SPACE, pygame.K_j, pygame.K_w, pygame.K_q][number % 4], 0.2)
    person.press(3.0, pygame.K_ESCAPE)
    recorder = Recorder(tmp_path, "iudex-phase1", "someone")
    fight = Play(SCENARIO, window, person.clock, recorder).fight(7)
    assert fight.recorded
    recording = read_recording(fight.recorded)
    assert check(recording).verdict == "same"
    header = recording.header
    assert (header.source, header.player, header.seed, header.result.outcome) == ("person", "someone", "7", "cut")
    np.testing.assert_array_equal(recording.raw, fight.raws)
    np.testing.assert_array_equal(recording.controls[:-1], fight.controls)
    assert header.skills == ()


def test_a_fight_that_never_began_is_no_recording(person: Person, window: PlayWindow, tmp_path: Path) -> None:
    window.closing = True
    assert Play(SCENARIO, window, person.clock, Recorder(tmp_path, "iudex-phase1", "x")).fight(7).recorded is None
    assert list(tmp_path.iterdir()) == []
