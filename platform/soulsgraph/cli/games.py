"""The commands of the stand-in game and of the Siphon server before a game."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from json import dumps
from pathlib import Path

from soulsgraph.cli.output import DEFAULT_OUTPUT, OutputOptions
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.games.link import save_game
from soulsgraph_envs.games.memory_reader import find_process
from soulsgraph_envs.games.standin.launch import (
    DEFAULT_SERVING,
    DEFAULT_STAND_IN,
    ServingOptions,
    StandInOptions,
    StandInProcess,
    ended_by_signals,
    server_settings,
)


def serve_siphon(
    serving: ServingOptions = DEFAULT_SERVING,
    output: OutputOptions = DEFAULT_OUTPUT,
    map: str = StandInOptions.map,
    speed: float = StandInOptions.speed,
    pid: int = 0,
    process: str = "",
    settings: Path | None = None,
) -> None:
    """Serve a game of this machine to Siphon clients: a stand-in, started for it, or a process that runs.

    Once it serves it prints a line that begins with "ready". A stand-in that ended is started again
    when a client initializes the memory.

    Args:
        map: Address map of the stand-in, and of the games file.
        speed: Factor of the stand-in's clock, above 0 to 3.
        pid: Process to serve in place of a stand-in.
        process: Name of the process to serve in place of a stand-in, such as DarkSoulsIII.exe.
        settings: Games file to write once it serves, for commands that take --games.
    """
    if pid and process:
        raise SoulsGraphError("serve-siphon: expected --pid or --process, found both; leave one out.")
    serving.check()
    from soulsgraph_envs.games.standin.siphon_server import SiphonServer

    running = bool(pid or process)
    game: AbstractContextManager[Callable[[], int]] = _stand_in(map, speed, serving.display)
    if running:
        game = nullcontext(lambda: pid or find_process(process))
    with ended_by_signals(), game as find_pid:
        server = SiphonServer(serving, find_pid, captured_slots=not running)
        try:
            if settings is not None:
                save_game(settings, server_settings(serving, server.address, map, speed))
            ready = {"address": server.address, "pid": find_pid()}
            if output.json:
                print(dumps({"ready": ready}), flush=True)
            line = f"ready at {ready['address']}, process {ready['pid']}; end it with Ctrl-C"
            output.console.print(line, soft_wrap=True)
            server.wait()
        finally:
            server.close()


@contextmanager
def _stand_in(map: str, speed: float, display: str) -> Iterator[Callable[[], int]]:
    with StandInProcess(StandInOptions(map=map, speed=speed, display=display)) as process:
        yield process.living_pid


def standin(options: StandInOptions = DEFAULT_STAND_IN) -> None:
    """Run the stand-in game: the simulator as a program with a window, keys and a memory like the real game's.

    Once it can be attached it prints a line that begins with "ready". On standard input it takes
    commands, one a line: crash, move, hang [S], freeze [S], stall [S], drop [S], pause, speed N, die,
    state, quit.
    """
    from soulsgraph_envs.games.standin.program import run

    run(options)
