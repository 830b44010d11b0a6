"""TensorBoard of a run: every skill's curves over its own steps, side by side, and its tables as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from soulsgraph_policies.atomic import writing

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

#: What is logged of each skill, in the order of the side-by-side page; `reward/<term>` comes on top.
MEASURES = ("return", "length", "seconds", "win_rate", "loss", "q", "exploration", "steps_per_s")


class Board:
    """Write the events of one run; close it, or use it in a `with`.

    A resumed stage writes the steps since its checkpoint again, with the same values.

    Raises:
        WriteError: if the folder cannot be written.
    """

    def __init__(self, folder: Path, skills: Sequence[str]) -> None:
        # Takes a second to import, and most commands never write an event.
        from torch.utils.tensorboard.writer import SummaryWriter

        self._folder = folder
        with writing(folder):
            self._writer: SummaryWriter = SummaryWriter(str(folder), max_queue=1000, flush_secs=20)
            self._writer.add_custom_scalars(_layout(skills))

    def __enter__(self) -> Board:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def log(self, skill: str, step: int, values: Mapping[str, float]) -> None:
        """Log values of a skill by measure or `reward/<term>`, at a count of its own steps."""
        with writing(self._folder):
            for name, value in values.items():
                self._writer.add_scalar(f"{skill}/{name}", value, step)

    def text(self, name: str, markdown: str) -> None:
        """Show Markdown, a table above all, on the text page."""
        with writing(self._folder):
            self._writer.add_text(name, markdown)

    def image(self, name: str, pixels: npt.NDArray[np.float32]) -> None:
        """Show a picture, (height, width, 3) in [0, 1], on the image page."""
        with writing(self._folder):
            self._writer.add_image(name, pixels, dataformats="HWC")

    def hyperparameters(self, values: Mapping[str, str | int | float | bool], results: Mapping[str, float]) -> None:
        """Show what the run was trained with, beside its results."""
        from torch.utils.tensorboard.summary import hparams

        with writing(self._folder):
            writer = self._writer.file_writer
            assert writer is not None, "an open board has a writer"
            for summary in hparams(dict(values), dict(results)):
                writer.add_summary(summary)
            for name, value in results.items():
                self._writer.add_scalar(name, value)

    def flush(self) -> None:
        """Write everything logged so far to disk."""
        with writing(self._folder):
            self._writer.flush()

    def close(self) -> None:
        """Write everything to disk and close the file."""
        with writing(self._folder):
            self._writer.close()


def _layout(skills: Sequence[str]) -> dict[str, dict[str, list[str | list[str]]]]:
    # The page takes tags as regular expressions; a skill's reward terms share one chart.
    charts = [
        ("greedy return at checkpoints", "evaluation/return"),
        *((measure, re.escape(measure)) for measure in MEASURES),
        ("reward terms", "reward/.*"),
    ]
    return {
        title: {skill: ["Multiline", [f"{re.escape(skill)}/{pattern}"]] for skill in skills}
        for title, pattern in charts
    }
