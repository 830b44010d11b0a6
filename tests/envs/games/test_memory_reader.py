"""What every reader does: scans, texts, and values that do not fit."""

import math

import pytest

from fakes.memory import FakeProcess, FakeReader
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.address_map import compile_pattern, decode_text, pack
from soulsgraph_envs.games.memory_reader import BadAddressError, Module

PAGE = 4096


def test_scan_finds_what_crosses_the_pieces_it_reads():
    code = bytearray(b"\x90" * (1 << 20) + b"\x90" * 100)
    code[(1 << 20) - 2 : (1 << 20) + 2] = b"\x01\x02\x03\x04"
    reader = FakeReader(FakeProcess({0x10000: bytes(code)}))
    module = Module("game", 0x10000, len(code))
    assert reader.scan(module, {"a": compile_pattern("01 02 ?? 04")}) == {"a": [0x10000 + (1 << 20) - 2]}


def test_scan_passes_over_a_page_that_cannot_be_read():
    class Holed(FakeReader):
        def read(self, address, size):
            if address < 0x10000 + 2 * PAGE and address + size > 0x10000 + PAGE:
                raise BadAddressError(address)
            return super().read(address, size)

    code = bytearray(4 * PAGE)
    code[10:13] = code[3 * PAGE : 3 * PAGE + 3] = b"\x01\x02\x03"
    code[3 * PAGE - 1 : 3 * PAGE + 1] = b"\x07\x01"
    reader = Holed(FakeProcess({0x10000: bytes(code)}))
    # The header's page is asked for alone, and can be read.
    found = reader.scan(Module("game", 0x10000, len(code)), {"a": compile_pattern("01 02 03")})
    assert found == {"a": [0x10000 + 10, 0x10000 + 3 * PAGE]}


@pytest.mark.parametrize(
    ("kind", "value"),
    [("i32", 2**31), ("u8", 256), ("u32", -1), ("bit", 2), ("f32", 1e39), ("f32", math.nan), ("i32", math.inf)],
)
def test_value_that_does_not_fit_is_never_written(kind, value):
    reader = FakeReader(FakeProcess({0x1000: bytes(8)}))
    with pytest.raises(GameError, match="a value to write"):
        reader.write(0x1000, pack(kind, value))
    assert not reader.writes


def test_text_ends_at_its_nul_and_survives_what_is_no_text():
    assert decode_text("Attack3003\0rest".encode("utf-16-le")) == "Attack3003"
    assert decode_text(b"\x00\xd8\x41\x00") == "\N{REPLACEMENT CHARACTER}A"
