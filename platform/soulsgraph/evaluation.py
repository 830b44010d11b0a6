"""Judge the skills of a run: which versions play, in which scenario, with which skills randomised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from soulsgraph.domains import training_command, version_in_play
from soulsgraph.judging import Match, OnFinished, evaluation_seeds, play_match
from soulsgraph.plan import Plan
from soulsgraph.reports.tables import WinRate
from soulsgraph.run_folder import RunFolder
from soulsgraph.table_1 import TABLE_1, Row
from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.artifact import Artifact, SkillCard
from soulsgraph_policies.episodes import Episodes
from soulsgraph_policies.frozen import network_of

#: Seed of the evaluation episodes unless asked otherwise: the same for every row and every run.
EVALUATION_SEED = 1_000_000


@dataclass(frozen=True)
class Setting:
    """What is judged: a scenario and start, the skill versions that play, the skills randomised."""

    scenario: str
    trained_on: str
    start: str | None = None
    randomize: tuple[str, ...] = ()


def was_trained_on(run: RunFolder, scenario: str, skills: Sequence[str] | None = None) -> bool:
    """Tell whether the run has a version of one of the skills, by default of any, trained on the scenario."""
    library = run.library
    names = run.plan.skill_graph.skills if skills is None else skills
    cards = (library.card(name, number) for name in names for number in library.versions(name))
    return any(card.training.scenario == scenario for card in cards)


def load_artifacts(run: RunFolder, trained_on: str, skills: Sequence[str]) -> dict[str, Artifact]:
    """Load the versions that play after training on a scenario."""
    return {name: _load(run, name, version_in_play(run, name, trained_on)) for name in skills}


def _load(run: RunFolder, skill: str, version: int) -> Artifact:
    artifact = run.library.load(skill, version)
    run.library.check_upstream(artifact.card)
    return artifact


def check_library(run: RunFolder) -> list[SkillCard]:
    """Check every version of every skill as if it were to play, and return their cards in training order.

    Raises:
        SoulsGraphError: if one is damaged, cannot be read or does not fit the run.
    """
    scenario, cards = load_scenario(run.plan.scenario), []
    for skill in (make_skill(name, run.plan.options) for name in run.plan.skill_graph.order):
        for version in run.library.versions(skill.name):
            artifact = _load(run, skill.name, version)
            network_of(artifact, skill, scenario)
            cards.append(artifact.card)
    return cards


def started_at(scenario: Scenario, start: str | None) -> Scenario:
    """Give the scenario with another of its starts.

    Raises:
        UnknownNameError: if the scenario has no start of that name.
    """
    if start is None:
        return scenario
    if start not in scenario.starts:
        raise UnknownNameError("start", start, scenario.starts)
    return replace(scenario, start=start)


def make_match(run: RunFolder, setting: Setting) -> Match:
    """Put a setting together from the run's library.

    Raises:
        SoulsGraphError: if a skill is missing or damaged, or a name unknown.
    """
    scenario = started_at(load_scenario(setting.scenario), setting.start)
    order = run.plan.skill_graph.order
    skills = tuple(make_skill(name, run.plan.options) for name in order)
    artifacts = load_artifacts(run, setting.trained_on, [name for name in order if name not in setting.randomize])
    networks = tuple(network_of(artifacts[skill.name], skill, scenario) for skill in skills if skill.name in artifacts)
    return Match(scenario, skills, networks, setting.randomize)


def judge(
    run: RunFolder, setting: Setting, episodes: int, seed: int, on_finished: OnFinished | None = None
) -> Episodes:
    """Play a setting's evaluation episodes and give them in the order of their seeds."""
    seeds = evaluation_seeds(seed, episodes)
    return play_match(make_match(run, setting), seeds, on_finished)


def allowed_rows(run: RunFolder) -> tuple[tuple[Row, Setting], ...]:
    """Give the rows of Table 1 that the run's skills allow, as settings of the run's own scenario.

    A run on another scenario than the paper's first gets the ablations of part (a) only.
    """
    plan = run.plan
    order = plan.skill_graph.order
    if not all(run.library.versions(name) for name in order):
        missing = [name for name in order if not run.library.versions(name)]
        raise SoulsGraphError(
            f"{run.path}: expected every skill trained, found no {', '.join(missing)}; "
            f"train them first: {training_command(run, missing[0])}."
        )
    papers = plan.scenario == TABLE_1[0].scenario
    rows = []
    for row in TABLE_1:
        if row.skill != order[-1] or (row.part == "b" and not papers):
            continue
        own = row if papers else replace(row, scenario=plan.scenario, trained_on=plan.scenario)
        if all(was_trained_on(run, own.trained_on, (name,)) for name in own.adapted):
            rows.append((own, Setting(own.scenario, own.trained_on, own.start, own.randomize)))
    return tuple(rows)


def judge_rows(
    run: RunFolder, episodes: int, seed: int = EVALUATION_SEED, on_finished: OnFinished | None = None
) -> Mapping[Row, Episodes]:
    """Judge every row that the run allows, each on the same evaluation seeds."""
    return {row: judge(run, setting, episodes, seed, on_finished) for row, setting in allowed_rows(run)}


def win_rate(row: Row, episodes: Episodes, plan: Plan) -> WinRate:
    """Give a judged row for the table; the paper's figure stands beside it on the paper's scenario only."""
    papers = row.paper_percent if plan.scenario == TABLE_1[0].scenario else None
    return WinRate(row.label, int(episodes.won.sum()), len(episodes), papers)
