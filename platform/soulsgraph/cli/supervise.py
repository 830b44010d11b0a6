"""`soulsgraph supervise`: run a command again, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import FrameType

from soulsgraph.runs.supervision import SUPERVISOR
from soulsgraph_clusters.sessions.head import describe_end
from soulsgraph_envs.core.machine import APART
from soulsgraph_envs.core.terminal import handled_by, hangups

#: Pauses before a command is begun again: doubled from the first to the second; the first again where it ran for long.
_PAUSES_S, _STEADY_S = (1.0, 60.0), 300.0
#: It is done, or refuses its input, which stays as it is.
_FINAL, _INTERRUPTED = (0, 2), 130


def supervise(words: tuple[str, ...], /) -> None:
    """Run a command again when it crashes or is killed, until it is done: soulsgraph supervise -- train.

    The same command goes on with its run. It is not begun again when it succeeds (0), refuses its input (2), or when
    this process is asked to stop, which is passed on to it. What a killed supervisor leaves behind is ended by the next
    command that writes the same folder.

    Args:
        words: The command with its options, after `--`.
    """
    asked, process, pause_s = list[int](), None, _PAUSES_S[0]

    def pass_on(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if process is not None and process.poll() is None:
            # To a group of processes Windows sends no other.
            process.send_signal(signal.CTRL_BREAK_EVENT if sys.platform == "win32" else number)

    with handled_by(pass_on, signal.SIGINT, signal.SIGTERM, *hangups()):
        while True:
            began_s = time.monotonic()
            # -P: what lies in the present folder is none of our modules. Ctrl-C reaches this process alone.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "soulsgraph", *words],
                env={**os.environ, SUPERVISOR: str(os.getpid())},
                **APART,
            )
            if asked:
                pass_on(asked[-1], None)
            code = process.wait()
            if asked or code in _FINAL:
                sys.exit(code if code >= 0 else 128 - code)
            pause_s = _PAUSES_S[0] if time.monotonic() - began_s > _STEADY_S else pause_s
            command = " ".join(["soulsgraph", *words[:1]])
            print(f"{command} {describe_end(code)}; it restarts in {pause_s:g} s", file=sys.stderr, flush=True)
            until_s, pause_s = time.monotonic() + pause_s, min(2.0 * pause_s, _PAUSES_S[1])
            while time.monotonic() < until_s:
                if asked:
                    sys.exit(_INTERRUPTED)
                time.sleep(0.1)
