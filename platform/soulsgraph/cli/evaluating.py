"""`soulsgraph evaluate`: an agent in one fight, or by a table of many."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from soulsgraph.api import Run
from soulsgraph.cli.options import taken
from soulsgraph.cli.output import screen
from soulsgraph.results.origin import describe_origin
from soulsgraph.runs.evaluate import EVALUATION_SEED, EpisodeCount, FightSeed
from soulsgraph.runs.plan import Plan, lasting_name
from soulsgraph.zoo import open_run
from soulsgraph_envs.core.config import Keywords
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.files import check_writable


def _ablations(
    agents: tuple[Path, ...],
    /,
    *,
    scenario: Path | None = None,
    start: str | None = None,
    episodes: EpisodeCount = Plan.episodes,
    seed: FightSeed = EVALUATION_SEED,
    out: Path | None = None,
) -> Any:
    """Measure what agents and the scripted reference lose when one skill acts at random, idles, or never learned."""
    check_extra("evaluate --what ablations", "train")
    from soulsgraph.runs.ablations import measure_ablations, runs_by_seed

    runs = runs_by_seed(map(open_run, agents))
    fight = next(iter(runs.values())).plan.scenario if scenario is None else lasting_name(str(scenario))
    if out is not None:
        check_writable(out)
    screen.precompile()
    measured = measure_ablations(runs, fight, episodes, seed, start, screen.console)
    if out is not None:
        from soulsgraph.pages.report import Report, Section

        values = measured.to_dict()
        report = Report("Which skills a fight needs", [Section("", tables=measured.tables)])
        report.write(out, describe_origin() | values, {"seeds": values["seeds"]})
    return measured


def evaluate(
    agents: tuple[Path, ...],
    /,
    *,
    what: Literal["fights", "table", "ablations"] = "fights",
    **given: Annotated[Any, Keywords((Run.evaluate,))],
) -> Any:
    """Evaluate the skills of an agent, greedily: in one fight, or by a table of many.

    Args:
        agents: Run folder with trained skills, or the name of an agent of the zoo; of ablations several, one for each
            training seed.
        what: fights: one setting; table: every row of the paper's Table 1 that the skills allow; ablations: what is
            lost when one skill acts at random, does nothing, or never learned, and what the scripted reference loses by
            it.
    """
    if what == "ablations":
        return taken("evaluate --what ablations", _ablations, given)(agents)
    if len(agents) != 1:
        raise SoulsGraphError(f"evaluate: expected one run folder or agent, found {len(agents)}; name one.")
    run = Run(open_run(agents[0]))
    return taken(f"evaluate --what {what}", run.evaluate if what == "fights" else run.table, given)(quiet=screen.json)
