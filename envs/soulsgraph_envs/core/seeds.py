"""Counter-based random streams: one per lane and episode, independent of what else runs.

The generator is splitmix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
generators"): 64 bits of state, one multiply-xorshift mix a draw, equally usable from compiled code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.compiling import cached
from soulsgraph_envs.core.errors import SeedError, UnknownNameError, shown

Seeds = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = (np.uint64(n) for n in (30, 27, 31, 11))
_UNIT = 1.0 / (1 << 53)


@cached(inline="always")
def mix(state: np.uint64) -> np.uint64:
    """Scramble one 64-bit word, a `numpy.uint64`."""
    word = (state ^ (state >> _S30)) * _MIX_1
    word = (word ^ (word >> _S27)) * _MIX_2
    return word ^ (word >> _S31)


@cached(inline="always")
def uniform(streams: Seeds, lane: int) -> float:
    """Draw from [0, 1) with 53 bits and advance the lane's stream in place."""
    streams[lane] = streams[lane] + _GOLDEN
    return np.float64(mix(streams[lane]) >> _S11) * _UNIT


@cached()
def uniforms(streams: Seeds, lanes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Draw a number from [0, 1) for each of `lanes` (m,), (m,); of `streams` (n,) only those advance."""
    out = np.empty(len(lanes))
    for i in range(len(lanes)):
        out[i] = uniform(streams, lanes[i])
    return out


def checked_seed(seed: object) -> int | None:
    """Return a seed as an integer of any size; None, which asks for entropy, stays None.

    Raises:
        SeedError: for anything but a non-negative integer, Python's or numpy's, or None.
    """
    if seed is None:
        return None
    try:
        number = -1 if isinstance(seed, bool) else index(seed)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if number < 0:
        raise SeedError(f"seed: expected an integer of at least 0, or None to draw one, found {shown(seed)}.")
    return int(number)


def checked_options(options: Mapping[str, Any] | None, names: Sequence[str]) -> Mapping[str, Any]:
    """Return the options of a reset, empty for None.

    Raises:
        UnknownNameError: for an option that is not one of `names`.
    """
    for name in options or {}:
        if name not in names:
            raise UnknownNameError("option of reset", name, names)
    return options or {}


@cached()
def _fold(words: Seeds, path: Seeds) -> Seeds:
    out = np.empty(len(words) if len(path) == 1 else len(path), np.uint64)
    for i in range(len(out)):
        out[i] = mix(mix(words[i % len(words)] + _GOLDEN) ^ (path[i % len(path)] * _GOLDEN + _MIX_1))
    return out


def derive_seeds(seeds: npt.ArrayLike, *path: npt.ArrayLike) -> Seeds:
    """Derive independent streams from seeds along a path of integers, (n,); a single one is broadcast.

    Equal seeds and paths give equal streams; different ones give unrelated streams. A single integer
    may have any size.

    Raises:
        SeedError: for a single integer below 0.
    """
    words = _words(_word(seeds) if isinstance(seeds, int) else seeds)
    for step in path:
        words = _fold(words, _words(step))
    return words


def _words(values: npt.ArrayLike) -> Seeds:
    return np.atleast_1d(np.asarray(values, dtype=np.uint64))


def _word(seed: int) -> int:
    """Return 64 bits of a seed: the seed itself if it fits."""
    number = checked_seed(seed) or 0
    return number if number < 2**64 else int(np.random.SeedSequence(number).generate_state(1, np.uint64)[0])


class EpisodeSeeds:
    """The seeds of each lane's episodes, one after the other: the same ones after every equal `restart`."""

    def __init__(self, lanes: int) -> None:
        self._streams: Seeds = np.zeros(lanes, np.uint64)
        self._episodes = np.full(lanes, -1)

    @property
    def begun(self) -> bool:
        """Whether every lane has its sequence."""
        return bool((self._episodes >= 0).all())

    def checked(self, seed: object) -> int | list[int | None] | None:
        """Return checked seeds for `restart`: one seed, or a list of one per lane.

        Raises:
            SeedError: as `checked_seed`, and for a list of another length.
        """
        if not isinstance(seed, list | tuple) and not getattr(seed, "ndim", 0):
            return checked_seed(seed)
        each = [checked_seed(one) for one in seed]  # type: ignore[attr-defined]
        if len(each) != len(self._streams):
            raise SeedError(f"seed: expected one, or a list of {len(self._streams)}, found a list of {len(each)}.")
        return each

    def restart(
        self,
        seed: int | Sequence[int | None] | None,
        random: np.random.Generator,
        lanes: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Begin the sequences of `lanes` (n,) again, by default of all.

        From one seed each lane gets a stream of its own, by its number; in a list each seed means what it
        means to a single lane. A lane without a seed continues; `random` draws its first.
        """
        alone = isinstance(seed, Sequence)
        each = seed if isinstance(seed, Sequence) else [seed] * len(self._streams)
        for lane in range(len(each)) if lanes is None else lanes.tolist():
            own = each[lane]
            if own is not None or self._episodes[lane] < 0:
                drawn = int(random.integers(2**63)) if own is None else own
                self._streams[lane] = derive_seeds(drawn, 0 if alone else lane)[0]
                self._episodes[lane] = 0

    def next(self, lanes: npt.NDArray[np.int64]) -> Seeds:
        """Return the seed of the next episode of each of `lanes` (n,), (n,)."""
        seeds = derive_seeds(self._streams[lanes], self._episodes[lanes])
        self._episodes[lanes] += 1
        return seeds
