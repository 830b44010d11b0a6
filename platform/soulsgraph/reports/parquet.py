"""Results of a run in columns: episodes, and rows that grow while a stage runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from soulsgraph.files import REWRITE, read_parquet, write_parquet
from soulsgraph_envs.episodes import Episodes
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.streams import Seeds

Row = Mapping[str, str | int | float | bool | None]
_EPISODE_COLUMNS = ("lengths", "seconds", "won", "died", "boss_hp", "player_hp")


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as Parquet; a name that a row lacks is a missing value there.

    Raises:
        WriteError: if the place cannot be written.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    write_parquet(path, {name: [row.get(name) for row in rows] for name in names})


def read_rows(path: Path, remedy: str = REWRITE) -> list[dict[str, Any]]:
    """Read rows that `write_rows` wrote; raises as `read_parquet` does."""
    columns = read_parquet(path, remedy)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def write_episodes(path: Path, settings: Mapping[str, Episodes], terms: Sequence[str], seeds: Seeds) -> None:
    """Write finished episodes, one row each, of every named setting, all on the same `seeds`.

    Reward terms are columns named `term/<name>`.

    Raises:
        WriteError: if the place cannot be written.
    """
    rows = (_episode_rows(name, episodes, terms, seeds) for name, episodes in settings.items())
    write_rows(path, [row for setting in rows for row in setting])


def _episode_rows(setting: str, episodes: Episodes, terms: Sequence[str], seeds: Seeds) -> list[Row]:
    # Left as numpy's: a seed may need all 64 bits.
    columns: dict[str, list[Any]] = {"seed": list(seeds)}
    columns |= {name: getattr(episodes, name).tolist() for name in _EPISODE_COLUMNS}
    columns |= {"return": episodes.returns.tolist()}
    columns |= {f"term/{name}": episodes.terms[:, i].tolist() for i, name in enumerate(terms)}
    return [
        {"setting": setting, "episode": i, **dict(zip(columns, values, strict=True))}
        for i, values in enumerate(zip(*columns.values(), strict=True))
    ]


class GrowingTable:
    """Rows kept beside a stage and written whole at each checkpoint, so that a resumed stage goes on.

    Raises:
        SoulsGraphError: if the file holds anything else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: list[Row] = [*read_rows(path)] if path.exists() else []
        for name in ("stage", "step"):
            if self.rows and name not in self.rows[0]:
                raise SoulsGraphError(
                    f"{path}: expected rows that a stage wrote, found no column {name!r}; remove it: "
                    "what was recorded before is missing then."
                )

    def add(self, row: Row) -> None:
        """Add one row; it is on disk after the next `flush`."""
        self.rows.append(row)

    def forget(self, stage: str, after_step: int) -> None:
        """Drop the rows of `stage` beyond a step: the checkpoint resumed from is older than they are."""
        self.rows = [row for row in self.rows if row["stage"] != stage or int(row["step"] or 0) <= after_step]

    def flush(self) -> None:
        """Write every row.

        Raises:
            WriteError: if the place cannot be written.
        """
        write_rows(self._path, self.rows)
