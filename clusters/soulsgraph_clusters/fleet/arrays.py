"""Transitions, episodes and weights as bytes: safetensors files, checked column by column when read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from soulsgraph_clusters.fleet import fleet_pb2 as wire
from soulsgraph_clusters.fleet.settings import MOST_MESSAGE_BYTES, FleetError
from soulsgraph_envs.combat.episodes import Episodes
from soulsgraph_envs.core.state import STATE_SIZE
from soulsgraph_policies.inference import Weights
from soulsgraph_policies.sampler import Chunk, Moments, Transitions

Arrays = dict[str, npt.NDArray[Any]]

#: Decisions of a module in one chunk, far more than a second of any game brings.
MOST_DECISIONS = 8192
_MOST_VERSION, _MOST_TICK = 2**31 - 1, 2**53
_TRANSITIONS, _EPISODES = "transitions", "episodes"
_FLOAT, _DOUBLE, _INTEGER, _FLAG = np.float32, np.float64, np.int64, np.bool_
_TRANSITION_TYPES: dict[str, Any] = {
    "observations": _FLOAT,
    "next_observations": _FLOAT,
    "actions": _INTEGER,
    "rewards": _FLOAT,
    "terminated": _FLAG,
    "ticks": _INTEGER,
    "lanes": _INTEGER,
    "episodes": _INTEGER,
}
_EPISODE_TYPES: dict[str, Any] = {
    "lanes": _INTEGER,
    "lengths": _INTEGER,
    "seconds": _DOUBLE,
    "won": _FLAG,
    "died": _FLAG,
    "rows": _FLOAT,
    "terms": _FLOAT,
}


def encode_columns(chunk: Chunk) -> bytes:
    """Return a chunk's transitions and episodes as bytes."""
    arrays: Arrays = {}
    for module, transitions in chunk.transitions.items():
        for field in fields(Transitions):
            arrays[f"{_TRANSITIONS}/{module}/{field.name}"] = _typed(transitions, field.name, _TRANSITION_TYPES)
    for skill, episodes in chunk.episodes.items():
        if len(episodes):
            for name in _EPISODE_TYPES:
                arrays[f"{_EPISODES}/{skill}/{name}"] = _typed(episodes, name, _EPISODE_TYPES)
    return save(arrays)


