"""Selective fine-tuning: continue some skills in another scenario, everything else frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from soulsgraph.domains import continued_domain, version_in_play
from soulsgraph.plan import Stage, check_range
from soulsgraph.run_folder import RunFolder
from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.errors import SoulsGraphError, UnknownNameError

_AUTO, _ALL = "auto", "all"


def check_target(run: RunFolder, scenario: str, after: str | None = None) -> str:
    """Check the scenario to adapt to and give the one whose versions are continued.

    Raises:
        UnknownNameError: for an unknown scenario.
        SoulsGraphError: if the run went through the scenario already.
    """
    load_scenario(scenario)
    if scenario == run.plan.scenario:
        raise SoulsGraphError(
            f"--scenario: expected another scenario than the run's own, found {scenario!r}; name the one to adapt to."
        )
    return continued_domain(run, scenario, after)


def check_budget(budget: int | None) -> None:
    """Check the decisions each skill is to adapt for; None leaves them to the plan.

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
            raise SoulsGraphError(f"--skills: expected {word} by itself, found {text!r}; name skills or {word}.")
    return tuple(names)


def adaptation_stages(
    run: RunFolder, scenario: str, skills: Sequence[str], budget: int | None = None, after: str | None = None
) -> tuple[Stage, ...]:
    """Return the stages that adapt `skills` to a scenario, in graph order.

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
        raise SoulsGraphError(f"--skills: expected one or more of {', '.join(order)}, found none; name one.")
    for skill in skills:
        if skill not in order:
            raise UnknownNameError("skill", skill, (*order, _AUTO, _ALL))
    return tuple(_stage(run, scenario, skill, budget, source) for skill in order if skill in skills)


def _stage(run: RunFolder, scenario: str, skill: str, budget: int | None, after: str) -> Stage:
    stage = replace(run.plan.stage(skill, scenario, version_in_play(run, skill, after)), after=after)
    usual, versions = stage.budget, run.library.versions(skill)
    stage = stage if budget is None else replace(stage, budget=budget)
    further = any(run.library.card(skill, number).training.scenario == scenario for number in versions)
    # A checkpoint of another budget or version must not be taken for this stage's.
    return replace(stage, suffix=f"-v{versions[-1] + 1}-{stage.budget}") if further or stage.budget != usual else stage
