from __future__ import annotations

import gc
from pathlib import Path

import pytest

from fakes.keys import FakeDevice, FakePyDirectInput, FakePyDirectInputRgx, FakeUser32
from soulsgraph_envs.core.config import shipped_names
from soulsgraph_envs.core.errors import DataError, GameError
from soulsgraph_envs.core.state import ALL_CONTROLS, Control
from soulsgraph_envs.games.guarded_device import HeldKeys
from soulsgraph_envs.games.keys import KEY_NAMES, KeyDevice, load_bindings
from soulsgraph_envs.games.user32 import DirectInputDevice, User32Window

OWN = """
name = "own"
tap_s = 0.05
[hold]
forward = ["w"]
[tap]
roll = ["space"]
heavy_attack = ["left_shift", "mouse_left"]
"""


def make_held() -> tuple[HeldKeys, FakeDevice]:
    device = FakeDevice()
    return HeldKeys(device, sleep=lambda _: None), device


def lines(device: FakeDevice) -> list[str]:
    return [f"{'+' if event.action == 'press' else '-'}{event.key}" for event in device.events]


def write(folder: Path, text: str) -> Path:
    file = folder / "own.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize("name", shipped_names("bindings"))
def test_shipped_bindings_move_and_fight_by_keys_of_their_own(name: str) -> None:
    bindings = load_bindings(name)
    needed = Control.FORWARD | Control.BACK | Control.LEFT | Control.RIGHT
    needed |= Control.ROLL | Control.LIGHT_ATTACK | Control.USE_ITEM | Control.LOCK_ON | Control.INTERACT
    assert needed & bindings.controls == needed
    for control in Control:
        if control & bindings.controls:
            assert bindings.controls_of(sum(bindings.keys_for(control), start=())) == control
    device = FakeDevice()
    for key in bindings.keys:
        device.check(key)


def test_dark_souls_3_has_a_key_for_all_but_the_jump() -> None:
    assert load_bindings("dark-souls-3").controls == ALL_CONTROLS & ~Control.JUMP


def test_a_diagonal_is_two_keys_and_a_roll_is_tapped() -> None:
    keys = load_bindings("dark-souls-3").keys_for(Control.FORWARD | Control.LEFT | Control.ROLL)
    assert keys.held == ("w", "a")
    assert keys.tapped == ("space",)


def test_a_control_without_a_key_is_refused_by_name() -> None:
    with pytest.raises(GameError, match=r"elden-ring: expected a key for camera_left, found none"):
        load_bindings("elden-ring").keys_for(Control.CAMERA_LEFT | Control.FORWARD)


def test_keys_of_a_chord_are_pressed_in_order(tmp_path: Path) -> None:
    bindings = load_bindings(write(tmp_path, OWN))
    assert bindings.keys_for(Control.HEAVY_ATTACK).tapped == ("left_shift", "mouse_left")
    assert bindings.controls_of(["mouse_left"]) == Control.NONE


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("forward =", "forwards =", r"own.toml: hold.forwards: expected one of the controls forward, back"),
        ('["space"]', '["spacebar"]', r"tap.roll\[0\]: expected the name of a key, .* found 'spacebar'"),
        ('["space"]', '["w"]', r"tap.roll: expected keys of its own, found those of forward"),
        ('["space"]', '"space"', r"tap.roll: expected a list"),
        ("roll = [", "forward = [", r"hold.forward: expected every control in one of the tables"),
        ("0.05", "50", r"tap_s: expected a number from 0.01 to 1"),
    ],
)
def test_wrong_bindings_are_refused_by_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_bindings(write(tmp_path, OWN.replace(old, new)))


def test_a_held_key_stays_down_over_ticks_and_what_ends_comes_up_before_what_begins() -> None:
    held, device = make_held()
    held.hold(("w", "a"))
    held.hold(("w", "d"))
    held.hold(("w", "d"))
    assert lines(device) == ["+w", "+a", "-a", "+d"]
    assert held.down == ("w", "d")


def test_directions_are_down_while_the_roll_is_tapped() -> None:
    held, device = make_held()
    held.hold(("w",))
    held.tap(("space",), for_s=0.05)
    assert lines(device) == ["+w", "+space", "-space"]
    assert held.down == ("w",)


def test_a_tap_lasts_as_long_as_asked_and_chords_unwind() -> None:
    device, slept = FakeDevice(), []
    held = HeldKeys(device, slept.append)
    held.tap(("left_shift", "mouse_left"), for_s=0.05)
    assert lines(device) == ["+left_shift", "+mouse_left", "-mouse_left", "-left_shift"]
    assert slept == [0.05]
    held.tap((), for_s=0.05)
    assert slept == [0.05]


