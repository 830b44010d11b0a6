"""What messages between a PC and the head hold, and how it is checked.

A message has a largest size; who a game is and what code it plays by is checked at its hello, and a chunk's columns one
by one before it is learned from: a wrong number there would spoil the weights. Transitions, episodes and weights are
safetensors files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.settings import (
    MOST_MESSAGE_BYTES,
    PROTOCOL,
    FleetError,
    FleetSettings,
    play_digest,
)
from soulsgraph_envs.combat.rollout import Episodes
from soulsgraph_envs.core.errors import shown
from soulsgraph_envs.core.extras import installed_version
from soulsgraph_envs.core.state import STATE_SIZE
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.agents.library import LibraryError, read_tensors
from soulsgraph_policies.learning.sampler import Chunk, Moments, Transitions

#: Decisions of a module in one chunk, far more than a second of any game brings.
MOST_DECISIONS = 8192
#: The key of the code's digest among those of a hello; others are of projects.
CODE = "code"
#: Lanes of a game at most.
MOST_LANES = 256
#: Boots and machines are hexadecimal digits.
_ID = re.compile(r"[0-9a-f]{8,32}")
_GAME = re.compile(r"[^/\x00-\x1f]{1,60}")
_REMEDY = "use the head's version of soulsgraph on the PC"

Message = TypeVar("Message", wire.FromGame, wire.ToGame)


def parse_message(kind: type[Message], data: bytes, who: str) -> Message:
    """Return a message; raises FleetError if the bytes are none."""
    try:
        message: Message = kind.FromString(data)
    # The parser's own error has no name that every release shares.
    except Exception as error:
        raise FleetError(
            f"fleet: expected a message of protocol {PROTOCOL}, found other bytes; update the {who}."
        ) from error
    return message


def to_bytes(message: wire.ToGame) -> bytes:
    """Return a message as it is sent."""
    data: bytes = message.SerializeToString()
    return data


def plain(text: str, most: int = 40) -> str:
    """Return the beginning of a peer's text as it may stand in one line."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:most])


def check_hello(hello: wire.Hello, name: str, settings: FleetSettings, address: str = "") -> None:
    """Refuse a game that may not play; `name` is the one its token was issued for, `address` its machine's.

    Raises:
        FleetError: naming what differs.
    """
    if hello.protocol != PROTOCOL:
        expected, found = f"protocol {PROTOCOL}", f"{hello.protocol} of soulsgraph {plain(hello.version)}"
        raise FleetError(f"fleet: expected {expected}, found {found}; install the head's version on the PC.")
    if hello.pc not in ("", name):
        raise FleetError(f"fleet: expected the PC that the token was issued for, {name}, found {hello.pc[:40]!r}.")
    if settings.pcs and name not in settings.pcs:
        raise FleetError(f"fleet: expected a PC of the fleet's file, found {name}; add it there.")
    if not _GAME.fullmatch(hello.game):
        raise FleetError(f"{name}: expected a game's name of 1 to 60 characters without a slash.")
    if not 1 <= hello.lanes <= MOST_LANES:
        raise FleetError(f"{name}: expected 1 to {MOST_LANES} lanes a game, found {hello.lanes}.")
    if not hello.only_asks and not _ID.fullmatch(hello.boot):
        raise FleetError(f"{name}: expected a boot id of hexadecimal digits, found {shown(hello.boot)}; {_REMEDY}.")
    if found := other_code(hello, settings):
        raise FleetError(f"{name}{address and f' ({address})'}: {found}.")


def other_code(hello: wire.Hello, settings: FleetSettings) -> str:
    """Return in what a game would play otherwise than the head, expected, found and remedy; empty if in nothing."""
    there, own = hello.digests.get(CODE, ""), play_digest()
    if there == own:
        return ""
    found = f"{plain(there[:12]) or 'none'} of soulsgraph {plain(hello.version) or 'unknown'}"
    expected = f"the head's code ({own[:12]} of version {installed_version()})"
    return f"expected {expected}, found {found}; install the head's version on the PC"


def check_chunk(chunk: wire.Chunk) -> None:
    """Refuse a chunk of which nobody could say which it is; raises FleetError."""
    if not _ID.fullmatch(chunk.boot) or chunk.sequence >= 2**63:
        raise FleetError(
            f"chunk: expected a boot and a number, found {shown(chunk.boot)}, {chunk.sequence}; {_REMEDY}."
        )


Arrays = dict[str, npt.NDArray[Any]]

