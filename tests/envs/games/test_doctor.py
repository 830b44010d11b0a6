from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.keys import PlainWindow, virtual_screen
from fakes.memory import FakeProcess, FakeReader
from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.games.address_map import load_address_map
from soulsgraph_envs.games.doctor import (
    Check,
    Checks,
    check_keyboard,
    check_machine,
    check_memory_game,
    check_online,
    check_read_time,
    check_rights,
    check_siphon_game,
    check_skills,
    examine,
    report_entries,
)
from soulsgraph_envs.games.link import FIELDS, GameSettings
from soulsgraph_envs.games.memory_reader import Module
from soulsgraph_envs.games.x11 import open_display

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


def by_name(checks: list[Check]) -> dict[str, Check]:
    for check in checks:
        needs_remedy = check.status in ("warn", "fail")
        assert bool(check.remedy) == needs_remedy, (
            f"{check.name}: every warning and failure has a remedy, and only they"
        )
    return {check.name: check for check in checks}


@pytest.fixture(scope="module")
def display() -> Iterator[str]:
    with virtual_screen() as name:
        yield name


@pytest.fixture
def settings(tmp_path: Path, display: str) -> GameSettings:
    file = tmp_path / "small.toml"
    file.write_text(MAP)
    return GameSettings(map=str(file), display=display)


def small_game(hp: int = 400, online: int = 0, boss: int = HEAP + 0x100) -> FakeReader:
    heap = bytearray(0x200)
    struct.pack_into("<iiBxxxiQ", heap, 0x10, hp, 454, online, 3, boss)
    struct.pack_into("<i", heap, 0x110, 1037)
    image = bytearray(0x1000)
    struct.pack_into("<Q", image, 0x800, HEAP)
    memory = {BASE: bytes(image), HEAP: bytes(heap)}
    return FakeReader(FakeProcess(memory, [Module("small.exe", BASE, len(image))], PID))


def look_at(settings: GameSettings, reader: FakeReader) -> dict[str, Check]:
    return by_name(check_memory_game(settings, lambda name, pid: reader))


def test_this_machine_is_examined_line_by_line() -> None:
    checks = by_name(check_machine(reads_memory=True))
    assert list(checks) == ["Python", "clock rate", "rights to read memory", "pyMeow"]
    assert checks["Python"].status == "ok"
    assert "of 60 Hz" in checks["clock rate"].found


@pytest.mark.parametrize(
    ("scope", "capable", "status"),
    [(0, False, "ok"), (1, False, "warn"), (1, True, "ok"), (2, True, "ok"), (3, True, "fail"), (3, False, "fail")],
)
def test_rights_follow_the_rule_of_the_system(scope: int, capable: bool, status: str) -> None:
    checks = Checks("rights")
    check_rights(checks, scope, 1 << 19 if capable else 0)
    assert by_name(checks.made)["rights to read memory"].status == status


def test_a_block_that_fails_is_told_with_the_remedy_of_its_error_or_the_one_given() -> None:
    checks = Checks("topic")
    with checks.failing("one", "given"):
        raise GameError("expected a, found b; do c.")
    with checks.failing("two", "given"):
        raise GameError("expected one of a; found b")
    with checks.failing("three", "given"):
        checks.ok("three", "fine")
    assert [(check.status, check.found, check.remedy) for check in checks.made] == [
        ("fail", "expected a, found b", "do c."),
        ("fail", "expected one of a; found b", "given"),
        ("ok", "fine", ""),
    ]


def test_keys_of_a_screen_go_down_and_come_up(display: str) -> None:
    checks = by_name(check_keyboard(display, "dark-souls-3"))
    assert {check.status for check in checks.values()} == {"ok"}
    assert list(checks) == ["key device", "key bindings", "key round trip", "keyboard layout"]
    assert "none for jump" in checks["key bindings"].found


def test_without_a_screen_the_keys_fail_once_and_the_rest_is_passed_over() -> None:
    checks = by_name(check_keyboard(":250", "dark-souls-3"))
    assert [check.status for check in checks.values()] == ["fail", "skip", "skip", "skip"]
    assert "xvfb-run" in checks["key device"].remedy


def test_bindings_that_do_not_exist_fail_alone(display: str) -> None:
    checks = by_name(check_keyboard(display, "sekiro"))
    assert checks["key bindings"].status == "fail"
    assert checks["key round trip"].status == "ok"


def test_a_layout_that_is_not_english_is_warned_of() -> None:
    from Xlib import XK

    with virtual_screen() as display:
        connection = open_display(display)
        connection.change_keyboard_mapping(24, [(XK.string_to_keysym("a"),)])
        connection.sync()
        connection.close()
        assert by_name(check_keyboard(display, "elden-ring"))["keyboard layout"].status == "warn"


