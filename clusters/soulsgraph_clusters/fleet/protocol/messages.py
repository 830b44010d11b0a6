"""What messages between a PC and the head hold, and how it is checked, in both directions.

First the bounds of every number, text and size. What only describes (a game's health, the reason of a stop) is brought
within its bounds, so that a wrong number costs nobody a fight; what decides anything is refused by name. Then
transitions, episodes and weights as bytes: safetensors files, checked column by column when read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.settings import (
    METRICS_READER,
    MOST_MESSAGE_BYTES,
    PROTOCOL,
    FleetError,
    FleetSettings,
    digests,
)
from soulsgraph_envs.combat.rollout import Episodes
from soulsgraph_envs.core.errors import plain_number, shown
from soulsgraph_envs.core.extras import installed_version
from soulsgraph_envs.core.state import STATE_SIZE
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.agents.library import LibraryError, read_tensors
from soulsgraph_policies.learning.sampler import Chunk, Moments, Transitions

#: Decisions of a module in one chunk, far more than a second of any game brings; modules of a stage.
MOST_DECISIONS, MOST_MODULES = 8192, 64
#: The newest version of weights, and counts since a boot or a stage began: whole numbers that a float64 holds exactly.
MOST_VERSION, MOST_COUNT = 2**31 - 1, 2**53
#: Seconds, milliseconds and counts among a game's metrics: 30,000 years.
_MOST_METRIC = 1e12
#: Characters of a name, of a note for people, and of what stays in one line of a page.
LONGEST_NAME, LONGEST_NOTE = 200, 500
_LONGEST_REASON = 2_000
#: Characters of the name of a game or a driver.
_LONGEST_NAME = 60
#: Has the decisions of a chunk that said more.
_NO_MODULE = "?"
#: Lanes of a game at most.
MOST_LANES = 256
_BOOT = re.compile(r"[0-9a-f]{8,32}")


@dataclass(frozen=True)
class Bound:
    """A field's bounds: its numbers, the characters or bytes of its texts, and its entries where it has several.

    Of a map `low` to `high` holds its values where they are numbers, and `length` its names and other values.
    """

    low: float = 0.0
    high: float = 0.0
    length: int = 0
    entries: int = 1


def _whole(high: float, length: int = 0, entries: int = 1) -> Bound:
    return Bound(0, high, length, entries)


def _text(length: int) -> Bound:
    return Bound(length=length)


_NAME, _ID, _YES_NO = _text(LONGEST_NAME), _text(64), _whole(1)
#: Every field of what games and heads send each other, by message and name; a test compares it with the messages.
BOUNDS: dict[str, Bound] = {
    # Other protocols, names and numbers of lanes are refused with a reason of their own.
    "Hello.protocol": _whole(2**32 - 1),
    "Hello.version": _NAME,
    "Hello.pc": _NAME,
    "Hello.game": _NAME,
    "Hello.boot": _ID,
    "Hello.driver": _NAME,
    "Hello.lanes": _whole(2**31 - 1),
    "Hello.digests": Bound(length=LONGEST_NAME, entries=1_000),
    "Hello.only_asks": _YES_NO,
    "Hello.machine": _ID,
    "Chunk.boot": _ID,
    "Chunk.sequence": _whole(MOST_COUNT),
    "Chunk.stage": _NAME,
    "Chunk.attempt": _NAME,
    "Chunk.weights_version": _whole(MOST_VERSION),
    "Chunk.lane_ticks": _whole(2**31 - 1),
    "Chunk.decisions": _whole(MOST_DECISIONS, LONGEST_NAME, MOST_MODULES),
    "Chunk.columns": _text(MOST_MESSAGE_BYTES),
    "Chunk.versions": _whole(MOST_VERSION, entries=MOST_MODULES * MOST_DECISIONS),
    "Chunk.ticks": _whole(MOST_COUNT, entries=MOST_MODULES * MOST_DECISIONS),
    "Chunk.frozen": _text(LONGEST_NAME),
    "Health.state": _text(LONGEST_NOTE),
    "Health.note": _text(LONGEST_NOTE),
    "Health.ticks": _whole(MOST_COUNT),
    "Health.weights_version": _whole(MOST_VERSION),
    "Health.waiting_chunks": _whole(MOST_COUNT),
    "Health.finished_decisions": _whole(MOST_COUNT),
    "Health.lost_decisions": _whole(MOST_COUNT, LONGEST_NAME, 256),
    "Health.metrics": _whole(_MOST_METRIC, LONGEST_NAME, 256),
    "Task.stage": _NAME,
    "Task.attempt": _NAME,
    "Task.description": _text(2**20),
    "Task.first_lane": _whole(2**31 - 1),
    "Task.seed": _whole(2**63 - 1),
    # 0 leaves it to the PC's own file.
    "Task.speed": _whole(100.0),
    "Weights.version": _whole(MOST_VERSION),
    "Weights.arrays": _text(MOST_MESSAGE_BYTES),
    "Weights.decisions": _whole(MOST_COUNT, LONGEST_NAME, MOST_MODULES),
    "Acknowledgement.boot": _ID,
    "Acknowledgement.sequences": _whole(MOST_COUNT, entries=2**18),
    "Acknowledgement.refused": _whole(MOST_COUNT, LONGEST_NAME, MOST_MODULES),
    "Stop.reason": _text(_LONGEST_REASON),
    "Stop.refused": _YES_NO,
    "Stop.after_fight": _YES_NO,
    "ToGame.acknowledged": Bound(entries=2**16),
}
#: Messages that only describe.
_DESCRIBING = ("Health", "Stop")
#: Messages for which `check_hello` and `bounded_chunk` name what is wrong.
_WITH_REFUSALS = ("Hello", "Chunk")
_REMEDY = "use the head's version of soulsgraph on the PC"

Message = TypeVar("Message", wire.FromGame, wire.ToGame)


def parse_message(kind: type[Message], data: bytes, who: str) -> Message:
    """Return a message whose fields are within their bounds; a hello and a chunk have refusals of their own.

    Raises:
        FleetError: if the bytes are none, or a field that decides something is out of its bounds.
    """
    try:
        message: Message = kind.FromString(data)
    # The parser's own error has no name that every release shares.
    except Exception as error:
        raise FleetError(f"fleet: expected a message of protocol 1, found other bytes; update the {who}.") from error
    for name, value in _parts(message):
        if name in _DESCRIBING:
            _clamp(name, value)
        elif name not in _WITH_REFUSALS and (found := problem(value)):
            raise FleetError(f"fleet: expected {found}; {_REMEDY}.")
    return message


def _parts(message: wire.FromGame | wire.ToGame) -> list[tuple[str, Any]]:
    """Return the messages within one, each with the name of its kind."""
    found: list[tuple[str, Any]] = []
    for field, value in message.ListFields():
        entries = value if _is_list(value) else [value]
        if _is_list(value) and len(entries) > (most := BOUNDS[f"ToGame.{field.name}"].entries):
            raise FleetError(f"fleet: expected at most {most:,} {field.name}, found {len(entries):,}; {_REMEDY}.")
        found += [(field.message_type.name, entry) for entry in entries]
    return found


def problem(message: Any) -> str:
    """Return which field of a message is out of its bounds, as expected and found; empty if none is."""
    kind = message.DESCRIPTOR.name
    for field, value in message.ListFields():
        bound, name = BOUNDS[f"{kind}.{field.name}"], f"{kind.lower()}'s {field.name}"
        if (_is_list(value) or _is_map(value)) and len(value) > bound.entries:
            return f"{name} with at most {bound.entries:,} entries, found {len(value):,}"
        if _is_map(value):
            entries = [*value, *value.values()]
        else:
            # Of numbers by the thousand the least and the greatest stand for all.
            entries = [min(value), max(value)] if _is_list(value) else [value]
        for one in entries:
            if isinstance(one, str | bytes):
                if len(one) > bound.length:
                    return f"{name} of at most {bound.length:,} characters, found {len(one):,}"
            elif not bound.low <= one <= bound.high:
                return f"{name} from {bound.low:g} to {bound.high:.17g}, found {shown(one)}"
    return ""


def _is_list(value: object) -> bool:
    return hasattr(value, "append")


def _is_map(value: object) -> bool:
    return hasattr(value, "items")


def _clamp(kind: str, message: Any) -> None:
    """Bring every field of a message within its bounds; of a map the first names stay, and only finite numbers."""
    message.DiscardUnknownFields()
    for field, value in message.ListFields():
        bound = BOUNDS[f"{kind}.{field.name}"]
        if _is_map(value):
            kept = {
                plain(name, bound.length): _clamped(value[name], bound)
                for name in sorted(value)[: bound.entries]
                if math.isfinite(value[name])
            }
            value.clear()
            value.update(kept)
        elif isinstance(value, str):
            setattr(message, field.name, plain(" ".join(value.split()), bound.length))
        else:
            setattr(message, field.name, _clamped(value, bound))


def _clamped(value: Any, bound: Bound) -> Any:
    kind = type(value)
    return kind(min(max(value, bound.low), bound.high))


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
    if name == METRICS_READER:
        raise FleetError(f"fleet: expected a PC's token, found that of {name}, which reads the metrics alone.")
    if settings.pcs and name not in settings.pcs:
        raise FleetError(f"fleet: expected a PC of the fleet's file, found {name}; add it there.")
    if not hello.game.isprintable() or "/" in hello.game or not 1 <= len(hello.game) <= _LONGEST_NAME:
        raise FleetError(f"{name}: expected a game's name of 1 to {_LONGEST_NAME} characters without a slash.")
    if not hello.driver.isprintable() or len(hello.driver) > _LONGEST_NAME:
        raise FleetError(f"{name}: expected a driver's name, found {shown(hello.driver)}; {_REMEDY}.")
    if not 1 <= hello.lanes <= MOST_LANES:
        raise FleetError(f"{name}: expected 1 to {MOST_LANES} lanes a game, found {hello.lanes}.")
    if hello.machine and not _BOOT.fullmatch(hello.machine):
        found = shown(hello.machine)
        raise FleetError(f"{name}: expected a machine's id of hexadecimal digits, found {found}; {_REMEDY}.")
    if not hello.only_asks and not _BOOT.fullmatch(hello.boot):
        raise FleetError(f"{name}: expected a boot id of hexadecimal digits, found {shown(hello.boot)}; {_REMEDY}.")
    if found := problem(hello):
        raise FleetError(f"{name}: expected {found}; {_REMEDY}.")
    if found := other_code(hello, settings):
        raise FleetError(f"{name}{address and f' ({address})'}: {found}.")


def other_code(hello: wire.Hello, settings: FleetSettings) -> str:
    """Return in what a game would play otherwise than the head, expected, found and remedy; empty if in nothing."""
    for what, digest in digests().items():
        there = hello.digests.get(what, "")
        if there != digest:
            expected = f"the head's {what} ({digest[:12]} of version {installed_version()})"
            found = f"{plain(there[:12]) or 'none'} of soulsgraph {plain(hello.version) or 'unknown'}"
            return f"expected {expected}, found {found}; install the head's version on the PC"
    return ""


def bounded_chunk(chunk: wire.Chunk) -> wire.Chunk:
    """Return a chunk as the journal may keep it, whatever its verdict.

    One that says more than any chunk can keeps its number and the count of its decisions, and no columns: it is refused
    by name like others that cannot be learned from, so that its PC does not send it again and again.

    Raises:
        FleetError: if nobody could say which chunk it is.
    """
    if not _BOOT.fullmatch(chunk.boot):
        raise FleetError(f"chunk: expected a boot id of hexadecimal digits, found {shown(chunk.boot)}; {_REMEDY}.")
    if chunk.sequence > BOUNDS["Chunk.sequence"].high:
        raise FleetError(f"chunk: expected {problem(wire.Chunk(sequence=chunk.sequence))}; {_REMEDY}.")
    chunk.DiscardUnknownFields()
    if not problem(chunk):
        return chunk
    return wire.Chunk(
        boot=chunk.boot,
        sequence=chunk.sequence,
        stage=chunk.stage[:LONGEST_NAME],
        attempt=chunk.attempt[:LONGEST_NAME],
        weights_version=min(chunk.weights_version, int(BOUNDS["Chunk.weights_version"].high)),
        decisions={_NO_MODULE: min(sum(chunk.decisions.values()), MOST_MODULES * MOST_DECISIONS)},
    )


Arrays = dict[str, npt.NDArray[Any]]

#: Observations, rewards and seconds are far smaller in any fight; the square of one still is a float32.
_MOST_VALUE = 1e9
_TRANSITIONS, _EPISODES = "transitions", "episodes"
#: Types of columns.
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
    found: dict[str, dict[str, dict[str, Any]]] = {_TRANSITIONS: {}, _EPISODES: {}}
    for name, array in _load(data).items():
        kind, _, rest = name.partition("/")
        owner, _, column = rest.rpartition("/")
        if kind not in found or owner not in (spaces if kind == _TRANSITIONS else terms):
            raise _refusal("a column of the stage's modules and skills", repr(name[:100]))
        found[kind].setdefault(owner, {})[column] = array
    transitions, episodes = {}, {}
    for module, columns in found[_TRANSITIONS].items():
        size, actions = spaces[module]
        _check(module, columns, _TRANSITION_TYPES, {"observations": size, "next_observations": size})
        transitions[module] = Transitions(**columns)
        _require_decisions(module, transitions[module], actions)
    for skill, columns in found[_EPISODES].items():
        _check(skill, columns, _EPISODE_TYPES, {"rows": STATE_SIZE, "terms": terms[skill]})
        if not all(map(_within, columns.values())):
            raise _refusal(f"episodes of {skill} with values to {plain_number(_MOST_VALUE)}", "others")
        episodes[skill] = Episodes(**columns)
    return Chunk(transitions, episodes, 0)


def write_moments(moments: Mapping[str, Moments], chunk: wire.Chunk) -> None:
    """Write when a chunk's transitions were played, and the oldest weights that decided, into its message."""
    for _, own in sorted(moments.items()):
        chunk.versions.extend(own.versions.tolist())
        chunk.ticks.extend(own.ticks.tolist())
    chunk.weights_version = min(chunk.versions, default=0)


