"""Skills cloned from recorded fights, as versions of a run that can be learned on from.

Decisions are read back from the fights' controls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from soulsgraph.recordings.files import RecordingError, read_header, read_recording, recording_files
from soulsgraph.recordings.recording import finished
from soulsgraph.runs.lineage import finished_versions
from soulsgraph.runs.plan import scenario_digest
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup, keep_demonstrations, kept_demonstrations, trained_artifact
from soulsgraph_envs.combat.rollout import Flags, Integers, Outcome
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.core.state import Column, Control, Controls, StateRows, state_rows
from soulsgraph_envs.skills import Skill, make_skill
from soulsgraph_policies.agents.library import SkillCard
from soulsgraph_policies.agents.projects import PAPER_GRAPH, find_graph, graph_names
from soulsgraph_policies.learning.cloning import check_cloning, clone, share_alike
from soulsgraph_policies.learning.sampler import Transitions


class ReadBack(NamedTuple):
    """One skill's decisions as the controls have them: the rows in which they begin and end, and their actions, (n,).

    `ambiguous` counts the ticks in which the skill may have decided, and that do not show what.
    """

    begins: Integers
    ends: Integers
    actions: Integers
    ambiguous: int


def read_back(controls: Controls, rows: StateRows, skills: Sequence[Skill]) -> dict[str, ReadBack]:
    """Return the decisions of each skill in one fight, from its controls (ticks,) and State rows (ticks or more, 25).

    A tick is ambiguous for a skill whose controls another skill takes in it or sends as well, and where no single
    action of the skill sends just what was sent, as when a person turns and tilts the camera at once. An action that a
    person cuts short by another one is ambiguous too. What sends nothing is taken for the action that does nothing.
    """
    return {skill.name: _of_skill(controls, rows, skill, skills) for skill in skills}


def _of_skill(controls: Controls, rows: StateRows, skill: Skill, skills: Sequence[Skill]) -> ReadBack:
    own, others = skill.controls, [other for other in skills if other is not skill]
    rivals = [other for other in others if other.precedence_over & own]
    shared = own & reduce(or_, (other.controls for other in others), Control.NONE)
    actions = _by_controls(skill)
    decisions: list[tuple[int, int, int]] = []
    ambiguous, free, held = 0, 0, 0
    for tick, bits in enumerate(controls.tolist()):
        sent, taken = bits & own, bits & shared or any(bits & rival.controls for rival in rivals)
        if tick < free and (taken or sent == held):
            continue
        if tick < free:
            decisions.pop()
            ambiguous += 1
        action = None if taken else actions.get(sent)
        if action is None:
            ambiguous, free = ambiguous + 1, tick + 1
            continue
        empty = int(rows[tick, Column.FLASKS] < 1.0)
        free, held = tick + int(skill.step_ticks[action, empty]), int(skill.actions[action].holds)
        decisions.append((tick, free, action))
    begins, ends, chosen = np.array(decisions, np.int64).reshape(-1, 3).T
    return ReadBack(begins, ends, chosen, ambiguous)


def _by_controls(skill: Skill) -> dict[int, int | None]:
    """Return the skill's action for what it sends in its first tick; None where two actions send the same."""
    actions: dict[int, int | None] = {}
    for index, action in enumerate(skill.actions):
        sent = int(action.holds | action.presses)
        actions[sent] = None if sent in actions else index
    return actions


#: Readings beyond this, in any unit, are no fight's.
_GREATEST = 1e9


@dataclass(frozen=True)
class Demonstrations:
    """What recorded fights show of one skill: its decisions, and how many ticks did not show what it decided."""

    skill: str
    transitions: Transitions
    ambiguous: int


def read_shown(run: RunFolder, fights: Path) -> dict[str, Demonstrations]:
    """Return what recorded fights of the run's scenario show of every skill of its graph.

    Raises:
        RecordingError: if a file is damaged or no recording, of another scenario, or without controls.
    """
    plan, scenario, digest = run.plan, load_scenario(run.plan.scenario), scenario_digest(run.plan.scenario)
    skills = [make_skill(name, plan.options) for name in plan.skill_graph.order]
    shown: dict[str, list[Transitions]] = {skill.name: [] for skill in skills}
    ambiguous = Counter[str]()
    for number, path in enumerate(recording_files(fights)):
        recording = read_recording(path)
        header, rows = recording.header, state_rows(recording.raw)
        if header.source == "fleet":
            raise RecordingError(path, "a fight with its controls", "one of a fleet, which keeps none", "leave it out")
        if header.scenario_digest != digest:
            remedy = "leave it out, or clone into a run of its scenario"
            raise RecordingError(path, f"a fight of {plan.scenario}", f"one of {header.scenario}", remedy)
        decisions = read_back(recording.controls[:-1], rows, skills)
        for skill in skills:
            own = decisions[skill.name]
            ambiguous[skill.name] += own.ambiguous
            shown[skill.name].append(_transitions(skill, scenario, rows, own, header.result.outcome, number))
    return {name: Demonstrations(name, Transitions.join(parts), ambiguous[name]) for name, parts in shown.items()}


