"""Run a sweep by Ray Tune, or go on with it, and return what its trials led to, as a table over seeds."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType

from soulsgraph.api import know_projects, plan_of
from soulsgraph.pages import table as html_table
from soulsgraph.playing import as_text, frame_of, path_of
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import OutputConsole, write_rows
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.progress import Interruption
from soulsgraph.runs.run_folder import check_same
from soulsgraph.tune.folder import Scheduler, Setting, Sweep, SweepFolder
from soulsgraph.tune.space import Search, load_space, read_space
from soulsgraph_envs.core.config import Where, to_json
from soulsgraph_envs.core.errors import Remedy, SoulsGraphError, shown
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_policies.agents.projects import loaded_projects

if TYPE_CHECKING:
    from ray import tune
    from ray.tune.experiment import Trial

    from soulsgraph.results.seeds import SeedsTable
    from soulsgraph_clusters.sessions.session import Session

#: How a trial ended, as its row has it.
FINISHED, STOPPED, FAILED, INTERRUPTED = "finished", "stopped early", "failed", "interrupted"
#: How Ray Tune calls a trial that ended.
_ENDED = {"TERMINATED": FINISHED, "ERROR": FAILED}
#: Of what a sweep halves: a trial goes on if it is among the best third at its rung, the first after this share.
_REDUCTION, _GRACE = 3, 9
_RESULTS, _TRIALS = "sweep", "trials"
#: By which Ray Tune logs to no files, and prints nothing.
_QUIET = {"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_AIR_NEW_OUTPUT": "0"}


def sweep(
    space: str | Path | Mapping[str, Any],
    *,
    seeds: int | Sequence[int] = 3,
    run: str | Path = "runs/sweep",
    search: Search = "grid",
    samples: int = Sweep.samples,
    scheduler: Scheduler = "none",
    preset: str = "best",
    scenario: str | Path = Plan.scenario,
    graph: str = Plan.graph,
    project: str | Path | None = None,
    address: str | None = None,
    quiet: bool = False,
    **overrides: Any,
) -> SweepResults:
    """Train every setting of a space on the same seeds by Ray Tune, and return the win rates.

    The same call goes on with a sweep that was interrupted, and returns one that is finished as it is.

    Args:
        space: Values of options by name, {"gamma": [0.98, 0.99], "dodge": {"learning_rate": {"low": 1e-4, "high":
            1e-3, "log": True}}}, or a TOML file of them.
        seeds: Training seeds, or how many, counted from 200.
        run: Folder of the sweep, begun if it does not exist.
        search: grid: every combination; random: `samples` settings.
        samples: Settings of a random search.
        scheduler: none, or asha, which stops trials early that are behind.
        preset: As of `train`, as are scenario, graph and project.
        scenario: Fight to train in and to evaluate.
        graph: Skill graph.
        project: Folder of a project with skills of one's own.
        address: Ray cluster whose nodes train trials; each has to see the folder.
        quiet: Print nothing.
        overrides: Fields of `Plan`, and options of the learner that all trials have.

    Raises:
        SoulsGraphError: for what cannot be searched, before anything is begun; if a trial failed.
        Interruption: if a stop was asked for; the same call goes on.

    Example:
        soulsgraph.sweep({"gamma": [0.98, 0.99]}, seeds=5, run="runs/gamma", scale=0.1).frame
    """
    check_extra("soulsgraph.sweep", "train")
    know_projects(project)
    table = load_space(Path(space)) if isinstance(space, str | Path) else read_space(space, _SPACE)
    plan = plan_of({"preset": preset, "scenario": str(scenario), "graph": graph, **overrides})
    chosen = tuple(Sweep.seeds[0] + index for index in range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    asked = Sweep(plan, table, chosen, search, samples, scheduler)
    folder = _planned_or_begun(path_of(run, "run"), asked)
    try:
        return run_sweep(folder, OutputConsole(quiet=quiet), address)
    except Interruption as stop:
        raise Interruption(str(stop).removesuffix(stop.remedy), "; the same call goes on with it") from None


_SPACE = Where(None, "space", "correct the value")


def _planned_or_begun(path: Path, asked: Sweep) -> SweepFolder:
    if not (path / SweepFolder.plan_file).exists():
        return SweepFolder.planned(path, asked)
    folder = SweepFolder.open(path)
    check_same(folder, asked)
    return folder


def run_sweep(folder: SweepFolder, console: Console, address: str | None = None) -> SweepResults:
    """Train the trials that are left, write `results/`, and return the results.

    Raises:
        SoulsGraphError: if Ray cannot be used, a node does not see the folder, or a trial failed.
        Interruption: if a stop was asked for.
    """
    folder.plan.check_learns()
    # Imported here: it takes seconds.
    from soulsgraph.runs.workplace import joined_session

    with joined_session(folder, console, address) as session:
        console.print(f"sweep {folder.path}: {folder.plan.trials} trials", highlight=False, soft_wrap=True)
        _check_nodes(folder, session)
        with _quiet_tune():
            _tuner(folder, console.quiet).fit()
            results = SweepResults(folder, _rows(folder))
        results.save()
    results.check()
    return results


def _check_nodes(folder: SweepFolder, session: Session) -> None:
    """Refuse a cluster one of whose nodes does not see the folder: trials write there; raises ClusterError."""
    from soulsgraph_clusters.sessions.nodes import marked, nodes_without, other_folder

    if not session.local:
        session.check_nodes()
        with marked(folder.path) as mark:
            if apart := nodes_without(mark):
                raise other_folder(folder.path, "; ".join(apart))


@contextmanager
def _quiet_tune() -> Iterator[None]:
    """Keep Ray Tune from files and lines of its own: what failed is reported once, by its cause."""
    logger = logging.getLogger("ray.tune")
    before, level = {name: os.environ.get(name) for name in _QUIET}, logger.level
    os.environ.update(_QUIET)
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _tuner(folder: SweepFolder, quiet: bool) -> tune.Tuner:
    """Return what trains the trials: those that are left, where some were trained before."""
    from ray import tune

    from soulsgraph.tune.trial import OPTIONS, SEED, TrialLines, trainable

    path = folder.tune.absolute()
    function = tune.with_resources(trainable(folder, tuple(loaded_projects().values())), {"cpu": 1})
    if tune.Tuner.can_restore(str(path)):
        return tune.Tuner.restore(str(path), function, resume_errored=True)
    asked = folder.plan
    space = {OPTIONS: asked.space.domains(asked.search), SEED: tune.grid_search([*asked.seeds])}
    lines = TrialLines(asked.trials, quiet)
    run_config = tune.RunConfig(name=path.name, storage_path=str(path.parent), verbose=0, callbacks=[lines])
    return tune.Tuner(function, param_space=space, tune_config=_tune_config(asked), run_config=run_config)


def _tune_config(asked: Sweep) -> tune.TuneConfig:
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.basic_variant import BasicVariantGenerator

    from soulsgraph.tune.trial import STEP, WIN_RATE

    budget = asked.plan.stages()[-1].budget
    # Past the budget comes the evaluation, which no rung cuts off.
    halving = {"max_t": budget + 1, "grace_period": max(budget // _GRACE, 1), "reduction_factor": _REDUCTION}
    # Each setting drawn is trained on every seed.
    search = BasicVariantGenerator(constant_grid_search=True, random_state=asked.seeds[0])
    return tune.TuneConfig(
        metric=WIN_RATE,
        mode="max",
        num_samples=asked.samples if asked.search == "random" else 1,
        search_alg=search,
        scheduler=ASHAScheduler(time_attr=STEP, **halving) if asked.scheduler == "asha" else None,
    )


def _rows(folder: SweepFolder) -> list[dict[str, Any]]:
    """Return the trials so far as rows, those that did not begin included, in the order of their run folders."""
    from ray import tune

    trials = tune.ExperimentAnalysis(str(folder.tune.absolute())).trials
    return sorted((_row(folder, trial) for trial in trials), key=itemgetter("run"))


def _row(folder: SweepFolder, trial: Trial) -> dict[str, Any]:
    """Return a trial as a row: its setting and seed, how it ended, and its last win rate."""
    from soulsgraph.tune.trial import EPISODES, OPTIONS, SEED, STEP, WIN_RATE, WINS

    reported = trial.last_result or {}
    setting, seed = trial.config[OPTIONS], trial.config[SEED]
    state = _ENDED.get(trial.status, INTERRUPTED)
    rate = WinRate(reported[WINS], reported[EPISODES]).columns() if state == FINISHED and WINS in reported else {}
    row = {**_cells(setting), "seed": seed, "state": STOPPED if state == FINISHED and not rate else state}
    row |= {"step": reported.get(STEP), "win_rate": reported.get(WIN_RATE)}
    row |= {name: rate.get(name) for name in ("wins", "episodes", "low", "high")}
    return {**row, "error": _error(trial), "run": folder.run_path(setting, seed).relative_to(folder.path).as_posix()}


def _error(trial: Trial) -> str:
    """Return the last line of what a trial failed by; empty where it did not."""
    error = trial.get_pickled_error() or trial.get_error() if trial.status == "ERROR" else None
    return str(getattr(error, "cause", error)).strip().rpartition("\n")[2] if error else ""


def _cells(setting: Setting) -> dict[str, Any]:
    """Return a setting as columns have it: a list as text."""
    return {name: to_json(value) if isinstance(value, list | tuple) else value for name, value in setting.items()}


@dataclass(frozen=True)
class SweepResults:
    """The trials of a sweep, a row each; printed as a table of the settings over seeds, the best first.

    Example:
        results = soulsgraph.sweep({"gamma": [0.98, 0.99]}, run="runs/gamma")
        results.frame, results.best
    """

    folder: SweepFolder
    rows: Sequence[Mapping[str, Any]]

    @property
    def frame(self) -> Any:
        """A data frame with a row a trial: options, seed, state, decisions of the last skill, win rate, run folder."""
        return frame_of([*self.rows])

    @property
    def finished(self) -> list[Mapping[str, Any]]:
        """The rows of trials that were trained to the end, those of the best setting first."""
        finished = [row for row in self.rows if row["state"] == FINISHED]
        return sorted(finished, key=lambda row: -self._mean(row))

    def _mean(self, of: Mapping[str, Any]) -> float:
        names = self.folder.plan.space.names
        rates = [row["win_rate"] for row in self.rows if row["state"] == FINISHED and _same(row, of, names)]
        return float(sum(rates) / len(rates))

    @property
    def best(self) -> dict[str, Any]:
        """The setting of the highest mean win rate; empty where no trial finished."""
        return {name: row[name] for row in self.finished[:1] for name in self.folder.plan.space.names}

    @property
    def table(self) -> SeedsTable | None:
        """The mean win rate of each setting with its interval over seeds; None where no trial finished."""
        from soulsgraph.results.seeds import SeedsTable

        by_seed: dict[int, list[Mapping[str, Any]]] = {}
        for row in self.finished:
            by_seed.setdefault(row["seed"], []).append({**row, "rate": row["win_rate"]})
        title = f"Win rate in {self.folder.plan.plan.scenario}, {self.folder.plan.plan.episodes} episodes a seed"
        return SeedsTable.of_win_rates(title, self.folder.plan.space.names, by_seed) if by_seed else None

    @property
    def notes(self) -> list[str]:
        """Lines about trials that did not finish, and where the files are."""
        counts = {state: sum(row["state"] == state for row in self.rows) for state in (STOPPED, FAILED, INTERRUPTED)}
        lines = [f"{count} of {self.folder.plan.trials} trials {state}" for state, count in counts.items() if count]
        return [*lines, f"results in {self.folder.path / 'results'}"]

    def save(self) -> None:
        """Write `results/trials.parquet`, and of the settings `results/sweep.parquet`; raises WriteError."""
        results = self.folder.path / "results"
        write_rows(results / f"{_TRIALS}.parquet", self.rows)
        if (table := self.table) is not None:
            table.save(results, _RESULTS)

    def check(self) -> None:
        """Refuse results that are not whole.

        Raises:
            SoulsGraphError: if a trial failed, with the first one's error.
            Interruption: if trials are left.
        """
        if failed := [row for row in self.rows if row["state"] == FAILED]:
            first = failed[0]
            raise SoulsGraphError(
                f"sweep {self.folder.path}: expected every trial to finish, found that {len(failed)} of "
                f"{len(self.rows)} failed, the first in {first['run']}: {first['error']} Correct this and go on with "
                "`SweepFolder.open`."
            )
        trials, ended = self.folder.plan.trials, sum(row["state"] != INTERRUPTED for row in self.rows)
        if ended < trials:
            done = f"stopped with {trials - ended} of {trials} trials left"
            raise Interruption(done, Remedy("; go on with: ", "run_sweep", folder=self.folder.path))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings over seeds, and every trial, as plain values."""
        table = self.table
        return {"best": self.best, "trials": [dict(row) for row in self.rows], **(table.to_dict() if table else {})}

    def to_rich(self) -> list[RenderableType]:
        """Return the table and the notes for the terminal."""
        table = self.table
        return [*(table.to_rich() if table else ["no trial finished"]), *self.notes]

    def __repr__(self) -> str:
        return as_text(*self.to_rich())

    def _repr_html_(self) -> str:
        names = (*self.folder.plan.space.names, "seed", "state", "win_rate")
        return html_table(names, [tuple(shown(row[name]) for name in names) for row in self.rows])


def _same(row: Mapping[str, Any], other: Mapping[str, Any], names: Sequence[str]) -> bool:
    return all(row[name] == other[name] for name in names)
