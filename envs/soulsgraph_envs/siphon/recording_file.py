"""A recording's file in Siphon's HDF5 format, a row a frame.

`frames` (n, height, width, 4) BGRA, `timestamps` (n,) Unix ms, `memory_data` (n, attributes) with their
`attribute_names`, `inputs` (n, 300) with `key_mapping`, `latencies` (n, 5) ms: capture, attributes,
keys, writing, all of it. Source: the schema that Siphon publishes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from soulsgraph_envs.errors import GameError
from soulsgraph_envs.siphon.served_window import Bgra

#: Each key takes a column when it is first pressed.
KEY_COLUMNS = 300


class RecordingTable:
    """The growing datasets of one file."""

    def __init__(self, file: Any, names: Sequence[str]) -> None:
        self._file, self._names, self._rows = file, list(names), 0
        self.last_ms = 0.0

    def append(self, frame: Bgra, values: Sequence[float], down: Sequence[int], moments: Sequence[float]) -> None:
        """Add a row: frame, attributes, columns of the keys that are down, and the moments in between in seconds.

        Raises:
            GameError: if the frame is of another size than the first one.
        """
        inputs = np.zeros(KEY_COLUMNS, np.uint8)
        inputs[list(down)] = 1
        self._put("frames", frame)
        self._put("timestamps", np.int64(time.time_ns() // 1_000_000))
        if self._names:
            self._put("memory_data", np.array(values, np.float32))
        self._put("inputs", inputs)
        ended = time.perf_counter()
        parts = [*np.diff([*moments, ended]), ended - moments[0]]
        self._put("latencies", np.array(parts, np.float32) * 1000)
        self._rows, self.last_ms = self._rows + 1, parts[-1] * 1000.0

    def map_keys(self, keys: Sequence[str]) -> None:
        """Say which key each column of `inputs` is of."""
        if self._rows:
            self._file["inputs"].attrs["key_mapping"] = list(keys[:KEY_COLUMNS])

    def _put(self, name: str, value: Any) -> None:
        if not self._rows:
            # Of everything but pictures many rows fit a piece.
            pieces = (1 if name == "frames" else 256, *value.shape)
            limits = (None, *value.shape)
            self._file.create_dataset(name, (0, *value.shape), value.dtype, maxshape=limits, chunks=pieces)
            if name == "memory_data":
                self._file[name].attrs["attribute_names"] = self._names
        dataset = self._file[name]
        if dataset.shape[1:] != value.shape:
            raise GameError(f"recording: expected {name} of {dataset.shape[1:]}, found {value.shape}; begin another.")
        dataset.resize(self._rows + 1, axis=0)
        dataset[self._rows] = value


def import_h5py() -> Any:
    """Import h5py; raises `GameError` if it is not installed."""
    try:
        import h5py
    except ImportError as error:
        raise GameError(
            "recording: expected h5py, which writes Siphon's format, found none; install it on the server: "
            "pip install 'soulsgraph[siphon]'."
        ) from error
    return h5py
