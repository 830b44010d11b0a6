"""MLflow: a run of the experiment that MLFLOW_EXPERIMENT_NAME names, on the server or in the store of its variables.

Without MLFLOW_TRACKING_URI it is a store of files, `mlruns` beside the run's folder, for all runs there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from soulsgraph.tracking.contract import Logged, LogPoint, Plain, TrackedRun, Tracker
from soulsgraph.tracking.wandb_tracker import PROJECT
from soulsgraph_envs.core.files import locked, slug

#: The tag by which a run is found again.
_IDENTITY = "soulsgraph.run"
#: MLflow takes no more parameters at once, and no longer values of them.
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

        beside = run.folder.absolute().parent
        store = None if mlflow.is_tracking_uri_set() else (beside / "mlruns").as_uri()
        self._client: Any = mlflow.MlflowClient(tracking_uri=store)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        # Two trainings that begin at once would both make the experiment.
        with locked(beside):
            known = self._client.get_experiment_by_name(name)
            experiment = known.experiment_id if known else self._client.create_experiment(name)
        found = self._client.search_runs([experiment], f"tags.`{_IDENTITY}` = '{run.identity}'", max_results=1)
        if found:
            self._run = found[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
        else:
            tags = {**run.tags, _IDENTITY: run.identity}
            self._run = self._client.create_run(experiment, tags=tags, run_name=run.name).info.run_id
            (flat,) = pd.json_normalize([dict(run.plan)]).to_dict("records")
            self._parameters(flat)

    def _parameters(self, values: Mapping[Any, Any]) -> None:
        from mlflow.entities import Param

        known = self._client.get_run(self._run).data.params
        new = [Param(name, str(value)[:_MOST_CHARACTERS]) for name, value in values.items() if name not in known]
        for start in range(0, len(new), _MOST_AT_ONCE):
            self._client.log_batch(self._run, params=new[start : start + _MOST_AT_ONCE])

    def log(self, at: LogPoint, values: Mapping[str, Logged]) -> None:
        """Log values at a step of their group; of a distribution a few quantiles."""
        from mlflow.entities import Metric

        numbers: dict[str, float] = {}
        for name, value in values.items():
            if not isinstance(value, np.ndarray):
                numbers[name] = value
            elif value.ndim == 3:
                self._client.log_image(self._run, value, key=f"{at.group}/{name}", step=at.step)
            else:
                levels = np.quantile(value.astype(np.float64), _QUANTILES)
                numbers |= {f"{name}/p{100 * q:.0f}": float(one) for q, one in zip(_QUANTILES, levels, strict=True)}
        logged_ms = round(1000 * at.logged_s)
        metrics = [Metric(f"{at.group}/{name}", value, logged_ms, at.step) for name, value in numbers.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def table(self, name: str, rows: Sequence[Mapping[str, Plain]], markdown: str) -> None:
        """Keep a table as artifacts: its rows as JSON, and Markdown."""
        self._client.log_dict(self._run, {"rows": [dict(row) for row in rows]}, f"tables/{slug(name)}.json")
        self._client.log_text(self._run, markdown, f"tables/{slug(name)}.md")

    def results(self, options: Mapping[str, Plain], results: Mapping[str, float]) -> None:
        """Add what the run was trained with to its parameters, and the results to its metrics."""
        self._parameters(options)
        for name, value in results.items():
            self._client.log_metric(self._run, name, value)

    def file(self, name: str, file: Path) -> None:
        """Keep a file as an artifact of the run."""
        self._client.log_artifact(self._run, str(file))

    def end(self, finished: bool) -> None:
        """Close the run, as finished or as stopped."""
        self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")
