"""Files whose few bytes stand for far more than a fight: refused by their own numbers, before anything is decoded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soulsgraph.recordings import files
from soulsgraph.recordings.check import check_file
from soulsgraph.recordings.files import PagesError, check_pages, read_header, read_recording
from soulsgraph.recordings.format import DIGEST_KEY, HEADER_KEY, PART, schema_of
from soulsgraph_envs.core.errors import SoulsGraphError

#: Entries of a list, 16 bytes each; their count is found in a file's bytes.
ENTRIES = 2_000_003
MANY = 16 * ENTRIES


@pytest.fixture(scope="module")
def bomb(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fight with a list of millions of equal entries in its first row."""
    table = pq.read_table(whole)
    rows, name = len(table), "boss_parts"
    zeros = pa.array([0.0], pa.float64()).take(pa.array([0] * ENTRIES, pa.int8()))
    entries = pa.StructArray.from_arrays([zeros, zeros], fields=list(PART))
    lists = pa.ListArray.from_arrays(pa.array([0] + [ENTRIES] * rows, pa.int32()), entries)
    place = table.column_names.index(name)
    path = tmp_path_factory.mktemp("bomb") / "fight.parquet"
    pq.write_table(table.set_column(place, table.field(place), lists.cast(table.field(place).type)), path)
    return path


_POOLS: list[Any] = []


@contextmanager
def peak() -> Iterator[Any]:
    """Yield a function that returns how much Arrow had allocated at most."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    # A thread of Arrow may release what it took from a pool a moment later: with the pool gone the process would crash.
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield pool.max_memory
    finally:
        pa.set_memory_pool(before)


def varint(number: int, size: int = 0) -> bytes:
    """Return a number as the footer has it; with a size in so many bytes, though fewer would do."""
    number, groups = 2 * number, []
    while number or len(groups) < size or not groups:
        groups.append(number & 0x7F)
        number >>= 7
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def test_a_list_of_millions_is_refused_before_it_takes_memory(whole: Path, bomb: Path) -> None:
    assert bomb.stat().st_size < 2 * whole.stat().st_size + 2**16
    with peak() as most:
        pq.read_table(bomb)
        assert most() > MANY
    with peak() as most:
        with pytest.raises(SoulsGraphError, match="boss_parts"):
            read_recording(bomb)
        assert most() < MANY / 8
    assert check_file(bomb).verdict == "damaged"
    with peak() as most:
        read_recording(whole)
        assert most() < MANY / 8


def test_a_footer_that_says_fewer_values_than_the_pages_hold_is_refused_too(bomb: Path, tmp_path: Path) -> None:
    content = bomb.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - length :]
    # Rows without an entry count as a value each.
    count = pq.ParquetFile(bomb).metadata.row_group(0).num_rows - 1 + ENTRIES
    true, small = varint(count), varint(100, len(varint(count)))
    assert footer.count(true) >= 2
    lying = tmp_path / "lying.parquet"
    lying.write_bytes(content[: -8 - length] + footer.replace(true, small))
    assert pq.read_metadata(lying).num_rows > 0
    with peak() as most:
        with pytest.raises(SoulsGraphError, match=r" 100 .*boss_parts.* 2,00"):
            read_recording(lying)
        assert most() < MANY / 8


def test_pages_that_are_larger_than_a_fight_are_refused_before_they_are_decompressed(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOST_UNPACKED_BYTES", 2**24)
    table = pq.read_table(whole)
    place = table.column_names.index("boss_doing")
    texts = pa.array([str(row) + "x" * 2**18 for row in range(len(table))], table.field(place).type)
    large = tmp_path / "large.parquet"
    pq.write_table(table.set_column(place, table.field(place), texts), large, compression="zstd", use_dictionary=False)
    assert large.stat().st_size < 2**20
    with peak() as most:
        with pytest.raises(SoulsGraphError, match="16 MiB"):
            read_recording(large)
        assert most() < 2**23


def test_lists_of_a_fixed_length_have_no_more_entries(tmp_path: Path) -> None:
    lists = pa.array([[0.0] * 12] * 4, pa.list_(pa.float32()))
    pq.write_table(pa.table({"seen": lists}), tmp_path / "x.parquet")
    content = memoryview((tmp_path / "x.parquet").read_bytes())
    schemas = {size: pa.schema([pa.field("seen", pa.list_(pa.float32(), size))]) for size in (11, 12)}
    assert check_pages(content, schemas[12], 4, 1) > 8 * 48
    with pytest.raises(PagesError, match=r" 44 .*seen.* 48"):
        check_pages(content, schemas[11], 4, 1)
    with pytest.raises(PagesError, match="rows"):
        check_pages(content, schemas[12], 5, 1)


@settings(max_examples=80, deadline=None)
@given(changes=st.lists(st.tuples(st.floats(0.0, 1.0, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4))
def test_whatever_a_file_says_ends_in_a_number_or_a_refusal(whole: Path, changes: list[tuple[float, int]]) -> None:
    content, header = bytearray(whole.read_bytes()), read_header(whole)
    length = int.from_bytes(content[-8:-4], "little")
    for place, byte in changes:
        content[-8 - length + int(place * length)] = byte
    with suppress(ValueError, LookupError, TypeError):
        assert check_pages(memoryview(bytes(content)), schema_of(header), header.result.steps + 1, 1000) >= 0


def test_recordings_whose_header_was_rewritten_are_still_read(whole: Path, tmp_path: Path) -> None:
    """Another writer's file of the same columns, without compression and in several row groups, is a recording too."""
    table = pq.read_table(whole)
    text = json.dumps(json.loads(table.schema.metadata[HEADER_KEY])).encode()
    metadata = {HEADER_KEY: text, DIGEST_KEY: hashlib.sha256(text).hexdigest().encode()}
    other = tmp_path / "other.parquet"
    pq.write_table(
        table.replace_schema_metadata(metadata),
        other,
        compression="none",
        row_group_size=50,
        data_page_version="2.0",
        use_dictionary=False,
    )
    assert read_recording(other).table.equals(read_recording(whole).table)
