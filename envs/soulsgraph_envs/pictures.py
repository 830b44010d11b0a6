"""Pictures of a game: what they are, and how they are scaled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image

#: (height, width, 3) uint8: red, green and blue.
Picture = npt.NDArray[np.uint8]


def scaled(picture: Picture, size: tuple[int, int]) -> Picture:
    """Scale a picture, of any number of channels, to `size` (height, width), averaging where it shrinks."""
    height, width = size
    if picture.shape[:2] == size:
        return picture
    # Pillow takes three channels in one go.
    parts = [picture] if picture.shape[2] == 3 else np.moveaxis(picture, -1, 0)
    return np.dstack([Image.fromarray(part).resize((width, height), Image.Resampling.BOX) for part in parts])
