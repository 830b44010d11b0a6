"""Fixtures of several test files."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from fakes.keys import virtual_screen
from fakes.realtime import FakeTable
from soulsgraph_envs.games.x11 import XTestDevice


@pytest.fixture(scope="module")
def display() -> Iterator[str]:
    """Return the name of a display without a monitor."""
    with virtual_screen() as name:
        yield name


@pytest.fixture
def device(display: str) -> Iterator[XTestDevice]:
    """Return the keyboard and mouse of the display."""
    with closing(XTestDevice(display)) as device:
        yield device


@pytest.fixture
def table() -> FakeTable:
    """Return a running game at the start of an episode."""
    table = FakeTable()
    table.reset()
    return table