def test_a_tapped_key_that_was_held_is_pressed_anew() -> None:
    held, device = make_held()
    held.hold(("space",))
    held.tap(("space",), for_s=0.05)
    assert lines(device) == ["+space", "-space", "+space", "-space"]


def test_an_interrupted_tap_leaves_nothing_down() -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    device = FakeDevice()
    held = HeldKeys(device, interrupt)
    held.hold(("w", "a"))
    with pytest.raises(KeyboardInterrupt):
        held.tap(("space",), for_s=0.05)
    assert not device.down
    assert held.down == ()


def test_a_key_that_the_device_refuses_lets_the_others_up() -> None:
    held, device = make_held()
    with pytest.raises(GameError, match="unknown key"):
        held.hold(("w", "warp"))
    assert not device.down


def test_leaving_the_context_lets_everything_up() -> None:
    held, device = make_held()
    with held:
        held.hold(("w", "a"))
    assert not device.down
    assert lines(device)[-2:] == ["-a", "-w"]


class FailingDevice(FakeDevice):
    """A device that fails to release one key."""

    def release(self, key: str) -> None:
        if key == "a":
            raise GameError("stuck")
        super().release(key)


def test_one_key_that_fails_does_not_keep_the_others_down() -> None:
    device = FailingDevice()
    held = HeldKeys(device)
    held.hold(("w", "a", "s"))
    with pytest.raises(GameError, match="stuck"):
        held.release_all()
    assert device.down == {"a"}


def test_keys_come_up_when_their_keeper_is_forgotten() -> None:
    device = FakeDevice()
    HeldKeys(device).hold(("w",))
    gc.collect()
    assert not device.down


def test_the_fake_device_checks_its_caller() -> None:
    device = FakeDevice()
    assert isinstance(device, KeyDevice)
    device.press("w")
    with pytest.raises(GameError, match="'w' up before it is pressed"):
        device.press("w")
    with pytest.raises(GameError, match="every key up before the device is closed"):
        device.close()
    device.release("w")
    device.close()
    with pytest.raises(GameError, match="an open device"):
        device.press("w")


def test_direct_input_knows_every_key_but_the_extra_mouse_buttons() -> None:
    sender = FakePyDirectInputRgx()
    device = DirectInputDevice(sender)
    for key in KEY_NAMES:
        if key not in ("mouse_back", "mouse_forward"):
            device.press(key)
            device.release(key)
    assert sender.sent[-4:] == ["mouseDown middle", "mouseUp middle", "mouseDown right", "mouseUp right"]
    assert "keyDown shiftleft" in sender.sent
    with pytest.raises(GameError, match="mouse_back"):
        device.check("mouse_back")


def test_the_older_package_is_refused_for_the_keys_it_sends_wrongly() -> None:
    device = DirectInputDevice(FakePyDirectInput())
    for key in ("right_ctrl", "right_alt"):
        with pytest.raises(GameError, match=r"expected pydirectinput-rgx, found the older .*pip uninstall"):
            device.press(key)
    for key in ("right_shift", "left_ctrl", "left_alt"):
        device.press(key)


def test_a_minimised_window_of_windows_has_no_keyboard_and_no_picture_until_it_is_restored() -> None:
    user32 = FakeUser32(7)
    window = User32Window(7, "DARK SOULS III", user32)
    window.focus()
    assert window.focused()
    assert window.geometry() == (0, 0, 800, 450)
    user32.minimised = True
    assert user32.front
    assert not window.focused()
    for look in (window.geometry, window.capture):
        with pytest.raises(GameError, match=r"'DARK SOULS III'.*found it minimised; restore it"):
            look()
    window.focus()
    assert window.focused()
    assert window.geometry() == (0, 0, 800, 450)
    user32.alive = False
    for look in (window.focused, window.geometry, window.capture):
        with pytest.raises(GameError, match="is the game gone"):
            look()


def test_direct_input_says_why_it_cannot_be_used_here() -> None:
    with pytest.raises(GameError, match=r"pip install|expected Windows"):
        DirectInputDevice()


def test_other_keys_of_a_control_mean_it_too_and_a_combination_means_no_part_of_itself() -> None:
    bindings = load_bindings("elden-ring")
    assert bindings.controls_of(["p"]) == bindings.controls_of(["mouse_left"]) == Control.LIGHT_ATTACK
    assert bindings.controls_of(["w", "left_alt", "mouse_left"]) == Control.FORWARD | Control.HEAVY_ATTACK
    assert bindings.keys_for(Control.HEAVY_ATTACK).tapped == ("l",)
    assert "mouse_left" not in bindings.keys


def test_other_keys_need_a_control_that_has_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('name = "x"\ntap_s = 0.05\n[hold]\nback = ["s"]\n[tap]\nroll = ["space"]\n[also]\njump = ["f"]\n')
    with pytest.raises(DataError, match=r"also\.jump: expected a control that is in hold or tap"):
        load_bindings(file)
