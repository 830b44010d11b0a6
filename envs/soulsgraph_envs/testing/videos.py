"""Read videos back, for tests of what writes them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np

from soulsgraph_envs.core.pictures import Picture


def read_video(path: Path) -> list[Picture]:
    """Return every picture of a video, (height, width, 3) each; needs imageio-ffmpeg."""
    import imageio_ffmpeg

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    ran = subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL)
    found = re.search(r"Video:.*?, (\d{2,})x(\d{2,})", ran.stderr.decode(errors="replace"))
    assert found is not None, "ffmpeg names the size of what it reads"
    width, height = map(int, found.groups())
    return list(np.frombuffer(ran.stdout, np.uint8).reshape(-1, height, width, 3))
