"""How Ray Tune runs a sweep: what it searches by, what stops or changes trials, where it keeps what it goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cloudpickle
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, TrialScheduler
from ray.tune.search import SearchAlgorithm, Searcher
from ray.tune.search.basic_variant import BasicVariantGenerator
from ray.tune.search.repeater import Repeater

from soulsgraph.tune.folder import Sweep, SweepFolder
from soulsgraph.tune.population import train_population
from soulsgraph.tune.trial import OPTIONS, SEED, STEP, TrialLines, trainable
from soulsgraph_policies.agents.projects import loaded_projects

#: Of what a sweep halves: a trial goes on if it is among the best third at its rung, the first after this share.
_REDUCTION, _GRACE = 3, 9


def train_trials(folder: SweepFolder, quiet: bool) -> None:
    """Train the trials, or those that are left: by one tuner, or a population a seed."""
    asked = folder.plan
    lines = TrialLines(asked.trials, asked.seeds, quiet)
    if asked.scheduler == "pbt":
        for seed in asked.seeds:
            if not train_population(folder, seed, lines):
                return
        return
    function = tune.with_resources(trainable(folder, tuple(loaded_projects().values())), {"cpu": 1})
    _tuner(folder.tune, function, _space(asked), _tune_config(asked), lines).fit()


def trials_of(folder: SweepFolder) -> list[Trial]:
    """Return the trials that began."""
    return list(tune.ExperimentAnalysis(str(folder.tune.absolute())).trials)


def _tuner(
    path: Path, trial: Any, space: Mapping[str, Any], tune_config: tune.TuneConfig, lines: TrialLines
) -> tune.Tuner:
    path = path.absolute()
    if tune.Tuner.can_restore(str(path)):
        return tune.Tuner.restore(str(path), trial, resume_errored=True)
    run_config = tune.RunConfig(name=path.name, storage_path=str(path.parent), verbose=0, callbacks=[lines])
    return tune.Tuner(trial, param_space=dict(space), tune_config=tune_config, run_config=run_config)


def _space(asked: Sweep) -> dict[str, Any]:
    options = {OPTIONS: asked.space.domains(asked.search)}
    # Optuna repeats each setting by itself.
    return options if asked.search == "optuna" else {**options, SEED: tune.grid_search([*asked.seeds])}


def _tune_config(asked: Sweep) -> tune.TuneConfig:
    # Past the budget comes the evaluation, which no rung cuts off.
    halving = {"max_t": asked.budget + 1, "grace_period": max(asked.budget // _GRACE, 1)}
    stopping = ASHAScheduler(time_attr=STEP, **halving, reduction_factor=_REDUCTION)
    scheduler: TrialScheduler | None = stopping if asked.scheduler == "asha" else None
    samples = {"grid": 1, "random": asked.samples, "optuna": asked.samples * len(asked.seeds)}[asked.search]
    return tune.TuneConfig(
        metric=asked.metric, mode="max", num_samples=samples, search_alg=_search(asked), scheduler=scheduler
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
