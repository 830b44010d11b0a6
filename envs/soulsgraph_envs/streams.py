"""Counter-based random streams: one per lane and episode, the same whatever runs beside it.

The generator is splitmix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
generators"): 64 bits of state, one multiply-xorshift mix a draw, equally usable from compiled code.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit, uint64

Seeds = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = (np.uint64(n) for n in (30, 27, 31, 11))
_UNIT = 1.0 / (1 << 53)


@njit(uint64(uint64), cache=True, inline="always")
def mix(state: np.uint64) -> np.uint64:
    """Scramble one 64-bit word."""
    word = (state ^ (state >> _S30)) * _MIX_1
    word = (word ^ (word >> _S27)) * _MIX_2
    return word ^ (word >> _S31)


@njit(cache=True, inline="always")
def uniform(streams: Seeds, lane: int) -> float:
    """Draw from [0, 1) with 53 bits and advance the lane's stream in place."""
    streams[lane] = streams[lane] + _GOLDEN
    return np.float64(mix(streams[lane]) >> _S11) * _UNIT


@njit(cache=True)
def uniforms(streams: Seeds, lanes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Draw one number from [0, 1) for each of `lanes`, advancing only those streams."""
    out = np.empty(len(lanes))
    for i in range(len(lanes)):
        out[i] = uniform(streams, lanes[i])
    return out


@njit(cache=True)
def _fold(words: Seeds, word: int) -> Seeds:
    out = np.empty_like(words)
    for i in range(len(words)):
        out[i] = mix(mix(words[i] + _GOLDEN) ^ (word * _GOLDEN + _MIX_1))
    return out


def derive_seeds(seeds: npt.ArrayLike, *path: int) -> Seeds:
    """Derive independent streams from seeds along a path of integers, (n,) -> (n,).

    Equal seeds and paths give equal streams; different ones give unrelated streams.
    """
    words = np.atleast_1d(np.asarray(seeds, dtype=np.uint64))
    for word in path:
        words = _fold(words, np.uint64(word))
    return words


@njit(cache=True)
def _pair(seed: int, lanes: Seeds, episodes: Seeds) -> Seeds:
    out = np.empty(max(len(lanes), len(episodes)), np.uint64)
    for i in range(len(out)):
        word = mix(mix(seed + _GOLDEN) ^ (lanes[i % len(lanes)] * _GOLDEN + _MIX_1))
        out[i] = mix(mix(word + _GOLDEN) ^ (episodes[i % len(episodes)] * _GOLDEN + _MIX_1))
    return out


def episode_seeds(seed: int, lanes: npt.ArrayLike, episodes: npt.ArrayLike) -> Seeds:
    """Give the seed of each (lane, episode) pair of a run, (n,); one lane or episode goes with all others."""
    pairs: Seeds = _pair(np.uint64(seed), *(np.atleast_1d(np.asarray(words, np.uint64)) for words in (lanes, episodes)))
    return pairs
