"""One trained skill as files: weights in safetensors, a JSON card that says where they come from."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.errors import DataError
from soulsgraph_policies.graph import SkillGraph

FORMAT_VERSION = 1

Floats = npt.NDArray[np.float32]
#: Weights (inputs, outputs) and biases (outputs,) of each layer.
Layers = tuple[tuple[Floats, Floats], ...]


@dataclass(frozen=True)
class NormalizerStatistics:
    """Running statistics of the raw observations, one value a column; `count` weighs them (float64)."""

    mean: tuple[float, ...]
    variance: tuple[float, ...]
    count: float


@dataclass(frozen=True)
class UpstreamArtifact:
    """A frozen skill that a skill was trained on, and the digest of its artifact."""

    skill: str
    version: int
    digest: str


@dataclass(frozen=True)
class Training:
    """How a skill was trained: `budget` and `steps` count its decisions, `created` is UTC in ISO 8601."""

    scenario: str
    start: str
    preset: str
    budget: int
    steps: int
    seed: int
    created: str
    packages: Mapping[str, str]


def package_versions() -> dict[str, str]:
    """Give the installed versions of what a training depends on."""
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
        essentials = {name: value for name, value in asdict(self).items() if name not in ("training", "results")}
        return hashlib.sha256(json.dumps(essentials, sort_keys=True).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Give the card as plain values for JSON, its digest among them."""
        return asdict(self) | {"digest": self.digest}


@dataclass(frozen=True)
class Artifact:
    """A skill's card, the layers of its Q-network, and further tensors by name (the target network)."""

    card: SkillCard
    layers: Layers
    extras: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


def graph_fields(graph: SkillGraph) -> dict[str, Any]:
    """Give the fields of a card that describe its graph."""
    return {
        "graph": graph.name,
        "graph_skills": graph.skills,
        "graph_edges": graph.edges,
        "graph_digest": graph.digest,
    }


def tensors_of(artifact: Artifact) -> dict[str, npt.NDArray[Any]]:
    """Name every tensor of an artifact as its weights file does."""
    named: dict[str, npt.NDArray[Any]] = {}
    for index, (weights, biases) in enumerate(artifact.layers):
        named[f"layer.{index}.weight"] = np.ascontiguousarray(weights, np.float32)
        named[f"layer.{index}.bias"] = np.ascontiguousarray(biases, np.float32)
    named |= {f"extra.{name}": np.ascontiguousarray(tensor) for name, tensor in artifact.extras.items()}
    return named


def artifact_from(card: SkillCard, tensors: Mapping[str, npt.NDArray[Any]], source: object) -> Artifact:
    """Put card and named tensors together.

    Raises:
        DataError: if a tensor is missing, or of another shape or type than the card says.
    """
    layers = []
    for index, (inputs, outputs) in enumerate(zip(card.layer_sizes, card.layer_sizes[1:], strict=False)):
        weights = _tensor(tensors, f"layer.{index}.weight", (inputs, outputs), source)
        layers.append((weights, _tensor(tensors, f"layer.{index}.bias", (outputs,), source)))
    prefix = "extra."
    extras = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    expected = 2 * len(layers) + len(extras)
    if len(tensors) != expected:
        raise DataError(source, "tensors", f"{expected}", f"{len(tensors)}: {', '.join(sorted(tensors))}")
    return Artifact(card, tuple(layers), extras)


def _tensor(tensors: Mapping[str, npt.NDArray[Any]], name: str, shape: tuple[int, ...], source: object) -> Floats:
    if name not in tensors:
        raise DataError(source, name, f"a float32 tensor {shape}", "none")
    tensor = tensors[name]
    if tensor.shape != shape or tensor.dtype != np.float32:
        raise DataError(source, name, f"a float32 tensor {shape}", f"{tensor.dtype} {tensor.shape}")
    return tensor


