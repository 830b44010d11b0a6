"""Pictures: their sizes, and shapes on a canvas."""

from __future__ import annotations

import numpy as np
import pytest

from soulsgraph_envs.render.pictures import scaled


@pytest.mark.parametrize("size", [(4, 6), (30, 45), (1, 1)])
def test_a_picture_keeps_its_colour_at_every_size(size: tuple[int, int]) -> None:
    picture = np.full((8, 12, 3), (200, 30, 60), np.uint8)
    smaller = scaled(picture, size)
    assert smaller.shape == (*size, 3)
    assert smaller.dtype == np.uint8
    assert (smaller == (200, 30, 60)).all()
