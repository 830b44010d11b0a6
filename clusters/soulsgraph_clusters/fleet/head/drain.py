"""PCs that the head lets play no longer, by a file beside their tokens which a running gateway looks at."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from soulsgraph_clusters.fleet.security import locked
from soulsgraph_clusters.fleet.settings import check_name
from soulsgraph_envs.core.config import Where, load, to_table
from soulsgraph_policies.atomic import whole_file, writing

#: The reason in the stop that a drained PC's games get.
TOLD = "the head drained this PC"
_FILE = "drained.json"


@dataclass(frozen=True)
class _Drained:
    """The PCs by name."""

    pcs: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in self.pcs:
            check_name(name)


def read_drained(folder: Path) -> frozenset[str]:
    """Return the PCs that play no longer.

    Raises:
        DataError: if the file is damaged.
        FleetError: if it has a name that no PC can have.
    """
    file = folder / _FILE
    return frozenset(load(_Drained, Where(file)).pcs) if file.exists() else frozenset()


def set_drained(folder: Path, pc: str, drained: bool) -> None:
    """Let a PC play no longer, or again.

    Raises:
        FleetError: for a name that no PC can have.
        WriteError: if the file cannot be written.
    """
    check_name(pc)
    with locked(folder):
        names = read_drained(folder) | {pc} if drained else read_drained(folder) - {pc}
        if not names:
            with writing(folder / _FILE):
                (folder / _FILE).unlink(missing_ok=True)
            return
        text = json.dumps(to_table(_Drained(tuple(sorted(names)))), indent=1)
        with whole_file(folder / _FILE) as temporary:
            temporary.write_text(f"{text}\n", encoding="utf-8")
