"""TensorBoard: event files in the run's folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from soulsgraph.tracking.contract import LogPoint, Plain, TrackedRun, Tracker
from soulsgraph.tracking.metrics import side_by_side
from soulsgraph_envs.core.files import check_text, writing

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import FileWriter, SummaryWriter

#: The folder of its events, in that of a run.
EVENTS = "tensorboard"


class TensorBoardTracker(Tracker):
    """Write the events of one run.

    Raises:
        EncodingError: if the folder's path is no text.
        WriteError: if the folder cannot be written.
    """

    local = True

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, groups: Sequence[str]) -> Iterator[TensorBoardTracker]:
        """Yield a tracker whose events lie in a folder, and end it."""
        tracker = cls()
        tracker._open(folder, groups)
        try:
            yield tracker
        finally:
            tracker.end(finished=True)

    def begin(self, run: TrackedRun) -> None:
        """Open a new file of events in the run's folder, with charts of the skills beside each other."""
        self._open(run.folder / EVENTS, run.groups)

    def _open(self, folder: Path, groups: Sequence[str]) -> None:
        """Open a new file of events in a folder."""
        # Takes a second to import, and most commands never write an event.
        from torch.utils.tensorboard.writer import SummaryWriter

        self._folder = folder
        check_text(folder)
        with writing(folder):
            self._writer: SummaryWriter = SummaryWriter(str(folder), max_queue=1000, flush_secs=20)
            charts = side_by_side(tuple(groups))
            self._writer.add_custom_scalars(
                {
                    title: {group: ["Multiline", [pattern]] for group, pattern in chart.items()}
                    for title, chart in charts.items()
                }
            )

    def scalars(self, at: LogPoint, values: Mapping[str, float]) -> None:
        """Log values at a step of their group."""
        with writing(self._folder):
            for name, value in values.items():
                self._writer.add_scalar(f"{at.group}/{name}", value, at.step, at.logged_s)

    def histogram(self, at: LogPoint, name: str, values: npt.NDArray[np.generic]) -> None:
        """Log how values are distributed."""
        with writing(self._folder):
            self._writer.add_histogram(f"{at.group}/{name}", values, at.step, walltime=at.logged_s)

    def image(self, at: LogPoint, name: str, pixels: npt.NDArray[np.uint8]) -> None:
        """Log a picture."""
        with writing(self._folder):
            tag = f"{at.group}/{name}" if at.group else name
            self._writer.add_image(tag, pixels, at.step, at.logged_s, dataformats="HWC")

    def table(self, name: str, rows: Sequence[Mapping[str, Plain]], markdown: str) -> None:
        """Show a table on the text page."""
        with writing(self._folder):
            self._writer.add_text(name, markdown)

    def hyperparameters(self, values: Mapping[str, Plain], results: Mapping[str, float]) -> None:
        """Show what the run was trained with, beside its results, on the page of hyperparameters."""
        from torch.utils.tensorboard.summary import hparams

        plain = {name: value if isinstance(value, str | int | float) else str(value) for name, value in values.items()}
        with writing(self._folder):
            for summary in hparams(plain, dict(results)):  # type: ignore[no-untyped-call]
                self._file.add_summary(summary)
            for name, value in results.items():
                self._writer.add_scalar(name, value)

    def video(self, name: str, file: Path) -> None:
        """Show a GIF on the image page, where it moves; an MP4 cannot be shown."""
        from PIL import Image
        from tensorboard.compat.proto.summary_pb2 import Summary

        if file.suffix != ".gif":
            return
        with writing(self._folder):
            with Image.open(file) as film:
                width, height = film.size
            moving = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=file.read_bytes())
            self._file.add_summary(Summary(value=[Summary.Value(tag=name, image=moving)]))

    def flush(self) -> None:
        """Write everything logged so far to disk."""
        with writing(self._folder):
            self._writer.flush()

    def end(self, finished: bool) -> None:
        """Write everything to disk and close the file."""
        with writing(self._folder):
            self._writer.close()

    @property
    def _file(self) -> FileWriter:
        writer = self._writer.file_writer
        assert writer is not None, "an open tracker has a writer"
        return writer
