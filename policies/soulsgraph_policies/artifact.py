"""One trained skill as files: weights in safetensors, a JSON card that says where they come from."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.errors import SoulsGraphError, shown
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.graph import SkillGraph
from soulsgraph_policies.inference import FrozenNetwork
from soulsgraph_policies.normalizer import RunningNormalizer
from soulsgraph_policies.weights import DEVIATION, HEAD, MEAN, Weights, layer_names_at

FORMAT_VERSION = 2
#: Its files name layers by their number and hold them as (inputs, outputs); they are read, and no longer written.
_OLD_FORMAT = 1

_RESTORE = "restore the file from a copy, or begin a new run"


class LibraryError(SoulsGraphError):
    """An artifact is missing, damaged, or not what it is taken for."""

    def __init__(self, source: object, expected: str, found: object, remedy: str = _RESTORE) -> None:
        super().__init__(f"{source}: expected {expected}, found {found}; {remedy}.")


@dataclass(frozen=True)
class NormalizerStatistics:
    """Running statistics of the raw observations, one value a column; `count` weighs them (float64)."""

    mean: tuple[float, ...]
    variance: tuple[float, ...]
    count: float

    @classmethod
    def of(cls, normalizer: RunningNormalizer) -> NormalizerStatistics:
        """Return a normaliser's statistics."""
        return cls(tuple(normalizer.mean.tolist()), tuple(normalizer.variance.tolist()), float(normalizer.count))

    def normalizer(self) -> RunningNormalizer:
        """Return a normaliser that continues the statistics."""
        normalizer = RunningNormalizer(len(self.mean))
        mean, variance = np.array(self.mean), np.array(self.variance)
        normalizer.set_state({"mean": mean, "variance": variance, "count": self.count})
        return normalizer


@dataclass(frozen=True)
class UpstreamArtifact:
    """A frozen skill that a skill was trained on, and the digest of its artifact."""

    skill: str
    version: int
    digest: str


@dataclass(frozen=True)
class Training:
    """How a skill was trained: `budget` and `steps` count its decisions, `created` is UTC in ISO 8601.

    `jointly` names all the skills that learned in the same fights, if it was not alone.
    """

    scenario: str
    start: str
    preset: str
    budget: int
    steps: int
    seed: int
    created: str
    packages: Mapping[str, str]
    jointly: tuple[str, ...] = ()


def package_versions() -> dict[str, str]:
    """Return the installed versions of what a training depends on."""
    return {name: version(name) for name in ("soulsgraph", "numba", "numpy", "ray", "torch")}


@dataclass(frozen=True)
class SkillCard:
    """What is known of one version of a skill.

    `observation` names the State columns it reads; a normalised observation is clipped at
    +-`observation_clip`. `layer_sizes` counts inputs, hidden units and actions; `sha256` is that
    of the weights file; `results` holds figures of the last greedy checkpoint by name.
    """

    skill: str
    version: int
    graph: str
    graph_skills: tuple[str, ...]
    graph_edges: tuple[tuple[str, str], ...]
    graph_digest: str
    observation: tuple[str, ...]
    normalizer: NormalizerStatistics
    layer_sizes: tuple[int, ...]
    observation_clip: float
    training: Training
    upstream: tuple[UpstreamArtifact, ...] = ()
    parent: int | None = None
    results: Mapping[str, float] = field(default_factory=dict)
    sha256: str = ""
    format_version: int = FORMAT_VERSION

    @property
    def digest(self) -> str:
        """Identify the artifact by what makes it play as it does: weights, inputs, graph and lineage."""
        return _sha256({name: value for name, value in asdict(self).items() if name not in ("training", "results")})

    @property
    def checksum(self) -> str:
        """Return a SHA-256 of everything the card says, how it was trained and evaluated included."""
        return _sha256(self._values())

    def to_dict(self) -> dict[str, Any]:
        """Return the card as plain values for JSON, its digest and checksum among them."""
        return self._values() | {"digest": self.digest, "checksum": self.checksum}

    def _values(self) -> dict[str, Any]:
        values = asdict(self)
        # A skill that learned alone has the card that it always had.
        if not self.training.jointly:
            del values["training"]["jointly"]
        return values


