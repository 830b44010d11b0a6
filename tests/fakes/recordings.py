"""For tests: recordings as others might have written them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from soulsgraph.recordings.format import DIGEST_KEY, HEADER_KEY, MEASURED


def rewritten(
    whole: Path, path: Path, *, header: dict[str, object] | None = None, table: pa.Table | None = None
) -> None:
    """Write a recording with another header or other rows, its digest made to fit."""
    found = pq.read_table(whole) if table is None else table
    metadata = dict(found.schema.metadata)
    text = json.dumps(json.loads(metadata[HEADER_KEY]) | (header or {})).encode()
    fitting = {HEADER_KEY: text, DIGEST_KEY: hashlib.sha256(text).hexdigest().encode()}
    pq.write_table(found.replace_schema_metadata(metadata | fitting), path)


def changed(table: pa.Table, name: str, values: object) -> pa.Table:
    """Return a table with other values in a column."""
    place = table.column_names.index(name)
    return table.set_column(place, table.field(place), pa.array(values, table.field(place).type))


def write_first_version(whole: Path, path: Path) -> None:
    """Write a recording as format version 1 had it."""
    table = pq.read_table(whole).drop_columns([column.name for column in MEASURED])
    header = json.loads(table.schema.metadata[HEADER_KEY])
    kept = {name: value for name, value in header.items() if name not in ("map", "game_version", "speed")}
    text = json.dumps(kept | {"format_version": 1}).encode()
    fitting = {HEADER_KEY: text, DIGEST_KEY: hashlib.sha256(text).hexdigest().encode()}
    pq.write_table(table.replace_schema_metadata(fitting), path)
