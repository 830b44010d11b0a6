"""The scenarios that a run went through: which versions play after each, and the stages that adapt to the next.

A version keeps all that determined its stage: the fight, what it learned by, and the digests of its parents. What is
found again (a finished stage, its checkpoints, its journal, its learning curve) is found by the digest of these inputs.
A scenario counts from its first trained version on, and is the fight that its files said then: a file that says
something else by now is refused under that name.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from soulsgraph.runs.plan import Stage, expect_fight, how_it_learns, scenario_digest
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.core.config import digest_of, listed, to_json
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.files import whole_folder
from soulsgraph_envs.core.scenario import fight_tables, load_scenario
from soulsgraph_policies.agents.library import LibraryError, SkillCard
from soulsgraph_policies.agents.projects import ProjectDigest

_ALL, _AUTO = "all", "auto"


class _Domains:
    """The fights that a run went through, each by its digest; the name of a scenario is of one of them."""

    def __init__(self, run: RunFolder) -> None:
        self.run, self.own, self.cards = run, run.fight, cards_of(run)
        self._scenarios = {self.own: run.plan.scenario}
        for card in self.cards:
            self._scenarios.setdefault(card.training.fight, card.training.scenario)

    @property
    def known(self) -> dict[str, str]:
        """The fights by the scenarios that versions were trained in."""
        return {scenario: fight for fight, scenario in self._scenarios.items()}

    def find(self, name: str) -> str:
        """Return the fight that a scenario is: where none was trained in by its name, what its files say now.

        Raises:
            SoulsGraphError: if its files are missing or damaged, and nothing was trained in it.
        """
        fight = self.known.get(name) or scenario_digest(name)
        self._scenarios.setdefault(fight, name)
        return fight

    def name(self, fight: str) -> str:
        """Return the scenario that a fight was trained in as."""
        return self._scenarios[fight]

    def before(self) -> dict[str, str]:
        """Return, for each fight adapted to in order of time, the one whose versions were continued.

        Raises:
            DataError: if the inputs of a version are damaged.
        """
        # A version that continues a clone is one of the run's own fight.
        adapted = [card for card in self.cards if card.parent is not None and card.training.fight != self.own]
        adapted.sort(key=lambda card: card.training.created)
        library = self.run.library
        return {
            card.training.fight: library.inputs(card.skill, card.version).get("after") or self.own for card in adapted
        }

    def chain(self, fight: str | None = None) -> tuple[str, ...]:
        """Return the fights from the run's own to one, by default to the last one adapted to."""
        before = self.before()
        chain = [fight or next(reversed(before), self.own)]
        while chain[-1] in before and before[chain[-1]] not in chain:
            chain.append(before[chain[-1]])
        return tuple(reversed(chain))

    def names(self, fights: Sequence[str]) -> tuple[str, ...]:
        """Return the names of some fights."""
        return tuple(map(self.name, fights))


def cards_of(run: RunFolder, skills: Sequence[str] | None = None) -> list[SkillCard]:
    """Return the cards of every version of some skills, by default of all, in training order, oldest first."""
    library, names = run.library, run.plan.skill_graph.order if skills is None else skills
    return [library.card(skill, number) for skill in names for number in library.versions(skill)]


def domain_chain(run: RunFolder, scenario: str | None = None) -> tuple[str, ...]:
    """Return the scenarios from the run's own to `scenario`, by default to the last one adapted to."""
    domains = _Domains(run)
    return domains.names(domains.chain(None if scenario is None else domains.find(scenario)))


def cards_trained_on(run: RunFolder, scenario: str) -> list[SkillCard]:
    """Return the cards of the versions that were trained in the fight that a scenario is."""
    domains = _Domains(run)
    fight = domains.find(scenario)
    return [card for card in domains.cards if card.training.fight == fight]


def expect_unchanged(run: RunFolder, scenario: str) -> None:
    """Refuse a scenario in which the run was trained, and whose files say something else by now.

    A shipped fight of its own goes with the version of the package.

    Raises:
        SoulsGraphError: naming it, and both fights.
    """
    fight = _Domains(run).known.get(scenario)
    if fight and (scenario != run.plan.scenario or scenario.endswith(".toml")):
        expect_fight(scenario, fight, str(run.path))


def branch(run: RunFolder, path: Path, after: str, skills: Sequence[str] | None = None) -> RunFolder:
    """Copy the run's plan and the versions of the chain up to `after` into a new folder, and open it.

    Only those of some `skills` are copied if any are given.

    The folder appears whole or not at all.

    Raises:
        WriteError: if the folder exists or cannot be written.
    """
    domains = _Domains(run)
    chain = domains.chain(domains.find(after))
    with whole_folder(path) as temporary:
        shutil.copy2(run.path / "plan.json", temporary / "plan.json")
        for card in domains.cards:
            if card.training.fight in chain and (skills is None or card.skill in skills):
                version = Path(card.skill, f"v{card.version}")
                shutil.copytree(run.library.folder / version, temporary / "library" / version)
                if card.training.cloned:
                    kept = run.demonstrations(card.skill, card.version)
                    shutil.copytree(kept, temporary / kept.relative_to(run.path))
    return RunFolder.open(path)


