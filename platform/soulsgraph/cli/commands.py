"""Commands that train, evaluate and reproduce, each a thin function over the library."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional

from soulsgraph.cli import options
from soulsgraph.cli.output import DEFAULT_RUN, Flag, OutputOptions, RunOptions
from soulsgraph.cli.pages import write_reproductions
from soulsgraph.cli.remedies import command_line, in_commands
from soulsgraph.paper.study import ReproductionFolder, Study
from soulsgraph.results.tables import WinRateTable, write_episodes, write_rows
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs import lineage
from soulsgraph.runs.plan import Plan, check_learns, check_range, lasting_name
from soulsgraph.runs.progress import stage_progress
from soulsgraph.runs.run_folder import RunFolder, check_given
from soulsgraph.zoo import open_run
from soulsgraph_envs.core.config import Where, parse, present_names
from soulsgraph_envs.core.errors import DataError, SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.files import check_writable, write_json
from soulsgraph_envs.games.link import load_games
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agents.library import SkillCard

if TYPE_CHECKING:
    from soulsgraph.runs.train import Workplace

#: The options of a study: what a new reproduction trains and evaluates.
StudyOptions = Annotated[
    options.Given,
    options.given_options(
        Study,
        seeds=options.option(int, "Training seeds, counted from the first.", len(Study.seeds)),
        first_seed=options.option(
            int,
            "First training seed; calibration, choosing and reporting each have a hundred of their own.",
            Study.seeds[0],
        ),
        overrides=options.option(
            tuple[str, ...], options.field_docs(Study)["overrides"], name="set", metavar="OPTION=VALUE ..."
        ),
    ),
]


def study_values(given: options.Given, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the fields of a study that the options given ask for, where otherwise it would have these seeds.

    Raises:
        SoulsGraphError: for a number of seeds out of its range, or an option set twice or without a value.
    """
    values = dict(given)
    first = values.pop("first_seed", seeds[0])
    if {"seeds", "first_seed"} & given.keys():
        count = values.get("seeds", len(seeds))
        check_range("seeds", count, 1, 1000)
        check_range("first-seed", first, 0, 2**31 - 1000)
        values["seeds"] = tuple(range(first, first + count))
    if "overrides" in values:
        overrides = dict(map(_override, values["overrides"]))
        if len(overrides) < len(values["overrides"]):
            found = " ".join(values["overrides"])
            raise SoulsGraphError(f"--set: expected each option once, found {found}; leave one out.")
        values["overrides"] = present_names(overrides)
    return values


def curriculum(
    plan: options.PlanOptions,
    session: options.SessionOptions = options.DEFAULT_SESSION,
    run: Path = Path("runs/curriculum"),
    resume: Flag = False,
    graph: options.Graph = None,
) -> None:
    """Train all skills in graph order, then print the table of win rates.

    Args:
        run: Run folder to begin, or to go on with.
        resume: Go on with the run in the folder instead of beginning one.
        graph: Skill graph to train: paper (the default), or a project's, as PROJECT/GRAPH.
    """
    folder = options.begin_or_resume(run, plan, resume, graph)
    watch = f"watch with: tensorboard --logdir {folder.tensorboard}"
    _train_and_evaluate(folder, session, f"run folder {folder.path}; {watch}")


def train(
    skill: Positional[str],
    plan: options.PlanOptions,
    session: options.SessionOptions = options.DEFAULT_SESSION,
    run: Path = Path("runs/curriculum"),
    graph: options.Graph = None,
) -> None:
    """Train one skill on top of the run's library; an interrupted stage goes on from its checkpoint.

    Args:
        skill: Skill to train; the skills upstream of it must be in the run's library.
        run: Run folder, begun if it does not exist.
        graph: Skill graph of a new run: paper (the default), or a project's, as PROJECT/GRAPH.
    """
    from soulsgraph.runs.train import train_stages

    begun = (run / "plan.json").exists()
    given = plan if graph is None else {**plan, "graph": graph}
    folder = options.open_run(run, given) if begun else RunFolder.planned(run, Plan(**options.plan_values(given)))
    stage = lineage.own_stage(folder, skill)
    if not lineage.finished_versions(folder, stage):
        check_learns(folder.plan, [stage])
    if begun:
        # Whether they are there is known before Ray starts.
        lineage.upstream_versions(folder, stage)
    elif upstream := folder.plan.skill_graph.upstream(skill):
        raise SoulsGraphError(
            f"{run}: expected a run with {', '.join(upstream)} trained, found no run; "
            f"begin it with: {command_line('train', upstream[0], '--run', run)} and the same options."
        )
    with options.workplace(folder, session) as place:
        (card,) = train_stages(place, (stage,), session.console)
    session.show(card.to_dict(), *([folder.plan.budget_note] if folder.plan.budget_note else []))


