"""The Linux reader against live processes: memory, modules, names, and its errors."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from soulsgraph_envs.games.address_map import compile_pattern
from soulsgraph_envs.games.link import RefusedError
from soulsgraph_envs.games.memory_reader import (
    BadAddressError,
    LinuxReader,
    ProcessGoneError,
    ProcessNotFoundError,
    find_process,
    is_running,
)
from soulsgraph_envs.games.standin.memory import Sections, write_header

#: Maps a file as Wine does, its header alone from the file, the rest plain memory; keeps a text in a buffer.
CHILD = """
import ctypes, mmap, sys
mmap_c = ctypes.CDLL(None).mmap
mmap_c.restype = ctypes.c_void_p
mmap_c.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
base = mmap_c(None, 0x4000, 3, 0x22, -1, 0)
with open(sys.argv[1], "rb") as file:
    mmap_c(base, 4096, 3, 0x12, file.fileno(), 0)
code = bytes.fromhex("488b1d01020304aabbcc")
ctypes.memmove(base + 0x1100, code, len(code))
text = ctypes.create_string_buffer(b"in the other process", 64)
print(ctypes.addressof(text), base, flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@contextmanager
def child(folder: Path, name: str = "Game of a long name.exe") -> Iterator[tuple[subprocess.Popen, int, int]]:
    """Run a process that maps a program of a name; return it, a text's address and the module's base."""
    file = folder / name
    file.write_bytes(write_header(Sections(0x1000, 0x2000, 0x3000, 0x4000)))
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        address, base = process.stdout.readline().split()
        yield process, int(address), int(base)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_reads_and_writes_another_process_until_it_is_closed(tmp_path):
    with child(tmp_path) as (process, address, base):
        reader = LinuxReader(process.pid)
        assert reader.read(address, 6) == b"in the"
        reader.write(address, b"on")
        assert reader.read(address, 6) == b"on the"
        assert reader.gatherer([(address + 7, 5), (address, 2)])() == b"otheron"
        # Only the header is mapped, and tells the size.
        module = reader.module("game of a LONG name.exe")
        assert (module.base, module.size) == (base, 0x4000)
        assert reader.scan(module, {"here": compile_pattern("48 8B 1D ?? ?? ?? 04 AA")})["here"] == [base + 0x1100]
        # What runs out of the mapped memory is no half result.
        maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
        (end,) = (int(line.split("-")[1].split()[0], 16) for line in maps if "[stack]" in line)
        with pytest.raises(BadAddressError, match=f"{end:#x}"):
            reader.read(end - 4, 8)
        reader.close()
        reader.close()
        with pytest.raises(ProcessGoneError):
            reader.read(address, 4)


def test_process_is_found_by_the_file_it_has_mapped_and_must_be_the_only_one(tmp_path):
    with child(tmp_path) as (one, _, _):
        assert find_process("Game of a long name.exe") == one.pid
        with child(tmp_path) as (other, _, _), pytest.raises(RefusedError, match=rf"{one.pid}.*{other.pid}"):
            LinuxReader("Game of a long name.exe")
    with pytest.raises(ProcessNotFoundError, match="no-such-game"):
        find_process("no-such-game.exe")
    with pytest.raises(ProcessGoneError):
        LinuxReader(2**30)


def test_address_where_nothing_lies_and_process_that_has_ended_are_told_apart(tmp_path):
    with child(tmp_path) as (process, address, _):
        reader = LinuxReader(process.pid)
        gather = reader.gatherer([(address, 8), (0x10, 8)])
        for broken in (lambda: reader.read(0x10, 8), lambda: reader.write(0x10, b"x"), gather):
            with pytest.raises(BadAddressError, match="0x10"):
                broken()
        with pytest.raises(BadAddressError):
            reader.read(2**64 - 8, 8)
        process.kill()
        # Not reaped yet: a zombie has ended too.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not reader.running()
        assert not is_running(process.pid)
        for broken in (lambda: reader.read(address, 8), lambda: reader.write(address, b"x"), gather):
            with pytest.raises(ProcessGoneError, match=str(process.pid)):
                broken()
        with pytest.raises(ProcessGoneError):
            reader.module("Game of a long name.exe")


def test_process_whose_memory_is_gone_has_ended_though_its_id_lives_on(tmp_path):
    # So it is for a moment while a process ends, and for good once it runs another program.
    script = (
        "import ctypes, os; text = ctypes.create_string_buffer(b'here', 64); "
        "print(ctypes.addressof(text), flush=True); os.read(0, 1); os.execvp('cat', ['cat'])"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        address = int(process.stdout.readline())
        reader = LinuxReader(process.pid)
        gather = reader.gatherer([(address, 4)])
        assert gather() == b"here"
        process.stdin.write(b"\nwhat cat repeats\n")
        assert process.stdout.readline() == b"what cat repeats\n"
        for ask in (lambda: reader.read(address, 4), lambda: reader.write(address, b"x"), gather):
            with pytest.raises(ProcessGoneError, match=str(process.pid)):
                ask()
        process.stdin.close()


def test_process_is_found_by_its_own_short_name(tmp_path):
    rename = "import ctypes; ctypes.CDLL(None).prctl(15, b'AnotherGameOfMine.exe'); print(flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", rename], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        assert find_process("AnotherGameOfMine.exe") == process.pid
    finally:
        process.communicate(b"\n")


def test_process_of_another_user_names_the_remedy():
    # As root, step down to nobody first: nobody else may look into the first process.
    script = """
import os
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    LinuxReader(1)
except NoPermissionError as error:
    print(error)
"""
    imports = "from soulsgraph_envs.games.memory_reader import LinuxReader, NoPermissionError\n"
    ran = subprocess.run([sys.executable, "-c", imports + script], capture_output=True, text=True)
    assert "ptrace_scope" in ran.stdout
