"""A stage's exact state on disk: tensors in safetensors, all else as JSON in the same file's header.

Reading the file runs no code from it, and a digest over everything in it reveals damage.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from soulsgraph_envs.core.config import to_json
from soulsgraph_envs.core.errors import SoulsGraphError, reading, shown
from soulsgraph_envs.core.files import whole_file
from soulsgraph_policies.agents.inference import Weights

FILE_NAME = "training_state.safetensors"
_FORMAT = "1"
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
    arrays: Weights = {}
    plain = to_json(_separate(state, "", arrays))
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise SoulsGraphError(
                f"training state {name.lstrip('0123456789/')}: expected finite numbers, found others; the training "
                "diverged: lower its learning rate, or look for a reward or an observation that is no number."
            )
    metadata = {"format": _FORMAT, "state": plain, "sha256": _digest(plain, arrays)}
    with whole_file(folder / FILE_NAME) as temporary:
        try:
            save_file(arrays, temporary, metadata)
        except SafetensorError as error:
            # It has the operating system's number in its text alone.
            found = re.search(r"os error (\d+)", str(error))
            raise OSError(int(found[1]), os.strerror(int(found[1]))) if found else OSError(str(error)) from error


def read_training_state(folder: Path) -> dict[str, Any]:
    """Read what `write_training_state` wrote.

    Raises:
        TrainingStateError: if a file is missing, truncated or otherwise damaged.
        ReadError: if it cannot be read.
    """
    path = folder / FILE_NAME
    try:
        with reading(path):
            # safe_open calls a file that may not be read a missing one.
            path.open("rb").close()
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
            arrays: Weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except FileNotFoundError as error:
        raise TrainingStateError(path, "a training state", "none") from error
    # The library's own class is for damage alone; whatever numpy lacks is an error of some other kind.
    except (SafetensorError, AttributeError, TypeError, ValueError) as error:
        raise TrainingStateError(path, "a training state", shown(str(error))) from error
    if metadata.get("format") != _FORMAT or "state" not in metadata:
        raise TrainingStateError(path, f"a training state of format {_FORMAT}", metadata.get("format"))
    digest = _digest(metadata["state"], arrays)
    if digest != metadata.get("sha256"):
        raise TrainingStateError(path, f"content of sha256 {metadata.get('sha256')}", digest)

    def restored(found: dict[str, Any]) -> Any:
        # Only what names an array has that key.
        return arrays[found[_ARRAY]] if _ARRAY in found else found

    try:
        state: dict[str, Any] = json.loads(metadata["state"], object_hook=restored)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TrainingStateError(path, "a training state", shown(error)) from error
    if not isinstance(state, dict):
        raise TrainingStateError(path, "a training state", shown(state))
    return state


def _separate(value: Any, name: str, arrays: Weights) -> Any:
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


def _digest(plain: str, arrays: Weights) -> str:
    digest = hashlib.sha256(plain.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
