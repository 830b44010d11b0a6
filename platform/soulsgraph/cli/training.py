"""Commands that train skills, evaluate them and show them, each a thin function over the library."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from soulsgraph.cli import options
from soulsgraph.cli.output import DEFAULT_RUN, OutputOptions, RunOptions, command_line
from soulsgraph.results.tables import WinRateTable, text_table
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs import lineage
from soulsgraph.runs.plan import Plan, check_learns, lasting_name
from soulsgraph.runs.progress import silence_advice, stage_progress
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.table import play_table, table_of, write_table
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph.tracking.board import names_in
from soulsgraph.tracking.metrics import FINAL_WIN_RATE
from soulsgraph.tracking.wandb_tracker import PROJECT
from soulsgraph.zoo import open_run
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.files import check_writable, slug
from soulsgraph_envs.core.scenario import load_boss, load_scenario
from soulsgraph_envs.games.link import load_games
from soulsgraph_policies.agents.library import SkillCard

if TYPE_CHECKING:
    from soulsgraph.runs.train import Workplace


def curriculum(
    plan: options.LearningOptions,
    session: options.TrainingOptions = options.DEFAULT_TRAINING,
    run: Path = Path("runs/curriculum"),
    graph: str | None = None,
) -> None:
    """Train all skills in graph order, then print the table of win rates; the same command resumes it.

    Args:
        run: Run folder, begun if it does not exist.
        graph: Skill graph to train: paper (the default), or a project's, as PROJECT/GRAPH.
    """
    folder = options.open_or_plan(run, plan, graph)
    told = [watched_in(name, folder) for name in names_in(session.track)]
    _train_and_evaluate(folder, session, "; ".join([f"run folder {folder.path}", *told]))


def watched_in(tracker: str, folder: RunFolder) -> str:
    """Return how a run is watched in a tracker; what W&B prints itself, its address too, is silenced."""
    project = f"project {os.environ.get('WANDB_PROJECT', PROJECT)}"
    offline = os.environ.get("WANDB_MODE") == "offline"
    store = f"MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {folder.path.parent / 'mlruns'}"
    known = {
        "tensorboard": f"watch with: tensorboard --logdir {folder.tensorboard}",
        "wandb": f"in W&B: {f'wandb sync {folder.path}/wandb/offline-run-*' if offline else project}",
        "mlflow": f"in MLflow: {os.environ.get('MLFLOW_TRACKING_URI') or store}",
    }
    return known.get(tracker, f"tracked by {tracker}")


def train(
    skill: Positional[str],
    plan: options.LearningOptions,
    session: options.TrainingOptions = options.DEFAULT_TRAINING,
    run: Path = Path("runs/curriculum"),
    graph: str | None = None,
) -> None:
    """Train one skill on top of the run's library; an interrupted stage resumes from its checkpoint.

    Args:
        skill: Skill to train; the skills upstream of it must be in the run's library.
        run: Run folder, begun if it does not exist.
        graph: Skill graph of a new run: paper (the default), or a project's, as PROJECT/GRAPH.
    """
    from soulsgraph.pages.run_report import show_fight
    from soulsgraph.runs.train import train_stages

    folder = options.open_or_plan(run, plan, graph)
    stage = lineage.own_stage(folder, skill)
    if not lineage.finished_versions(folder, stage):
        check_learns(folder.plan, [stage])
    if folder.begun:
        # Whether they are there is known before Ray starts.
        lineage.frozen_versions(folder, stage)
    elif upstream := folder.plan.skill_graph.upstream(skill):
        raise SoulsGraphError(
            f"{run}: expected a run with {', '.join(upstream)} trained, found no run; train {upstream[0]} first."
        )
    with options.workplace(folder, session) as place:
        card = next(card for card in train_stages(place, (stage,), session.console) if card.skill == skill)
        show_fight(place, session.console)
    session.show(card.to_dict(), *_notes(folder.plan))


def baseline(
    plan: options.LearningOptions,
    session: options.TrainingOptions = options.DEFAULT_TRAINING,
    run: Path = Path("runs/baseline"),
) -> None:
    """Train the end-to-end agent of Appendix B (250,000 steps times the scale) and evaluate it.

    Args:
        run: Run folder, begun if it does not exist.
    """
    _train_and_evaluate(options.open_or_plan(run, plan, options.BASELINE_GRAPH), session)


def _notes(plan: Plan) -> list[str]:
    return [plan.budget_note] if plan.budget_note else []


def _train_and_evaluate(run: RunFolder, session: options.TrainingOptions, *notes: str) -> None:
    stages = lineage.own_stages(run)
    # Before the run is begun, and anything starts.
    check_learns(run.plan, [stage for stage in stages if not run.begun or not lineage.finished_versions(run, stage)])
    for note in notes:
        session.console.print(note)
    # Imported here: the other commands need none of it.
    from soulsgraph.runs.evaluate import CHECKPOINT_INTERVAL
    from soulsgraph.runs.workers import load_playing

    with WorkerProcess() as worker:
        if any(stage.steps >= CHECKPOINT_INTERVAL for stage in stages):
            worker.start(load_playing)
        # Imported after the first line, beside the worker's start: it takes seconds.
        with _uncollected():
            from soulsgraph.pages.run_report import show_fight
            from soulsgraph.runs.train import train_stages
        with options.workplace(run, session, worker) as place:
            train_stages(place, stages, session.console)
            _evaluate_and_show(run, options.EvaluationOptions(run.plan.episodes), session, place)
            show_fight(place, session.console)


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


def clone(
    fights: Annotated[Positional[Path], arg(metavar="FIGHTS")],
    run: Path,
    plan: options.PlanOptions,
    output: RunOptions = DEFAULT_RUN,
    skills: str = "all",
    graph: str | None = None,
) -> None:
    """Clone skills from recorded fights of people, scripts or agents; training continues from the clones.

    The decisions of every skill are reconstructed from the fights' controls. Each clone becomes the next version of its
    skill, unless the present version is a clone of the same decisions; `train` and `curriculum` continue from the
    newest one, with the fights' decisions in the replay.

    Args:
        fights: Folder with recorded fights of the run's scenario, or one file.
        run: Run folder, begun if it does not exist.
        skills: Skills to clone, separated by commas, or all.
        graph: Skill graph of a new run: paper, or a project's, as PROJECT/GRAPH; by default that of the fights.
    """
    # Imported here: it takes seconds.
    from soulsgraph.recordings.cloning import clone_fights, graph_of
    from soulsgraph_policies.learning.cloning import UPDATES

    if graph is None and not options.is_begun(run):
        graph = graph_of(fights)
    folder = options.open_or_plan(run, plan, graph)
    if (chosen := lineage.named_skills(folder, skills)) is None:
        raise UnknownNameError("skill", skills, (*folder.plan.skill_graph.order, "all"))
    silence_advice()
    output.precompile()
    with stage_progress("clone", len(chosen) * UPDATES, output.display, unit="updates") as progress:
        found = clone_fights(folder, fights, chosen, lambda: progress.advance(1))
    rows = [one.row() for one in found]
    headings = ("skill", "version", "decisions", "ambiguous ticks", "agreement")
    formats = ("{}", "v{}", "{:,}", "{:,}", "{:.1%}")
    cells = [tuple(form.format(value) for form, value in zip(formats, row.values(), strict=True)) for row in rows]
    output.show(
        rows,
        text_table("", headings, cells),
        *(f"{one.card.skill}: already cloned, v{one.card.version}" for one in found if one.earlier),
        f"play them with: {command_line('evaluate', run, *output.repeated)}",
        f"learn on from them with: {command_line('curriculum', '--run', run, *output.repeated)}",
    )


def evaluate(
    folder: Positional[Path],
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
    if unseen := unseen_moves(source, evaluated):
        warning = f"warning: its skills were trained in {source}, where no move has the id of: {', '.join(unseen)}"
        output.console.print(warning, highlight=False, soft_wrap=True)
    output.precompile()
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


def unseen_moves(source: str, evaluated: str) -> list[str]:
    """Return the titles of a fight's moves whose ids are no moves of the fight that skills were trained in."""
    before, now = (
        [move for phase in load_scenario(name).phases() for move in load_boss(phase.boss).moves]
        for name in (source, evaluated)
    )
    return [move.title for move in now if move.id not in {one.id for one in before}]


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
    folder: Positional[Path],
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


