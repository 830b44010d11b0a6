"""Trained skills as files: weights in safetensors and a JSON card with their origin, and the library of all versions.

Loading never unpickles.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from soulsgraph_envs.core.config import Between, NonEmpty, Where, parse, read_file, read_text, to_json, validate
from soulsgraph_envs.core.errors import SoulsGraphError, reading, shown
from soulsgraph_envs.core.files import whole_folder
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.agents.inference import (
    DEVIATION,
    MEAN,
    FrozenNetwork,
    RunningNormalizer,
    Weights,
    layer_names_at,
)
from soulsgraph_policies.agents.projects import ProjectDigest, SkillGraph

FORMAT_VERSION = 1

_WEIGHTS, _CARD = "weights.safetensors", "card.json"
#: All that determined a stage, in the folder of what it left.
INPUTS = "inputs.json"

#: What to do about a damaged file of a library.
RESTORE = "restore the file from a copy, or begin a new run"

_NOT_NEGATIVE = Between(0.0, inf)


class LibraryError(SoulsGraphError):
    """An artifact is missing, damaged, or not the expected one."""

    def __init__(self, source: object, expected: str, found: object, remedy: str = RESTORE) -> None:
        super().__init__(f"{source}: expected {expected}, found {found}", remedy)


def read_tensors(content: bytes, source: object, remedy: str = RESTORE) -> Weights:
    """Return the tensors of a safetensors file's content by name.

    Raises:
        LibraryError: naming the `source`, if it is damaged, or has a type or shape that numpy lacks.
    """
    try:
        return dict(sorted(load(content).items()))
    # The library's own class is for damage alone; whatever numpy lacks is an error of some other kind.
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise LibraryError(source, "a safetensors file", shown(str(error)), remedy) from error


@dataclass(frozen=True)
class NormalizerStatistics:
    """Running statistics of the raw observations, one value per column; `count` is their weight (float64)."""

    mean: tuple[float, ...]
    variance: tuple[Annotated[float, _NOT_NEGATIVE], ...]
    count: Annotated[float, _NOT_NEGATIVE]

    @classmethod
    def of(cls, normalizer: RunningNormalizer) -> NormalizerStatistics:
        """Return a normaliser's statistics."""
        return cls(tuple(normalizer.mean.tolist()), tuple(normalizer.variance.tolist()), float(normalizer.count))

    def normalizer(self) -> RunningNormalizer:
        """Return a normaliser that continues the statistics."""
        normalizer = RunningNormalizer(len(self.mean))
        normalizer.set_state({"mean": np.array(self.mean), "variance": np.array(self.variance), "count": self.count})
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

    `jointly` names all skills that learned in the same fights, if it was not alone; `project` whose graph it is of;
    `cloned` counts the decisions of recorded fights that it was cloned from, if it did not learn by itself. `fight` and
    `learning` are digests of the scenario's data and of all that it learned by, which is empty if it was imported.
    """

    scenario: str
    start: str
    preset: str
    budget: int
    steps: int
    seed: int
    created: str
    packages: Mapping[str, str]
    fight: str
    learning: str
    jointly: tuple[str, ...] = ()
    project: ProjectDigest | None = None
    cloned: int = 0


@dataclass(frozen=True)
class SkillCard:
    """The description of one version of a skill.

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
    layer_sizes: NonEmpty[Annotated[int, Between(1, 2**31)]]
    observation_clip: Annotated[float, Between(1e-12, inf)]
    training: Training
    upstream: tuple[UpstreamArtifact, ...] = ()
    parent: int | None = None
    results: Mapping[str, float] = field(default_factory=dict)
    sha256: str = ""
    format_version: int = FORMAT_VERSION

    @cached_property
    def digest(self) -> str:
        """Return a SHA-256 of everything that determines how the artifact plays: weights, inputs, graph and lineage."""
        return _sha256({name: value for name, value in asdict(self).items() if name not in ("training", "results")})

    @property
    def checksum(self) -> str:
        """Return a SHA-256 of everything the card says, how it was trained and evaluated included."""
        return _sha256(asdict(self))

    def to_dict(self) -> dict[str, Any]:
        """Return the card as plain values for JSON, its digest and checksum among them."""
        return asdict(self) | {"digest": self.digest, "checksum": self.checksum}


