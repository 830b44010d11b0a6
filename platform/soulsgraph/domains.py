"""The scenarios that a run went through: which versions play after each, and the stages that adapt to the next.

`domains.json` in the run folder names, for each scenario adapted to, the one whose versions were continued.
A scenario counts from its first trained version on.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from soulsgraph.files import api_call, write_json
from soulsgraph.plan import Stage, check_range
from soulsgraph.run_folder import RunFolder
from soulsgraph_envs.core.config import Where, read_file, read_value
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_policies.atomic import whole_folder
from soulsgraph_policies.library import Artifact, LibraryError, SkillCard

_FILE = "domains.json"
_AUTO, _ALL = "auto", "all"


def predecessors(run: RunFolder) -> dict[str, str]:
    """Return, for each scenario adapted to in order of time, the one whose versions were continued.

    Raises:
        DataError: if the record is damaged.
    """
    path, own = run.path / _FILE, run.plan.scenario
    # A scenario that is not on record continued the run's own versions.
    continued = [card.training.scenario for card in cards_of(run) if card.parent is not None]
    # A version that continues a clone is one of the run's own scenario.
    adapted = {scenario: own for scenario in continued if scenario != own}
    if not path.exists():
        return adapted
    where = Where(path, remedy="restore the file from a copy or begin a new run")
    recorded: Mapping[str, str] = read_value(Mapping[str, str], read_file(where), where)
    # An adaptation that was aborted before it trained anything may be on record.
    trained = {name: after for name, after in recorded.items() if name in adapted}
    return {name: after for name, after in adapted.items() if name not in trained} | trained


def cards_of(run: RunFolder, skills: Sequence[str] | None = None) -> list[SkillCard]:
    """Return the cards of every version of some skills, by default of all, in training order, oldest first."""
    library, names = run.library, run.plan.skill_graph.order if skills is None else skills
    return [library.card(skill, number) for skill in names for number in library.versions(skill)]


def domain_chain(run: RunFolder, scenario: str | None = None) -> tuple[str, ...]:
    """Return the scenarios from the run's own to `scenario`, by default to the last one adapted to."""
    before = predecessors(run)
    chain = [scenario or next(reversed(before), run.plan.scenario)]
    while chain[-1] in before and before[chain[-1]] not in chain:
        chain.append(before[chain[-1]])
    return tuple(reversed(chain))


def continued_domain(run: RunFolder, scenario: str, after: str | None = None) -> str:
    """Return the scenario whose versions an adaptation to `scenario` continues.

    It is `after` if given, else the one of an earlier adaptation to the same scenario, else the last.

    Raises:
        UnknownNameError: if the run was never adapted to the scenario asked for.
        SoulsGraphError: if that would make a cycle.
    """
    before, own = predecessors(run), run.plan.scenario
    if after is not None and after != own and after not in before:
        raise UnknownNameError("scenario of the run", after, (own, *before))
    chosen = after or before.get(scenario) or domain_chain(run)[-1]
    chain = domain_chain(run, chosen)
    if scenario in chain:
        raise SoulsGraphError(
            f"`scenario`: expected one that the run has not gone through, found {scenario!r} in {' -> '.join(chain)}; "
            f"name {own!r} as the one to continue with `after`."
        )
    return chosen


def record_domain(run: RunFolder, scenario: str, after: str) -> None:
    """Note that the versions of `after` are continued in `scenario`.

    Raises:
        WriteError: if the run folder cannot be written.
    """
    before = predecessors(run)
    if before.get(scenario) != after:
        write_json(run.path / _FILE, before | {scenario: after})


def branch(run: RunFolder, path: Path, after: str) -> RunFolder:
    """Copy the run's plan and the versions of the chain up to `after` into a new folder, and open it.

    The folder appears whole, its chain on record, or not at all.

    Raises:
        WriteError: if the folder exists or cannot be written.
    """
    chain = domain_chain(run, after)
    with whole_folder(path) as temporary:
        shutil.copy2(run.path / "plan.json", temporary / "plan.json")
        for card in cards_of(run):
            if card.training.scenario in chain:
                version = Path(card.skill, f"v{card.version}")
                shutil.copytree(run.library.folder / version, temporary / "library" / version)
                if card.training.cloned:
                    kept = run.demonstrations(card.skill, card.version)
                    shutil.copytree(kept, temporary / kept.relative_to(run.path))
        copied = RunFolder(temporary, run.plan)
        for earlier, later in pairwise(chain):
            record_domain(copied, later, earlier)
    return RunFolder.open(path)


def save_version(run: RunFolder, stage: Stage, artifact: Artifact) -> SkillCard:
    """Save what a stage trained as the skill's next version; from then on its scenario counts as adapted to.

    Raises:
        DataError: if the card and the tensors contradict each other.
        WriteError: if the run folder cannot be written.
    """
    if stage.parent is not None and stage.scenario != run.plan.scenario:
        # Before the version: without it this record counts for nothing, but a version without it would
        # count as continuing the run's own.
        record_domain(run, stage.scenario, stage.after or run.plan.scenario)
    return run.library.save(artifact)


def upstream_versions(run: RunFolder, stage: Stage) -> dict[str, int]:
    """Return the version of each skill upstream that a stage trains on.

    Raises:
        LibraryError: if one was never trained.
    """
    names = run.plan.skill_graph.upstream(stage.skill)
    return {name: version_in_play(run, name, stage.scenario, stage.after) for name in names}


