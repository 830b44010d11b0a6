"""The pyMeow reader over a pyMeow with the pitfalls of the real one."""

import ctypes
import pickle
import sys
import threading
from types import ModuleType

import pytest

from fakes.memory import FakeProcess, FakePyMeow
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.address_map import compile_pattern
from soulsgraph_envs.games.link import RefusedError
from soulsgraph_envs.games.memory_reader import (
    BadAddressError,
    Module,
    ProcessGoneError,
    ProcessNotFoundError,
    PymeowReader,
    load_pymeow,
    restore_floating_point,
    subnormals_kept,
)

BASE = 0x140000000


def game(pid=10):
    code = b"\x90" * 64 + bytes.fromhex("488b05112233440011") + b"\x90" * 64
    # The module listed last is the one whose base pyMeow calls the process's.
    modules = [Module("Game.exe", BASE, len(code)), Module("other.dll", 0x7000000, 4096)]
    return FakeProcess({BASE: code, 0x7000000: bytes(4096)}, modules, pid)


def opened(process=None):
    process = process or game()
    module = FakePyMeow({"Game.exe": [process]})
    return PymeowReader(process.pid, module), process, module


def test_a_process_is_found_by_its_whole_name_though_every_other_walk_fails():
    # Not the first whose name has a part of it.
    assert PymeowReader("game.exe", FakePyMeow({"Game.exe.bak": [game(9)], "Game.exe": [game()]})).pid == 10
    with pytest.raises(RefusedError, match="10, 11"):
        PymeowReader("Game.exe", FakePyMeow({"Game.exe": [game(10), game(11)]}))
    with pytest.raises(ProcessNotFoundError, match="Game"):
        PymeowReader("Game", FakePyMeow({"Game.exe": [game()]}))


def test_module_base_is_the_modules_own():
    reader, _, _ = opened()
    assert reader.module("GAME.EXE").base == BASE
    found = reader.scan(reader.module("Game.exe"), {"a": compile_pattern("48 8B 05 ?? ?? ?? ?? 00 11")})
    assert found == {"a": [BASE + 64]}


@pytest.mark.parametrize(("address", "size"), [(BASE, 0), (BASE, 2**62), (0, 4), (2**64, 4), (BASE, -1)])
def test_what_would_end_the_interpreter_never_reaches_pymeow(address, size):
    reader, _, _ = opened()
    with pytest.raises(BadAddressError):
        reader.read(address, size)


def test_access_denied_is_an_ended_game_or_a_bad_address_and_no_lack_of_rights():
    reader, process, _ = opened()
    for ask in (lambda: reader.read(0x5000, 4), lambda: reader.write(0x5000, b"x")):
        with pytest.raises(BadAddressError, match="0x5000") as bad:
            ask()
        assert str(pickle.loads(pickle.dumps(bad.value))) == str(bad.value)
    module = reader.module("Game.exe")
    process.dead = True
    asks = (
        lambda: reader.read(BASE, 4),
        lambda: reader.write(BASE, b"x"),
        lambda: reader.module("Game.exe"),
        lambda: reader.regions(module),
    )
    for ask in asks:
        with pytest.raises(ProcessGoneError, match="10"):
            ask()


def test_import_restores_the_floating_point_mode():
    def load(name):
        flush_to_zero()
        assert not subnormals_kept()
        return FakePyMeow({})

    seen = []

    def in_a_thread():
        load_pymeow(load)
        seen.append(subnormals_kept())

    if sys.platform != "linux":
        pytest.skip("sets the mode through glibc")
    # The mode is a thread's own: the test's thread is left alone.
    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert seen == [True]
    restore_floating_point()


def flush_to_zero():
    """Set the bits that fast mathematics sets, in the control word that fenv_t keeps at byte 28."""
    state = (ctypes.c_uint32 * 8)()
    library = ctypes.CDLL(None)
    library.fegetenv(state)
    state[7] |= 0x8040
    library.fesetenv(state)


def test_missing_and_false_pymeow_are_explained(monkeypatch):
    def missing(name):
        raise ImportError(name)

    with pytest.raises(GameError, match="pyMeow"):
        load_pymeow(missing)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "pymeow" else None)
    with pytest.raises(GameError, match="pip uninstall pymeow"):
        load_pymeow(missing)
    with pytest.raises(GameError, match="another"):
        load_pymeow(ModuleType)


@pytest.mark.skipif(sys.platform == "win32", reason="elsewhere it is not imported")
def test_pymeow_is_not_imported_outside_windows():
    with pytest.raises(GameError, match="Windows"):
        load_pymeow()
    assert "pyMeow" not in sys.modules
