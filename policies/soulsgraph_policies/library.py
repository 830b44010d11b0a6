"""The skill library: every version of every trained skill, with its lineage; loading never unpickles."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from soulsgraph_envs.core.config import Where, parse, read_text
from soulsgraph_envs.core.errors import reading
from soulsgraph_policies.artifact import (
    FORMAT_VERSION,
    RESTORE,
    Artifact,
    LibraryError,
    SkillCard,
    artifact_from,
    card_from,
)
from soulsgraph_policies.atomic import whole_folder
from soulsgraph_policies.graph import SkillGraph

_WEIGHTS, _CARD = "weights.safetensors", "card.json"


class SkillLibrary:
    """Artifacts of one graph in a folder: `<skill>/v<N>/weights.safetensors` beside `card.json`.

    A version, once saved, is never overwritten.
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
        text = json.dumps(card.to_dict(), indent=2, allow_nan=False) + "\n"
        where = Where(folder / _CARD, remedy=RESTORE, saved=True)
        artifact_from(_card(text, where), artifact.parameters, folder / _WEIGHTS)
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
        number = self.latest(skill) if version is None else version
        card = self.card(skill, number)
        path = self._version_folder(skill, number) / _WEIGHTS
        return artifact_from(card, _read_weights(path, card.sha256), path)

    def card(self, skill: str, version: int) -> SkillCard:
        """Read the card of one version, without its weights.

        Raises:
            SoulsGraphError: as `load`.
        """
        path = self._version_folder(skill, version) / _CARD
        where = Where(path, remedy=RESTORE, saved=True)
        card = deepcopy(_card(read_text(where, "JSON"), where))
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
        versions = self.versions(skill)
        if not versions:
            remedy = "train it first, or open the library that holds it"
            raise LibraryError(self.folder / skill, f"a trained {skill}", "none", remedy)
        return versions[-1]

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


@lru_cache(maxsize=256)
def _card(text: str, where: Where) -> SkillCard:
    """Read a card from its text, once: every table asks for the same cards again and again."""
    return card_from(parse(text, "JSON", where), where)


_OTHER_RUN = "use a run of this graph, or begin a new one"


def _read_weights(path: Path, sha256: str) -> Mapping[str, npt.NDArray[Any]]:
    try:
        with reading(path):
            content = path.read_bytes()
    except FileNotFoundError as error:
        raise LibraryError(path, "a file of a trained skill", "none") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise LibraryError(path, f"sha256 {sha256[:16]}...", f"{found[:16]}... ({len(content)} bytes)")
    try:
        return load(content)
    except (SafetensorError, ValueError) as error:
        raise LibraryError(path, "safetensors", error) from error
