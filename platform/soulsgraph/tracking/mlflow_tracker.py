"""MLflow: a run of the experiment that MLFLOW_EXPERIMENT_NAME names, on the server or in the store of its variables.

Without MLFLOW_TRACKING_URI it is a store of files, `mlruns` beside the run's folder, for all runs there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph.tracking.contract import LogPoint, Plain, TrackedRun, Tracker
from soulsgraph.tracking.wandb_tracker import PROJECT
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import locked, slug

#: The tag by which a run is found again.
_IDENTITY = "soulsgraph.run"
#: MLflow takes no more at once, and no longer values of parameters.
_MOST_AT_ONCE, _MOST_CHARACTERS = 100, 6000
#: MLflow keeps no histograms: these shares of the values lie below the numbers that it gets.
_QUANTILES = (0.1, 0.5, 0.9)
#: MLflow's own would try a server that is away for many minutes; a store of files it refuses unless asked for.
_VARIABLES = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_ALLOW_FILE_STORE": "true",
}


class MLflowTracker(Tracker):
    """Log a run to MLflow by a client of its own: a run that the process has under way there is not touched."""

    def begin(self, run: TrackedRun) -> None:
        """Begin a run with the identity as a tag, or go on with the one that has it."""
        for name, value in _VARIABLES.items():
            os.environ.setdefault(name, value)
        # Imported here: it takes seconds.
        import mlflow

        named = mlflow.is_tracking_uri_set()
        store = None if named else (run.folder.absolute().parent / "mlruns").as_uri()
        self._client: Any = mlflow.MlflowClient(tracking_uri=store)
        # Two trainings that begin at once would both make the experiment.
        with locked(run.folder.absolute().parent):
            experiment = self._experiment(store or "the store of MLFLOW_TRACKING_URI")
        found = self._client.search_runs([experiment], f"tags.`{_IDENTITY}` = '{run.identity}'", max_results=1)
        if found:
            self._run = found[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
        else:
            tags = {**run.tags, _IDENTITY: run.identity}
            self._run = self._client.create_run(experiment, tags=tags, run_name=run.name).info.run_id
            self._parameters(run.flat_plan)

    def _experiment(self, place: str) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = self._client.get_experiment_by_name(name)
        if known is None:
            return str(self._client.create_experiment(name))
        if known.lifecycle_stage == "deleted":
            raise SoulsGraphError(
                f"experiment {name} was deleted in {place}; restore it (mlflow experiments restore --experiment-id "
                f"{known.experiment_id}), or name another by MLFLOW_EXPERIMENT_NAME"
            )
        return str(known.experiment_id)

    def _parameters(self, values: Mapping[str, Plain]) -> None:
        from mlflow.entities import Param

        known = self._client.get_run(self._run).data.params
        new = [Param(name, str(value)[:_MOST_CHARACTERS]) for name, value in values.items() if name not in known]
        for part in _parts(new):
            self._client.log_batch(self._run, params=part)

    def scalars(self, at: LogPoint, values: Mapping[str, float]) -> None:
        """Log values at a step of their group."""
        from mlflow.entities import Metric

        logged_ms = round(1000 * at.logged_s)
        for part in _parts([Metric(f"{at.group}/{name}", value, logged_ms, at.step) for name, value in values.items()]):
            self._client.log_batch(self._run, metrics=part)

    def histogram(self, at: LogPoint, name: str, values: npt.NDArray[np.generic]) -> None:
        """Log a few quantiles of the values."""
        levels = np.quantile(np.asarray(values, np.float64), _QUANTILES)
        self.scalars(
            at, {f"{name}/p{100 * share:.0f}": float(level) for share, level in zip(_QUANTILES, levels, strict=True)}
        )

    def image(self, at: LogPoint, name: str, pixels: npt.NDArray[np.uint8]) -> None:
        """Log a picture."""
        self._client.log_image(self._run, pixels, key=f"{at.group}/{name}", step=at.step)

    def table(self, name: str, rows: Sequence[Mapping[str, Plain]], markdown: str) -> None:
        """Keep a table as artifacts: its rows as JSON, and Markdown."""
        self._client.log_dict(self._run, {"rows": [dict(row) for row in rows]}, f"tables/{slug(name)}.json")
        self._client.log_text(self._run, markdown, f"tables/{slug(name)}.md")

    def hyperparameters(self, values: Mapping[str, Plain], results: Mapping[str, float]) -> None:
        """Add what the run was trained with to its parameters, and the results to its metrics."""
        self._parameters(values)
        for name, value in results.items():
            self._client.log_metric(self._run, name, value)

    def video(self, name: str, file: Path) -> None:
        """Keep a film as an artifact."""
        self._client.log_artifact(self._run, str(file), "videos")

    def artifact(self, file: Path) -> None:
        """Keep a file as an artifact of the run."""
        self._client.log_artifact(self._run, str(file))

    def end(self, finished: bool) -> None:
        """Close the run, as finished or as stopped."""
        self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")


def _parts(items: Sequence[Any]) -> Iterable[list[Any]]:
    return (list(items[start : start + _MOST_AT_ONCE]) for start in range(0, len(items), _MOST_AT_ONCE))
