"""Fixtures of several test files."""

from collections.abc import Iterator

import pytest

from fakes.keys import virtual_screen


@pytest.fixture(scope="module")
def screen() -> Iterator[str]:
    """Return the name of a display without a monitor."""
    with virtual_screen() as display:
        yield display
