"""The Siphon link to a server, and the failures between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from fakes.siphon import FakeSiphon, serving
from fakes.waiting import PATIENCE_S
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.keys import KEY_NAMES
from soulsgraph_envs.games.link import GameSettings, Link, LinkError
from soulsgraph_envs.games.siphon_attributes import load_attributes
from soulsgraph_envs.games.siphon_link import (
    CALL_TIMEOUT_S,
    SIPHON_KEYS,
    SiphonCalls,
    SiphonLink,
    from_siphon,
    to_siphon,
)

#: A link whose calls may take as long as a busy machine needs.
patient_link = partial(SiphonLink, patience_s=PATIENCE_S)
MAP = "elden-ring-1.16.1"


@pytest.fixture
def siphon() -> FakeSiphon:
    return FakeSiphon()


def settings_of(address: str) -> GameSettings:
    return GameSettings(driver="siphon", map=MAP, host=address)


@pytest.fixture
def link(siphon: FakeSiphon) -> Iterator[SiphonLink]:
    with serving(siphon) as address, closing(patient_link(settings_of(address))) as link:
        link.attach(PATIENCE_S)
        yield link


def show(siphon: FakeSiphon, **values: float) -> None:
    """Let the game show some fields."""
    for name, layout in load_attributes(MAP).reads.items():
        for field, place in layout.items():
            if field in values:
                span = siphon.span(siphon.attributes[name], place.at, place.size)
                span[:] = place.encode(values[field], span)


def test_the_link_reads_every_field_in_blocks_and_takes_pictures(siphon: FakeSiphon, link: SiphonLink) -> None:
    assert isinstance(link, Link)
    shown = {name: float(number) for number, name in enumerate(sorted(link.supplies))}
    show(siphon, **shown)
    # A flag is a byte, which a "bool" of Siphon's may show as all bits set.
    flags = {"player_no_gravity", "game_speed_on"}
    reading = link.read()
    assert {name: value for name, value in reading.items() if name not in flags} == {
        name: value for name, value in shown.items() if name not in flags
    }
    assert reading.keys() == link.supplies
    assert link.focused()
    picture = link.capture()
    assert picture.shape == (450, 800, 3)
    assert picture[0, 0].tolist() == siphon.picture()[0, 0].tolist()


def test_the_link_writes_in_one_piece_and_by_itself(siphon: FakeSiphon, link: SiphonLink) -> None:
    show(siphon, player_hp_max=500.0)
    values = {"player_x": 136.0, "player_y": 595.0, "player_z": -68.5, "player_hp": 77.0}
    link.write(values | {"player_no_gravity": 1.0})
    assert siphon.asked == ["player_x_z_y", "HeroHp", "NoGravity"]
    reading = link.read()
    assert {name: reading[name] for name in values} == values
    assert (bool(reading["player_no_gravity"]), reading["player_hp_max"]) == (True, 500.0)
    with pytest.raises(GameError, match="boss_name"):
        link.write({"boss_name": 1.0})


def test_keys_come_up_when_the_link_closes(siphon: FakeSiphon, link: SiphonLink) -> None:
    for key in ("w", "left_shift", "mouse_left"):
        link.keys.check(key)
        link.keys.press(key)
    assert siphon.down == {"w", "left_shift", "mouse_left"}
    link.close()
    assert siphon.down == set()
    link.close()
    with pytest.raises(LinkError):
        link.read()


def test_a_link_finds_a_game_again_that_was_gone(siphon: FakeSiphon, link: SiphonLink) -> None:
    siphon.running = False
    with pytest.raises(LinkError):
        link.read()
    with pytest.raises(LinkError):
        link.attach(0.2)
    siphon.running = True
    # The server finds the game, whatever was launched here.
    link.attach(PATIENCE_S, process_id=4242)
    assert link.read().keys() == link.supplies


def test_a_link_comes_back_to_a_server_that_ended(siphon: FakeSiphon) -> None:
    with serving(siphon) as address:
        link = patient_link(settings_of(address))
        link.attach(PATIENCE_S)
        stream = link.calls.stream("StreamFrames", format="raw")
        next(stream)
    with pytest.raises(LinkError):
        # What was under way may still come.
        list(stream)
    with pytest.raises(LinkError):
        link.read()
    with pytest.raises(LinkError):
        link.attach(0.3)
    with serving(siphon, address), closing(link):
        link.attach(PATIENCE_S)
        assert link.read().keys() == link.supplies


def test_an_answer_is_waited_for_as_long_as_patience_says(siphon: FakeSiphon) -> None:
    siphon.takes_s = 1.5 * CALL_TIMEOUT_S
    with serving(siphon) as address:
        patient, prompt = SiphonCalls(address, PATIENCE_S), SiphonCalls(address)
        assert patient.call("GetServerStatus").success
        with pytest.raises(LinkError, match="GetServerStatus"):
            prompt.call("GetServerStatus")
        for calls in (patient, prompt):
            calls.close()
        # A stream's call is made when its first answer is asked for: in a thread, that may be after the end.
        with pytest.raises(LinkError, match="StreamFrames"):
            next(prompt.stream("StreamFrames"))


def test_a_remote_server_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    for host in ("gamepc:50051", "localhost:50051"):
        patient_link(settings_of(host)).close()
    (warning,) = caplog.records
    assert "gamepc" in warning.getMessage()


@pytest.mark.parametrize("wrong", [{"pid": 4242}, {"host": "localhost"}, {"host": "pc:70000"}])
def test_settings_that_cannot_be_used_are_refused_before_a_call(wrong: dict[str, object]) -> None:
    with pytest.raises(GameError, match=str(next(iter(wrong.values())))):
        patient_link(GameSettings(**{"driver": "siphon", "map": MAP} | wrong))  # type: ignore[arg-type]


def test_every_key_is_spelt_back() -> None:
    assert all(from_siphon(to_siphon(key)) == key for key in KEY_NAMES)
    assert from_siphon("left_Shift") == "left_shift"
    # Siphon's LEFT is the mouse's; its own server has no arrow keys, but EldenGym's client asks for them.
    assert (to_siphon("mouse_left"), from_siphon("LEFT")) == ("LEFT", "mouse_left")
    assert to_siphon("left") not in SIPHON_KEYS
    arrows = ["up", "down", "left", "right"]
    assert [from_siphon(f"{arrow.upper()}_ARROW") for arrow in arrows] == arrows