def _sha256(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(to_json(values, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Artifact:
    """A skill's card, and its parameters by the names and in the layout of `QNetworkModule.weights`.

    `parameters` holds the layers, float32.
    """

    card: SkillCard
    parameters: Weights
    #: All that determines the stage that made it, as plain values; none where it was made elsewhere.
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def weights(self) -> Weights:
        """The parameters with the normaliser, as `QNetworkModule.load_weights` takes them."""
        normalizer = self.card.normalizer.normalizer()
        return {MEAN: normalizer.mean, DEVIATION: normalizer.deviation, **self.parameters}

    def network(self, skill: Skill, scenario: Scenario) -> FrozenNetwork:
        """Return the network that plays the skill in a scenario."""
        return FrozenNetwork.of(skill, scenario, self.weights, self.card.observation_clip)


def artifact_from(card: SkillCard, tensors: Mapping[str, npt.NDArray[Any]], source: object) -> Artifact:
    """Put a card and the tensors of its weights file together.

    Raises:
        LibraryError: if a tensor is missing, not finite, or of another shape or type than the card says.
    """
    expected: dict[str, tuple[int, ...]] = {}
    for index, (inputs, outputs) in enumerate(pairwise(card.layer_sizes)):
        expected |= zip(layer_names_at(index), ((outputs, inputs), (outputs,)), strict=True)
    found = {name: values.shape for name, values in tensors.items()}
    if found != expected or any(values.dtype != np.float32 for values in tensors.values()):
        raise LibraryError(source, f"float32 tensors {expected}", found)
    if odd := [name for name, values in tensors.items() if not np.isfinite(values).all()]:
        raise LibraryError(source, "finite weights", f"others in {', '.join(odd)}", "train the skill anew")
    return Artifact(card, dict(tensors))


def card_from(text: str, where: Where) -> SkillCard:
    """Read a card from its JSON, every value of it checked.

    Raises:
        DataError: if a value is missing, misspelt, of another type, or at odds with another.
    """
    # A reader may change what lies in it.
    return deepcopy(_card(text, where))


# A command asks for the cards of its library hundreds of times, and checking one takes longest.
@lru_cache(maxsize=256)
def _card(text: str, where: Where) -> SkillCard:
    table: dict[str, Any] = dict(validate(dict[str, Any], parse(text, "JSON", where), where))
    written_as = validate(int, table.get("format_version"), where.at("format_version"))
    if written_as != FORMAT_VERSION:
        newer = replace(where, remedy="use the version of soulsgraph that wrote it")
        raise newer.at("format_version").error(str(FORMAT_VERSION), written_as)
    written = {name: validate(str, table.pop(name, None), where.at(name)) for name in ("digest", "checksum")}
    # Results stay as written: a checksum tells 5 from 5.0.
    card = replace(validate(SkillCard, table, where), results=table.get("results", {}))
    for name, value in written.items():
        if (found := getattr(card, name)) != value:
            raise where.at(name).error(f"that of its content, {found[:16]}", value[:16])
    return card


class SkillLibrary:
    """Artifacts of one graph in a folder, never overwritten.

    Layout: `<skill>/v<N>/weights.safetensors`, `card.json` and `inputs.json`, all that determined its stage.
    """

    def __init__(self, folder: Path, graph: SkillGraph) -> None:
        self.folder, self.graph = folder, graph

    def save(self, artifact: Artifact) -> SkillCard:
        """Save an artifact as the next version of its skill and return the finished card.

        The card's version, format and sha256 are filled in here.

        Raises:
            LibraryError: if the artifact is of another graph, or the card and the tensors contradict each other.
            WriteError: if the folder cannot be written; nothing half-written is left.
        """
        version = (self.versions(artifact.card.skill) or [0])[-1] + 1
        folder = self._version_folder(artifact.card.skill, version)
        weights = save({name: np.ascontiguousarray(values) for name, values in artifact.parameters.items()})
        digest = hashlib.sha256(weights).hexdigest()
        card = replace(artifact.card, version=version, format_version=FORMAT_VERSION, sha256=digest)
        self._expect(card, card.skill, version, folder / _CARD)
        artifact_from(card, artifact.parameters, folder / _WEIGHTS)
        with whole_folder(folder) as temporary:
            (temporary / _WEIGHTS).write_bytes(weights)
            (temporary / _CARD).write_text(to_json(card.to_dict(), indent=2) + "\n", encoding="utf-8")
            if artifact.inputs:
                (temporary / INPUTS).write_text(to_json(artifact.inputs, indent=2) + "\n", encoding="utf-8")
        return card

    def load(self, skill: str, version: int | None = None) -> Artifact:
        """Load one version of a skill, the latest by default.

        Raises:
            LibraryError: if its weights are missing or damaged, or it is of another skill, version or graph; if a skill
                that it was trained on is missing or has changed.
            DataError: if its card is missing or does not hold.
            ReadError: if it cannot be read.
        """
        card = self.card(skill, self.latest(skill) if version is None else version)
        path = self._version_folder(skill, card.version) / _WEIGHTS
        try:
            with reading(path):
                content = path.read_bytes()
        except FileNotFoundError as error:
            raise LibraryError(path, "a file of a trained skill", "none") from error
        found = hashlib.sha256(content).hexdigest()
        if found != card.sha256:
            raise LibraryError(path, f"sha256 {card.sha256[:16]}...", f"{found[:16]}... ({len(content)} bytes)")
        for upstream in card.upstream:
            present = self.card(upstream.skill, upstream.version)
            if present.digest != upstream.digest:
                above = self._version_folder(upstream.skill, upstream.version) / _CARD
                expected = f"the artifact {upstream.digest[:16]} that {card.skill} v{card.version} was trained on"
                raise LibraryError(above, expected, present.digest[:16])
        return artifact_from(card, read_tensors(content, path), path)

    def card(self, skill: str, version: int) -> SkillCard:
        """Read the card of one version, without its weights.

        Raises:
            SoulsGraphError: as `load`.
        """
        path = self._version_folder(skill, version) / _CARD
        where = Where(path, remedy=RESTORE)
        card = card_from(read_text(where, "JSON"), where)
        self._expect(card, skill, version, path)
        return card

    def inputs(self, skill: str, version: int) -> Mapping[str, Any]:
        """Return all that determined the stage that made a version; nothing where it was made elsewhere.

        Raises:
            SoulsGraphError: as `load`.
        """
        path = self._version_folder(skill, version) / INPUTS
        where = Where(path, remedy=RESTORE)
        return validate(dict[str, Any], read_file(where), where) if path.exists() else {}

    def versions(self, skill: str) -> list[int]:
        """Return the versions of a skill, oldest first; none where its folder is missing.

        Raises:
            LibraryError: if its folder, or the library, is a link to one that is missing.
            ReadError: if its folder cannot be read.
        """
        folder = self.folder / skill
        try:
            with reading(folder):
                names = [path.name for path in folder.iterdir()]
        except FileNotFoundError as error:
            for path in (folder, self.folder):
                if path.is_symlink() and not path.exists():
                    raise LibraryError(path, "a folder", "a broken link", "restore the folder it leads to") from error
            return []
        return sorted(int(name[1:]) for name in names if name[0] == "v" and name[1:].isdecimal())

    def latest(self, skill: str) -> int:
        """Return the newest version of a skill.

        Raises:
            LibraryError: if there is none.
        """
        if versions := self.versions(skill):
            return versions[-1]
        remedy = "train it first, or open the library that holds it"
        raise LibraryError(self.folder / skill, f"a trained {skill}", "none", remedy)

    def lineage(self, skill: str, version: int) -> list[SkillCard]:
        """Return the cards of a version and of all it continues, newest first.

        Raises:
            SoulsGraphError: as `card`.
        """
        cards = [self.card(skill, version)]
        while (parent := cards[-1].parent) is not None:
            cards.append(self.card(skill, parent))
        return cards

    def _version_folder(self, skill: str, version: int) -> Path:
        return self.folder / skill / f"v{version}"

    def _expect(self, card: SkillCard, skill: str, version: int, path: Path) -> None:
        if card.graph_digest != self.graph.digest:
            expected = f"a skill of the graph {self.graph.name!r} ({self.graph.digest[:16]})"
            remedy = "use a run of this graph, or begin a new one"
            raise LibraryError(path, expected, f"one of {card.graph!r} ({card.graph_digest[:16]})", remedy)
        if (card.skill, card.version) != (skill, version):
            raise LibraryError(path, f"{skill} v{version}", f"{card.skill} v{card.version}")
