"""Tables of other tools in a report, as of transfer, recovery or retention."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from soulsgraph.reports.parquet import read_rows
from soulsgraph.reports.readable import readable_table
from soulsgraph_envs.errors import SoulsGraphError

_END = ".parquet"


@dataclass(frozen=True)
class Attachment:
    """A Parquet table, its title, and the columns to show; none for all with a value."""

    title: str
    path: Path
    columns: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Attachment:
        """Read `TITLE=PATH.parquet`, or `TITLE=PATH.parquet:COLUMN,COLUMN`.

        Raises:
            SoulsGraphError: if it is neither.
        """
        title, _, rest = text.partition("=")
        stem, end, columns = rest.rpartition(_END)
        names = tuple(name.strip() for name in columns.removeprefix(":").split(",") if name.strip())
        if not title.strip() or not end or not stem or not columns.startswith(":" if columns else ""):
            raise SoulsGraphError(
                f"`attachments`: expected TITLE=PATH.parquet, with :COLUMN,COLUMN behind it to choose columns, "
                f"found {text!r}; write for example 'Retention=runs/a/results/retention.parquet'."
            )
        return cls(title.strip(), Path(f"{stem.strip()}{_END}"), names)

    def to_markdown(self) -> str:
        """Return the section of a report.

        Raises:
            SoulsGraphError: if the file is missing or no Parquet file.
            UnknownNameError: if a column is not there.
        """
        return f"## {self.title}\n\n{readable_table(read_rows(self.path), self.columns).to_markdown()}"
