"""Headers of Windows executables: what is no header, or has no version."""

import struct

from soulsgraph_envs.games.address_map import parse_header
from soulsgraph_envs.games.memory_link import file_version
from soulsgraph_envs.games.standin.memory import Sections, write_header, write_resources

SECTIONS = Sections(0x1000, 0x5000, 0x9000, 0xA000)


def test_what_is_no_header_or_has_no_version():
    whole = write_header(SECTIONS)
    assert parse_header(b"") is None
    assert parse_header(b"\x7fELF".ljust(4096, b"\0")) is None
    assert parse_header(whole[:0x90]) is None
    # A header of a 32-bit image.
    assert parse_header(whole.replace(struct.pack("<H", 0x20B), struct.pack("<H", 0x10B), 1)) is None
    assert file_version(b"") == ""
    assert file_version(bytes(64)) == ""
    assert file_version(write_resources("1.2.3.4")[:12]) == ""
