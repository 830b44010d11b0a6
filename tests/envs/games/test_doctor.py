from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.keys import PlainWindow
from fakes.memory import FakeProcess, FakeReader
from fakes.siphon import FakeSiphon, serving
from soulsgraph_envs.core.errors import UnknownNameError
from soulsgraph_envs.games import doctor
from soulsgraph_envs.games.doctor import Check, MemoryExamination, SiphonExamination, Status, examine, implausible
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.games.memory_reader import Module
from soulsgraph_envs.games.siphon_attributes import load_attributes

#: Nobody listens on the discard port.
NOBODY = "127.0.0.1:9"
BASE, HEAP, PID = 0x140000000, 0x7F0000000000, 4242
MAP = """
name = "small"
game = "A small game"
version = ""
process = "small.exe"
window = "Small"
bindings = "dark-souls-3"
source = "this test"
[bases.root]
rva = 0x800
[fields]
player_hp = { base = "root", offsets = [0x10], type = "i32" }
player_hp_max = { base = "root", offsets = [0x14], type = "i32" }
boss_hp = { base = "root", offsets = [0x20, 0x10], type = "i32" }
online = { base = "root", offsets = [0x18], type = "u8" }
flasks = { base = "root", offsets = [0x1C], type = "i32", verified = false, fallback = "the drinks are counted" }
"""


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_CLOCK_S", 0.1)
    monkeypatch.setattr(doctor, "_ATTACH_S", 0.1)


def statuses(checks: list[Check]) -> dict[str, Status]:
    """Return each check's status; every warning and failure has a remedy, and only they."""
    assert [bool(check.remedy) for check in checks] == [check.status in ("warn", "fail") for check in checks]
    return {check.name: check.status for check in checks}


@pytest.fixture
def settings(tmp_path: Path, display: str) -> GameSettings:
    file = tmp_path / "small.toml"
    file.write_text(MAP)
    return GameSettings(map=str(file), display=display)


def examined(settings: GameSettings, game: FakeReader | None = None) -> list[Check]:
    """Return the checks of a game, of a small one in place of the one that runs."""
    return MemoryExamination(settings, *([lambda name, pid: game] if game else [])).make("the game")


def small_game(hp: int = 400, online: int = 0, boss: int = HEAP + 0x100) -> FakeReader:
    heap = bytearray(0x200)
    struct.pack_into("<iiBxxxiQ", heap, 0x10, hp, 454, online, 3, boss)
    struct.pack_into("<i", heap, 0x110, 1037)
    image = bytearray(0x1000)
    struct.pack_into("<Q", image, 0x800, HEAP)
    memory = {BASE: bytes(image), HEAP: bytes(heap)}
    return FakeReader(FakeProcess(memory, [Module("small.exe", BASE, len(image))], PID))


KEY_CHECKS = ("key device", "key bindings", "key round trip")


@pytest.mark.parametrize(
    ("screen", "bindings", "found"),
    [
        ("", "dark-souls-3", ("ok", "ok", "ok")),
        ("", "sekiro", ("ok", "fail", "ok")),
        (":250", "dark-souls-3", ("fail", "skip", "skip")),
    ],
)
def test_keys_of_a_screen_go_down_and_come_up(
    settings: GameSettings, screen: str, bindings: str, found: tuple[str, ...]
) -> None:
    checks = examined(replace(settings, display=screen or settings.display, bindings=bindings), small_game())
    assert dict(zip(KEY_CHECKS, found, strict=True)).items() <= statuses(checks).items()


def test_every_entry_of_a_running_game_is_reported(settings: GameSettings, display: str) -> None:
    window = PlainWindow(display, "Small", pid=PID)
    checks = {check.name: check for check in examined(settings, small_game())}
    window.close()
    # The skills lack most fields, and nothing confirms the flasks.
    expected = {"skills": "warn", "flasks": "warn"}
    assert {name: check.status for name, check in checks.items() if check.status != "ok"} == expected
    assert str(PID) in checks["game"].found
    for name, value, address in (("player_hp", 400, HEAP + 0x10), ("boss_hp", 1037, HEAP + 0x110)):
        assert {str(value), f"{address:#x}"} <= set(checks[name].found.split())


@pytest.mark.parametrize(
    ("changed", "failed"),
    [
        ({"hp": 500}, {"window", "player_hp"}),
        # The other entries are read all the same.
        ({"boss": 0}, {"window", "boss_hp", "time of a reading"}),
        ({"online": 1}, {"window", "offline mode"}),
    ],
)
def test_what_is_wrong_with_a_game_fails_by_itself(
    settings: GameSettings, changed: dict[str, int], failed: set[str]
) -> None:
    found = statuses(examined(settings, small_game(**changed)))
    assert {name for name, status in found.items() if status == "fail"} == failed
    assert {"player_hp", "player_hp_max", "boss_hp", "flasks"} <= found.keys()


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({}, {"address map": "ok", "game": "fail", "map entries": "skip"}),
        ({"map": "sekiro"}, {"address map": "fail", "key bindings": "skip", "window": "skip"}),
        (
            {"driver": "siphon", "host": NOBODY, "map": "elden-ring-1.16.1"},
            {"Siphon server": "fail", "key bindings": "ok", "fields": "skip"},
        ),
    ],
)
def test_without_a_game_its_settings_are_examined_all_the_same(
    settings: GameSettings, wrong: dict[str, str], expected: dict[str, str]
) -> None:
    settings = replace(settings, **wrong)
    checks = SiphonExamination(settings).make("the game") if "host" in wrong else examined(settings)
    assert expected.items() <= statuses(checks).items()


def test_a_value_that_cannot_be_is_said() -> None:
    assert implausible("player_x", {"player_x": float("nan")})
    assert implausible("boss_hp", {"boss_hp": 500.0, "boss_hp_max": 400.0})
    assert implausible("boss_name", {"boss_name": ""})
    assert not implausible("boss_hp", {"boss_hp": 400.0, "boss_hp_max": 400.0})


def test_a_siphon_server_is_examined_field_by_field() -> None:
    siphon = FakeSiphon()
    siphon.attributes = dict(load_attributes("elden-ring-1.16.1").attributes)
    with serving(siphon) as host:
        settings = GameSettings(driver="siphon", map="elden-ring-1.16.1", host=host)
        found = statuses(SiphonExamination(settings).make("the game"))
    # A memory of zeros has no maximum HP to be below, and the picture is of SoulsGym's size.
    expected = {"Siphon server": "ok", "key round trip": "ok", "picture": "ok", "offline mode": "warn"}
    assert expected.items() <= found.items()
    assert {"player_hp", "boss_hp_max", "game_speed"} <= found.keys()


def test_games_are_examined_each_under_its_number_and_the_machine_once(settings: GameSettings) -> None:
    simulator = GameSettings(driver="simulator")
    assert {"Python": "ok", "fight": "ok"}.items() <= statuses(examine([simulator])).items()
    checks = examine([settings, simulator])
    assert [check.name for check in checks if check.topic == checks[0].topic] == ["Python", "clock rate"]
    topics = dict.fromkeys(check.topic.partition(":")[0] for check in checks)
    assert [*topics] == [checks[0].topic, "Game 1", "Game 2"]
    with pytest.raises(UnknownNameError, match="memroy"):
        examine([GameSettings(driver="memroy")])
