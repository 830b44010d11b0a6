"""Trained skills as files: weights in safetensors and a JSON card with their origin, and the library of all versions.

Loading never unpickles. The one reader of safetensors files is here; it checks what it reads, and its writer makes no
copy of large arrays. A file is the size of its head (8 bytes, little-endian), the head as JSON, and the values of all
tensors without a gap: https://github.com/huggingface/safetensors. Its library refuses types that numpy lacks by errors
of many kinds, takes types that we never write, and reads infinities as numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from itertools import pairwise
from math import inf, prod
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from soulsgraph_envs.core.config import Between, Where, parse, read_table, read_text, read_value, to_json
from soulsgraph_envs.core.errors import SoulsGraphError, reading, shown
from soulsgraph_envs.core.files import whole_folder
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.skills import Skill
from soulsgraph_policies.agents import inference
from soulsgraph_policies.agents.projects import ProjectDigest, SkillGraph

FORMAT_VERSION = 1

_WEIGHTS, _CARD = "weights.safetensors", "card.json"
_OTHER_RUN = "use a run of this graph, or begin a new one"

#: What to do about a damaged file of a library.
RESTORE = "restore the file from a copy, or begin a new run"

_NOT_NEGATIVE = Between(0.0, inf)


class LibraryError(SoulsGraphError):
    """An artifact is missing, damaged, or not the expected one."""

    def __init__(self, source: object, expected: str, found: object, remedy: str = RESTORE) -> None:
        super().__init__(f"{source}: expected {expected}, found {found}", remedy)


Arrays = dict[str, npt.NDArray[Any]]

#: Types that numpy has, by their names in a head.
_TYPES: dict[str, npt.DTypeLike] = {
    "BOOL": np.bool_,
    **{f"U{8 * size}": f"<u{size}" for size in (1, 2, 4, 8)},
    **{f"I{8 * size}": f"<i{size}" for size in (1, 2, 4, 8)},
    "F32": "<f4",
    "F64": "<f8",
}
#: Types of weights and of statistics; and all that a training's state may hold.
WEIGHTS: tuple[str, ...] = ("F32", "F64")
ANY: tuple[str, ...] = tuple(_TYPES)
_METADATA = "__metadata__"
_SIZE_BYTES, _ALIGNED = 8, 8
#: A training's state has all that is no array in its head: a draw's numbers, names, counts.
_LONGEST_HEAD = 64 * 2**20
_MOST_AXES = 32
_PART_BYTES = 2**22
#: Smaller arrays are read: whoever takes a larger one copies it in parts.
_MAPPED_BYTES = 2**24


class TensorError(SoulsGraphError):
    """The content of a safetensors file is damaged, or not what it is read for; it says what was found."""


def read_tensors(content: bytes, kinds: Collection[str], finite: bool = True) -> Arrays:
    """Return the tensors of a file's content by name; `kinds` are the types that they may have.

    Raises:
        TensorError: as `read_tensor_file`.
    """
    return read_tensor_file(BytesIO(content), len(content), kinds, finite)[0]


def read_tensor_file(
    file: BinaryIO, size: int, kinds: Collection[str], finite: bool = True, mapped: bool = False
) -> tuple[Arrays, dict[str, str]]:
    """Return the tensors of an open file of `size` bytes, and the texts of its head, both by name.

    Large ones of a file on disk may be `mapped`: they take no memory of the process, and are there while the file stays
    as it is.

    Raises:
        TensorError: if the head, a type, a shape or the size is not what it should be; with `finite`, also for a number
            that is not finite as a float32.
    """
    length = int.from_bytes(file.read(_SIZE_BYTES), "little")
    if size < _SIZE_BYTES or not 2 <= length <= min(size - _SIZE_BYTES, _LONGEST_HEAD):
        raise TensorError(f"a head of {length:,} bytes in {size:,}")
    head = _read_head(file.read(length))
    metadata = head.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise TensorError(f"{_METADATA} without texts")
    arrays: Arrays = {}
    reached, available = 0, size - _SIZE_BYTES - length
    for (begin, end), name, kind, shape in sorted(_described(*item, kinds) for item in head.items()):
        if begin != reached or end > available:
            raise TensorError(f"{shown(name)} at bytes {begin:,} to {end:,} of {available:,}, not from {reached:,} on")
        if mapped and end - begin >= _MAPPED_BYTES:
            place = _SIZE_BYTES + length + begin
            arrays[name] = np.asarray(np.memmap(file, _TYPES[kind], "c", place, shape))
            file.seek(place + end - begin)
        else:
            arrays[name] = _read_array(file, name, kind, shape)
        _check_numbers(name, arrays[name], finite)
        reached = end
    if reached != available:
        raise TensorError(f"{available:,} bytes of tensors, not {reached:,}")
    return arrays, metadata


def _read_head(text: bytes) -> dict[str, Any]:
    try:
        found = parse(text.decode("utf-8"), "JSON", Where("head"))
    except (SoulsGraphError, UnicodeDecodeError) as error:
        raise TensorError(f"no head of a safetensors file ({shown(str(error))})") from error
    if not isinstance(found, dict):
        raise TensorError("a head without a table")
    return found


def _described(name: str, entry: Any, kinds: Collection[str]) -> tuple[tuple[int, int], str, str, tuple[int, ...]]:
    """Return a tensor's place among the bytes, its name, type and shape."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise TensorError(f"{shown(name)} without type, shape and place")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in kinds:
        raise TensorError(f"{shown(name)} as {shown(kind)}, not {' or '.join(kinds)}")
    if not _counts(shape) or not _counts(offsets) or len(offsets) != 2 or len(shape) > _MOST_AXES:
        raise TensorError(f"{shown(name)} of shape {shown(shape)} at {shown(offsets)}")
    nbytes = prod(shape) * np.dtype(_TYPES[kind]).itemsize
    if offsets[1] - offsets[0] != nbytes:
        raise TensorError(f"{offsets[1] - offsets[0]:,} bytes of {shown(name)}, not {nbytes:,}")
    return (offsets[0], offsets[1]), name, kind, tuple(shape)


