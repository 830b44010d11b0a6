"""The scenarios that a run went through: which versions play after each, and the stages that adapt to the next.

A version keeps all that determined its stage: the fight, what it learned by, and the digests of its parents. What is
found again (a finished stage, its checkpoints, its learning curve) is found by the digest of these inputs.
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

from soulsgraph.runs.plan import Stage, check_range, expect_fight, how_it_learns, scenario_digest, short
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.core.config import Where, read_file, to_json, validate
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.files import whole_folder
from soulsgraph_envs.core.scenario import fight_tables, load_scenario
from soulsgraph_policies.agents.library import INPUTS, LibraryError, SkillCard
from soulsgraph_policies.agents.projects import ProjectDigest

_AUTO, _ALL = "auto", "all"


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


def predecessors(run: RunFolder) -> dict[str, str]:
    """Return, for each scenario adapted to in order of time, the one whose versions were continued.

    Raises:
        DataError: if the record is damaged.
    """
    domains = _Domains(run)
    return {domains.name(fight): domains.name(after) for fight, after in domains.before().items()}


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


def scenarios_of(run: RunFolder) -> dict[tuple[str, int], str]:
    """Return the scenario that each version was trained in, by skill and version."""
    domains = _Domains(run)
    return {(card.skill, card.version): domains.name(card.training.fight) for card in domains.cards}


def expect_unchanged(run: RunFolder, *scenarios: str) -> None:
    """Refuse scenarios in which the run was trained, and whose files say something else by now.

    A shipped fight of its own goes with the version of the package.

    Raises:
        SoulsGraphError: naming the first, and both fights.
    """
    known = _Domains(run).known
    for name in scenarios:
        if name in known and (name != run.plan.scenario or name.endswith(".toml")):
            expect_fight(name, known[name], str(run.path))


def continued_domain(run: RunFolder, scenario: str, after: str | None = None) -> str:
    """Return the scenario whose versions an adaptation to `scenario` continues.

    It is `after` if given, else the one of an earlier adaptation to the same scenario, else the last.

    Raises:
        UnknownNameError: if the run was never adapted to the scenario asked for.
        SoulsGraphError: if that would make a cycle.
    """
    domains = _Domains(run)
    before, own, fight = domains.before(), run.plan.scenario, domains.find(scenario)
    asked = None if after is None else domains.find(after)
    if asked is not None and asked != domains.own and asked not in before:
        raise UnknownNameError("scenario of the run", str(after), (own, *domains.names([*before])))
    chosen = asked or before.get(fight) or domains.chain()[-1]
    chain = domains.chain(chosen)
    if fight in chain:
        raise SoulsGraphError(
            f"`scenario`: expected one that the run has not gone through, found {scenario!r} in "
            f"{' -> '.join(domains.names(chain))}; name {own!r} as the one to continue with `after`."
        )
    return domains.name(chosen)


def branch(run: RunFolder, path: Path, after: str) -> RunFolder:
    """Copy the run's plan and the versions of the chain up to `after` into a new folder, and open it.

    The folder appears whole or not at all.

    Raises:
        WriteError: if the folder exists or cannot be written.
    """
    domains = _Domains(run)
    chain = domains.chain(domains.find(after))
    with whole_folder(path) as temporary:
        shutil.copy2(run.path / "plan.json", temporary / "plan.json")
        for card in domains.cards:
            if card.training.fight in chain:
                version = Path(card.skill, f"v{card.version}")
                shutil.copytree(run.library.folder / version, temporary / "library" / version)
                if card.training.cloned:
                    kept = run.demonstrations(card.skill, card.version)
                    shutil.copytree(kept, temporary / kept.relative_to(run.path))
    return RunFolder.open(path)


def upstream_versions(run: RunFolder, stage: Stage) -> dict[str, int]:
    """Return the version of each skill upstream that a stage trains on.

    Raises:
        LibraryError: if one was never trained.
    """
    names = run.plan.skill_graph.upstream(stage.skill)
    return {name: version_in_play(run, name, stage.scenario, stage.after) for name in names}


def frozen_versions(run: RunFolder, stage: Stage) -> dict[str, int]:
    """Return the version of each skill that plays in a stage without learning; raises as `upstream_versions`."""
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


def cards_by_stage(cards: Sequence[SkillCard]) -> list[list[SkillCard]]:
    """Return cards, in training order, by the stage that made them: those of skills that learned jointly are one's."""
    stages: list[list[SkillCard]] = []
    for card in cards:
        names, upstream = card.training.jointly, {(one.skill, one.version) for one in card.upstream}
        for made in stages:
            built_on = {(one.skill, one.version) for one in made} <= upstream
            if names and made[-1].training.jointly == names and built_on:
                made.append(card)
                break
        else:
            stages.append([card])
    return stages


