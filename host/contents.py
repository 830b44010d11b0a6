"""What the wheel of `soulsgraph-host` holds of the package `soulsgraph`: everything but the trained agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_LEFT_OUT = ("__pycache__", "agents")


class WithoutAgents(BuildHookInterface):
    """Name the files one by one, for a folder that is included is included whole."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files to the wheel."""
        root = Path(self.root).parent / "platform" / "soulsgraph"
        files = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
        kept = [file for file in files if not {*file.parts} & {*_LEFT_OUT}]
        build_data["force_include"] |= {str(root / file): f"soulsgraph/{file.as_posix()}" for file in kept}
