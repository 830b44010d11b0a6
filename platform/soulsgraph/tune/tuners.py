"""How Ray Tune searches: by optuna, or with what stops trials or changes them; the line of a trial that has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, ClassVar

import cloudpickle
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining, TrialScheduler
from ray.tune.search import SearchAlgorithm, Searcher
from ray.tune.search.basic_variant import BasicVariantGenerator
from ray.tune.search.repeater import TRIAL_INDEX, Repeater

from soulsgraph.results.tables import OutputConsole
from soulsgraph.tracking.contract import Logged, LogPoint, TrackedRun, Tracker
from soulsgraph.tune.folder import OPTIONS, RETURN, SEED, STEP, TRAINING_RETURN, WIN_RATE, Sweep, SweepFolder, named
from soulsgraph.tune.member import Member, interval
from soulsgraph.tune.trial import train_trial
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import FileLock, make_folder, remove_folder, writing
from soulsgraph_policies.agents.projects import LoadedProject, loaded_projects, take_over

#: Of what a sweep halves: a trial goes on if it is among the best third at its rung, the first after this share.
_REDUCTION, _GRACE = 3, 9
_LOGGED = {WIN_RATE: "eval/win_rate", RETURN: "eval/episodic_return"}

Config = Mapping[str, Any]


class TuneTracker(Tracker):
    """Report the figure of each checkpoint of one skill, the last, to Ray Tune, which may stop the trial by it."""

    # At once, in the trial's own thread: Tune stops a trial where it reports.
    local: ClassVar[bool] = True

    def __init__(self, skill: str, metric: str, before: int = 0) -> None:
        self._skill, self._metric, self._before = skill, metric, before

    def begin(self, run: TrackedRun) -> None:
        """There is nothing to begin."""

    def log(self, at: LogPoint, values: Mapping[str, Logged]) -> None:
        """Report a checkpoint of the skill, by the decisions of the stage."""
        if at.group == self._skill and (name := _LOGGED[self._metric]) in values:
            tune.report({self._metric: values[name], STEP: at.step - self._before})

    def end(self, finished: bool) -> None:
        """There is nothing to end."""


class TrialLines(tune.Callback):
    """Print a line for each trial that ends; Ray Tune keeps it beside its own state, so that it holds plain values."""

    def __init__(self, trials: int, seeds: Sequence[int], quiet: bool) -> None:
        self._trials, self._seeds, self._quiet, self._ended = trials, tuple(seeds), quiet, 0

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Print its setting, seed and last figure."""
        self._show(trial.config, trial.last_result or {}, "no result")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Print that it failed; why is in the error at the end."""
        self._show(trial.config, {}, "failed")

    def _show(self, config: Config, figures: Mapping[str, Any], without: str) -> None:
        self._ended += 1
        values = [f"win rate {100.0 * figures[WIN_RATE]:.1f} %"] if WIN_RATE in figures else []
        values += [f"return {figures[RETURN]:.2f}"] if RETURN in figures else []
        line = f"{self._ended}/{self._trials}: {named(config[OPTIONS])}, seed {seed_of(config, self._seeds)}: "
        OutputConsole(quiet=self._quiet).print(line + (", ".join(values) or without))


def trainable(folder: SweepFolder, projects: tuple[LoadedProject, ...]) -> Callable[[Config], None]:
    """Return what Ray Tune calls with the configuration of each trial, on any node, which sees the folder."""
    folder = SweepFolder(folder.path.absolute(), folder.plan)

    def trial(config: Config) -> None:
        take_over(projects)
        setting, seed = config[OPTIONS], seed_of(config, folder.plan.seeds)
        path = folder.run_path(setting, seed, tune.get_context().get_trial_id())
        make_folder(path.parent)
        # One trial of a run at a time: a setting may be drawn twice.
        with FileLock(path.with_suffix(".lock"), wait=True):
            run = folder.run(path, setting, seed)
            last = folder.plan.stages(run)[-1]
            continued = [] if last.parent is None else run.library.lineage(last.skill, last.parent)
            before = sum(card.training.steps for card in continued)
            tracker = TuneTracker(last.skill, folder.plan.metric, before)
            tune.report(train_trial(folder, run, trackers=(tracker,)))

    return trial


def seed_of(config: Config, seeds: Sequence[int]) -> int:
    """Return a trial's training seed: its own, or where Tune repeats a setting that of the repetition."""
    return int(config[SEED] if SEED in config else seeds[config[TRIAL_INDEX]])


