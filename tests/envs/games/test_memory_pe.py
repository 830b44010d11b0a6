"""Headers of Windows executables: size, sections and version, as the stand-in writes them, and invalid ones."""

import struct

import pytest

from soulsgraph_envs.games.address_map import Section, parse_header
from soulsgraph_envs.games.memory_link import file_version
from soulsgraph_envs.games.standin.memory import Sections, write_header, write_resources

SECTIONS = Sections(0x1000, 0x5000, 0x9000, 0xA000)


def test_header_tells_size_and_sections():
    header = parse_header(write_header(SECTIONS))
    assert header is not None
    assert header.size_of_image == 0xA000
    assert header.sections[0] == Section(".text", 0x1000, 0x4000, True)
    assert [section.executable for section in header.sections] == [True, False, False]
    assert header.resources == (0x9000, 0x1000)


@pytest.mark.parametrize("version", ["1.15.2.0", "2.0.65535.7"])
def test_version_is_read_from_the_resources(version):
    assert file_version(write_resources(version)) == version


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
