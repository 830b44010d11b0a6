"""Files of safetensors: damage is one line wherever one is read, and so are types and numbers that no weights have."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from fakes.runs import pretend_run
from soulsgraph.runs.evaluate import load_checkpoint
from soulsgraph.runs.plan import Plan
from soulsgraph_clusters.fleet.protocol.messages import check_columns, decode_weights
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.learning.checkpoint import FILE_NAME, read_training_state


def _file(head: object, values: bytes = b"") -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return len(text).to_bytes(8, "little") + text + values


def _one(kind: object, values: bytes, shape: object = None, offsets: object = None) -> bytes:
    entry = {"dtype": kind, "shape": [len(values)] if shape is None else shape}
    return _file({"a": entry | {"data_offsets": offsets or [0, len(values)]}}, values)


_DAMAGED = [
    *(_one(kind, bytes(16), [16]) for kind in ("BF16", 7)),
    *(_file(head, bytes(16)) for head in ([], {"a": 1})),
    *(_one("F32", bytes(16), shape) for shape in ([3], [-4], [10**30])),
    _one("F32", bytes(16), [4], [0, 8]),
    _one("F32", b"", [2**62, 0], [0, 0]),
    _file(b"\xff\xfe"),
    _file(b"[" * 100_000),
    b"",
    (2**63).to_bytes(8, "little") + b"{}",
    b"PK\x03\x04" + bytes(100),
]
_UNFIT = [
    *(_one(kind, bytes(16), [16 // size]) for kind, size in (("F16", 2), ("U16", 2), ("C64", 8), ("BOOL", 1))),
    *(save({"camera/a": np.array([1.0, odd], np.float32)}) for odd in (np.nan, np.inf, -np.inf)),
]


def _library(folder: Path):
    """Return a way to load a skill whose weights are some content, with a card that has its digest."""
    run = pretend_run(folder / "run", Plan(scale=0.01))
    card, place = run.library.card("camera", 1), run.path / "library" / "camera" / "v1"

    def read(content):
        (place / "weights.safetensors").write_bytes(content)
        changed = replace(card, sha256=hashlib.sha256(content).hexdigest())
        (place / "card.json").write_text(json.dumps(changed.to_dict()), encoding="utf-8")
        return run.library.load("camera", 1)

    return read


def _readers(folder: Path):
    """Return every reader of tensors, by name, as a function of a file's content."""

    def checkpoint(content):
        (file := folder / "step-000000001.safetensors").write_bytes(content)
        return load_checkpoint(file)

    def state(content):
        (folder / FILE_NAME).write_bytes(content)
        return read_training_state(folder)

    return {
        "library": _library(folder),
        "curve": checkpoint,
        "training state": state,
        "weights of a head": decode_weights,
        "chunk of a PC": lambda content: check_columns(content, {"camera": (3, 2)}, {"camera": 1}),
    }


def test_every_reader_refuses_damage_in_one_line(tmp_path):
    for name, read in _readers(tmp_path).items():
        for content in _DAMAGED:
            with pytest.raises(SoulsGraphError) as refusal:
                read(content)
            assert "\n" not in str(refusal.value), name


def test_types_and_numbers_that_weights_cannot_have_are_refused(tmp_path):
    readers = _readers(tmp_path)
    for name in readers.keys() - {"curve"}:
        for content in _UNFIT:
            with pytest.raises(SoulsGraphError):
                readers[name](content)
