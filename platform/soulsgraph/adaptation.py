"""Selective fine-tuning: continue some skills in another scenario, everything else frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from soulsgraph.evaluation import newest_version
from soulsgraph.plan import Stage, check_range
from soulsgraph.run_folder import RunFolder
from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.errors import SoulsGraphError, UnknownNameError


def adaptation_stages(
    run: RunFolder, scenario: str, skills: Sequence[str], budget: int | None = None
) -> tuple[Stage, ...]:
    """Give the stages that adapt `skills` to a scenario, in graph order.

    Each continues the version that the run trained on its own scenario: networks and normaliser
    are kept, the buffer is fresh, exploration starts lower. A skill adapts with everything
    downstream of it absent, on top of what was adapted before it.

    Raises:
        UnknownNameError: for an unknown scenario or skill.
        SoulsGraphError: if no skill is named, the scenario is the run's own, or the budget out of range.
    """
    plan, order = run.plan, run.plan.skill_graph.order
    load_scenario(scenario)
    if scenario == plan.scenario:
        raise SoulsGraphError(
            f"--scenario: expected another scenario than the run's own, found {scenario!r}; name the one to adapt to."
        )
    if budget is not None:
        check_range("budget", budget, 1, 100_000_000)
    if not skills:
        raise SoulsGraphError(f"--skills: expected one or more of {', '.join(order)}, found none.")
    for skill in skills:
        if skill not in order:
            raise UnknownNameError("skill", skill, order)
    stages = []
    for skill in (name for name in order if name in skills):
        parent = newest_version(run.library, skill, plan, plan.scenario)
        stage = plan.stage(skill, scenario, parent)
        stages.append(stage if budget is None else replace(stage, budget=budget))
    return tuple(stages)