def check_moments(chunk: wire.Chunk) -> None:
    """Check what `write_moments` wrote.

    Raises:
        FleetError: if there are not as many as decisions, the oldest weights are others than the chunk says, or numbers
            are larger than any can be.
    """
    versions, ticks = chunk.versions, chunk.ticks
    if chunk.weights_version > MOST_VERSION:
        raise _refusal(f"weights of a version to {MOST_VERSION}", str(chunk.weights_version))
    count = sum(chunk.decisions.values())
    if not len(versions) == len(ticks) == count or min(versions, default=0) != chunk.weights_version:
        expected = f"versions and ticks of {count} decisions, the oldest {chunk.weights_version}"
        raise _refusal(expected, f"{len(versions)} and {len(ticks)}, or others")
    newest, latest = max(versions, default=0), max(ticks, default=0)
    if newest > MOST_VERSION or latest > MOST_COUNT:
        raise _refusal(f"versions to {MOST_VERSION} and ticks to {MOST_COUNT}", f"{newest} and {latest}")


def read_moments(chunk: wire.Chunk) -> dict[str, Moments]:
    """Read what `write_moments` wrote, (n,) each, by module.

    Raises:
        FleetError: as `check_moments`.
    """
    check_moments(chunk)
    names = sorted(chunk.decisions)
    places = np.cumsum([chunk.decisions[name] for name in names])[:-1]
    columns = (np.split(np.array(values, np.int64), places) for values in (chunk.versions, chunk.ticks))
    return {name: Moments(*own) for name, *own in zip(names, *columns, strict=True)}