def _transitions(
    skill: Skill, scenario: Scenario, rows: StateRows, shown: ReadBack, outcome: Outcome, number: int
) -> Transitions:
    """Return the decisions of a fight that came to an end, with the rewards of the skill's own training scenario."""
    # Whether everything in a row was read, and is what a game may show.
    read: Flags = np.all(np.abs(rows) <= _GREATEST, axis=1)
    known = read[shown.begins] & read[np.minimum(shown.ends, len(rows) - 1)]
    # Where HP is filled up after every tick nobody dies or wins.
    outcome = "time over" if skill.training_scenario.refill and outcome != "cut" else outcome
    begins, ends, decisions = finished(shown.begins[known], shown.ends[known], shown.actions[known], rows, outcome)
    observed = skill.observation(rows, scenario)
    return Transitions(
        observations=observed[begins],
        next_observations=observed[ends],
        actions=decisions.actions,
        rewards=skill.reward.evaluate(decisions).sum(axis=1),
        terminated=decisions.died | decisions.won,
        ticks=ends - begins,
        lanes=np.zeros(len(begins), np.int64),
        episodes=np.full(len(begins), number, np.int64),
    )


def graph_of(fights: Path) -> str:
    """Return the name of the graph whose skills fought; the paper's where they are its own, or people fought.

    Raises:
        RecordingError: if no graph that is known, or more than one, has the skills of all fights.
    """
    headers = [header for header in map(read_header, recording_files(fights)) if header.source != "fleet"]
    played = {frozenset(one.name for one in header.skills) for header in headers} - {frozenset()}
    if played <= {frozenset(PAPER_GRAPH.order)}:
        return PAPER_GRAPH.name
    fitting = [name for name in graph_names() if played == {frozenset(find_graph(name).order)}]
    if len(fitting) != 1:
        kinds = " and ".join(", ".join(sorted(names)) for names in played)
        projects = ", ".join(sorted({header.project.name for header in headers if header.project})) or "none"
        known = f"{', '.join(fitting) or 'none'} of {', '.join(graph_names())}"
        remedy = f"name the graph, and where it is a project's the project (of these fights: {projects})"
        raise RecordingError(fights, f"one graph of the skills that fought ({kinds})", known, remedy)
    return fitting[0]


@dataclass(frozen=True)
class SkillClone:
    """A skill's clone, what it was cloned from, and the share of those decisions that it makes itself, from 0 to 1.

    It is an `earlier` one where the same decisions had been cloned already.
    """

    card: SkillCard
    shown: Demonstrations
    same: float
    earlier: bool = False

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
    run: RunFolder, fights: Path, skills: Sequence[str], on_update: Callable[[], None] | None = None
) -> list[SkillClone]:
    """Clone skills from recorded fights, in graph order, each as the next version; a planned run is begun with them.

    The version in play stays where it is a clone of the same decisions, learned alike. `on_update` is called after
    each of the `UPDATES` of a skill that is cloned.

    Raises:
        UnknownNameError: if a skill is not of the run's graph.
        SoulsGraphError: as `read_shown` and `check_cloning`; also if a skill upstream of one has no version, or another
            process writes the run.
        WriteError: if the run folder cannot be written.
    """
    graph = run.plan.skill_graph
    for name in skills:
        if name not in graph.order:
            raise UnknownNameError("skill", name, graph.order)
    chosen = [name for name in graph.order if name in skills]
    for name in chosen:
        known = {*chosen, *(one for one in graph.order if run.begun and run.library.versions(one))}
        if missing := [one for one in graph.upstream(name) if one not in known]:
            raise SoulsGraphError(
                f"{run.path}: expected {', '.join(missing)} for {name} to build on, found no version; "
                "clone them as well, or clone into a copy of an agent of the zoo."
            )
    shown = read_shown(run, fights)
    for name in chosen:
        check_cloning(name, len(shown[name].transitions))
    with run.locked():
        return [_cloned(run, shown[name], on_update) for name in chosen]


def _cloned(run: RunFolder, shown: Demonstrations, on_update: Callable[[], None] | None) -> SkillClone:
    stage, transitions = replace(run.plan.stage(shown.skill), cloned=True), shown.transitions
    setup = StageSetup(run, stage)
    skill = setup.skills[-1]
    # Of which fights a version was cloned its inputs do not say.
    made = [card for card in finished_versions(run, stage) if card.training.cloned]
    if made and _is_of(run, made[0], transitions):
        weights = run.library.load(shown.skill, made[0].version).weights
        return SkillClone(made[0], shown, share_alike(skill, weights, transitions, setup.hyperparameters), earlier=True)
    copied = clone(skill, transitions, setup.hyperparameters, stage.seed, on_update)
    artifact = trained_artifact(setup, copied.weights, copied.normalizer, 0)
    training = replace(artifact.card.training, budget=0, cloned=len(transitions))
    # Before the version: one without its decisions could not be learned on from.
    version = (run.library.versions(shown.skill) or [0])[-1] + 1
    keep_demonstrations(run, shown.skill, version, transitions)
    card = run.library.save(replace(artifact, card=replace(artifact.card, training=training)))
    return SkillClone(card, shown, copied.same)


def _is_of(run: RunFolder, card: SkillCard, transitions: Transitions) -> bool:
    """Return whether a version was cloned from these decisions; without its own, whole, nobody knows."""
    try:
        kept = vars(kept_demonstrations(run, card.skill, card.version))
    except SoulsGraphError:
        return False
    return all(np.array_equal(kept[name], values) for name, values in vars(transitions).items())
