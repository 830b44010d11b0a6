"""A stage's exact state on disk: tensors in safetensors, all else as JSON in the same file's header.

Reading the file runs no code from it, and a digest over everything in it reveals damage. Of a state that grows, tables
of arrays may be files of their own, which later states link to: what does not change is written once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from soulsgraph_envs.core.config import to_json
from soulsgraph_envs.core.errors import SoulsGraphError, reading, shown
from soulsgraph_envs.core.files import whole_file
from soulsgraph_policies.agents.inference import Weights

_logger = logging.getLogger("soulsgraph")
FILE_NAME = "training_state.safetensors"
#: The folder beside it of tables that are files of their own, each named by the digest of what it holds.
PARTS = "parts"
#: Tables below this size stay in the state's own file.
_PART_BYTES = 1 << 12
_FORMAT = "1"
_ARRAY = "array"
#: Tables of arrays by their place below the state's folder.
_Parts = dict[str, Weights]


class TrainingStateError(SoulsGraphError):
    """A training state is missing or damaged."""

    def __init__(self, path: Path, expected: str, found: object) -> None:
        folder = path.parent.parent if path.parent.name == PARTS else path.parent
        super().__init__(
            f"{path}: expected {expected}, found {found}; remove the folder {folder} to go on from the checkpoint "
            "before it, or from the start of the stage where there is none."
        )


def write_training_state(folder: Path, state: Mapping[str, Any], before: Sequence[Path] | None = None) -> None:
    """Write nested dictionaries of arrays and plain values whole, or not at all.

    With `before`, the folders of earlier states, tables of arrays are files of their own, and one that such a state has
    is linked instead of written, unless it was damaged since: that is logged.

    Raises:
        SoulsGraphError: if a number is none, or infinite: nothing could go on from it.
        WriteError: if the place cannot be written; an older file stays as it was.
    """
    arrays: Weights = {}
    parts: _Parts | None = None if before is None else {}
    plain = _separate(state, "", arrays, parts)
    for place, table in (parts or {}).items():
        if not any(_linked(earlier, folder, place) for earlier in (folder, *(before or ()))):
            own: Weights = {}
            _write(folder / place, _separate(table, "", own), own)
    _write(folder / FILE_NAME, plain, arrays)


def _write(path: Path, separated: Any, arrays: Weights) -> None:
    for name, array in arrays.items():
        _expect_finite(name, array)
    plain = to_json(separated)
    metadata = {"format": _FORMAT, "state": plain, "sha256": _digest(plain, arrays)}
    with whole_file(path) as temporary:
        try:
            save_file(arrays, temporary, metadata)
        except SafetensorError as error:
            # It has the operating system's number in its text alone.
            found = re.search(r"os error (\d+)", str(error))
            raise OSError(int(found[1]), os.strerror(int(found[1]))) if found else OSError(str(error)) from error


def _linked(earlier: Path, folder: Path, place: str) -> bool:
    """Link to a part of an earlier state, and return whether it is there now: not every file system has links."""
    there, here = earlier / place, folder / place
    if not there.exists() or not _is_whole(earlier, place):
        return False
    try:
        if there != here:
            here.parent.mkdir(parents=True, exist_ok=True)
            here.hardlink_to(there)
    except OSError:
        return False
    return True


def _is_whole(folder: Path, place: str) -> bool:
    """Return whether a part is as it was written; log that it is not."""
    try:
        _read_part(folder, place)
    except SoulsGraphError as error:
        found = str(error).partition("; remove")[0]
        _logger.warning("%s; the new state has it anew, check the disk.", found)
        return False
    return True


def read_training_state(folder: Path) -> dict[str, Any]:
    """Read what `write_training_state` wrote.

    Raises:
        TrainingStateError: if a file is missing, truncated or otherwise damaged.
        ReadError: if it cannot be read.
    """
    return _read(folder / FILE_NAME)


def _read(path: Path) -> dict[str, Any]:
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
        # Only what names an array or a table of them has that key.
        if _ARRAY not in found:
            return found
        place = str(found[_ARRAY])
        return _read_part(path.parent, place) if place.startswith(f"{PARTS}/") else arrays[place]

    try:
        state: dict[str, Any] = json.loads(metadata["state"], object_hook=restored)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TrainingStateError(path, "a training state", shown(error)) from error
    if not isinstance(state, dict):
        raise TrainingStateError(path, "a training state", shown(state))
    return state


def _read_part(folder: Path, place: str) -> dict[str, Any]:
    table = _read(folder / place)
    if (named := _place_of(table)) != place:
        raise TrainingStateError(folder / place, "the table that it is named by", named)
    return table


def _place_of(table: Weights) -> str:
    return f"{PARTS}/{_digest('', table)}.safetensors"


def _expect_finite(name: str, array: np.ndarray[Any, Any]) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise SoulsGraphError(
            f"training state {name.lstrip('0123456789/')}: expected finite numbers, found others; the training "
            "diverged: lower its learning rate, or look for a reward or an observation that is no number."
        )


def _separate(value: Any, name: str, arrays: Weights, parts: _Parts | None = None) -> Any:
    """Move every array into `arrays`, and return the rest as plain values that name them.

    Large tables of arrays go into `parts`, where there is such.
    """
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value) or _ARRAY in value:
            raise SoulsGraphError(
                f"training state {name}: expected names other than {_ARRAY!r}, found {sorted(map(str, value))}; "
                "rename them."
            )
        if parts is not None and _is_part(value):
            table = {key: np.asarray(array, order="C") for key, array in value.items()}
            parts[place := _place_of(table)] = table
            return {_ARRAY: place}
        return {key: _separate(part, f"{name}/{key}", arrays, parts) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        # Numbered, for two paths may read alike when a name contains a slash.
        unique = f"{len(arrays)}{name}"
        arrays[unique] = np.asarray(value, order="C")
        return {_ARRAY: unique}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [_separate(part, f"{name}/{index}", arrays, parts) for index, part in enumerate(value)]
    return value


def _is_part(table: Mapping[str, Any]) -> bool:
    arrays = [value for value in table.values() if isinstance(value, np.ndarray)]
    return len(arrays) == len(table) and sum(array.nbytes for array in arrays) >= _PART_BYTES


def _digest(plain: str, arrays: Weights) -> str:
    digest = hashlib.sha256(plain.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
