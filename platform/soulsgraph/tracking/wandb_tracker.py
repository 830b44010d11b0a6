"""Weights & Biases: a run of the project that WANDB_PROJECT names; its own variables say where and whether online."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any

import numpy as np

from soulsgraph.tracking.contract import Logged, LogPoint, Plain, TrackedRun, Tracker
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import slug

#: The project, or experiment, of runs for which none is named.
PROJECT = "soulsgraph"
#: Seconds in which a server has to answer before a run of ours goes on without it.
_ANSWERS_WITHIN_S = 20.0


class WandbTracker(Tracker):
    """Log a run to Weights & Biases; every skill has a horizontal axis of its own, its steps."""

    def check(self) -> None:
        """Refuse to track online without a login; raises SoulsGraphError."""
        online = os.environ.get("WANDB_MODE", "online") not in ("offline", "disabled", "dryrun")
        if online and not _has_login():
            raise SoulsGraphError(
                "tracker wandb: expected a login to Weights & Biases, found none; run `wandb login`, or set "
                "WANDB_MODE=offline to keep everything on this machine."
            )

    def begin(self, run: TrackedRun) -> None:
        """Begin a run under the identity, or go on with it."""
        import wandb

        self._groups: set[str] = set()
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=run.identity,
            resume="allow",
            # Without it W&B returns a run that this process has under way, whose it may be.
            reinit="create_new",
            name=run.name,
            config=dict(run.plan),
            tags=[f"{name}:{value}"[:64] for name, value in run.tags.items()],
            dir=str(run.folder),
            # What is printed is the training's, with `--json` a document.
            settings=wandb.Settings(console="off", silent=True, init_timeout=_ANSWERS_WITHIN_S),
        )

    def log(self, at: LogPoint, values: Mapping[str, Logged]) -> None:
        """Log values at a step of their group."""
        import wandb

        axis = f"{at.group}/step"
        if at.group not in self._groups:
            self._groups.add(at.group)
            self._run.define_metric(axis)
            self._run.define_metric(f"{at.group}/*", step_metric=axis)
        shown: dict[str, Any] = {axis: at.step}
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                value = wandb.Image(value) if value.ndim == 3 else wandb.Histogram(value.tolist())
            shown[f"{at.group}/{name}"] = value
        self._run.log(shown)

    def table(self, name: str, rows: Sequence[Mapping[str, Plain]], markdown: str) -> None:
        """Show a table, as rows."""
        import wandb

        columns = list(dict.fromkeys(column for row in rows for column in row))
        self._run.log(
            {name: wandb.Table(columns=columns, data=[[row.get(column) for column in columns] for row in rows])}
        )

    def results(self, options: Mapping[str, Plain], results: Mapping[str, float]) -> None:
        """Add what the run was trained with to its configuration, and the results to its summary."""
        self._run.config.update(dict(options), allow_val_change=True)
        self._run.summary.update(dict(results))

    def file(self, name: str, file: Path) -> None:
        """Show a film; keep another file as an artifact of the run."""
        import wandb

        kind = file.suffix.removeprefix(".")
        if kind in ("gif", "mp4"):
            self._run.log({name: wandb.Video(str(file), format=kind)})
            return
        kept = wandb.Artifact(f"{slug(file.stem)}-{self._run.id}", type=kind or "file")
        kept.add_file(str(file))
        self._run.log_artifact(kept)

    def end(self, finished: bool) -> None:
        """Upload what is left, and mark a run that was stopped as such."""
        self._run.finish(exit_code=0 if finished else 1)


def _has_login() -> bool:
    """Return whether a login is kept on this machine; wandb's own question would wait for the server's answer."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    usual = "~/_netrc" if sys.platform == "win32" else "~/.netrc"
    try:
        return bool(netrc(Path(os.environ.get("NETRC", usual)).expanduser()).hosts)
    except (OSError, NetrcParseError):
        return False
