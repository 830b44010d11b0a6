"""The commands of the stand-in game and of the Siphon server before a game."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path

from soulsgraph.cli.options import DEFAULT_OUTPUT, OutputOptions
from soulsgraph.cli.place import make_console
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.live.settings import save_game
from soulsgraph_envs.standin.options import DEFAULT_STAND_IN, StandInOptions
from soulsgraph_envs.standin.siphon.serving import DEFAULT_SERVING, Serving, settings_of


def serve_siphon(
    serving: Serving = DEFAULT_SERVING,
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
    from soulsgraph_envs.standin.siphon.server import SiphonServer
    from soulsgraph_envs.standin.starting import ended_by_signals

    game = _running(pid, process) if pid or process else _stand_in(map, speed, serving.display)
    with ended_by_signals(), game as find_pid:
        server = SiphonServer(serving, find_pid, captured_slots=not (pid or process))
        try:
            if settings is not None:
                save_game(settings, settings_of(serving, server.address, map, speed))
            _announce(output, server.address, find_pid())
            server.wait()
        finally:
            server.close()


@contextmanager
def _running(pid: int, process: str) -> Iterator[Callable[[], int]]:
    from soulsgraph_envs.memory.linux_reader import find_process

    yield lambda: pid or find_process(process)


@contextmanager
def _stand_in(map: str, speed: float, display: str) -> Iterator[Callable[[], int]]:
    from soulsgraph_envs.standin.siphon.serving import LastingStandIn

    with LastingStandIn(StandInOptions(map=map, speed=speed, display=display)) as process:
        yield process.pid


def _announce(output: OutputOptions, address: str, pid: int) -> None:
    if output.json:
        print(dumps({"ready": {"address": address, "pid": pid}}), flush=True)
    make_console(output).print(
        f"ready at {address}, process {pid}; end it with Ctrl-C", highlight=False, soft_wrap=True
    )


def standin(options: StandInOptions = DEFAULT_STAND_IN) -> None:
    """Run the stand-in game: the simulator as a program with a window, keys and a memory like the real game's.

    Once it can be attached it prints a line that begins with "ready". On standard input it takes
    commands, one a line: crash, move, hang [S], freeze [S], stall [S], drop [S], pause, speed N, die,
    state, quit.
    """
    from soulsgraph_envs.standin.program import run

    run(options)
