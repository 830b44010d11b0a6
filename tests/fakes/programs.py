"""Other programs that tests run: a real Chromium without a display, Windows programs by Wine, FFmpeg's decoder.

Chromium is driven over its own pipe: what pages show, print and request.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import re
import select
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from soulsgraph_envs.core.config import to_json
from soulsgraph_envs.core.game import Picture

#: What Debian, others and Google call the program.
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_PATIENCE_S = 120.0
#: With these it draws in three dimensions without a graphics card; it says whenever that is slow.
_WEBGL = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader")
_SLOW = "GL Driver Message (OpenGL, Performance"


class BrowserError(RuntimeError):
    """A browser that does not start on this machine, with the last lines that it printed."""


class Browser:
    """Open pages one after the other; `requests` are the addresses that the page asked for, `printed` its console.

    What the browser asks its maker's servers by itself is in neither. `options` are further ones of its command line.

    Raises:
        BrowserError: if the program does not start, as with too little memory.
    """

    def __init__(self, program: str, folder: Path, options: Sequence[str] = ()) -> None:
        ours, theirs = os.pipe(), os.pipe()
        far = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (ours[0], theirs[1])]
        command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions"]
        command += ["--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        command += ["--window-size=1400,1000", *_WEBGL, *options, "about:blank"]

        def wire() -> None:
            os.dup2(far[0], 3)
            os.dup2(far[1], 4)

        printed = folder / "stderr"
        with printed.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                preexec_fn=wire,
                pass_fds=(3, 4),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                # It keeps a socket there, whose path may have 107 characters at most.
                env={**os.environ, "TMPDIR": "/tmp"},
            )
        for end in (ours[0], theirs[1], *far):
            os.close(end)
        self._to, self._from = os.fdopen(ours[1], "wb"), os.fdopen(theirs[0], "rb")
        self._numbers, self._session, self._rest = itertools.count(1), "", b""
        self.requests: list[str] = []
        self.printed: list[str] = []
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
        except (BrokenPipeError, AssertionError) as error:
            self.close()
            raise BrowserError(f"{program}: {error}: {printed.read_text(errors='replace')[-500:]}") from error
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the browser's protocol and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        self._to.write(to_json(message).encode() + b"\0")
        self._to.flush()
        return self._wait(lambda one: one.get("id") == number)["result"]

    def _wait(self, wanted: Callable[[Any], bool]) -> Any:
        while True:
            while b"\0" not in self._rest:
                assert select.select([self._from], [], [], _PATIENCE_S)[0], "the browser does not answer"
                part = os.read(self._from.fileno(), 2**20)
                assert part, "the browser ended"
                self._rest += part
            text, _, self._rest = self._rest.partition(b"\0")
            message = json.loads(text)
            assert "error" not in message, message
            self._note(message)
            if wanted(message):
                return message

    def _note(self, message: Any) -> None:
        values = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.printed.append(values["exceptionDetails"]["text"])
        elif message.get("method") == "Log.entryAdded" and _SLOW not in values["entry"]["text"]:
            self.printed.append(values["entry"]["text"])

    def open(self, page: Path | str, fragment: str = "") -> None:
        """Open a file or an address, and wait until it is loaded and a fight's page is ready."""
        address = page if isinstance(page, str) else page.resolve().as_uri()
        # From another address: a fragment alone would not load the page again.
        for url in ("about:blank", address + fragment):
            self.requests.clear()
            self.printed.clear()
            self.call("Page.navigate", url=url)
            self._wait(lambda one: one.get("method") == "Page.loadEventFired")
        self.run("window.replay ? window.replay.ready : true")

    def run(self, script: str) -> Any:
        """Evaluate an expression in the page, wait for a promise, and return its value."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self, identity: str) -> str:
        """Return the text of an element."""
        found: str = self.run(f"document.getElementById({identity!r}).textContent")
        return found

    def picture(self) -> bytes:
        """Return what is seen, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        # What was left to write goes nowhere once the browser has ended.
        with suppress(BrokenPipeError):
            self._to.close()
        self._from.close()


def find_chromium() -> str | None:
    """Return the program, if one is installed."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def starts_by_itself(program: str) -> bool:
    """Return whether the program shows an empty page here when it is asked on its command line."""
    command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom", "about:blank"]
    return subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=False).returncode == 0


@contextmanager
def open_browser(program: str, options: Sequence[str] = ()) -> Iterator[Browser]:
    """Start a browser with a profile of its own, which is ended and removed.

    Raises:
        BrowserError: if it does not start on this machine.
    """
    with TemporaryDirectory(prefix="soulsgraph-browser-", ignore_cleanup_errors=True) as folder:
        browser = Browser(program, Path(folder), options)
        try:
            yield browser
        finally:
            browser.close()


COMPILER, RESOURCES = "x86_64-w64-mingw32-gcc", "x86_64-w64-mingw32-windres"
#: On a busy machine a new prefix takes its time.
PATIENCE_S = 300.0
_TOOLS = ("wine", "wineboot", "wineserver", "Xvfb", COMPILER, RESOURCES)


def missing_for_wine() -> str:
    """Return why no Windows program can be built and run here, with the remedy; empty if one can."""
    missing = [tool for tool in _TOOLS if not shutil.which(tool)]
    packages = "wine wine64 gcc-mingw-w64-x86-64-win32 xvfb"
    return f"needs {', '.join(missing)}: on Debian apt-get install {packages}" if missing else ""


@contextmanager
def wine(folder: Path, display: str) -> Iterator[dict[str, str]]:
    """Make a Wine prefix, `prefix` in a folder, and yield the environment that selects it.

    At the end every program in it is killed, and the prefix is removed.

    Raises:
        subprocess.SubprocessError: if no prefix can be made.
    """
    prefix = folder / "prefix"
    environment = os.environ | {
        "HOME": str(folder),
        "DISPLAY": display,
        "WINEPREFIX": str(prefix),
        "WINEARCH": "win64",
        "WINEDEBUG": "-all",
        "WINEDLLOVERRIDES": "mscoree,mshtml=,winemenubuilder.exe=d",
    }
    try:
        subprocess.run(["wineboot", "-i"], env=environment, check=True, timeout=PATIENCE_S)
        yield environment
    finally:
        for option in ("-k", "-w"):
            subprocess.run(["wineserver", option], env=environment, timeout=PATIENCE_S)
        # 0.7 GB that pytest would keep.
        shutil.rmtree(prefix, ignore_errors=True)


def read_video(path: Path) -> list[Picture]:
    """Return every picture of a video, (height, width, 3) each; needs imageio-ffmpeg."""
    import imageio_ffmpeg

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    ran = subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL)
    found = re.search(r"Video:.*?, (\d{2,})x(\d{2,})", ran.stderr.decode(errors="replace"))
    assert found is not None, "ffmpeg names the size of what it reads"
    width, height = map(int, found.groups())
    return list(np.frombuffer(ran.stdout, np.uint8).reshape(-1, height, width, 3))
