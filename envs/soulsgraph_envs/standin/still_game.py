"""A process with a game's memory and no activity, to measure and test readers.

Run as a program, it takes the name of an address map, prints when its memory is laid out, and ends with its input.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from soulsgraph_envs.drivers.memory.address_map import load_address_map
from soulsgraph_envs.drivers.realtime.link import FIELDS
from soulsgraph_envs.standin.memory import OwnMemory
from soulsgraph_envs.standin.options import surroundings_of


@contextmanager
def still_game(map_name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run one as a child process while the context lasts."""
    command = [sys.executable, "-m", "soulsgraph_envs.standin.still_game", map_name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def _lie_still(map_name: str) -> None:
    address_map = load_address_map(map_name)
    surroundings = surroundings_of(address_map.name)
    with tempfile.TemporaryDirectory() as folder:
        memory = OwnMemory(address_map, Path(folder), surroundings)
        names = [*address_map.fields, *address_map.inventories]
        texts = {name: "Idle" for name in names if FIELDS[name].kind == "text"}
        memory.write({name: 1.0 for name in names} | texts | {"boss_name": surroundings.boss_name})
        print("laid out", flush=True)
        sys.stdin.read()
        memory.close()


if __name__ == "__main__":
    _lie_still(sys.argv[1])
