"""Decisions of recorded fights, read back from their controls, to clone and learn from.

Those that a version was cloned from lie in the run folder's `demonstrations`: a stage that continues it keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np

from soulsgraph.plan import scenario_digest
from soulsgraph.recordings.files import Recording, RecordingError, read_recording, recording_files
from soulsgraph.run_folder import RunFolder
from soulsgraph_envs.combat.decisions import ReadBack, read_back
from soulsgraph_envs.combat.episodes import Flags, Outcome
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.core.state import StateRows, state_rows
from soulsgraph_envs.skills import Skill, make_skill
from soulsgraph_envs.skills.base import Decisions
from soulsgraph_policies.atomic import whole_folder
from soulsgraph_policies.sampler import Transitions
from soulsgraph_policies.training_state import TrainingStateError, read_training_state, write_training_state

#: Readings beyond this, in any unit, are no fight's.
_GREATEST = 1e9


@dataclass(frozen=True)
class Shown:
    """What recorded fights show of one skill: its decisions, and how many ticks did not show what it decided."""

    skill: str
    transitions: Transitions
    ambiguous: int


def read_shown(run: RunFolder, fights: Path) -> dict[str, Shown]:
    """Return what recorded fights of the run's scenario show of every skill of its graph.

    Raises:
        RecordingError: if a file is damaged or no recording, of another scenario, or without controls.
    """
    plan, scenario = run.plan, load_scenario(run.plan.scenario)
    skills = [make_skill(name, plan.options) for name in plan.skill_graph.order]
    digest, parts = scenario_digest(plan.scenario), dict[str, list[Shown]]()
    for number, path in enumerate(recording_files(fights)):
        recording = read_recording(path)
        _check_fits(recording, plan.scenario, digest)
        fight = _Fight(state_rows(recording.raw), recording.header.result.outcome, number)
        for skill, found in zip(skills, read_back(recording.controls[:-1], fight.rows, skills).values(), strict=True):
            shown = Shown(skill.name, fight.transitions(skill, scenario, found), found.ambiguous)
            parts.setdefault(skill.name, []).append(shown)
    return {
        name: Shown(name, Transitions.join([one.transitions for one in of]), sum(one.ambiguous for one in of))
        for name, of in parts.items()
    }


def _check_fits(recording: Recording, scenario: str, digest: str) -> None:
    header, remedy = recording.header, "leave it out"
    if header.source == "fleet":
        found = "one of a fleet, which keeps none"
        raise RecordingError(recording.path, "a fight with its controls", found, remedy)
    if header.scenario_digest != digest:
        remedy = f"{remedy}, or clone into a run of its scenario"
        raise RecordingError(recording.path, f"a fight of {scenario}", f"one of {header.scenario}", remedy)


@dataclass(frozen=True)
class _Fight:
    """One recorded fight: State rows (ticks + 1, 25), how it ended, and its number among those that are read."""

    rows: StateRows
    outcome: Outcome
    number: int

    @cached_property
    def known(self) -> Flags:
        """Whether everything in a row was read, and is what a game may show, (ticks + 1,)."""
        return np.asarray((np.abs(self.rows) <= _GREATEST).all(axis=1))

    def transitions(self, skill: Skill, scenario: Scenario, found: ReadBack) -> Transitions:
        """Return the decisions that came to an end, with the rewards and ends of the skill's own practice ground."""
        observed, last = skill.observation(self.rows, scenario), len(self.rows) - 1
        # The end of a fight ends what is under way; where it was cut, nobody knows what it would have brought.
        ends = np.minimum(found.ends, last)
        kept = self.known[found.begins] & self.known[ends]
        if self.outcome == "cut":
            kept &= found.ends <= last
        begins, ends, actions = found.begins[kept], ends[kept], found.actions[kept]
        over = (ends == last) & (not skill.practice.refill)
        died, won = over & (self.outcome == "died"), over & (self.outcome == "won")
        decisions = Decisions(before=self.rows[begins], after=self.rows[ends], actions=actions, died=died, won=won)
        return Transitions(
            observations=observed[begins],
            next_observations=observed[ends],
            actions=actions,
            rewards=skill.reward.evaluate(decisions).sum(axis=1),
            terminated=died | won,
            ticks=ends - begins,
            lanes=np.zeros(len(actions), np.int64),
            episodes=np.full(len(actions), self.number, np.int64),
        )


def keep_shown(run: RunFolder, shown: Shown, version: int) -> None:
    """Keep the decisions that a version is cloned from; raises WriteError."""
    with whole_folder(run.demonstrations(shown.skill, version), replace=True) as temporary:
        write_training_state(temporary, vars(shown.transitions))


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
