"""Scale pictures, so that an environment's frames keep their shape."""

from __future__ import annotations

import numpy as np
from PIL import Image

from soulsgraph_envs.eldengym.world import Frame


def scaled(frame: Frame, size: tuple[int, int]) -> Frame:
    """Scale a picture (height, width, channels) to (height, width) of `size`, averaging where it shrinks."""
    height, width = size
    if frame.shape[:2] == size:
        return frame
    # Pillow takes three channels in one go.
    parts = [frame] if frame.shape[2] == 3 else np.moveaxis(frame, -1, 0)
    return np.dstack([Image.fromarray(part).resize((width, height), Image.Resampling.BOX) for part in parts])
