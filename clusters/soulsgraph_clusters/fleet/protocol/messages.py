"""What each field of a message may hold: every number, text and size that comes by the wire, in both directions.

What only describes (a game's health, the reason of a stop) is brought within its bounds, so that a wrong number
costs nobody a fight. What decides anything is refused by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar

from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.settings import MOST_MESSAGE_BYTES, FleetError
from soulsgraph_envs.core.errors import shown

#: Decisions of a module in one chunk, far more than a second of any game brings; modules of a stage.
MOST_DECISIONS, MOST_MODULES = 8192, 64
#: The newest version of weights, and counts since a boot or a stage began: whole numbers that a float64 holds exactly.
MOST_VERSION, MOST_COUNT = 2**31 - 1, 2**53
#: Seconds, milliseconds and counts among a game's metrics: 30,000 years.
_MOST_METRIC = 1e12
#: Characters of a name, of a note for people, and of what stays in one line of a page.
LONGEST_NAME, LONGEST_NOTE = 200, 500
_LONGEST_REASON = 2_000


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


_NAME, _ID, _FLAG = _text(LONGEST_NAME), _text(64), _whole(1)
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
    "Hello.only_asks": _FLAG,
    "Hello.machine": _ID,
    "Hello.reads_acknowledged": _FLAG,
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
    "Stop.refused": _FLAG,
    "Stop.after_fight": _FLAG,
    "ToGame.acknowledged": Bound(entries=2**16),
}
#: Messages that only describe.
_DESCRIBING = ("Health", "Stop")
#: Messages for which `serving.check_hello` and `serving.bounded_chunk` name what is wrong.
_WITH_REFUSALS = ("Hello", "Chunk")
_REMEDY = "use the head's version of soulsgraph on the PC"

Message = TypeVar("Message", wire.FromGame, wire.ToGame)


def parse(kind: type[Message], data: bytes, who: str) -> Message:
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
                plain(name, bound.length): _within(value[name], bound)
                for name in sorted(value)[: bound.entries]
                if math.isfinite(value[name])
            }
            value.clear()
            value.update(kept)
        elif isinstance(value, str):
            setattr(message, field.name, plain(" ".join(value.split()), bound.length))
        else:
            setattr(message, field.name, _within(value, bound))


def _within(value: Any, bound: Bound) -> Any:
    kind = type(value)
    return kind(min(max(value, bound.low), bound.high))


def plain(text: str, most: int = 40) -> str:
    """Return the beginning of a peer's text as it may stand in one line."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:most])
