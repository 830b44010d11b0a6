"""The decisions that a version was cloned from, in the run folder; a stage that continues the version keeps them."""

from __future__ import annotations

from dataclasses import fields

from soulsgraph.run_folder import RunFolder
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.atomic import whole_folder
from soulsgraph_policies.sampler import Transitions
from soulsgraph_policies.training_state import TrainingStateError, read_training_state, write_training_state


def keep_for(run: RunFolder, skill: str, version: int, transitions: Transitions) -> None:
    """Keep the decisions that a version is cloned from; raises WriteError."""
    with whole_folder(run.demonstrations(skill, version), replace=True) as temporary:
        write_training_state(temporary, vars(transitions))


def kept_for(run: RunFolder, skill: str, version: int) -> Transitions:
    """Return the decisions that a version was cloned from.

    Raises:
        SoulsGraphError: if they are missing or damaged.
    """
    folder = run.demonstrations(skill, version)
    try:
        state = read_training_state(folder)
        return Transitions(**{field.name: state[field.name] for field in fields(Transitions)})
    except (TrainingStateError, KeyError) as error:
        raise SoulsGraphError(
            f"{folder}: expected the decisions that {skill} v{version} was cloned from, found none or damaged ones; "
            "restore the folder from a copy, or clone the fights again."
        ) from error
