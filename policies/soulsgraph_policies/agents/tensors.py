"""The one reader of safetensors files, which checks what it reads, and a writer that makes no copy of large arrays.

A file is the size of its head (8 bytes, little-endian), the head as JSON, and the values of all tensors without a gap:
https://github.com/huggingface/safetensors. Its library refuses types that numpy lacks by errors of many kinds, takes
types that we never write, and reads infinities as numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from io import BytesIO
from math import prod
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.config import Where, parse, to_json
from soulsgraph_envs.core.errors import SoulsGraphError, shown

Arrays = dict[str, npt.NDArray[Any]]

#: Types that numpy has, by their names in a head.
_TYPES: dict[str, npt.DTypeLike] = {
    "BOOL": np.bool_,
    **{f"U{8 * size}": f"<u{size}" for size in (1, 2, 4, 8)},
    **{f"I{8 * size}": f"<i{size}" for size in (1, 2, 4, 8)},
    "F32": "<f4",
    "F64": "<f8",
}
#: Types of weights and of statistics; and all that a training's state may hold.
WEIGHTS: tuple[str, ...] = ("F32", "F64")
ANY: tuple[str, ...] = tuple(_TYPES)
_METADATA = "__metadata__"
_SIZE_BYTES, _ALIGNED = 8, 8
#: A training's state has all that is no array in its head: a draw's numbers, names, counts.
_LONGEST_HEAD = 64 * 2**20
_MOST_AXES = 32
_PART_BYTES = 2**22
#: Smaller arrays are read: whoever takes a larger one copies it in parts.
_MAPPED_BYTES = 2**24


class TensorError(SoulsGraphError):
    """The content of a safetensors file is damaged, or not what it is read for; it says what was found."""


def read_tensors(content: bytes, kinds: Collection[str], finite: bool = True) -> Arrays:
    """Return the tensors of a file's content by name; `kinds` are the types that they may have.

    Raises:
        TensorError: as `read_tensor_file`.
    """
    return read_tensor_file(BytesIO(content), len(content), kinds, finite)[0]


def read_tensor_file(
    file: BinaryIO, size: int, kinds: Collection[str], finite: bool = True, mapped: bool = False
) -> tuple[Arrays, dict[str, str]]:
    """Return the tensors of an open file of `size` bytes, and the texts of its head, both by name.

    Large ones of a file on disk may be `mapped`: they take no memory of the process, and are there while the file stays
    as it is.

    Raises:
        TensorError: if the head, a type, a shape or the size is not what it should be; with `finite`, also for a number
            that is not finite as a float32.
    """
    length = int.from_bytes(file.read(_SIZE_BYTES), "little")
    if size < _SIZE_BYTES or not 2 <= length <= min(size - _SIZE_BYTES, _LONGEST_HEAD):
        raise TensorError(f"a head of {length:,} bytes in {size:,}")
    head = _head(file.read(length))
    metadata = head.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise TensorError(f"{_METADATA} without texts")
    arrays: Arrays = {}
    reached, available = 0, size - _SIZE_BYTES - length
    for (begin, end), name, kind, shape in sorted(_entry(*item, kinds) for item in head.items()):
        if begin != reached or end > available:
            raise TensorError(f"{shown(name)} at bytes {begin:,} to {end:,} of {available:,}, not from {reached:,} on")
        if mapped and end - begin >= _MAPPED_BYTES:
            place = _SIZE_BYTES + length + begin
            arrays[name] = np.asarray(np.memmap(file, _TYPES[kind], "c", place, shape))
            file.seek(place + end - begin)
        else:
            arrays[name] = _read(file, name, kind, shape)
        _check(name, arrays[name], finite)
        reached = end
    if reached != available:
        raise TensorError(f"{available:,} bytes of tensors, not {reached:,}")
    return arrays, metadata


def _head(text: bytes) -> dict[str, Any]:
    try:
        found = parse(text.decode("utf-8"), "JSON", Where("head"))
    except (SoulsGraphError, UnicodeDecodeError) as error:
        raise TensorError(f"no head of a safetensors file ({shown(str(error))})") from error
    if not isinstance(found, dict):
        raise TensorError("a head without a table")
    return found


def _entry(name: str, entry: Any, kinds: Collection[str]) -> tuple[tuple[int, int], str, str, tuple[int, ...]]:
    """Return a tensor's place among the bytes, its name, type and shape."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise TensorError(f"{shown(name)} without type, shape and place")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in kinds:
        raise TensorError(f"{shown(name)} as {shown(kind)}, not {' or '.join(kinds)}")
    if not _whole(shape) or not _whole(offsets) or len(offsets) != 2 or len(shape) > _MOST_AXES:
        raise TensorError(f"{shown(name)} of shape {shown(shape)} at {shown(offsets)}")
    nbytes = prod(shape) * np.dtype(_TYPES[kind]).itemsize
    if offsets[1] - offsets[0] != nbytes:
        raise TensorError(f"{offsets[1] - offsets[0]:,} bytes of {shown(name)}, not {nbytes:,}")
    return (offsets[0], offsets[1]), name, kind, tuple(shape)


def _whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(number) is int and number >= 0 for number in numbers)


def _read(file: BinaryIO, name: str, kind: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.empty(shape, _TYPES[kind])
    except ValueError as error:
        # Without a single value a shape may be of any size.
        raise TensorError(f"{shown(name)} of shape {shown(shape)}") from error
    raw = array.reshape(-1).view(np.uint8).data
    if file.readinto(raw) != len(raw):  # type: ignore[attr-defined]
        raise TensorError(f"the end of the file in {shown(name)}")
    return array


def _check(name: str, array: npt.NDArray[Any], only_finite: bool) -> None:
    """Refuse bytes that are no value of their type, and numbers that are not finite where they are to be."""
    flat = array.reshape(-1)
    if array.dtype == np.bool_ and not (flat.view(np.uint8) <= 1).all():
        raise TensorError(f"{shown(name)} with values other than true and false")
    if only_finite and array.dtype.kind == "f" and not finite(flat):
        raise TensorError(f"numbers in {shown(name)} that are not finite")


def finite(array: npt.NDArray[Any]) -> bool:
    """Return whether all numbers of a C-contiguous array are finite as float32, without another array of its size."""
    flat = array.reshape(-1)
    limit, step = float(np.finfo(np.float32).max), _PART_BYTES // 8
    parts = (flat[begin : begin + step] for begin in range(0, len(flat), step))
    # NaN is neither.
    return all(bool(((part >= -limit) & (part <= limit)).all()) for part in parts)


def write_tensor_file(file: BinaryIO, arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write tensors, which are C-contiguous, and texts for the head, without a copy of the tensors.

    Raises:
        OSError: if it cannot be written.
    """
    names = {np.dtype(kind): name for name, kind in _TYPES.items()}
    head: dict[str, Any] = {_METADATA: dict(metadata)}
    end = 0
    # Larger types first, so that every tensor begins at a multiple of its type's size.
    ordered = sorted(arrays.items(), key=lambda item: -item[1].itemsize)
    for name, array in ordered:
        begin, end = end, end + array.nbytes
        head[name] = {"dtype": names[array.dtype], "shape": array.shape, "data_offsets": (begin, end)}
    text = to_json(head, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    file.write(len(text).to_bytes(_SIZE_BYTES, "little") + text)
    for _, array in ordered:
        raw = array.reshape(-1).view(np.uint8).data
        for begin in range(0, len(raw), _PART_BYTES):
            file.write(raw[begin : begin + _PART_BYTES])