def train_trials(folder: SweepFolder, quiet: bool) -> None:
    """Train the trials, or those that are left: by one tuner, or of populations by one for each seed.

    Raises:
        WriteError: if the folder cannot be written.
    """
    asked, projects = folder.plan, tuple(loaded_projects().values())
    lines = TrialLines(asked.trials, asked.seeds, quiet)
    begun = SweepFolder(folder.path.absolute(), asked)
    trial: Any = trainable(begun, projects)
    if asked.scheduler == "pbt":
        trial = tune.with_parameters(Member, folder=begun, projects=projects)
    trial = tune.with_resources(trial, {"cpu": 1})
    for path, space in _searches(begun).items():
        with writing(path), _whole_state(path):
            if tune.Tuner.can_restore(str(path)):
                tuner = tune.Tuner.restore(str(path), trial, resume_errored=True)
            else:
                # Whoever goes on from another member finds its checkpoint: more than two are kept.
                kept = tune.CheckpointConfig(num_to_keep=3)
                place = {"name": path.name, "storage_path": str(path.parent), "checkpoint_config": kept}
                run_config = tune.RunConfig(**place, verbose=0, callbacks=[lines])
                tuner = tune.Tuner(trial, param_space=space, tune_config=_tune_config(asked), run_config=run_config)
            tuner.fit()
        trials = _trials_at(path)
        if not all(one.status in (Trial.TERMINATED, Trial.ERROR) for one in trials):
            return
        for checkpoint in path.glob("*/checkpoint_*"):
            if all(one.status == Trial.TERMINATED for one in trials):
                remove_folder(checkpoint)


def trials_of(folder: SweepFolder) -> list[Trial]:
    """Return the trials that began; raises SoulsGraphError where what Tune keeps is damaged."""
    return [trial for path in _searches(folder) if path.exists() for trial in _trials_at(path)]


def _trials_at(path: Path) -> list[Trial]:
    with _whole_state(path):
        return list(tune.ExperimentAnalysis(str(path.absolute())).trials)


@contextmanager
def _whole_state(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, JSONDecodeError, UnpicklingError) as error:
        raise SoulsGraphError(
            f"{path}: expected what Ray Tune keeps there, found it cut short, as by a full disk; make room, remove "
            "this folder and run the same sweep again: the runs of its trials go on."
        ) from error


def _searches(folder: SweepFolder) -> dict[Path, dict[str, Any]]:
    """Return what Tune searches, by the folder that it keeps its state in; of populations each seed apart."""
    asked = folder.plan
    options = {OPTIONS: asked.space.domains(asked.search)}
    if asked.scheduler == "pbt":
        return {folder.tune / str(seed): {**options, SEED: seed} for seed in asked.seeds}
    # Optuna repeats each setting by itself.
    return {folder.tune: options if asked.search == "optuna" else {**options, SEED: tune.grid_search([*asked.seeds])}}


def _tune_config(asked: Sweep) -> tune.TuneConfig:
    scheduler: TrialScheduler | None = None
    if asked.scheduler == "asha":
        # Past the budget comes the evaluation, which no rung cuts off.
        halving = {"max_t": asked.budget + 1, "grace_period": max(asked.budget // _GRACE, 1)}
        scheduler = ASHAScheduler(time_attr=STEP, **halving, reduction_factor=_REDUCTION)
    elif asked.scheduler == "pbt":
        space = asked.space
        changed = {name: space.domains("random")[name] for name in space.ranges}
        scheduler = PopulationBasedTraining(
            time_attr=STEP,
            perturbation_interval=interval(asked.budget),
            hyperparam_mutations={OPTIONS: {**{name: [*values] for name, values in space.lists.items()}, **changed}},
            custom_explore_fn=lambda config: {**config, OPTIONS: space.clipped(config[OPTIONS])},
        )
    samples = {"grid": 1, "random": asked.samples, "optuna": asked.samples * len(asked.seeds)}[asked.search]
    metric = TRAINING_RETURN if asked.scheduler == "pbt" else asked.metric
    return tune.TuneConfig(
        metric=metric,
        mode="max",
        num_samples=samples,
        search_alg=_search(asked),
        scheduler=scheduler,
        reuse_actors=asked.scheduler == "pbt",
    )


def _search(asked: Sweep) -> SearchAlgorithm | Searcher:
    if asked.search != "optuna":
        return BasicVariantGenerator(constant_grid_search=True, random_state=asked.seeds[0])
    # Imported here: it is an extra.
    import optuna
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return RepeatedSearch(OptunaSearch(metric=asked.metric, mode="max", seed=asked.seeds[0]), repeat=len(asked.seeds))


class RepeatedSearch(Repeater):
    """Train each setting of a search on every seed; what is saved holds which repetitions are under way, too."""

    def save(self, checkpoint_path: str) -> None:
        """Write the search, and the repetitions."""
        super().save(checkpoint_path)
        path = Path(checkpoint_path)
        path.write_bytes(cloudpickle.dumps((path.read_bytes(), self.get_state())))

    def restore(self, checkpoint_path: str) -> None:
        """Go on from what `save` wrote, as Tune does with a folder of its own."""
        search, state = cloudpickle.loads(Path(checkpoint_path).read_bytes())
        (inner := Path(f"{checkpoint_path}.search")).write_bytes(search)
        super().restore(str(inner))
        inner.unlink()
        self.set_state(state)
