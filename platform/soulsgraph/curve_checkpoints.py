"""The weights that a stage keeps about every 1,000 decisions, one small file each."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load, save

from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_policies.atomic import reading, whole_file
from soulsgraph_policies.weights import Weights

_PREFIX = "step-"


def checkpoint_files(folder: Path) -> dict[int, Path]:
    """Return the files of a stage's checkpoints by their step, in order; none where the folder is missing."""
    return {int(path.stem.removeprefix(_PREFIX)): path for path in sorted(folder.glob(f"{_PREFIX}*.safetensors"))}


def save_checkpoint(folder: Path, step: int, weights: Weights) -> None:
    """Write the checkpoint of a step.

    Raises:
        WriteError: if the folder cannot be written.
    """
    with whole_file(folder / f"{_PREFIX}{step:09d}.safetensors") as temporary:
        temporary.write_bytes(save(dict(weights)))


def load_checkpoint(path: Path) -> Weights:
    """Read one checkpoint.

    Raises:
        SoulsGraphError: if it is damaged or cannot be read.
    """
    try:
        with reading(path):
            weights: Weights = load(path.read_bytes())
    except (FileNotFoundError, SafetensorError) as error:
        raise SoulsGraphError(
            f"{path}: expected the weights of a checkpoint, found: {error}; remove it: its point leaves the curve."
        ) from error
    return weights