def test_every_entry_of_a_running_game_is_told(settings: GameSettings, display: str) -> None:
    window = PlainWindow(display, "Small", pid=PID)
    checks = look_at(settings, small_game())
    assert checks["game"].found == f"process {PID}, small.exe at {BASE:#x}"
    assert checks["player_hp"].found == f"400 points at {HEAP + 0x10:#x}"
    assert checks["boss_hp"].found == f"1037 points at {HEAP + 0x110:#x}"
    assert checks["flasks"].status == "warn"
    assert "the drinks are counted" in checks["flasks"].remedy
    assert checks["offline mode"].status == "ok"
    assert checks["resolution"].found == "80 x 50"
    assert checks["time of a reading"].status == "ok"
    assert all(check.passed for check in checks.values())
    window.close()


def test_an_implausible_value_fails_by_name(settings: GameSettings) -> None:
    checks = look_at(settings, small_game(hp=500))
    assert checks["player_hp"].status == "fail"
    assert "at most player_hp_max" in checks["player_hp"].found
    assert checks["player_hp_max"].status == "ok"


def test_a_broken_chain_hides_no_other_entry(settings: GameSettings) -> None:
    checks = look_at(settings, small_game(boss=0))
    assert checks["boss_hp"].status == "fail"
    assert checks["player_hp"].status == "ok"
    assert checks["time of a reading"].status == "fail"


def test_a_game_online_fails(settings: GameSettings) -> None:
    assert look_at(settings, small_game(online=1))["offline mode"].status == "fail"


def test_a_window_that_is_missing_fails_alone(settings: GameSettings) -> None:
    checks = look_at(settings, small_game())
    assert checks["window"].status == "fail"
    assert checks["player_hp"].status == "ok"


def test_without_a_game_its_map_is_told_all_the_same(settings: GameSettings) -> None:
    checks = by_name(check_memory_game(settings))
    assert checks["address map"].found == "A small game: 5 fields, unverified: flasks"
    assert checks["game"].status == "fail"
    assert checks["map entries"].status == "skip"


def test_a_map_that_does_not_exist_is_told_by_its_name() -> None:
    checks = by_name(check_memory_game(GameSettings(map="sekiro")))
    assert checks["address map"].status == "fail"
    assert "'sekiro'" in checks["address map"].found


def test_skills_that_cannot_play_are_told_with_what_they_lack() -> None:
    checks = Checks("skills")
    check_skills(checks, frozenset(FIELDS))
    check_skills(checks, frozenset(FIELDS) - {"locked"})
    assert checks.made[0].status == "ok"
    assert checks.made[1].status == "warn"
    assert "lock_on lacks locked" in checks.made[1].found


def test_fields_of_another_machine_are_examined_without_addresses(settings: GameSettings) -> None:
    reading = {"player_hp": 10.0, "player_x": float("nan")}
    entries = {entry.name: entry for entry in report_entries(reading, None)}
    assert not entries["player_hp"].problem
    assert entries["player_x"].problem
    assert entries["player_x"].address is None
    (flasks,) = report_entries({"flasks": 3.0}, load_address_map(settings.map))
    assert flasks.fallback == "the drinks are counted"


def test_a_map_that_cannot_tell_reminds_of_offline_mode() -> None:
    checks = Checks("online")
    check_online(checks, {})
    assert by_name(checks.made)["offline mode"].status == "warn"


def test_a_slow_reading_is_warned_of() -> None:
    from time import sleep

    checks = Checks("time")
    check_read_time(checks, lambda: sleep(0.021) or {})  # type: ignore[func-returns-value]
    assert by_name(checks.made)["time of a reading"].status == "warn"


def test_a_server_that_does_not_answer_fails_with_its_address() -> None:
    checks = by_name(check_siphon_game(GameSettings(driver="siphon", host=NOBODY)))
    assert checks["Siphon server"].status == "fail"
    assert NOBODY in checks["Siphon server"].found
    assert checks["way to the server"].status == "ok"
    assert checks["fields"].status == "skip"


def test_the_simulator_needs_nothing_else() -> None:
    checks = by_name(examine([GameSettings(driver="simulator")]))
    assert list(checks) == ["Python", "clock rate", "fight"]
    assert checks["fight"].status == "ok"


def test_games_are_examined_each_under_its_number_and_the_machine_once(settings: GameSettings) -> None:
    checks = examine([settings, GameSettings(driver="simulator")])
    assert list(dict.fromkeys(check.topic for check in checks)) == [
        "This machine",
        "Game 1: Keys",
        f"Game 1: The game, by {settings.map}",
        "Game 2: The simulator",
    ]


def test_an_unknown_driver_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="memroy"):
        examine([GameSettings(driver="memroy")])