def _counts(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(number) is int and number >= 0 for number in numbers)


def _read_array(file: BinaryIO, name: str, kind: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.empty(shape, _TYPES[kind])
    except ValueError as error:
        # Without a single value a shape may be of any size.
        raise TensorError(f"{shown(name)} of shape {shown(shape)}") from error
    raw = array.reshape(-1).view(np.uint8).data
    if file.readinto(raw) != len(raw):  # type: ignore[attr-defined]
        raise TensorError(f"the end of the file in {shown(name)}")
    return array


def _check_numbers(name: str, array: npt.NDArray[Any], only_finite: bool) -> None:
    """Refuse bytes that are no value of their type, and numbers that are not finite where they are to be."""
    flat = array.reshape(-1)
    if array.dtype == np.bool_ and not (flat.view(np.uint8) <= 1).all():
        raise TensorError(f"{shown(name)} with values other than true and false")
    if only_finite and array.dtype.kind == "f" and not finite(flat):
        raise TensorError(f"numbers in {shown(name)} that are not finite")


def finite(array: npt.NDArray[Any]) -> bool:
    """Return whether all numbers of a C-contiguous array are finite as float32, without another array of its size."""
    flat = array.reshape(-1)
    limit, step = float(np.finfo(np.float32).max), _PART_BYTES // 8
    parts = (flat[begin : begin + step] for begin in range(0, len(flat), step))
    # NaN is neither.
    return all(bool(((part >= -limit) & (part <= limit)).all()) for part in parts)


def write_tensor_file(file: BinaryIO, arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write tensors, which are C-contiguous, and texts for the head, without a copy of the tensors.

    Raises:
        OSError: if it cannot be written.
    """
    names = {np.dtype(kind): name for name, kind in _TYPES.items()}
    head: dict[str, Any] = {_METADATA: dict(metadata)}
    end = 0
    # Larger types first, so that every tensor begins at a multiple of its type's size.
    ordered = sorted(arrays.items(), key=lambda item: -item[1].itemsize)
    for name, array in ordered:
        begin, end = end, end + array.nbytes
        head[name] = {"dtype": names[array.dtype], "shape": array.shape, "data_offsets": (begin, end)}
    text = to_json(head, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    file.write(len(text).to_bytes(_SIZE_BYTES, "little") + text)
    for _, array in ordered:
        raw = array.reshape(-1).view(np.uint8).data
        for begin in range(0, len(raw), _PART_BYTES):
            file.write(raw[begin : begin + _PART_BYTES])


@dataclass(frozen=True)
class NormalizerStatistics:
    """Running statistics of the raw observations, one value per column; `count` is their weight (float64)."""

    mean: tuple[float, ...]
    variance: Annotated[tuple[float, ...], _NOT_NEGATIVE]
    count: Annotated[float, _NOT_NEGATIVE]

    @classmethod
    def of(cls, normalizer: inference.RunningNormalizer) -> NormalizerStatistics:
        """Return a normaliser's statistics."""
        return cls(tuple(normalizer.mean.tolist()), tuple(normalizer.variance.tolist()), float(normalizer.count))

    def normalizer(self) -> inference.RunningNormalizer:
        """Return a normaliser that continues the statistics."""
        normalizer = inference.RunningNormalizer(len(self.mean))
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
    jointly: Sequence[str] = ()
    project: ProjectDigest | None = None
    cloned: int = 0


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that training depends on, of those that are installed."""
    found = {}
    for name in ("soulsgraph", "numba", "numpy", "ray", "torch"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


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
    graph_edges: Sequence[tuple[str, str]]
    graph_digest: str
    observation: tuple[str, ...]
    normalizer: NormalizerStatistics
    layer_sizes: Annotated[tuple[int, ...], Between(1, 2**31)]
    observation_clip: Annotated[float, Between(1e-12, inf)]
    training: Training
    upstream: Sequence[UpstreamArtifact] = ()
    parent: int | None = None
    results: Mapping[str, float] = field(default_factory=dict)
    sha256: str = ""
    format_version: int = FORMAT_VERSION

    @property
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
    parameters: inference.Weights

    @property
    def weights(self) -> inference.Weights:
        """The parameters with the normaliser, as `QNetworkModule.load_weights` takes them."""
        normalizer = self.card.normalizer.normalizer()
        return {inference.MEAN: normalizer.mean, inference.DEVIATION: normalizer.deviation, **self.parameters}

    def network(self, skill: Skill, scenario: Scenario) -> inference.FrozenNetwork:
        """Return the network that plays the skill in a scenario."""
        return inference.FrozenNetwork.of(skill, scenario, self.weights, self.card.observation_clip)


def graph_fields(graph: SkillGraph) -> dict[str, Any]:
    """Return the fields of a card that describe its graph."""
    return {"graph": graph.name, "graph_skills": graph.skills, "graph_edges": graph.edges, "graph_digest": graph.digest}


def artifact_from(card: SkillCard, tensors: Mapping[str, npt.NDArray[Any]], source: object) -> Artifact:
    """Put a card and the tensors of its weights file together.

    Raises:
        LibraryError: if a tensor is missing, not finite, or of another shape or type than the card says.
    """
    named = dict(tensors)
    for index, (inputs, outputs) in enumerate(pairwise(card.layer_sizes)):
        for name, shape in zip(inference.layer_names_at(index), ((outputs, inputs), (outputs,)), strict=True):
            _check_tensor(named, name, shape, source)
    expected = 2 * (len(card.layer_sizes) - 1)
    if len(named) != expected:
        raise LibraryError(source, f"{expected} tensors", f"{len(named)}: {', '.join(sorted(named))}")
    for name, values in named.items():
        if not np.isfinite(values).all():
            raise LibraryError(f"{source}: {name}", "finite weights", "others", "train the skill anew")
    return Artifact(card, named)


def _check_tensor(tensors: Mapping[str, npt.NDArray[Any]], name: str, shape: tuple[int, ...], source: object) -> None:
    if name not in tensors:
        raise LibraryError(f"{source}: {name}", f"a float32 tensor {shape}", "none")
    tensor = tensors[name]
    if tensor.shape != shape or tensor.dtype != np.float32:
        raise LibraryError(f"{source}: {name}", f"a float32 tensor {shape}", f"{tensor.dtype} {tensor.shape}")


# Cached, for every table asks for the same cards again and again.
@lru_cache(maxsize=256)
def card_from(text: str, where: Where) -> SkillCard:
    """Read a card from its JSON, every value of it checked.

    Raises:
        DataError: if a value is missing, misspelt, of another type, or at odds with another.
    """
    table: dict[str, Any] = dict(read_value(Mapping[str, Any], parse(text, "JSON", where), where))
    written_as = read_value(int, table.get("format_version"), where.at("format_version"))
    if written_as != FORMAT_VERSION:
        newer = replace(where, remedy="use the version of soulsgraph that wrote it")
        raise newer.at("format_version").error(str(FORMAT_VERSION), written_as)
    written = {name: read_value(str, table.pop(name, None), where.at(name)) for name in ("digest", "checksum")}
    # Results stay as written: a checksum tells 5 from 5.0.
    card = replace(read_table(SkillCard, table, where), results=table["results"])
    size = len(card.observation)
    if len(card.layer_sizes) < 2 or card.layer_sizes[0] != size:
        raise where.at("layer_sizes").error(f"{size} inputs, then positive sizes", list(card.layer_sizes))
    for name, statistics in (("mean", card.normalizer.mean), ("variance", card.normalizer.variance)):
        if len(statistics) != size:
            raise where.at("normalizer").at(name).error(f"{size} values", len(statistics))
    for name, value in written.items():
        if (found := getattr(card, name)) != value:
            raise where.at(name).error(f"that of its content, {found[:16]}", value[:16])
    return card


class SkillLibrary:
    """Artifacts of one graph in a folder: `<skill>/v<N>/weights.safetensors` and `card.json`, never overwritten."""

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
        text = to_json(card.to_dict(), indent=2) + "\n"
        where = Where(folder / _CARD, remedy=RESTORE, saved=True)
        artifact_from(card_from(text, where), artifact.parameters, folder / _WEIGHTS)
        with whole_folder(folder) as temporary:
            (temporary / _WEIGHTS).write_bytes(weights)
            (temporary / _CARD).write_text(text, encoding="utf-8")
        return card

    def load(self, skill: str, version: int | None = None) -> Artifact:
        """Load one version of a skill, the latest by default.

        Raises:
            LibraryError: if its weights are missing or damaged, or it is of another skill, version or graph.
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
        try:
            tensors = read_tensors(content, WEIGHTS)
        except TensorError as error:
            raise LibraryError(path, "the weights of a skill", error) from error
        return artifact_from(card, tensors, path)

    def card(self, skill: str, version: int) -> SkillCard:
        """Read the card of one version, without its weights.

        Raises:
            SoulsGraphError: as `load`.
        """
        path = self._version_folder(skill, version) / _CARD
        where = Where(path, remedy=RESTORE, saved=True)
        card = deepcopy(card_from(read_text(where, "JSON"), where))
        self._expect(card, skill, version, path)
        return card

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
            SoulsGraphError: as `card`; also if a card names itself or a later version as its parent.
        """
        cards = [self.card(skill, version)]
        while (parent := cards[-1].parent) is not None:
            if parent >= cards[-1].version:
                path = self._version_folder(skill, cards[-1].version) / _CARD
                raise LibraryError(path, "an earlier version as parent", f"v{parent}")
            cards.append(self.card(skill, parent))
        return cards

    def check_upstream(self, card: SkillCard) -> None:
        """Check that the skills a version was trained on are in the library, unchanged.

        Raises:
            LibraryError: if one is missing or has changed.
        """
        for upstream in card.upstream:
            found = self.card(upstream.skill, upstream.version)
            if found.digest != upstream.digest:
                path = self._version_folder(upstream.skill, upstream.version) / _CARD
                expected = f"the artifact {upstream.digest[:16]} that {card.skill} v{card.version} was trained on"
                raise LibraryError(path, expected, found.digest[:16])

    def _version_folder(self, skill: str, version: int) -> Path:
        return self.folder / skill / f"v{version}"

    def _expect(self, card: SkillCard, skill: str, version: int, path: Path) -> None:
        if card.graph_digest != self.graph.digest:
            expected = f"a skill of the graph {self.graph.name!r} ({self.graph.digest[:16]})"
            raise LibraryError(path, expected, f"one of {card.graph!r} ({card.graph_digest[:16]})", _OTHER_RUN)
        if (card.skill, card.version) != (skill, version):
            raise LibraryError(path, f"{skill} v{version}", f"{card.skill} v{card.version}")
        if skill not in self.graph.skills:
            raise LibraryError(path, f"one of {', '.join(self.graph.skills)}", skill, _OTHER_RUN)
