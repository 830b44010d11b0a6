"""Metadata of `soulsgraph-host`, taken from the project that it is a part of."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_SAME = ("version", "license", "requires-python")


class WholeProject(MetadataHookInterface):
    """Take version, bounds and extras of the packages that playing needs from the whole project."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in what is dynamic.

        Raises:
            ValueError: for a package or an extra that the whole project has not.
        """
        file = Path(self.root).parent / "pyproject.toml"
        whole = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        bounds = {_name(requirement): requirement for requirement in whole["dependencies"]}
        extras = whole["optional-dependencies"]
        unknown = {*self.config["dependencies"]} - bounds.keys() | {*self.config["extras"]} - extras.keys()
        if unknown:
            raise ValueError(f"host: expected packages and extras of {whole['name']}, found {sorted(unknown)}")
        metadata |= {key: whole[key] for key in _SAME}
        metadata["classifiers"] = [*whole["classifiers"], *self.config["classifiers"]]
        metadata["dependencies"] = [bounds[name] for name in self.config["dependencies"]]
        own, other = f"{metadata['name']}[", f"{whole['name']}["
        metadata["optional-dependencies"] = {
            name: [requirement.replace(other, own) for requirement in extras[name]] for name in self.config["extras"]
        }


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0].lower()
