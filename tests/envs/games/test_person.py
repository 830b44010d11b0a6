"""What a person presses: keys, mouse and gamepads of a window without a display, and the controls that they mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from soulsgraph_envs.core.state import Control
from soulsgraph_envs.games.keys import Inputs, Keyboard, load_bindings
from soulsgraph_envs.render.pictures import import_pygame


@pytest.fixture
def pygame(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    found = import_pygame()
    found.display.init()
    found.display.set_mode((32, 32))
    yield found
    found.display.quit()


def _read(pygame: Any, inputs: Inputs, *events: Any) -> list[tuple[str, str]]:
    pygame.event.get()
    for event in events:
        pygame.event.post(event)
    return [tuple(one) for one in inputs.read(pygame.event.get())]


def test_keys_and_buttons_have_the_names_of_the_bindings(pygame: Any) -> None:
    inputs, event = Inputs(pygame), pygame.event.Event
    assert _read(
        pygame,
        inputs,
        event(pygame.KEYDOWN, key=pygame.K_RETURN),
        event(pygame.KEYUP, key=pygame.K_LSHIFT),
        event(pygame.MOUSEBUTTONDOWN, button=1),
        event(pygame.MOUSEBUTTONDOWN, button=4),  # The wheel is no key.
        event(pygame.WINDOWFOCUSLOST),
        event(pygame.QUIT),
    ) == [("press", "enter"), ("release", "left_shift"), ("press", "mouse_left"), ("blur", ""), ("close", "")]


def test_letters_and_digits_are_read_by_their_place_as_games_read_them(pygame: Any) -> None:
    inputs, event = Inputs(pygame), pygame.event.Event
    # On a French keyboard the key in the place of an English W prints a z, and the one of a 2 an accented e.
    assert _read(
        pygame,
        inputs,
        event(pygame.KEYDOWN, key=pygame.K_z, scancode=pygame.KSCAN_W),
        event(pygame.KEYDOWN, key=pygame.K_q, scancode=pygame.KSCAN_A),
        event(pygame.KEYUP, key=0xE9, scancode=pygame.KSCAN_2),
        event(pygame.KEYDOWN, key=pygame.K_SPACE, scancode=pygame.KSCAN_SPACE),
    ) == [("press", "w"), ("press", "a"), ("release", "2"), ("press", "space")]


def test_a_gamepads_buttons_sticks_and_triggers_are_keys(pygame: Any) -> None:
    inputs, event = Inputs(pygame), pygame.event.Event
    inputs.open_pads()

    def axis(number: int, value: int) -> list[tuple[str, str]]:
        moved = event(pygame.CONTROLLERAXISMOTION, axis=number, value=value, instance_id=0)
        return _read(pygame, inputs, moved)

    pressed = [
        event(pygame.CONTROLLERBUTTONDOWN, button=pygame.CONTROLLER_BUTTON_B, instance_id=0),
        event(pygame.CONTROLLERBUTTONUP, button=pygame.CONTROLLER_BUTTON_B, instance_id=0),
        event(pygame.CONTROLLERBUTTONDOWN, button=pygame.CONTROLLER_BUTTON_GUIDE, instance_id=0),
    ]
    assert _read(pygame, inputs, *pressed) == [("press", "pad_b"), ("release", "pad_b")]
    assert axis(pygame.CONTROLLER_AXIS_LEFTY, -30000) == [("press", "pad_left_stick_up")]
    assert axis(pygame.CONTROLLER_AXIS_LEFTY, -15000) == []  # Trembles between the two thresholds.
    assert axis(pygame.CONTROLLER_AXIS_LEFTY, 30000) == [
        ("release", "pad_left_stick_up"),
        ("press", "pad_left_stick_down"),
    ]
    assert axis(pygame.CONTROLLER_AXIS_LEFTY, 0) == [("release", "pad_left_stick_down")]
    assert axis(pygame.CONTROLLER_AXIS_TRIGGERRIGHT, 32767) == [("press", "pad_right_trigger")]
    # Its buttons are no longer heard: whatever was down comes up.
    assert _read(pygame, inputs, event(pygame.CONTROLLERDEVICEREMOVED, instance_id=0)) == [("blur", "")]


def test_tap_counts_once_a_press_and_a_hold_as_long_as_it_lasts() -> None:
    keyboard = Keyboard(load_bindings("dark-souls-3"))
    keyboard.press("w")
    keyboard.press("space")
    assert keyboard.controls() == Control.FORWARD | Control.ROLL
    assert keyboard.controls() == Control.FORWARD
    keyboard.release("space")
    keyboard.press("space")
    keyboard.release("w")
    assert keyboard.controls() == Control.ROLL
    assert keyboard.controls() == Control.NONE
    # Shorter than a frame.
    for key in ("w", "l"):
        keyboard.press(key)
        keyboard.release(key)
    assert keyboard.controls() == Control.FORWARD | Control.LIGHT_ATTACK
    assert keyboard.controls() == Control.NONE
    # With the focus lost nobody hears a key released.
    keyboard.press("w")
    keyboard.controls()
    keyboard.release_all()
    assert keyboard.controls() == Control.NONE
    assert keyboard.down == frozenset()