def baseline(
    plan: options.PlanOptions,
    session: options.SessionOptions = options.DEFAULT_SESSION,
    run: Path = Path("runs/baseline"),
    resume: Flag = False,
) -> None:
    """Train the end-to-end agent of Appendix B (250,000 steps times the scale) and evaluate it.

    Args:
        run: Run folder to begin, or to go on with.
        resume: Go on with the run in the folder instead of beginning one.
    """
    _train_and_evaluate(options.begin_or_resume(run, plan, resume, options.BASELINE_GRAPH), session)


def evaluate(
    folder: Annotated[Positional[Path], "RUN"],
    output: RunOptions = DEFAULT_RUN,
    fight: options.FightOptions = options.DEFAULT_FIGHT,
    trained_on: str | None = None,
    games: Path | None = None,
    fleet: Path | None = None,
    out: Path | None = None,
    evaluation: options.EvaluationOptions = options.DEFAULT_EVALUATION,
) -> None:
    """Evaluate one setting of a run's skills, greedily.

    Args:
        folder: Run folder with trained skills, or the name of an agent of the zoo.
        trained_on: Scenario whose skill versions play; by default the evaluated one's, where they exist.
        games: TOML file of real-time games to fight in, side by side; the simulator if not given.
        fleet: TOML file of a fleet whose game PCs fight, each with `soulsgraph host`. Every fight counts that began
            before `--episodes` had ended, so there are a few more; the games draw seeds of their own.
        out: Folder for evaluation.json, evaluation.parquet and episodes.parquet; earlier ones are replaced.
    """
    run = open_run(folder)
    if out is not None:
        check_writable(out)
    evaluated = fight.scenario_name or run.plan.scenario
    trained_on = trained_on and lasting_name(trained_on)
    if trained_on and not evaluating.was_trained_on(run, trained_on):
        known = (run.plan.scenario, *lineage.predecessors(run))
        raise UnknownNameError(f"scenario for --trained-on of {folder}", trained_on, known)
    source = trained_on or evaluating.source_of(run, evaluated)
    setting = evaluating.Setting(evaluated, source, fight.start, fight.random_skills)
    place = _place(games, fleet, evaluation.seed)
    display = output.display if place else "silent"
    with stage_progress("evaluate", evaluation.episodes, display, unit="episodes") as progress:
        found = evaluating.evaluate(run, setting, evaluation.episodes, evaluation.seed, place, progress.advance)
    if out is not None:
        found.save(out)
    means = found.means
    output.show(
        found.to_dict(),
        *found.lines(),
        WinRateTable("", (found.win_rate,)).to_rich(),
        f"mean return {means['mean_return']:.2f}, mean length {means['mean_length']:.0f} decisions, "
        f"{means['mean_seconds']:.1f} s",
        *(f"game {number}: {report_of}" for number, report_of in enumerate(found.games, 1)),
        *([] if out is None else [f"results in {out}"]),
    )


def _place(games: Path | None, fleet: Path | None, seed: int) -> evaluating.Place:
    """Return where an evaluation's episodes are played."""
    if fleet is None:
        return () if games is None else load_games(games)
    if games is not None:
        raise SoulsGraphError("expected --games or --fleet, found both; leave one out.")
    if seed != evaluating.EVALUATION_SEED:
        raise SoulsGraphError("--seed: expected none, for a fleet's games draw seeds of their own; leave it out.")
    # Imported here: nothing else of this needs a fleet's libraries.
    from soulsgraph_clusters.fleet.protocol.settings import load_fleet

    return load_fleet(fleet)


def table(
    folder: Annotated[Positional[Path], "RUN"],
    output: RunOptions = DEFAULT_RUN,
    evaluation: options.EvaluationOptions = options.DEFAULT_EVALUATION,
    copy: options.Copy = None,
) -> None:
    """Evaluate every row of the paper's Table 1 that the run's skills allow.

    Args:
        folder: Run folder with trained skills, or the name of an agent of the zoo.
        copy: Run folder for a copy of the agent; results are written there.
    """
    run = RunFolder.open(options.own_run(folder, copy, output))
    with run.locked():
        _evaluate_and_show(run, evaluation, output)


def skills(folder: Annotated[Positional[Path], "RUN"], output: RunOptions = DEFAULT_RUN) -> None:
    """Check the run's skill library, weights included, and show every version and its lineage.

    Args:
        folder: Run folder, or the name of an agent of the zoo.
    """
    run = open_run(folder)
    cards, scenarios = evaluating.check_library(run), lineage.scenarios_of(run)
    lines = [_describe(card, scenarios[card.skill, card.version]) for card in cards]
    output.show([card.to_dict() for card in cards], *lines)


def _describe(card: SkillCard, scenario: str) -> str:
    parent = "" if card.parent is None else f", continues v{card.parent}"
    upstream = ", ".join(f"{artifact.skill} v{artifact.version}" for artifact in card.upstream) or "nothing"
    training = card.training
    learned = f"cloned from {training.cloned:,} decisions" if training.cloned else f"{training.steps:,} steps"
    return (
        f"{card.skill} v{card.version}: {scenario}, {learned}, trained on {upstream}{parent}; sha256 {card.sha256[:12]}"
    )