def frozen_versions(run: RunFolder, stage: Stage) -> dict[str, int]:
    """Return the version of each skill that plays in a stage without learning.

    Raises:
        LibraryError: if one was never trained.
    """
    names = {name for part in stage.parts for name in run.plan.skill_graph.upstream(part.skill)} - {*stage.skills}
    order = (name for name in run.plan.skill_graph.order if name in names)
    return {name: version_in_play(run, name, stage.scenario, stage.after) for name in order}


def version_in_play(run: RunFolder, skill: str, trained_on: str, after: str | None = None) -> int:
    """Return the version of a skill that plays after training on a scenario.

    It is the newest one trained on the scenario, else on the nearest one before it in the chain, and
    finally on the run's own. `after` names the one before it if that is not recorded yet.

    Raises:
        LibraryError: if the skill was never trained.
    """
    domains = _Domains(run)
    cards = [card for card in domains.cards if card.skill == skill]
    if not cards:
        names = (*run.plan.skill_graph.upstream(skill), skill)
        first = next(name for name in names if not run.library.versions(name))
        raise LibraryError(run.path, f"a trained {first}", "none", "train it first")
    newest = {card.training.fight: card.version for card in cards}
    fight = domains.find(trained_on)
    chain = domains.chain(fight) if after is None else (*domains.chain(domains.find(after)), fight)
    fights = reversed((domains.own, *chain))
    return next((newest[fight] for fight in fights if fight in newest), cards[-1].version)


def stages_made(run: RunFolder) -> dict[str, tuple[Stage, list[SkillCard]]]:
    """Return the stages that made versions, with their cards in training order, by their keys; none made elsewhere."""
    made: dict[str, tuple[Mapping[str, Any], list[SkillCard]]] = {}
    for card in cards_of(run):
        # Those that learned jointly have the same inputs.
        if inputs := run.library.inputs(card.skill, card.version):
            made.setdefault(digest_of(inputs), (inputs, []))[1].append(card)
    domains, found = _Domains(run), {}
    for inputs, cards in made.values():
        after, parts = domains.name(inputs["after"]) if inputs["after"] else None, list[Stage]()
        for card in cards:
            planned, learned = run.plan.stage(card.skill, card.training.scenario, card.parent), inputs["learns"]
            own = {name: learned[card.skill][name] for name in ("budget", "seed", "cloned")}
            parts.append(replace(planned, after=after, **own))
        stage = replace(parts[-1], jointly=tuple(parts[:-1]))
        found[stage_key(run, stage, inputs)] = stage, cards
    return found


def own_stage(run: RunFolder, skill: str) -> Stage:
    """Return the stage that trains a skill in the run's own scenario, with those that learn jointly with it.

    Raises:
        UnknownNameError: if the skill is not of the run's graph.
    """
    if skill not in run.plan.skill_graph.order:
        raise UnknownNameError("skill", skill, run.plan.skill_graph.order)
    return next(stage for stage in own_stages(run) if skill in stage.skills)


def own_stages(run: RunFolder) -> tuple[Stage, ...]:
    """Return the curriculum in the run's own scenario, in training order, each skill anew or from its newest clone."""
    plan, clones = run.plan, dict[str, int]()
    for card in cards_trained_on(run, plan.scenario):
        if card.training.cloned:
            clones[card.skill] = card.version
    stages = map(plan.stage, plan.skill_graph.order)
    return plan.joined(
        [
            replace(stage, parent=clones[stage.skill], cloned=True) if stage.skill in clones else stage
            for stage in stages
        ]
    )