def _require_decisions(module: str, found: Transitions, actions: int) -> None:
    """Require values that a module's transitions can have; raises FleetError."""
    within = (
        (found.actions >= 0).all() and (found.actions < actions).all(),
        (found.ticks >= 1).all() and (found.lanes >= 0).all(),
        # Who numbers a boot's episodes adds to them.
        (found.episodes >= 0).all() and (found.episodes <= MOST_COUNT).all(),
        all(_within(one) for one in (found.observations, found.next_observations, found.rewards, found.ticks)),
        _within(found.terminated),
    )
    if not all(within):
        raise _refusal(
            f"decisions of {module}'s {actions} actions with values to {plain_number(_MOST_VALUE)}", "others"
        )


def _within(values: npt.NDArray[Any]) -> bool:
    if values.dtype == _FLAG:
        # A file may hold any byte where a truth value should be.
        return bool((values.view(np.uint8) <= 1).all())
    # NaN is not, either.
    return bool((values <= _MOST_VALUE).all() and (values >= -_MOST_VALUE).all())


def _check(owner: str, columns: Arrays, types: Mapping[str, Any], widths: Mapping[str, int]) -> None:
    """Check names, types and shapes of one owner's columns, and their number of rows."""
    if columns.keys() != types.keys():
        raise _refusal(f"the columns {', '.join(types)} of {owner}", ", ".join(sorted(columns))[:200])
    count = columns["lanes"].shape[0] if columns["lanes"].shape else 0
    if not 1 <= count <= MOST_DECISIONS:
        raise _refusal(f"1 to {MOST_DECISIONS} rows of {owner}", str(count))
    for name, column in columns.items():
        shape = (count, widths[name]) if name in widths else (count,)
        if column.dtype != types[name] or column.shape != shape:
            expected = f"{owner}'s {name} as {np.dtype(types[name])} {shape}"
            raise _refusal(expected, f"{column.dtype} {column.shape}")


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
