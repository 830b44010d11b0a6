from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromGame(_message.Message):
    __slots__ = ("hello", "chunk", "health")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    chunk: Chunk
    health: Health
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., health: _Optional[_Union[Health, _Mapping]] = ...) -> None: ...

class ToGame(_message.Message):
    __slots__ = ("task", "weights", "acknowledgement", "stop", "acknowledged")
    TASK_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGEMENT_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    task: Task
    weights: Weights
    acknowledgement: Acknowledgement
    stop: Stop
    acknowledged: _containers.RepeatedCompositeFieldContainer[Acknowledgement]
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ..., weights: _Optional[_Union[Weights, _Mapping]] = ..., acknowledgement: _Optional[_Union[Acknowledgement, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ..., acknowledged: _Optional[_Iterable[_Union[Acknowledgement, _Mapping]]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "version", "pc", "game", "boot", "driver", "lanes", "digests", "only_asks", "machine", "reads_acknowledged")
    class DigestsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PC_FIELD_NUMBER: _ClassVar[int]
    GAME_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    ONLY_ASKS_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    READS_ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    version: str
    pc: str
    game: str
    boot: str
    driver: str
    lanes: int
    digests: _containers.ScalarMap[str, str]
    only_asks: bool
    machine: str
    reads_acknowledged: bool
    def __init__(self, protocol: _Optional[int] = ..., version: _Optional[str] = ..., pc: _Optional[str] = ..., game: _Optional[str] = ..., boot: _Optional[str] = ..., driver: _Optional[str] = ..., lanes: _Optional[int] = ..., digests: _Optional[_Mapping[str, str]] = ..., only_asks: bool = ..., machine: _Optional[str] = ..., reads_acknowledged: bool = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("boot", "sequence", "stage", "attempt", "weights_version", "lane_ticks", "decisions", "columns", "versions", "ticks", "frozen")
    class DecisionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    BOOT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_VERSION_FIELD_NUMBER: _ClassVar[int]
    LANE_TICKS_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    TICKS_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    boot: str
    sequence: int
    stage: str
    attempt: str
    weights_version: int
    lane_ticks: int
    decisions: _containers.ScalarMap[str, int]
    columns: bytes
    versions: _containers.RepeatedScalarFieldContainer[int]
    ticks: _containers.RepeatedScalarFieldContainer[int]
    frozen: bytes
    def __init__(self, boot: _Optional[str] = ..., sequence: _Optional[int] = ..., stage: _Optional[str] = ..., attempt: _Optional[str] = ..., weights_version: _Optional[int] = ..., lane_ticks: _Optional[int] = ..., decisions: _Optional[_Mapping[str, int]] = ..., columns: _Optional[bytes] = ..., versions: _Optional[_Iterable[int]] = ..., ticks: _Optional[_Iterable[int]] = ..., frozen: _Optional[bytes] = ...) -> None: ...

class Health(_message.Message):
    __slots__ = ("state", "note", "ticks", "weights_version", "waiting_chunks", "finished_decisions", "lost_decisions", "metrics")
    class LostDecisionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STATE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    TICKS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_VERSION_FIELD_NUMBER: _ClassVar[int]
    WAITING_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_DECISIONS_FIELD_NUMBER: _ClassVar[int]
    LOST_DECISIONS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    state: str
    note: str
    ticks: int
    weights_version: int
    waiting_chunks: int
    finished_decisions: int
    lost_decisions: _containers.ScalarMap[str, int]
    metrics: _containers.ScalarMap[str, float]
    def __init__(self, state: _Optional[str] = ..., note: _Optional[str] = ..., ticks: _Optional[int] = ..., weights_version: _Optional[int] = ..., waiting_chunks: _Optional[int] = ..., finished_decisions: _Optional[int] = ..., lost_decisions: _Optional[_Mapping[str, int]] = ..., metrics: _Optional[_Mapping[str, float]] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("stage", "attempt", "description", "first_lane", "seed", "speed")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    FIRST_LANE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    SPEED_FIELD_NUMBER: _ClassVar[int]
    stage: str
    attempt: str
    description: str
    first_lane: int
    seed: int
    speed: float
    def __init__(self, stage: _Optional[str] = ..., attempt: _Optional[str] = ..., description: _Optional[str] = ..., first_lane: _Optional[int] = ..., seed: _Optional[int] = ..., speed: _Optional[float] = ...) -> None: ...

class Weights(_message.Message):
    __slots__ = ("version", "arrays", "decisions")
    class DecisionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    version: int
    arrays: bytes
    decisions: _containers.ScalarMap[str, int]
    def __init__(self, version: _Optional[int] = ..., arrays: _Optional[bytes] = ..., decisions: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Acknowledgement(_message.Message):
    __slots__ = ("boot", "sequences", "refused")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    BOOT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    boot: str
    sequences: _containers.RepeatedScalarFieldContainer[int]
    refused: _containers.ScalarMap[str, int]
    def __init__(self, boot: _Optional[str] = ..., sequences: _Optional[_Iterable[int]] = ..., refused: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("reason", "refused", "after_fight")
    REASON_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIGHT_FIELD_NUMBER: _ClassVar[int]
    reason: str
    refused: bool
    after_fight: bool
    def __init__(self, reason: _Optional[str] = ..., refused: bool = ..., after_fight: bool = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("pc", "game", "first_lane", "refused", "chunk")
    PC_FIELD_NUMBER: _ClassVar[int]
    GAME_FIELD_NUMBER: _ClassVar[int]
    FIRST_LANE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    pc: str
    game: str
    first_lane: int
    refused: str
    chunk: Chunk
    def __init__(self, pc: _Optional[str] = ..., game: _Optional[str] = ..., first_lane: _Optional[int] = ..., refused: _Optional[str] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ...) -> None: ...

class Before(_message.Message):
    __slots__ = ("stage", "attempt", "position", "seen", "decisions")
    class SeenEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Ranges
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Ranges, _Mapping]] = ...) -> None: ...
    class DecisionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    stage: str
    attempt: str
    position: int
    seen: _containers.MessageMap[str, Ranges]
    decisions: _containers.ScalarMap[str, int]
    def __init__(self, stage: _Optional[str] = ..., attempt: _Optional[str] = ..., position: _Optional[int] = ..., seen: _Optional[_Mapping[str, Ranges]] = ..., decisions: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Ranges(_message.Message):
    __slots__ = ("bounds",)
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    bounds: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, bounds: _Optional[_Iterable[int]] = ...) -> None: ...