def _typed(owner: object, name: str, types: Mapping[str, Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(getattr(owner, name), types[name])


def decode_columns(data: bytes, spaces: Mapping[str, tuple[int, int]], terms: Mapping[str, int]) -> Chunk:
    """Read what `encode_columns` wrote, and refuse whatever the stage's modules and skills could not have sent.

    `spaces` maps each module to its observed values and its number of actions, `terms` each skill to its number of
    reward terms.

    Raises:
        FleetError: naming the column that is missing, unknown, of another type or shape, or out of range.
    """
    found: dict[str, dict[str, dict[str, npt.NDArray[Any]]]] = {_TRANSITIONS: {}, _EPISODES: {}}
    for name, array in _load(data).items():
        kind, _, rest = name.partition("/")
        owner, _, column = rest.rpartition("/")
        if kind not in found or owner not in (spaces if kind == _TRANSITIONS else terms):
            raise _refusal("a column of the stage's modules and skills", repr(name[:100]))
        found[kind].setdefault(owner, {})[column] = array
    transitions = {name: _transitions(name, columns, spaces[name]) for name, columns in found[_TRANSITIONS].items()}
    episodes = {name: _episodes(name, columns, terms[name]) for name, columns in found[_EPISODES].items()}
    return Chunk(transitions, episodes, 0)


def write_moments(moments: Mapping[str, Moments], chunk: wire.Chunk) -> None:
    """Write when a chunk's transitions were played, and the oldest weights that decided, into its message."""
    for _, own in sorted(moments.items()):
        chunk.versions.extend(own.versions.tolist())
        chunk.ticks.extend(own.ticks.tolist())
    chunk.weights_version = min(chunk.versions, default=0)


def check_moments(chunk: wire.Chunk) -> None:
    """Check what `write_moments` wrote; an older host writes nothing.

    Raises:
        FleetError: if there are not as many as decisions, the oldest weights are others than the chunk says, or numbers
            are larger than any can be.
    """
    versions, ticks = chunk.versions, chunk.ticks
    if not versions and not ticks:
        return
    count = sum(chunk.decisions.values())
    if not len(versions) == len(ticks) == count or min(versions) != chunk.weights_version:
        expected = f"versions and ticks of {count} decisions, the oldest {chunk.weights_version}"
        raise _refusal(expected, f"{len(versions)} and {len(ticks)}, or others")
    if max(versions) > _MOST_VERSION or max(ticks) > _MOST_TICK:
        raise _refusal(f"versions to {_MOST_VERSION} and ticks to {_MOST_TICK}", f"{max(versions)} and {max(ticks)}")


def read_moments(chunk: wire.Chunk) -> dict[str, Moments]:
    """Read what `write_moments` wrote, (n,) each, by module; nothing of an older host.

    Raises:
        FleetError: as `check_moments`.
    """
    check_moments(chunk)
    if not chunk.versions:
        return {}
    names = sorted(chunk.decisions)
    places = np.cumsum([chunk.decisions[name] for name in names])[:-1]
    columns = (np.split(np.array(values, np.int64), places) for values in (chunk.versions, chunk.ticks))
    return {name: Moments(*own) for name, *own in zip(names, *columns, strict=True)}


def _transitions(module: str, columns: Arrays, space: tuple[int, int]) -> Transitions:
    size, actions = space
    count = _check(module, columns, _TRANSITION_TYPES, {"observations": size, "next_observations": size})
    found = Transitions(*(columns[name] for name in _TRANSITION_TYPES))
    within = (
        (found.actions >= 0).all() and (found.actions < actions).all(),
        (found.ticks >= 1).all() and (found.lanes >= 0).all(),
        all(np.isfinite(part).all() for part in (found.observations, found.next_observations, found.rewards)),
    )
    if not 1 <= count <= MOST_DECISIONS or not all(within):
        raise _refusal(f"1 to {MOST_DECISIONS} finite decisions of {module}'s {actions} actions", f"{count}, or others")
    return found


def _episodes(skill: str, columns: Arrays, terms: int) -> Episodes:
    count = _check(skill, columns, _EPISODE_TYPES, {"rows": STATE_SIZE, "terms": terms})
    if not 1 <= count <= MOST_DECISIONS or not all(np.isfinite(part).all() for part in columns.values()):
        raise _refusal(f"1 to {MOST_DECISIONS} finite episodes of {skill}", f"{count}, or others")
    lanes, lengths, seconds, won, died, rows, reward_terms = (columns[name] for name in _EPISODE_TYPES)
    return Episodes(lanes, lengths, seconds, won, died, rows, reward_terms)


def _check(owner: str, columns: Arrays, types: Mapping[str, Any], widths: Mapping[str, int]) -> int:
    """Check names, types and shapes of one owner's columns, and return their number of rows."""
    if columns.keys() != types.keys():
        raise _refusal(f"the columns {', '.join(types)} of {owner}", ", ".join(sorted(columns))[:200])
    count = len(columns["lanes"]) if columns["lanes"].ndim else 0
    for name, array in columns.items():
        shape = (count, widths[name]) if name in widths else (count,)
        if array.dtype != types[name] or array.shape != shape:
            expected = f"{owner}'s {name} as {np.dtype(types[name])} {shape}"
            raise _refusal(expected, f"{array.dtype} {array.shape}")
    return count


def _refusal(expected: str, found: str) -> FleetError:
    return FleetError(f"chunk: expected {expected}, found {found}; use the head's version of soulsgraph on the PC.")


def _load(data: bytes) -> Arrays:
    try:
        if len(data) > MOST_MESSAGE_BYTES:
            raise ValueError(f"{len(data)} bytes")
        arrays: Arrays = load(data)
    # A type that numpy lacks is a KeyError or an AttributeError there.
    except (SafetensorError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise _refusal("a safetensors file", str(error)[:200]) from error
    return arrays


def encode_weights(weights: Mapping[str, Weights]) -> bytes:
    """Return modules' arrays by name as bytes."""
    return save({f"{module}/{name}": array.copy() for module, own in weights.items() for name, array in own.items()})


def decode_weights(data: bytes) -> dict[str, Weights]:
    """Read what `encode_weights` wrote.

    Raises:
        FleetError: if it is no such file.
    """
    weights: dict[str, Weights] = {}
    for key, array in _load(data).items():
        module, _, name = key.partition("/")
        weights.setdefault(module, {})[name] = array
    return weights
