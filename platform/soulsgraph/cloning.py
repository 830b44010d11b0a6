"""Skills cloned from recorded fights, as versions of a run that can be learned on from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from soulsgraph.demonstrations import Shown, keep_shown, read_shown
from soulsgraph.domains import save_version
from soulsgraph.run_folder import RunFolder
from soulsgraph.stage_setup import StageSetup, trained_artifact
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_policies.cloning import check_cloning, clone
from soulsgraph_policies.library import SkillCard


@dataclass(frozen=True)
class Cloned:
    """A skill's clone, what it was cloned from, and the share of those decisions that it makes itself, from 0 to 1."""

    card: SkillCard
    shown: Shown
    same: float

    def row(self) -> dict[str, Any]:
        """Return it as a row of a table."""
        return {
            "skill": self.card.skill,
            "version": self.card.version,
            "decisions": self.card.training.cloned,
            "ambiguous_ticks": self.shown.ambiguous,
            "same": self.same,
        }


def clone_fights(
    run: RunFolder, fights: Path, skills: Sequence[str], on_cloned: Callable[[Cloned], None] | None = None
) -> list[Cloned]:
    """Clone skills from recorded fights, in graph order, each as the next version; a planned run is begun with them.

    Raises:
        UnknownNameError: if a skill is not of the run's graph.
        SoulsGraphError: as `read_shown` and `check_cloning`; also if no skill is named, a skill upstream of one has no
            version, or another process writes the run.
        WriteError: if the run folder cannot be written.
    """
    graph = run.plan.skill_graph
    for name in skills:
        if name not in graph.order:
            raise UnknownNameError("skill", name, graph.order)
    if not skills:
        raise SoulsGraphError(f"skills: expected one or more of {', '.join(graph.order)}, found none; name one.")
    chosen = [name for name in graph.order if name in skills]
    _expect_upstream(run, chosen)
    shown = read_shown(run, fights)
    for name in chosen:
        check_cloning(name, len(shown[name].transitions), run.plan.hyperparameters(run.plan.stage(name)))
    if not run.begun:
        run.begin()
    found = []
    with run.locked():
        for name in chosen:
            found.append(_cloned(run, shown[name]))
            if on_cloned is not None:
                on_cloned(found[-1])
    return found


def _expect_upstream(run: RunFolder, chosen: Sequence[str]) -> None:
    """Refuse skills whose upstream is neither trained nor cloned with them."""
    for name in chosen:
        known = {*chosen, *(one for one in run.plan.skill_graph.order if run.begun and run.library.versions(one))}
        if missing := [one for one in run.plan.skill_graph.upstream(name) if one not in known]:
            raise SoulsGraphError(
                f"{run.path}: expected {', '.join(missing)} for {name} to build on, found no version; "
                "clone them as well, or clone into a copy of an agent of the zoo."
            )


def _cloned(run: RunFolder, shown: Shown) -> Cloned:
    stage, transitions = replace(run.plan.stage(shown.skill), cloned=True), shown.transitions
    setup = StageSetup(run, stage)
    skill = setup.skills[-1]
    copied = clone(skill, transitions, setup.hyperparameters, stage.seed)
    artifact = trained_artifact(setup, copied.weights, copied.normalizer, 0)
    training = replace(artifact.card.training, budget=0, cloned=len(transitions))
    # Before the version: one without its decisions could not be learned on from.
    keep_shown(run, shown, (run.library.versions(shown.skill) or [0])[-1] + 1)
    card = save_version(run, stage, replace(artifact, card=replace(artifact.card, training=training)))
    return Cloned(card, shown, copied.same)
