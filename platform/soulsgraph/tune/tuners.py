"""How Ray Tune runs a sweep: what it searches by, what stops or changes trials, where it keeps what it goes on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining, TrialScheduler
from ray.tune.search import SearchAlgorithm, Searcher
from ray.tune.search.basic_variant import BasicVariantGenerator
from ray.tune.search.repeater import Repeater

from soulsgraph.tune.folder import Sweep, SweepFolder
from soulsgraph.tune.member import Member, interval
from soulsgraph.tune.trial import OPTIONS, SEED, STEP, TRAINING_RETURN, TrialLines, trainable
from soulsgraph_envs.core.files import remove_folder, writing
from soulsgraph_policies.agents.projects import loaded_projects

#: Of what a sweep halves: a trial goes on if it is among the best third at its rung, the first after this share.
_REDUCTION, _GRACE = 3, 9


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
    with writing(folder.path):
        for path, space in _searches(begun).items():
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
    """Return the trials that began."""
    return [trial for path in _searches(folder) if path.exists() for trial in _trials_at(path)]


def _trials_at(path: Path) -> list[Trial]:
    return list(tune.ExperimentAnalysis(str(path.absolute())).trials)


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
        # Each setting drawn is trained on every seed.
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