def _evaluate_and_show(
    run: RunFolder, evaluation: options.EvaluationOptions, output: OutputOptions, place: Workplace | None = None
) -> None:
    """Evaluate every row of Table 1 the run allows; write it, with every episode, as Parquet and JSON; print it.

    Where it was trained just now, the worker of the learning curves plays a part, and the trackers have the table.
    """
    output.precompile()
    plan = run.plan
    worker = None if place is None else place.worker
    played = play_table(run, evaluation.episodes, evaluation.seed, output.display, worker)
    write_table(run, played, evaluation.seed)
    table = table_of(run, played)
    if place is not None:
        rows, markdown = [row.to_dict() for row in table.rows], table.to_markdown()
        place.board.call(lambda tracker: tracker.table("win rates", rows, markdown))
        final = {f"{FINAL_WIN_RATE}{slug(row.setting)}": row.rate for row in table.rows}
        place.board.call(lambda tracker: tracker.results(_learned_by(plan), final))
    output.show(table.to_dict(), table.to_rich(), *_notes(plan), f"results in {run.path / 'results'}")


def _learned_by(plan: Plan) -> dict[str, str | float]:
    """Return what a run was trained with: options of its plan, and those of its last skill's learner."""
    names = ("scenario", "preset", "graph", "seed", "scale", "lanes", "env_runners")
    learner = asdict(plan.hyperparameters(plan.stages()[-1]))
    values = {name: getattr(plan, name) for name in names} | learner
    return {name: value if isinstance(value, float) else str(value) for name, value in values.items()}


def skills(folder: Positional[Path], output: RunOptions = DEFAULT_RUN) -> None:
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
