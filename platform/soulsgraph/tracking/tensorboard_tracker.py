"""TensorBoard: event files in the run's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from soulsgraph.tracking.contract import Logged, LogPoint, Plain, TrackedRun, Tracker

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import FileWriter, SummaryWriter

#: The folder of its events, in that of a run.
EVENTS = "tensorboard"


class TensorBoardTracker(Tracker):
    """Write the events of one run."""

    local: ClassVar[bool] = True

    def begin(self, run: TrackedRun) -> None:
        """Open a new file of events in the run's folder."""
        # Takes a second to import, and most commands never write an event.
        from torch.utils.tensorboard.writer import SummaryWriter

        self._writer: SummaryWriter = SummaryWriter(str(run.folder / EVENTS), max_queue=1000, flush_secs=20)

    def log(self, at: LogPoint, values: Mapping[str, Logged]) -> None:
        """Log values at a step of their group."""
        for name, value in values.items():
            tag = f"{at.group}/{name}"
            if not isinstance(value, np.ndarray):
                self._writer.add_scalar(tag, value, at.step, at.logged_s)
            elif value.ndim == 3:
                self._writer.add_image(tag, value, at.step, at.logged_s, dataformats="HWC")
            else:
                self._writer.add_histogram(tag, value, at.step, walltime=at.logged_s)

    def table(self, name: str, rows: Sequence[Mapping[str, Plain]], markdown: str) -> None:
        """Show a table on the text page."""
        self._writer.add_text(name, markdown)

    def results(self, options: Mapping[str, Plain], results: Mapping[str, float]) -> None:
        """Show what the run was trained with, beside its results, on the page of hyperparameters."""
        from torch.utils.tensorboard.summary import hparams

        plain = {name: value if isinstance(value, str | int | float) else str(value) for name, value in options.items()}
        for summary in hparams(plain, dict(results)):  # type: ignore[no-untyped-call]
            self._file.add_summary(summary)
        for name, value in results.items():
            self._writer.add_scalar(name, value)

    def file(self, name: str, file: Path) -> None:
        """Show a GIF on the image page, where it moves; others cannot be shown."""
        from PIL import Image
        from tensorboard.compat.proto.summary_pb2 import Summary

        if file.suffix != ".gif":
            return
        with Image.open(file) as film:
            width, height = film.size
        moving = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=file.read_bytes())
        self._file.add_summary(Summary(value=[Summary.Value(tag=name, image=moving)]))

    def flush(self) -> None:
        """Write everything logged so far to disk."""
        self._writer.flush()

    def end(self, finished: bool) -> None:
        """Write everything to disk and close the file."""
        self._writer.close()

    @property
    def _file(self) -> FileWriter:
        writer = self._writer.file_writer
        assert writer is not None, "an open tracker has a writer"
        return writer
