"""The window of the served game, and recordings in Siphon's HDF5 format: frames, attributes, keys, times."""

from __future__ import annotations

import io
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.errors import GameError, SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.extras import pip_install
from soulsgraph_envs.games.cycle_timer import CycleTimer
from soulsgraph_envs.games.guarded_device import find_window
from soulsgraph_envs.games.keys import Geometry, Window

#: (height, width, 4): blue, green, red and 255, Siphon's order.
Bgra = npt.NDArray[np.uint8]
#: A picture younger than this serves several who ask.
_FRESH_S = 1 / 120
_STREAM_HZ = 30
#: Each keeps one of the server's threads.
_MOST_STREAMS = 4


class ServedWindow:
    """The window of process `pid()`, found by `open`; thread-safe."""

    def __init__(self, pid: Callable[[], int], title: str = "", display: str = "") -> None:
        self._pid, self._title, self._display = pid, title, display
        self._lock, self._free_streams = threading.RLock(), threading.Semaphore(_MOST_STREAMS)
        self._window: Window | None = None
        self._picture: Bgra | None = None
        self._taken_at = 0.0

    def open(self, expected_title: str = "") -> Geometry:
        """Find the game's window again and return its place and size.

        Raises:
            GameError: if it has none, or one of another title than a client expects.
        """
        with self._lock:
            self.close()
            window = find_window(self._title, 0 if self._title else self._pid(), self._display)
            if not window.title.startswith(expected_title):
                window.close()
                raise GameError(
                    f"window: expected {expected_title!r}, found {window.title!r}; correct the configuration."
                )
            self._window = window
            return window.geometry()

    @property
    def title(self) -> str:
        """Return the window's title; empty before `open`."""
        return self._window.title if self._window is not None else ""

    def focus(self) -> None:
        """Bring it to the front."""
        with self._lock:
            self._opened().focus()

    def focused(self) -> bool:
        """Return whether keys reach it; False if it was not opened or is gone."""
        with self._lock, suppress(GameError):
            return self._window is not None and self._window.focused()
        return False

    def capture(self) -> Bgra:
        """Capture it.

        Raises:
            GameError: if it was not opened or is gone.
        """
        with self._lock:
            if self._picture is None or time.monotonic() - self._taken_at > _FRESH_S:
                rgb = self._opened().capture()
                self._picture = np.dstack((rgb[:, :, ::-1], np.full(rgb.shape[:2], 255, np.uint8)))
                self._taken_at = time.monotonic()
            return self._picture

    def stream(self, kind: str, quality: int, wanted: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """Yield the values of Siphon's frame messages, "jpeg" or "raw" (BGRA), while they are `wanted`.

        Raises:
            GameError: for another kind, too many streams, or a window that cannot be captured.
        """
        if kind not in ("jpeg", "raw"):
            raise GameError(f"StreamFrames: expected the format jpeg or raw, found {kind!r}; choose one of them.")
        if not self._free_streams.acquire(blocking=False):
            raise GameError(f"StreamFrames: expected at most {_MOST_STREAMS} streams, found one more; end another.")
        try:
            timer = CycleTimer(1 / _STREAM_HZ)
            while wanted():
                picture = self.capture()
                yield {
                    "data": picture.tobytes() if kind == "raw" else _jpeg(picture, quality),
                    "timestamp_us": time.time_ns() // 1000,
                    "width": picture.shape[1],
                    "height": picture.shape[0],
                    "frame_number": timer.ticks + 1,
                    "format": kind,
                }
                timer.wait()
        finally:
            self._free_streams.release()

    def close(self) -> None:
        """Release it; a second call does nothing."""
        with self._lock, suppress(GameError):
            window, self._window, self._picture = self._window, None, None
            if window is not None:
                window.close()

    def _opened(self) -> Window:
        if self._window is None:
            raise GameError("window: expected it to be initialized, found it not; send InitializeCapture.")
        return self._window


def _jpeg(picture: Bgra, quality: int) -> bytes:
    from PIL import Image

    packed = io.BytesIO()
    Image.fromarray(picture[:, :, 2::-1]).save(packed, "JPEG", quality=min(max(quality, 1), 95))
    return packed.getvalue()


FRAMES_HZ = 30
#: At once: each writes more than 40 MB a second.
_MOST_RECORDINGS = 4
_PIECE = 1 << 20
#: Each key takes a column when it is first pressed.
KEY_COLUMNS = 300


@dataclass(frozen=True)
class Sources:
    """The sources of a recording, read each frame."""

    capture: Callable[[], Bgra]
    attribute: Callable[[str], float]
    keys_down: Callable[[], Sequence[str]]


class RecordingThread:
    """One recording in a thread of its own until it is stopped, fails or its time is over."""

    def __init__(self, file: Path, names: Sequence[str], sources: Sources, longest_s: float) -> None:
        self.file, self.frames, self.dropped, self.failure = file, 0, 0, ""
        self.last_ms = self.sum_ms = 0.0
        self._names, self._sources, self._longest_s = list(names), sources, longest_s
        self._begun, self._ended = time.monotonic(), 0.0
        self._stop = threading.Event()
        self._columns: dict[str, int] = {}
        self._thread = threading.Thread(target=self._record, name="siphon recording", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Return whether it records."""
        return self._thread.is_alive()

    @property
    def elapsed_s(self) -> float:
        """Return how long it has been recording."""
        return (self._ended or time.monotonic()) - self._begun

    def stop(self) -> None:
        """Stop it and wait until the file is complete."""
        self._stop.set()
        self._thread.join()

    def _record(self) -> None:
        try:
            with import_h5py().File(self.file, "w") as file:
                self._record_frames(file)
                if self.frames:
                    file["inputs"].attrs["key_mapping"] = list(self._columns)[:KEY_COLUMNS]
        except (SoulsGraphError, OSError) as error:
            self.failure = str(error)
        self._ended = time.monotonic()

    def _record_frames(self, file: Any) -> None:
        due = self._begun
        # One frame at least: a busy machine may take all the time to begin.
        while not self._stop.is_set() and not (self.frames and 0 < self._longest_s <= self.elapsed_s):
            self._append(file)
            due += 1 / FRAMES_HZ
            late = int((time.monotonic() - due) * FRAMES_HZ)
            if late > 0:
                self.dropped += late
                due += late / FRAMES_HZ
            self._stop.wait(max(due - time.monotonic(), 0.0))

    def _append(self, file: Any) -> None:
        """Add a row: frame, attributes, columns of the keys that are down, and the times in between in milliseconds.

        Raises:
            GameError: if the frame is of another size than the first one.
        """
        moments = [time.perf_counter()]
        frame = self._sources.capture()
        moments.append(time.perf_counter())
        values = [self._sources.attribute(name) for name in self._names]
        moments.append(time.perf_counter())
        down = [self._columns.setdefault(key, len(self._columns)) for key in self._sources.keys_down()]
        moments.append(time.perf_counter())
        inputs = np.zeros(KEY_COLUMNS, np.uint8)
        inputs[[column for column in down if column < KEY_COLUMNS]] = 1
        self._put(file, "frames", frame)
        self._put(file, "timestamps", np.int64(time.time_ns() // 1_000_000))
        if self._names:
            self._put(file, "memory_data", np.array(values, np.float32))
        self._put(file, "inputs", inputs)
        ended = time.perf_counter()
        parts = [*np.diff([*moments, ended]), ended - moments[0]]
        self._put(file, "latencies", np.array(parts, np.float32) * 1000)
        self.frames, self.last_ms = self.frames + 1, parts[-1] * 1000.0
        self.sum_ms += self.last_ms

    def _put(self, file: Any, name: str, value: Any) -> None:
        if not self.frames:
            # Of everything but pictures many rows fit a piece.
            pieces = (1 if name == "frames" else 256, *value.shape)
            limits = (None, *value.shape)
            file.create_dataset(name, (0, *value.shape), value.dtype, maxshape=limits, chunks=pieces)
            if name == "memory_data":
                file[name].attrs["attribute_names"] = self._names
        dataset = file[name]
        if dataset.shape[1:] != value.shape:
            raise GameError(f"recording: expected {name} of {dataset.shape[1:]}, found {value.shape}; begin another.")
        dataset.resize(self.frames + 1, axis=0)
        dataset[self.frames] = value


class Recordings:
    """All recordings of a server, below one folder."""

    def __init__(self, folder: Path, sources: Sources) -> None:
        self._folder, self._sources = folder, sources
        self._sessions: dict[str, RecordingThread] = {}

    def start(self, names: Sequence[str], where: str, longest_s: float) -> str:
        """Begin a recording in a folder below the server's and return its id.

        Raises:
            GameError: if h5py is not installed, the folder is another, an attribute cannot be read, or too
                many recordings run.
        """
        import_h5py()
        if sum(each.running for each in self._sessions.values()) >= _MOST_RECORDINGS:
            raise GameError(f"recording: expected at most {_MOST_RECORDINGS} at once, found one more; stop another.")
        folder = (self._folder / where).resolve()
        if not folder.is_relative_to(self._folder.resolve()):
            raise GameError(
                f"recording: expected a folder below the server's {self._folder}, found {where!r}; "
                "give a relative one, such as 'output', and download the recording."
            )
        for name in names:
            self._sources.attribute(name)
        self._sources.capture()
        folder.mkdir(parents=True, exist_ok=True)
        session = uuid.uuid4().hex
        self._sessions[session] = RecordingThread(folder / f"recording_{session}.h5", names, self._sources, longest_s)
        return session

    def session(self, session: str) -> RecordingThread:
        """Return a recording; raises `UnknownNameError` if there is none of that id."""
        if session not in self._sessions:
            raise UnknownNameError("recording", session, self._sessions)
        return self._sessions[session]

    def stop(self, session: str) -> RecordingThread:
        """End a recording.

        Raises:
            GameError: if it failed; its frames so far are kept.
        """
        recording = self.session(session)
        recording.stop()
        if recording.failure:
            raise GameError(f"recording {session}: ended after {recording.frames} frames: {recording.failure}")
        return recording

    def pieces(self, session: str) -> Iterator[Mapping[str, Any]]:
        """Return the file of a stopped recording, in pieces of the size of DownloadRecording's chunks."""
        recording = self.session(session)
        if recording.running:
            raise GameError(f"recording {session}: expected it stopped, found it running; stop it first.")
        name, size = recording.file.name, recording.file.stat().st_size
        with recording.file.open("rb") as file:
            for offset in range(0, size, _PIECE):
                data = file.read(_PIECE)
                final = offset + len(data) >= size
                yield {"data": data, "offset": offset, "total_size": size, "is_final": final, "filename": name}

    def close(self) -> None:
        """End every recording."""
        for recording in self._sessions.values():
            recording.stop()


def import_h5py() -> Any:
    """Import h5py; raises `GameError` if it is not installed."""
    try:
        import h5py
    except ImportError as error:
        raise GameError(
            "recording: expected h5py, which writes Siphon's format, found none; install it on the server: "
            f"{pip_install('siphon')}."
        ) from error
    return h5py