def _sha256(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Artifact:
    """A skill's card, and its parameters by the names and in the layout of `QNetworkModule.weights`.

    `parameters` holds the layers that play, float32, and those of the head that was trained, if it is another one.
    """

    card: SkillCard
    parameters: Weights

    @property
    def weights(self) -> Weights:
        """The parameters with the normaliser, as `QNetworkModule.load_weights` takes them."""
        normalizer = self.card.normalizer.normalizer()
        return {MEAN: normalizer.mean, DEVIATION: normalizer.deviation, **self.parameters}

    @property
    def playing(self) -> Weights:
        """The weights that play, without a head."""
        return {name: values for name, values in self.weights.items() if not name.startswith(f"{HEAD}.")}

    def network(self, skill: Skill, scenario: Scenario) -> FrozenNetwork:
        """Return the network that plays the skill in a scenario."""
        return FrozenNetwork.of(skill, scenario, self.playing, self.card.observation_clip)


def graph_fields(graph: SkillGraph) -> dict[str, Any]:
    """Return the fields of a card that describe its graph."""
    return {
        "graph": graph.name,
        "graph_skills": graph.skills,
        "graph_edges": graph.edges,
        "graph_digest": graph.digest,
    }


def artifact_from(card: SkillCard, tensors: Mapping[str, npt.NDArray[Any]], source: object) -> Artifact:
    """Put a card and the tensors of its weights file together.

    Raises:
        LibraryError: if a tensor is missing, or of another shape or type than the card says.
    """
    named = _renamed(card, tensors, source) if card.format_version == _OLD_FORMAT else dict(tensors)
    layers = list(pairwise(card.layer_sizes))
    for index, (inputs, outputs) in enumerate(layers):
        weight, bias = layer_names_at(index)
        _check_tensor(named, weight, (outputs, inputs), source)
        _check_tensor(named, bias, (outputs,), source)
    others = sorted(name for name in named if not name.startswith(f"{HEAD}."))
    if len(others) != 2 * len(layers):
        raise LibraryError(
            source, f"{2 * len(layers)} tensors and those of a head", f"{len(named)}: {', '.join(others)}"
        )
    return Artifact(card, named)


def _renamed(card: SkillCard, tensors: Mapping[str, npt.NDArray[Any]], source: object) -> Weights:
    """Return the tensors of the old format by today's names, in today's layout."""
    named: Weights = {}
    others = dict(tensors)
    for index, (inputs, outputs) in enumerate(pairwise(card.layer_sizes)):
        old = f"layer.{index}.weight", f"layer.{index}.bias"
        for name, new, shape in zip(old, layer_names_at(index), ((inputs, outputs), (outputs,)), strict=True):
            _check_tensor(tensors, name, shape, source)
            named[new] = np.ascontiguousarray(others.pop(name).T)
    return named | {name.removeprefix("extra."): values for name, values in others.items()}


def _check_tensor(tensors: Mapping[str, npt.NDArray[Any]], name: str, shape: tuple[int, ...], source: object) -> None:
    if name not in tensors:
        raise LibraryError(f"{source}: {name}", f"a float32 tensor {shape}", "none")
    tensor = tensors[name]
    if tensor.shape != shape or tensor.dtype != np.float32:
        raise LibraryError(f"{source}: {name}", f"a float32 tensor {shape}", f"{tensor.dtype} {tensor.shape}")


def card_from(values: object, source: object) -> SkillCard:
    """Read a card from plain values, every one of them checked; one written before cards had a checksum has none.

    Raises:
        LibraryError: if a value is missing, misspelt, of another type, or at odds with another.
    """
    reader = _Reader(values, source)
    written_as = reader.take("format_version", int)
    if written_as not in (_OLD_FORMAT, FORMAT_VERSION):
        expected, remedy = f"{_OLD_FORMAT} or {FORMAT_VERSION}", "use the version of soulsgraph that wrote it"
        raise LibraryError(f"{source}: format_version", expected, written_as, remedy)
    card = SkillCard(
        skill=reader.take("skill", str),
        version=reader.take("version", int),
        graph=reader.take("graph", str),
        graph_skills=reader.tuple_of("graph_skills", str),
        graph_edges=reader.pairs("graph_edges"),
        graph_digest=reader.take("graph_digest", str),
        observation=reader.tuple_of("observation", str),
        normalizer=_normalizer(reader.inner("normalizer")),
        layer_sizes=reader.tuple_of("layer_sizes", int),
        observation_clip=reader.take("observation_clip", float),
        training=_training(reader.inner("training")),
        upstream=tuple(_upstream(_Reader(value, f"{source}: upstream")) for value in reader.take("upstream", list)),
        parent=None if reader.values.get("parent") is None else reader.take("parent", int),
        results=reader.inner("results").all_of(float),
        sha256=reader.take("sha256", str),
        format_version=written_as,
    )
    sums = ("digest", "checksum") if written_as != _OLD_FORMAT or "checksum" in reader.values else ("digest",)
    written = {name: reader.take(name, str) for name in sums}
    reader.expect_no_other(SkillCard, "digest", "checksum")
    _check(card, source)
    for name, value in written.items():
        if (found := getattr(card, name)) != value:
            raise LibraryError(f"{source}: {name}", f"that of its content, {found[:16]}", value[:16])
    return card


class _Reader:
    def __init__(self, values: object, source: object) -> None:
        if not isinstance(values, dict):
            raise LibraryError(source, "an object of named values", type(values).__name__)
        self.values, self._source = values, source

    def take(self, key: str, kind: type) -> Any:
        value = self.values.get(key)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        finite = not isinstance(value, float) or math.isfinite(value)
        if not isinstance(value, kind) or isinstance(value, bool) or not finite:
            raise LibraryError(f"{self._source}: {key}", f"a value of type {kind.__name__}", shown(value))
        return value

    def inner(self, key: str) -> _Reader:
        return _Reader(self.take(key, dict), f"{self._source}: {key}")

    def all_of(self, kind: type) -> dict[str, Any]:
        """Return every value, checked but as written: a checksum tells 5 from 5.0."""
        for key in self.values:
            self.take(key, kind)
        return self.values

    def tuple_of(self, key: str, kind: type) -> tuple[Any, ...]:
        items = _Reader(dict(enumerate(self.take(key, list))), f"{self._source}: {key}")
        return tuple(items.take(index, kind) for index in items.values)

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        pairs: list[Any] = self.take(key, list)
        for pair in pairs:
            if not isinstance(pair, list) or [type(end) for end in pair] != [str, str]:
                raise LibraryError(f"{self._source}: {key}", "pairs of skills", shown(pair))
        return tuple((upstream, skill) for upstream, skill in pairs)

    def expect_no_other(self, kind: type, *more: str) -> None:
        unknown = set(self.values) - {f.name for f in fields(kind)} - {*more}
        if unknown:
            raise LibraryError(f"{self._source}: {min(unknown)}", "no such key", "it")


def _normalizer(reader: _Reader) -> NormalizerStatistics:
    reader.expect_no_other(NormalizerStatistics)
    mean, variance = reader.tuple_of("mean", float), reader.tuple_of("variance", float)
    return NormalizerStatistics(mean, variance, reader.take("count", float))


def _training(reader: _Reader) -> Training:
    reader.expect_no_other(Training)
    texts = {name: reader.take(name, str) for name in ("scenario", "start", "preset", "created")}
    numbers = {name: reader.take(name, int) for name in ("budget", "steps", "seed")}
    jointly = reader.tuple_of("jointly", str) if "jointly" in reader.values else ()
    return Training(**texts, **numbers, packages=reader.inner("packages").all_of(str), jointly=jointly)


def _upstream(reader: _Reader) -> UpstreamArtifact:
    reader.expect_no_other(UpstreamArtifact)
    return UpstreamArtifact(reader.take("skill", str), reader.take("version", int), reader.take("digest", str))


def _check(card: SkillCard, source: object) -> None:
    size = len(card.observation)
    if len(card.layer_sizes) < 2 or card.layer_sizes[0] != size or min(card.layer_sizes) < 1:
        expected = f"{size} inputs, then positive sizes"
        raise LibraryError(f"{source}: layer_sizes", expected, list(card.layer_sizes))
    for name, values in (("mean", card.normalizer.mean), ("variance", card.normalizer.variance)):
        if len(values) != size:
            raise LibraryError(f"{source}: normalizer.{name}", f"{size} values", f"{len(values)}")
    if card.observation_clip <= 0.0:
        raise LibraryError(f"{source}: observation_clip", "a positive number", card.observation_clip)
    if min(card.normalizer.variance) < 0.0 or card.normalizer.count < 0.0:
        raise LibraryError(f"{source}: normalizer", "no negative variance or count", card.normalizer)