#: Observations, rewards and seconds are far smaller in any fight; the square of one still is a float32.
_MOST_VALUE = 1e9
_TRANSITIONS, _EPISODES = "transitions", "episodes"
#: Types of columns, with their least and greatest values. A file may hold any byte where a truth value should be.
_FLOAT, _DOUBLE = ((kind, -_MOST_VALUE, _MOST_VALUE) for kind in (np.float32, np.float64))
_INTEGER, _FLAG = (np.int64, 0, _MOST_VALUE), (np.bool_, 0, 1)
#: Who numbers a boot's episodes adds to them.
_EPISODE = np.int64, 0, 2**53
_TRANSITION_TYPES: dict[str, Any] = {
    "observations": _FLOAT,
    "next_observations": _FLOAT,
    "actions": _INTEGER,
    "rewards": _FLOAT,
    "terminated": _FLAG,
    "ticks": (np.int64, 1, _MOST_VALUE),
    "lanes": _INTEGER,
    "episodes": _EPISODE,
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
    return np.ascontiguousarray(getattr(owner, name), types[name][0])


def _columns(data: bytes) -> dict[str, dict[str, Arrays]]:
    """Return the columns by kind, module or skill, and name."""
    found: dict[str, dict[str, Arrays]] = {_TRANSITIONS: {}, _EPISODES: {}}
    for name, array in _load(data).items():
        kind, _, rest = name.partition("/")
        owner, _, column = rest.rpartition("/")
        found.setdefault(kind, {}).setdefault(owner, {})[column] = array
    return found


def _chunk(transitions: Mapping[str, dict[str, Any]], episodes: Mapping[str, dict[str, Any]]) -> Chunk:
    return Chunk(
        {module: Transitions(**own) for module, own in transitions.items()},
        {skill: Episodes(**own) for skill, own in episodes.items()},
        0,
    )


def decode_columns(data: bytes) -> Chunk:
    """Read what `encode_columns` wrote, and `check_columns` let pass."""
    return _chunk(*_columns(data).values())


def check_columns(data: bytes, spaces: Mapping[str, tuple[int, int]], terms: Mapping[str, int]) -> Chunk:
    """Refuse what the stage's modules and skills could not have sent, and read the rest.

    `spaces` maps each module to its observed values and its number of actions, `terms` each skill to its number of
    reward terms.

    Raises:
        FleetError: naming the column that is missing, unknown, of another type or shape, or out of range.
    """
    transitions, episodes, *others = _columns(data).values()
    if strange := [*others, *(transitions.keys() - spaces), *(episodes.keys() - terms)]:
        raise _refusal("columns of the stage's modules and skills", repr(strange)[:100])
    for module, columns in transitions.items():
        size, actions = spaces[module]
        types = _TRANSITION_TYPES | {"actions": (np.int64, 0, actions - 1)}
        _check(module, columns, types, {"observations": size, "next_observations": size})
    for skill, columns in episodes.items():
        _check(skill, columns, _EPISODE_TYPES, {"rows": STATE_SIZE, "terms": terms[skill]})
    return _chunk(transitions, episodes)


def write_moments(moments: Mapping[str, Moments], chunk: wire.Chunk) -> None:
    """Write when a chunk's transitions were played, and the oldest weights that decided, into its message."""
    for _, own in sorted(moments.items()):
        chunk.versions.extend(own.versions.tolist())
        chunk.ticks.extend(own.ticks.tolist())
    chunk.weights_version = min(chunk.versions, default=0)


def check_moments(chunk: wire.Chunk) -> None:
    """Refuse a chunk without one version and one tick for each decision, or of which the oldest version is another.

    Raises:
        FleetError: with what was found.
    """
    count, versions = sum(chunk.decisions.values()), [*chunk.versions]
    if not len(versions) == len(chunk.ticks) == count or min(versions, default=0) != chunk.weights_version:
        expected = f"versions and ticks of {count} decisions, the oldest {chunk.weights_version}"
        raise _refusal(expected, f"{len(versions)} and {len(chunk.ticks)}, or others")


def read_moments(chunk: wire.Chunk) -> dict[str, Moments]:
    """Read what `write_moments` wrote and `check_moments` let pass, (n,) each, by module."""
    names = sorted(chunk.decisions)
    places = np.cumsum([chunk.decisions[name] for name in names], dtype=np.int64)[:-1]
    columns = (
        np.split(np.array(values, np.uint64).astype(np.int64), places) for values in (chunk.versions, chunk.ticks)
    )
    return {name: Moments(*own) for name, *own in zip(names, *columns, strict=True)}


def _check(owner: str, columns: Arrays, types: Mapping[str, Any], widths: Mapping[str, int]) -> None:
    """Refuse one owner's columns of other names, types or shapes, or with numbers that nothing can be computed from."""
    if columns.keys() != types.keys():
        raise _refusal(f"the columns {', '.join(types)} of {owner}", ", ".join(sorted(columns))[:200])
    count = len(columns["lanes"]) if columns["lanes"].ndim else 0
    for name, column in columns.items():
        kind, least, most = types[name]
        shape = (count, widths[name]) if name in widths else (count,)
        if column.dtype != kind or column.shape != shape or not 1 <= count <= MOST_DECISIONS:
            raise _refusal(f"{owner}'s {name} as {np.dtype(kind)} {shape}", f"{column.dtype} {column.shape}")
        values = column.view(np.uint8) if kind is np.bool_ else column
        # NaN is within no bounds.
        if not (np.minimum.reduce(values, None) >= least and np.maximum.reduce(values, None) <= most):
            raise _refusal(f"{owner}'s {name} from {least:g} to {most:g}", "others")


def _refusal(expected: str, found: str) -> FleetError:
    return FleetError(f"chunk: expected {expected}, found {found}; use the head's version of soulsgraph on the PC.")


def _load(data: bytes) -> Arrays:
    if len(data) > MOST_MESSAGE_BYTES:
        raise _refusal(f"at most {MOST_MESSAGE_BYTES:,} bytes", f"{len(data):,}")
    try:
        return read_tensors(data, "columns")
    except LibraryError as error:
        raise _refusal("a safetensors file", str(error)) from error


def encode_weights(weights: Mapping[str, Weights]) -> bytes:
    """Return modules' arrays by name as bytes."""
    return save({f"{module}/{name}": array.copy() for module, own in weights.items() for name, array in own.items()})


def decode_weights(data: bytes) -> dict[str, Weights]:
    """Read what `encode_weights` wrote.

    Raises:
        FleetError: if it is no such file, or has numbers that are not finite.
    """
    weights: dict[str, Weights] = {}
    for key, array in _load(data).items():
        if array.dtype not in (np.float32, np.float64) or not np.isfinite(array).all():
            raise _refusal("finite weights", repr(key[:100]))
        module, _, name = key.partition("/")
        weights.setdefault(module, {})[name] = array
    return weights
