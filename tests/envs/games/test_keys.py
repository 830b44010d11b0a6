from __future__ import annotations

import gc
from pathlib import Path

import pytest

from fakes.keys import FakeDevice, FakePyDirectInputRgx, FakeUser32
from soulsgraph_envs.core.config import shipped_names
from soulsgraph_envs.core.errors import DataError, GameError
from soulsgraph_envs.core.state import ALL_CONTROLS, Control
from soulsgraph_envs.games.guarded_device import HeldKeys
from soulsgraph_envs.games.keys import KEY_NAMES, Bindings, load_bindings
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


def test_a_diagonal_is_two_keys_a_roll_is_tapped_and_a_control_without_a_key_is_refused() -> None:
    keys = load_bindings("dark-souls-3").keys_for(Control.FORWARD | Control.LEFT | Control.ROLL)
    assert (keys.held, keys.tapped) == (("w", "a"), ("space",))
    assert load_bindings("dark-souls-3").controls == ALL_CONTROLS & ~Control.JUMP
    with pytest.raises(GameError, match="camera_left"):
        load_bindings("elden-ring").keys_for(Control.CAMERA_LEFT | Control.FORWARD)


def own_bindings(folder: Path, old: str = "", new: str = "") -> Bindings:
    assert old in OWN
    (folder / "own.toml").write_text(OWN.replace(old, new))
    return load_bindings(folder / "own.toml")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('["space"]', '["spacebar"]', r"tap\.roll\[0\]"),
        # A person may press it, a device cannot.
        ('["space"]', '["pad_a"]', r"tap\.roll\[0\]"),
        ('["space"]', '["w"]', r"tap\.roll"),
        ("roll = [", "forward = [", r"hold\.forward"),
        ("[tap]", '[also]\njump = ["f"]\n[tap]', r"also\.jump"),
    ],
)
def test_wrong_bindings_are_refused_by_key(tmp_path: Path, old: str, new: str, named: str) -> None:
    with pytest.raises(DataError, match=named):
        own_bindings(tmp_path, old, new)


@pytest.mark.parametrize(
    ("held_before", "tapped", "pressed", "down"),
    [
        # What ends comes up before what begins; what goes on stays down.
        ([("w", "a"), ("w", "d"), ("w", "d")], (), "+w +a -a +d", ("w", "d")),
        ([("w",)], ("space",), "+w +space -space", ("w",)),
        ([("space",)], ("space",), "+space -space +space -space", ()),
    ],
)
def test_keys_are_held_over_ticks_and_pressed_anew_for_a_tap(
    held_before: list[tuple[str, ...]], tapped: tuple[str, ...], pressed: str, down: tuple[str, ...]
) -> None:
    held, device = make_held()
    for keys in held_before:
        held.hold(keys)
    held.tap(tapped, for_s=0.05)
    assert lines(device) == pressed.split()
    assert held.down == down


def test_a_tap_lasts_as_long_as_asked_and_chords_unwind() -> None:
    device, slept = FakeDevice(), []
    held = HeldKeys(device, slept.append)
    held.tap(("left_shift", "mouse_left"), for_s=0.05)
    assert lines(device) == ["+left_shift", "+mouse_left", "-mouse_left", "-left_shift"]
    assert slept == [0.05]
    held.tap((), for_s=0.05)
    assert slept == [0.05]


def test_a_failure_lets_every_key_up() -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    device = FakeDevice()
    held = HeldKeys(device, interrupt)
    held.hold(("w", "a"))
    with pytest.raises(KeyboardInterrupt):
        held.tap(("space",), for_s=0.05)
    assert not device.down
    with pytest.raises(GameError, match="warp"):
        held.hold(("w", "warp"))
    assert not device.down
    assert held.down == ()


def test_keys_come_up_when_their_context_ends_or_their_keeper_is_forgotten() -> None:
    held, device = make_held()
    with held:
        held.hold(("w", "a"))
    assert lines(device)[-2:] == ["-a", "-w"]
    held.hold(("w",))
    del held
    gc.collect()
    assert not device.down


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


def test_other_keys_of_a_control_mean_it_too_and_a_combination_means_no_part_of_itself() -> None:
    bindings = load_bindings("elden-ring")
    assert bindings.controls_of(["p"]) == bindings.controls_of(["mouse_left"]) == Control.LIGHT_ATTACK
    assert bindings.controls_of(["w", "left_alt", "mouse_left"]) == Control.FORWARD | Control.HEAVY_ATTACK
    assert bindings.keys_for(Control.HEAVY_ATTACK).tapped == ("l",)
    assert "mouse_left" not in bindings.keys


def test_a_minimised_window_of_windows_has_no_keyboard_and_no_picture_until_it_is_restored() -> None:
    user32 = FakeUser32(7)
    window = User32Window(7, "DARK SOULS III", user32)
    for _ in range(2):
        window.focus()
        assert window.focused()
        assert window.geometry() == (0, 0, 800, 450)
        user32.minimised = True
        assert user32.front
        assert not window.focused()
        for look in (window.geometry, window.capture):
            with pytest.raises(GameError, match="minimised"):
                look()
    user32.alive = False
    for look in (window.focused, window.geometry, window.capture):
        with pytest.raises(GameError, match="DARK SOULS III"):
            look()