def reproduce(
    study: StudyOptions,
    session: options.SessionOptions = options.DEFAULT_SESSION,
    out: Path = Path("runs/reproduction"),
    resume: Flag = False,
) -> None:
    """Run the paper's whole protocol over several seeds in parallel, and write the report.

    Args:
        out: Folder to begin, or to go on with; on a cluster every node must see it under this path.
        resume: Go on with the reproduction in the folder instead of beginning one.
    """
    if session.games or session.fleet or session.gateways != 1:
        found = "found --games, --fleet or --gateways"
        raise SoulsGraphError(f"reproduce: expected the simulator alone, {found}; leave them out.")
    if resume:
        folder = ReproductionFolder.open(out)
        check_given(out, folder.plan, study_values(study, folder.plan.seeds), "begin another folder with --out")
    else:
        folder = ReproductionFolder.planned(out, Study(**study_values(study, Study.seeds)))
        folder.plan.check_learns()
    # Imported when the options are known to hold: it takes seconds.
    from soulsgraph.paper.ray_runner import do_units
    from soulsgraph_clusters.sessions.session import check_nodes

    with options.ray_session(folder, session, needed=bool(folder.left)) as joined:
        if folder.left:
            check_nodes(joined)
        session.console.print(f"folder {folder.path}", soft_wrap=True)
        do_units(folder, session.console, partial(in_commands, command="reproduce"))
    write_reproductions(folder.path / "report", session, (folder.path,))


def _train_and_evaluate(run: RunFolder, session: options.SessionOptions, *notes: str) -> None:
    stages = lineage.own_stages(run)
    # Before the run is begun, and anything starts.
    check_learns(run.plan, [stage for stage in stages if not run.begun or not lineage.finished_versions(run, stage)])
    for note in notes:
        session.console.print(note, soft_wrap=True)
    # Imported here: the other commands need none of it.
    from soulsgraph.runs.evaluate import CHECKPOINT_INTERVAL
    from soulsgraph.runs.workers import WorkerProcess, load_playing

    with WorkerProcess() as worker:
        if any(stage.steps >= CHECKPOINT_INTERVAL for stage in stages):
            worker.start(load_playing)
        # Imported after the first line, beside the worker's start: it takes seconds.
        with _uncollected():
            from soulsgraph.runs.train import train_stages
        with options.workplace(run, session, worker) as place:
            train_stages(place, stages, session.console)
            _evaluate_and_show(run, options.EvaluationOptions(run.plan.episodes), session, place)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Import without collecting garbage: modules stay to the end, and to look through them takes part of a second.

    They are left alone afterwards, too.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


def _evaluate_and_show(
    run: RunFolder, evaluation: options.EvaluationOptions, output: OutputOptions, place: Workplace | None = None
) -> None:
    """Evaluate every row of Table 1 the run allows; write it, with every episode, as Parquet and JSON; print it.

    Where it was trained just now, the worker of the learning curves plays a part, and the TensorBoard has the table.
    """
    plan, episodes, seed = run.plan, evaluation.episodes, evaluation.seed
    evaluating.check_evaluation(seed, episodes)
    total = episodes * len(evaluating.allowed_rows(run))
    with stage_progress("table", total, output.display, unit="episodes") as progress:
        worker = None if place is None else place.worker
        played = evaluating.evaluate_rows(run, episodes, seed, progress.advance, worker)
    rows = tuple(evaluating.win_rate(row, fights, plan) for row, fights in played.items())
    table = WinRateTable(f"Win rates, {plan.scenario}, {episodes} episodes a row", rows)
    terms = make_skill(plan.skill_graph.order[-1], plan.options).reward.names
    settings, seeds = {row.label: fights for row, fights in played.items()}, evaluating.evaluation_seeds(seed, episodes)
    write_episodes(run.results("episodes"), settings, terms, {"seed": seeds})
    write_rows(run.results("table"), [row.to_dict() for row in rows])
    write_json(run.path / "results" / "table.json", {**table.to_dict(), "key": dict(evaluating.table_key(run).values)})
    if place is not None:
        place.board.text("win rates", table.to_markdown())
        names = ("scenario", "preset", "seed", "scale", "lanes", "env_runners")
        place.board.hyperparameters(
            {name: getattr(plan, name) or 0 for name in names}, {f"win rate/{row.setting}": row.rate for row in rows}
        )
    notes = [plan.budget_note] if plan.budget_note else []
    output.show(table.to_dict(), table.to_rich(), *notes, f"results in {run.path / 'results'}")


def _override(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise SoulsGraphError(f"--set: expected OPTION=VALUE, found {text!r}; write for example double=true.")
    try:
        return name, parse(value, "JSON", Where(None, f"--set {name}", "correct the value"))
    except DataError as error:
        if isinstance(error.__cause__, ValueError):
            return name, value  # A word needs no quotes.
        raise
