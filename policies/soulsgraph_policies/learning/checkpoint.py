"""A stage's exact state on disk: tensors in safetensors, all else as JSON in the same file's header.

Reading the file runs no code from it, and a digest over everything in it reveals damage.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from soulsgraph_envs.core.config import to_json
from soulsgraph_envs.core.errors import SoulsGraphError, reading, shown
from soulsgraph_envs.core.files import whole_file
from soulsgraph_policies.agents.library import ANY, Arrays, TensorError, finite, read_tensor_file, write_tensor_file

FILE_NAME = "training_state.safetensors"
_FORMAT = "2"
_ARRAY = "array"


class TrainingStateError(SoulsGraphError):
    """A training state is missing or damaged."""

    def __init__(self, path: Path, expected: str, found: object) -> None:
        super().__init__(
            f"{path}: expected {expected}, found {found}; remove the folder {path.parent} to go on from the checkpoint "
            "before it, or from the start of the stage where there is none."
        )


def write_training_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Write nested dictionaries of arrays and plain values whole, or not at all.

    Raises:
        SoulsGraphError: if a number is none, or infinite: nothing could go on from it.
        WriteError: if the place cannot be written; an older file stays as it was.
    """
    arrays: Arrays = {}
    plain = to_json(_separate(state, "", arrays))
    for name, array in arrays.items():
        _expect_finite(name, array)
    metadata = {"format": _FORMAT, "state": plain, "sha256": _digest(plain, arrays)}
    with whole_file(folder / FILE_NAME) as temporary, temporary.open("wb") as file:
        write_tensor_file(file, arrays, metadata)


def read_training_state(folder: Path) -> dict[str, Any]:
    """Read what `write_training_state` wrote.

    Raises:
        TrainingStateError: if the file is missing, truncated or otherwise damaged.
        ReadError: if it cannot be read.
    """
    path = folder / FILE_NAME
    try:
        with reading(path), path.open("rb") as file:
            arrays, metadata = read_tensor_file(file, os.fstat(file.fileno()).st_size, ANY, mapped=True)
    except FileNotFoundError as error:
        raise TrainingStateError(path, "a training state", "none") from error
    except TensorError as error:
        raise TrainingStateError(path, "a training state", error) from error
    if metadata.get("format") != _FORMAT or "state" not in metadata:
        raise TrainingStateError(path, f"a training state of format {_FORMAT}", metadata.get("format"))
    digest = _digest(metadata["state"], arrays)
    if digest != metadata.get("sha256"):
        raise TrainingStateError(path, f"content of sha256 {metadata.get('sha256')}", digest)
    try:
        # Only what names an array has that key.
        state: dict[str, Any] = json.loads(
            metadata["state"], object_hook=lambda found: arrays[found[_ARRAY]] if _ARRAY in found else found
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TrainingStateError(path, "a training state", shown(error)) from error
    if not isinstance(state, dict):
        raise TrainingStateError(path, "a training state", shown(state))
    return state


def _expect_finite(name: str, array: np.ndarray[Any, Any]) -> None:
    if array.dtype.kind == "f" and not finite(array):
        raise SoulsGraphError(
            f"training state {name.lstrip('0123456789/')}: expected finite numbers, found others; the training "
            "diverged: lower its learning rate, or look for a reward or an observation that is no number."
        )


def _separate(value: Any, name: str, arrays: Arrays) -> Any:
    """Move every array into `arrays`, and return the rest as plain values that name them."""
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value) or _ARRAY in value:
            raise SoulsGraphError(
                f"training state {name}: expected names other than {_ARRAY!r}, found {sorted(map(str, value))}; "
                "rename them."
            )
        return {key: _separate(part, f"{name}/{key}", arrays) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        # Numbered, for two paths may read alike when a name contains a slash.
        unique = f"{len(arrays)}{name}"
        arrays[unique] = np.asarray(value, order="C")
        return {_ARRAY: unique}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [_separate(part, f"{name}/{index}", arrays) for index, part in enumerate(value)]
    return value


def _digest(plain: str, arrays: Arrays) -> str:
    digest = hashlib.sha256(plain.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
