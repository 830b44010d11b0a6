"""Networks that other programs trained, as versions of skills in a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np

from soulsgraph.domains import save_version
from soulsgraph.plan import Stage
from soulsgraph.run_folder import RunFolder
from soulsgraph.stage_setup import StageSetup, trained_artifact
from soulsgraph_envs.core.config import Between, Where, load
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.library import Artifact, SkillCard
from soulsgraph_policies.preprocess import RunningNormalizer
from soulsgraph_policies.stable_baselines_file import read_saved_dqn

_MOST_BYTES = 2**20
#: What leaves an observation as it is: the normaliser adds 1e-8 to a variance, and a float32 is far from the clip.
_NO_VARIANCE, _NO_CLIP = 1.0 - 1e-8, 1e30


@dataclass(frozen=True)
class Statistics:
    """How observations were normalised: the values of VecNormalize's `obs_rms` and its `clip_obs`."""

    mean: tuple[float, ...]
    variance: Annotated[tuple[float, ...], Between(0.0, 1e30)]
    clip: Annotated[float, Between(1e-6, 1e30)] = 10.0
    count: Annotated[float, Between(0.0, 1e15)] = 1.0

    def normalizer(self) -> RunningNormalizer:
        """Return a normaliser that continues the statistics."""
        normalizer = RunningNormalizer(len(self.mean))
        mean, variance = np.array(self.mean), np.array(self.variance)
        normalizer.set_state({"mean": mean, "variance": variance, "count": self.count})
        return normalizer


def read_statistics(path: Path, size: int) -> Statistics:
    """Read statistics of `size` observed values from a JSON or TOML file.

    Raises:
        DataError: if it is missing or too large, or does not hold as many finite values.
        ReadError: if it cannot be read.
    """
    where = Where(path)
    if path.is_file() and path.stat().st_size > _MOST_BYTES:
        raise where.error(f"at most {_MOST_BYTES:,} bytes", f"{path.stat().st_size:,}")
    found = load(Statistics, where)
    for name in ("mean", "variance"):
        if len(getattr(found, name)) != size:
            raise where.at(name).error(f"{size} values", len(getattr(found, name)))
    return found


def imported_artifact(run: RunFolder, stage: Stage, file: Path, statistics: Path | None) -> Artifact:
    """Return a DQN that stable-baselines3 saved as an artifact of the stage's skill.

    Its layers must be those of the run's preset. Without `statistics` it observes raw values.

    Raises:
        LibraryError: if an upstream skill is missing or damaged.
        SoulsGraphError: if a file is missing, too large or damaged, or does not fit the skill.
    """
    setup = StageSetup(run, stage)
    skill = setup.skills[-1]
    size = skill.observation.size
    known = Statistics((0.0,) * size, (_NO_VARIANCE,) * size, _NO_CLIP)
    if statistics is not None:
        known = read_statistics(statistics, size)
    saved = read_saved_dqn(file, (size, *setup.hyperparameters.hidden_sizes, len(skill.actions)))
    artifact = trained_artifact(setup, saved.weights, known.normalizer(), saved.steps)
    card = artifact.card
    training = replace(card.training, packages={**card.training.packages, "stable-baselines3": saved.version})
    return replace(artifact, card=replace(card, training=training, observation_clip=known.clip))


def import_stable_baselines(run: RunFolder, skill: str, file: Path, statistics: Path | None = None) -> SkillCard:
    """Save a DQN of stable-baselines3 as the next version of a run's skill; a planned run is begun with it.

    Raises:
        UnknownNameError: if the skill is not of the run's graph.
        SoulsGraphError: as `imported_artifact`, or if another process writes the run.
        WriteError: if the run folder cannot be written.
    """
    stage = run.plan.stage(skill)
    if not run.begun:
        _expect_no_upstream(run, skill, run.plan.skill_graph.upstream(skill))
    artifact = imported_artifact(run, stage, file, statistics)
    if not run.begun:
        run.begin()
    with run.locked():
        return save_version(run, stage, artifact)


def _expect_no_upstream(run: RunFolder, skill: str, upstream: Sequence[str]) -> None:
    if upstream:
        raise SoulsGraphError(
            f"{run.path}: expected a run with {', '.join(upstream)} trained, found no run; import {skill} into one, "
            "as a copy of an agent of the zoo."
        )
