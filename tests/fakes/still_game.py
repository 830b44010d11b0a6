"""A process with a game's memory and no activity, to measure and test readers.

As a program it takes the name of an address map, prints when its memory is laid out, and ends with its input.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from soulsgraph_envs.games.address_map import load_address_map
from soulsgraph_envs.games.link import FIELDS
from soulsgraph_envs.games.standin.memory import OwnMemory


@contextmanager
def still_game(map_name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run such a process while the context lasts."""
    command = [sys.executable, "-P", __file__, map_name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def lie_still(map_name: str) -> None:
    """Lay out the memory of a map in this process and wait for the end of its input."""
    address_map = load_address_map(map_name)
    memory = OwnMemory(address_map, "c5110")
    names = [*address_map.fields, *address_map.inventories]
    texts = {name: "Idle" for name in names if FIELDS[name].kind == "text"}
    memory.write({name: 1.0 for name in names} | texts | {"boss_name": "c5110"})
    print("laid out", flush=True)
    sys.stdin.read()
    memory.close()


if __name__ == "__main__":
    lie_still(sys.argv[1])