def stage_inputs(run: RunFolder, stage: Stage, frozen: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return all that determines what a stage leads to, resolved, as plain values.

    `frozen` are the versions that play without learning, by default those in play now.

    Raises:
        LibraryError: if a skill upstream was never trained, or a version that is continued is missing.
    """
    plan, library, domains = run.plan, run.library, _Domains(run)
    frozen, learns = frozen_versions(run, stage) if frozen is None else frozen, {}
    for part in stage.parts:
        parent = library.card(part.skill, part.parent).digest if part.parent else ""
        own = {"budget": part.budget, "seed": part.seed, "parent": parent, "cloned": part.cloned}
        learns[part.skill] = own | how_it_learns(plan, part)
    adapts = stage.parent is not None and stage.scenario != plan.scenario
    project = ProjectDigest.of(plan.graph)
    inputs = {
        "fight": fight_tables(stage.scenario),
        "after": domains.find(stage.after or plan.scenario) if adapts else "",
        "learns": learns,
        "frozen": {name: library.card(name, of).digest for name, of in frozen.items()},
        "project": project.digest if project else "",
    }
    plain: dict[str, Any] = json.loads(to_json(inputs, default=str))
    return plain


def stage_key(run: RunFolder, stage: Stage, inputs: Mapping[str, Any] | None = None) -> str:
    """Return a stage's name with a digest of its inputs, by default of those by which it would be trained now.

    By it the run keeps what a stage leaves before its versions; raises as `stage_inputs`.
    """
    return f"{stage.name}-{digest_of(inputs or stage_inputs(run, stage))[:16]}"


def finished_versions(run: RunFolder, stage: Stage) -> list[SkillCard]:
    """Return the cards of the versions in play if the stage made them all, else none: it is still to be trained."""
    if not all(run.library.versions(skill) for skill in stage.skills):
        return []
    made = made_by(run, stage)
    return [made[skill] for skill in stage.skills] if len(made) == len(stage.skills) else []


def unfinished(run: RunFolder, stages: Sequence[Stage]) -> list[Stage]:
    """Return the stages that are still to be trained."""
    return [stage for stage in stages if not finished_versions(run, stage)]


def made_by(run: RunFolder, stage: Stage) -> dict[str, SkillCard]:
    """Return the versions in play that a stage made, by skill: those of its inputs.

    Of one that was made elsewhere how it learned is not known; it is the stage's by fight and parents.
    """
    library, inputs, cards = run.library, stage_inputs(run, stage), dict[str, SkillCard]()
    for part in (part for part in stage.parts if library.versions(part.skill)):
        card = library.card(part.skill, version_in_play(run, part.skill, part.scenario, stage.after))
        own, found = (digest_of(inputs["fight"]), part.parent), (card.training.fight, card.parent)
        frozen = {one.skill: one.digest for one in card.upstream if one.skill not in stage.skills}
        kept = library.inputs(card.skill, card.version)
        if kept == inputs or (not kept and own == found and frozen.items() <= inputs["frozen"].items()):
            cards[part.skill] = card
    return cards


def check_target(run: RunFolder, scenario: str, after: str | None = None) -> str:
    """Check the scenario to adapt to and return the one whose versions are continued.

    It is `after` if given, else the one of an earlier adaptation to the same scenario, else the last.

    Raises:
        UnknownNameError: for an unknown scenario, or `after` one that the run was never adapted to.
        SoulsGraphError: if the run went through the scenario already, or its player cannot do what a skill does.
    """
    load_scenario(scenario)
    expect_unchanged(run, scenario)
    run.plan.check_fight(scenario)
    if run.fight == scenario_digest(scenario) or scenario == run.plan.scenario:
        raise SoulsGraphError(
            f"`scenario`: expected another scenario than the run's own, found {scenario!r}; name the one to adapt to."
        )
    domains = _Domains(run)
    before, fight = domains.before(), domains.find(scenario)
    chosen = domains.find(after) if after else before.get(fight) or domains.chain()[-1]
    if chosen not in (known := (domains.own, *before)):
        raise UnknownNameError(f"scenario of {run.path}", str(after), domains.names(known))
    chain = domains.chain(chosen)
    if fight in chain:
        raise SoulsGraphError(
            f"`scenario`: expected one that the run has not gone through, found {scenario!r} in "
            f"{' -> '.join(domains.names(chain))}; name {run.plan.scenario!r} as the one to continue with `after`."
        )
    return domains.name(chosen)


def named_skills(run: RunFolder, asked: str | Sequence[str]) -> tuple[str, ...] | None:
    """Return the skills that are named, every one for `all`; None for `auto`, where a rule is to find them.

    Raises:
        SoulsGraphError: if one of these words stands among others.
    """
    names, words = listed(asked), (_ALL, _AUTO)
    if len(names) == 1 and names[0] in words:
        return run.plan.skill_graph.order if names[0] == _ALL else None
    for word in words:
        if word in names:
            raise SoulsGraphError(
                f"`skills`: expected {word} by itself, found {', '.join(names)}; name one or the other."
            )
    return names


def adaptation_stages(
    run: RunFolder,
    scenario: str,
    skills: Sequence[str],
    budget: int | None = None,
    after: str | None = None,
    jointly: bool = False,
) -> tuple[Stage, ...]:
    """Return the stages that adapt `skills` to a scenario, in graph order; `jointly` makes one stage of them.

    Each continues the version in play after the domain before (`after`; the last one by default):
    networks and normaliser are kept, the buffer is fresh, exploration starts lower. A skill adapts
    with everything downstream of it absent, on top of what was adapted before it. Adapting once more,
    with another `budget` (decisions for each skill) or on top of other versions, makes a further
    version that continues the same one.

    Raises:
        UnknownNameError: for an unknown scenario or skill.
        LibraryError: if a skill was never trained.
        SoulsGraphError: if no skill is named, the scenario was gone through, or the budget is out of range.
    """
    order = run.plan.skill_graph.order
    source = check_target(run, scenario, after)
    if not skills:
        raise SoulsGraphError(f"`skills`: expected one or more of {', '.join(order)}, found none; name one.")
    for skill in skills:
        if skill not in order:
            raise UnknownNameError("skill", skill, (*order, _ALL, _AUTO))
    chosen = [skill for skill in order if skill in skills]
    planned = (run.plan.stage(skill, scenario, version_in_play(run, skill, source)) for skill in chosen)
    stages = tuple(replace(stage, after=source, budget=budget or stage.budget) for stage in planned)
    if jointly:
        stages = (replace(stages[-1], jointly=stages[:-1]),)
    return stages