def frozen_versions(run: RunFolder, stage: Stage) -> dict[str, int]:
    """Return the version of each skill that plays in a stage without learning; raises as `upstream_versions`."""
    found = {name: number for part in stage.parts for name, number in upstream_versions(run, part).items()}
    return {name: number for name, number in found.items() if name not in stage.skills}


def version_in_play(run: RunFolder, skill: str, trained_on: str, after: str | None = None) -> int:
    """Return the version of a skill that plays after training on a scenario.

    It is the newest one trained on the scenario, else on the nearest one before it in the chain, and
    finally on the run's own. `after` names the one before it if that is not recorded yet.

    Raises:
        LibraryError: if the skill was never trained.
    """
    cards = cards_of(run, (skill,))
    if not cards:
        names = (*run.plan.skill_graph.upstream(skill), skill)
        first = next(name for name in names if not run.library.versions(name))
        raise LibraryError(run.path, f"a trained {first}", "none", f"train it first: {training_call(run, first)}")
    newest = {card.training.scenario: card.version for card in cards}
    chain = domain_chain(run, trained_on) if after is None else (*domain_chain(run, after), trained_on)
    scenarios = reversed((run.plan.scenario, *chain))
    return next((newest[scenario] for scenario in scenarios if scenario in newest), cards[-1].version)


def domain_cards(run: RunFolder, domain: str) -> tuple[SkillCard, ...]:
    """Return the versions that play after a domain and were trained in it, in training order."""
    order, library = run.plan.skill_graph.order, run.library
    cards = (library.card(skill, version_in_play(run, skill, domain)) for skill in order)
    return tuple(card for card in cards if card.training.scenario == domain)


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
        parts.append(_suffixed(run, part, {card.skill: card}) if clone is None else _from_clone(part, clone))
    return replace(parts[-1], jointly=tuple(parts[:-1]))


def training_call(run: RunFolder, skill: str) -> str:
    """Return the call that trains a skill of a run, as a remedy names it."""
    return api_call("train_stage", run=run.path, skill=skill)


def own_stage(run: RunFolder, skill: str) -> Stage:
    """Return the stage that trains a skill in the run's own scenario: anew, or from its newest clone if there is one.

    Raises:
        UnknownNameError: if the skill is not of the run's graph.
    """
    stage = run.plan.stage(skill)
    own = [card for card in cards_of(run, (skill,)) if card.training.scenario == stage.scenario]
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
    """Return the curriculum in the run's own scenario, a stage each skill in training order."""
    return tuple(own_stage(run, skill) for skill in run.plan.skill_graph.order)


def finished_versions(run: RunFolder, stage: Stage) -> list[SkillCard]:
    """Return the cards of the versions in play if the stage made them all, else none: it is still to be trained.

    A version of another budget, on top of other upstream versions than play now, or trained with other skills in the
    same fights, is another stage's.
    """
    cards = [_finished(run, part, jointly_with(stage)) for part in stage.parts]
    return [card for card in cards if card is not None] if None not in cards else []


def half_saved(run: RunFolder, stage: Stage) -> dict[str, SkillCard]:
    """Return what a joint stage saved before it was killed, by skill: no version of its last skill is built on it."""
    together = [card for card in cards_of(run, (stage.skill,)) if card.training.jointly == stage.skills]
    followed = {(artifact.skill, artifact.version) for card in together for artifact in card.upstream}
    cards = {part.skill: _finished(run, part, stage.skills) for part in stage.jointly}
    return {skill: card for skill, card in cards.items() if card and (skill, card.version) not in followed}


def jointly_with(stage: Stage) -> tuple[str, ...]:
    """Return the skills that learn in the same fights, as their cards have them: none where one learns alone."""
    return stage.skills if stage.jointly else ()


def _finished(run: RunFolder, stage: Stage, jointly: tuple[str, ...]) -> SkillCard | None:
    if not run.library.versions(stage.skill):
        return None
    card = run.library.card(stage.skill, version_in_play(run, stage.skill, stage.scenario, stage.after))
    upstream = {artifact.skill: artifact.version for artifact in card.upstream}
    origin = card.training.scenario, card.parent, card.training.budget, card.training.jointly, upstream
    wanted = stage.scenario, stage.parent, stage.budget, jointly, upstream_versions(run, stage)
    return card if origin == wanted else None


def check_target(run: RunFolder, scenario: str, after: str | None = None) -> str:
    """Check the scenario to adapt to and return the one whose versions are continued.

    Raises:
        UnknownNameError: for an unknown scenario.
        SoulsGraphError: if the run went through the scenario already, or its player cannot do what a skill does.
    """
    load_scenario(scenario)
    run.plan.check_fight(scenario)
    if scenario == run.plan.scenario:
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
    """Return the stage with its suffixes: a checkpoint of another budget or version must not be taken for its own."""
    saved = half_saved(run, stage)
    return replace(_suffixed(run, stage, saved), jointly=tuple(_suffixed(run, part, saved) for part in stage.jointly))


def _suffixed(run: RunFolder, part: Stage, saved: Mapping[str, SkillCard]) -> Stage:
    card = saved.get(part.skill)
    # Where the stage saved this skill already, it is named by what it began with.
    before = [one for one in cards_of(run, (part.skill,)) if card is None or one.version < card.version]
    further = any(one.training.scenario == part.scenario for one in before)
    usual = run.plan.stage(part.skill, part.scenario, part.parent).budget
    return (
        replace(part, suffix=f"-v{before[-1].version + 1}-{part.budget}") if further or part.budget != usual else part
    )