def card_from(values: object, source: object) -> SkillCard:
    """Read a card from plain values, every one of them checked.

    Raises:
        DataError: if a value is missing, misspelt, of another type, or at odds with another.
    """
    reader = _Reader(values, source)
    written_digest = reader.take("digest", str)
    if reader.take("format_version", int) != FORMAT_VERSION:
        raise DataError(source, "format_version", str(FORMAT_VERSION), reader.values["format_version"])
    statistics = _Reader(reader.take("normalizer", dict), f"{source}: normalizer")
    training = _Reader(reader.take("training", dict), f"{source}: training")
    card = SkillCard(
        skill=reader.take("skill", str),
        version=reader.take("version", int),
        graph=reader.take("graph", str),
        graph_skills=reader.tuple_of("graph_skills", str),
        graph_edges=tuple((str(i), str(j)) for i, j in reader.pairs("graph_edges")),
        graph_digest=reader.take("graph_digest", str),
        observation=reader.tuple_of("observation", str),
        normalizer=NormalizerStatistics(
            statistics.tuple_of("mean", float), statistics.tuple_of("variance", float), statistics.take("count", float)
        ),
        layer_sizes=reader.tuple_of("layer_sizes", int),
        observation_clip=reader.take("observation_clip", float),
        training=Training(**{f.name: training.take(f.name, _TRAINING[f.name]) for f in fields(Training)}),
        upstream=tuple(_upstream(value, source) for value in reader.take("upstream", list)),
        parent=None if reader.values.get("parent") is None else reader.take("parent", int),
        results=reader.take("results", dict),
        sha256=reader.take("sha256", str),
    )
    reader.expect_no_other(SkillCard)
    _check(card, source)
    if card.digest != written_digest:
        raise DataError(source, "digest", f"{card.digest[:16]}, as the card's content has", written_digest[:16])
    return card


_TRAINING: dict[str, type] = {
    **dict.fromkeys(("scenario", "start", "preset", "created"), str),
    **dict.fromkeys(("budget", "steps", "seed"), int),
    "packages": dict,
}


class _Reader:
    def __init__(self, values: object, source: object) -> None:
        if not isinstance(values, dict):
            raise DataError(source, "card", "an object of named values", type(values).__name__)
        self.values, self._source = values, source

    def take(self, key: str, kind: type) -> Any:
        value = self.values.get(key)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        finite = not isinstance(value, float) or math.isfinite(value)
        if not isinstance(value, kind) or isinstance(value, bool) or not finite:
            raise DataError(self._source, key, f"a value of type {kind.__name__}", repr(value)[:80])
        return value

    def tuple_of(self, key: str, kind: type) -> tuple[Any, ...]:
        items = _Reader(dict(enumerate(self.take(key, list))), f"{self._source}: {key}")
        return tuple(items.take(index, kind) for index in items.values)

    def pairs(self, key: str) -> list[list[Any]]:
        pairs: list[list[Any]] = self.take(key, list)
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2:
                raise DataError(self._source, key, "pairs of skills", repr(pair)[:80])
        return pairs

    def expect_no_other(self, kind: type[SkillCard]) -> None:
        unknown = set(self.values) - {f.name for f in fields(kind)} - {"digest"}
        if unknown:
            raise DataError(self._source, sorted(unknown)[0], "no such key", "it")


def _upstream(value: object, source: object) -> UpstreamArtifact:
    reader = _Reader(value, f"{source}: upstream")
    return UpstreamArtifact(reader.take("skill", str), reader.take("version", int), reader.take("digest", str))


def _check(card: SkillCard, source: object) -> None:
    size = len(card.observation)
    if len(card.layer_sizes) < 2 or card.layer_sizes[0] != size or min(card.layer_sizes) < 1:
        raise DataError(source, "layer_sizes", f"{size} inputs, then positive sizes", list(card.layer_sizes))
    for name, values in (("mean", card.normalizer.mean), ("variance", card.normalizer.variance)):
        if len(values) != size:
            raise DataError(source, f"normalizer.{name}", f"{size} values", f"{len(values)}")
    if card.observation_clip <= 0.0:
        raise DataError(source, "observation_clip", "a positive number", card.observation_clip)
    if min(card.normalizer.variance) < 0.0 or card.normalizer.count < 0.0:
        raise DataError(source, "normalizer", "no negative variance or count", card.normalizer)
