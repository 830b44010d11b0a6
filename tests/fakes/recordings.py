"""For tests: recordings as others might have written them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from soulsgraph.recordings.files import Recording, read_recording, recording_files
from soulsgraph.recordings.format import HEADER_KEY


def rewritten(
    whole: Path, path: Path, *, header: dict[str, object] | None = None, table: pa.Table | None = None
) -> None:
    """Write a recording with another header or other rows."""
    found = pq.read_table(whole) if table is None else table
    metadata = dict(found.schema.metadata)
    metadata[HEADER_KEY] = json.dumps(json.loads(metadata[HEADER_KEY]) | (header or {})).encode()
    pq.write_table(found.replace_schema_metadata(metadata), path)


def changed(table: pa.Table, name: str, values: object) -> pa.Table:
    """Return a table with other values in a column."""
    place = table.column_names.index(name)
    return table.set_column(place, table.field(place), pa.array(values, table.field(place).type))


def read_all(folder: Path) -> list[Recording]:
    """Read every recording of a folder."""
    return [read_recording(path) for path in recording_files(folder)]