def stage_of(run: RunFolder, cards: Sequence[SkillCard]) -> Stage:
    """Return the stage that made some cards, by the name that it had."""
    parts = []
    for card in cards:
        part = replace(run.plan.stage(card.skill, card.training.scenario, card.parent), budget=card.training.budget)
        clone = _clone_behind(run, card)
        made = _suffixed(run, part, {card.skill: card}, card.training.fight) if clone is None else None
        parts.append(made or _from_clone(part, clone or 0))
    return replace(parts[-1], jointly=tuple(parts[:-1]))


def own_stage(run: RunFolder, skill: str) -> Stage:
    """Return the stage that trains a skill in the run's own scenario, with those that learn jointly with it.

    Raises:
        UnknownNameError: if the skill is not of the run's graph.
    """
    if skill not in run.plan.skill_graph.order:
        raise UnknownNameError("skill", skill, run.plan.skill_graph.order)
    return next(stage for stage in own_stages(run) if skill in stage.skills)


def _own_part(run: RunFolder, skill: str) -> Stage:
    """Return a skill's part of its stage: anew, or from its newest clone if there is one."""
    stage = run.plan.stage(skill)
    own = [card for card in cards_trained_on(run, stage.scenario) if card.skill == skill]
    clones = [card.version for card in own if card.training.cloned]
    return _from_clone(stage, clones[-1]) if clones else stage


def _clone_behind(run: RunFolder, card: SkillCard) -> int | None:
    """Return the clone that a version of the run's own scenario continues, None if it continues none."""
    if card.parent is None or card.training.scenario != run.plan.scenario:
        return None
    return card.parent if run.library.card(card.skill, card.parent).training.cloned else None


def _from_clone(stage: Stage, version: int) -> Stage:
    return replace(stage, parent=version, cloned=True, suffix=f"-clone-v{version}")


def own_stages(run: RunFolder) -> tuple[Stage, ...]:
    """Return the curriculum in the run's own scenario, in training order."""
    return run.plan.joined([_own_part(run, skill) for skill in run.plan.skill_graph.order])


def stage_inputs(run: RunFolder, stage: Stage) -> dict[str, Any]:
    """Return all that determines what a stage leads to, resolved, as plain values.

    Raises:
        LibraryError: if a skill upstream was never trained, or a version that is continued is missing.
    """
    plan, library, domains = run.plan, run.library, _Domains(run)
    learns = {}
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
        "frozen": {name: library.card(name, of).digest for name, of in frozen_versions(run, stage).items()},
        "project": project.digest if project else "",
    }
    plain: dict[str, Any] = json.loads(to_json(inputs, default=str))
    return plain


def kept_inputs(file: Path) -> Mapping[str, Any]:
    """Return the inputs of a stage that a file holds; none where there is no file.

    Raises:
        DataError: if it is damaged.
    """
    where = Where(file, remedy="remove the file, and what lies beside it, to begin anew")
    return validate(dict[str, Any], read_file(where), where) if file.exists() else {}


def finished_versions(run: RunFolder, stage: Stage) -> list[SkillCard]:
    """Return the cards of the versions in play if the stage made them all, else none: it is still to be trained."""
    if not all(run.library.versions(skill) for skill in stage.skills):
        return []
    made = _made(run, stage)
    return [made[skill] for skill in stage.skills] if len(made) == len(stage.skills) else []


def unfinished(run: RunFolder, stages: Sequence[Stage]) -> list[Stage]:
    """Return the stages that are still to be trained."""
    return [stage for stage in stages if not finished_versions(run, stage)]


def half_saved(run: RunFolder, stage: Stage) -> dict[str, SkillCard]:
    """Return what a joint stage saved before it was killed, by skill: no version of its last skill is built on it."""
    if not stage.jointly:
        return {}
    together = [card for card in cards_of(run, (stage.skill,)) if card.training.jointly == stage.skills]
    followed = {(artifact.skill, artifact.version) for card in together for artifact in card.upstream}
    made = (card for skill, card in _made(run, stage).items() if skill != stage.skill)
    return {card.skill: card for card in made if (card.skill, card.version) not in followed}


def jointly_with(stage: Stage) -> tuple[str, ...]:
    """Return the skills that learn in the same fights, as their cards have them: none where one learns alone."""
    return stage.skills if stage.jointly else ()


def _made(run: RunFolder, stage: Stage) -> dict[str, SkillCard]:
    """Return the versions in play that a stage made, by skill: those of its inputs.

    Of one that was made elsewhere how it learned is not known; it is the stage's by fight, budget, seed and parents.
    """
    library, cards = run.library, dict[str, SkillCard]()
    inputs = stage_inputs(run, stage)
    for part in (part for part in stage.parts if library.versions(part.skill)):
        card = library.card(part.skill, version_in_play(run, part.skill, part.scenario, stage.after))
        training = card.training
        own = (scenario_digest(part.scenario), part.budget, part.seed, part.parent, jointly_with(stage))
        found = (training.fight, training.budget, training.seed, card.parent, tuple(training.jointly))
        frozen = {one.skill: one.digest for one in card.upstream if one.skill not in stage.skills}
        if kept := library.inputs(card.skill, card.version):
            same = kept == inputs
        else:
            same = own == found and frozen.items() <= inputs["frozen"].items()
        if same:
            cards[part.skill] = card
    return cards


def clone_in_play(run: RunFolder, stage: Stage) -> SkillCard | None:
    """Return the card of the version in play if it is a clone as one of the stage would be made now.

    Of which fights it was cloned its inputs do not say: its decisions are kept beside the run's versions.
    """
    card = _made(run, stage).get(stage.skill)
    return card if card and card.training.cloned else None


def curve_folder(run: RunFolder, stage: Stage) -> Path:
    """Return the folder of the weights of a stage's learning curve."""
    return run.path / "curves" / stage.name


def is_of_stage(run: RunFolder, stage: Stage, folder: Path) -> bool:
    """Return whether what is in a folder is of a stage as it would be trained now.

    Raises:
        SoulsGraphError: as `stage_inputs`, or if what says it is damaged.
    """
    return kept_inputs(folder / INPUTS) == stage_inputs(run, stage)


def expect_own_fight(run: RunFolder, scenario: str) -> None:
    """Refuse to go on with a run in its own scenario where that is another fight by now; raises SoulsGraphError."""
    if scenario == run.plan.scenario:
        expect_fight(scenario, run.fight, str(run.path))


def check_target(run: RunFolder, scenario: str, after: str | None = None) -> str:
    """Check the scenario to adapt to and return the one whose versions are continued.

    Raises:
        UnknownNameError: for an unknown scenario.
        SoulsGraphError: if the run went through the scenario already, or its player cannot do what a skill does.
    """
    load_scenario(scenario)
    expect_unchanged(run, scenario)
    run.plan.check_fight(scenario)
    if run.fight == scenario_digest(scenario) or scenario == run.plan.scenario:
        raise SoulsGraphError(
            f"`scenario`: expected another scenario than the run's own, found {scenario!r}; name the one to adapt to."
        )
    return continued_domain(run, scenario, after)


def check_budget(budget: int | None) -> None:
    """Check the number of decisions that each skill adapts for; None means the plan's own.

    Raises:
        SoulsGraphError: naming the range and the value.
    """
    if budget is not None:
        check_range("budget", budget, 1, 100_000_000)


def named_skills(run: RunFolder, text: str) -> tuple[str, ...] | None:
    """Read `all` or names separated by commas; None for `auto`.

    Raises:
        SoulsGraphError: if `auto` or `all` stands among others.
    """
    order = run.plan.skill_graph.order
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == [_AUTO]:
        return None
    if names == [_ALL]:
        return order
    for word in (_AUTO, _ALL):
        if word in names:
            raise SoulsGraphError(f"`skills`: expected {word} by itself, found {text!r}; name skills or {word}.")
    return tuple(names)


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
    check_budget(budget)
    if not skills:
        raise SoulsGraphError(f"`skills`: expected one or more of {', '.join(order)}, found none; name one.")
    for skill in skills:
        if skill not in order:
            raise UnknownNameError("skill", skill, (*order, _AUTO, _ALL))
    chosen = [skill for skill in order if skill in skills]
    planned = (run.plan.stage(skill, scenario, version_in_play(run, skill, source)) for skill in chosen)
    stages = tuple(replace(stage, after=source, budget=budget or stage.budget) for stage in planned)
    if jointly:
        stages = (replace(stages[-1], jointly=stages[:-1]),)
    return tuple(_named_apart(run, stage) for stage in stages)


def _named_apart(run: RunFolder, stage: Stage) -> Stage:
    """Return the stage with its suffixes: no checkpoint of another fight, budget or version is taken for its own."""
    saved, fight = half_saved(run, stage), scenario_digest(stage.scenario)
    jointly = tuple(_suffixed(run, part, saved, fight) for part in stage.jointly)
    return replace(_suffixed(run, stage, saved, fight), jointly=jointly)


def _suffixed(run: RunFolder, part: Stage, saved: Mapping[str, SkillCard], fight: str) -> Stage:
    """Return a stage with its suffix: of a scenario of your own the fight, and what makes it a further adaptation."""
    suffix = f"-{short(fight)}" if part.parent is not None and part.scenario.endswith(".toml") else ""
    card = saved.get(part.skill)
    # Where the stage saved this skill already, it is named by what it began with.
    before = [one for one in cards_of(run, (part.skill,)) if card is None or one.version < card.version]
    further = any(one.training.fight == fight for one in before)
    usual = run.plan.stage(part.skill, part.scenario, part.parent).budget
    if further or part.budget != usual:
        suffix += f"-v{before[-1].version + 1}-{part.budget}"
    return replace(part, suffix=suffix)
