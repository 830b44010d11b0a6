"""Commands that train skills, adapt them and evaluate them, each a thin function over the library."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from soulsgraph.cli import options
from soulsgraph.cli.output import screen
from soulsgraph.results.tables import WinRateTable
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs import lineage
from soulsgraph.runs.plan import Plan, check_learns, lasting_name
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.table import win_rates
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph.tracking.board import names_in
from soulsgraph.tracking.metrics import FINAL_WIN_RATE
from soulsgraph.tracking.wandb_tracker import PROJECT
from soulsgraph.zoo import open_run
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.files import check_writable, slug
from soulsgraph_envs.core.scenario import load_boss, load_scenario
from soulsgraph_envs.games.link import load_games

if TYPE_CHECKING:
    from soulsgraph.runs.train import Workplace


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
    skill: str | None = None,
    /,
    *,
    run: Path = Path("runs/curriculum"),
    session: options.TrainingOptions = options.DEFAULT_TRAINING,
    **plan: options.PlanOptions,
) -> None:
    """Train all skills of a graph, in graph order, and evaluate them; or one skill, on top of the run's library.

    The same command again goes on: what is finished is shown, what was interrupted resumes from its checkpoint.

    Args:
        skill: Skill to train alone; the skills upstream of it must be in the run's library.
        run: Run folder, begun if it does not exist.
    """
    check_extra("train", "train")
    folder = options.open_or_plan(run, plan)
    stages = lineage.own_stages(folder) if skill is None else (lineage.own_stage(folder, skill),)
    # Before the run is begun, and anything starts.
    check_learns(folder.plan, lineage.unfinished(folder, stages))
    if skill is None:
        told = [watched_in(name, folder) for name in names_in(session.track)]
        screen.console.print("; ".join([f"run folder {folder.path}", *told]))
    elif folder.begun:
        lineage.frozen_versions(folder, stages[0])
    elif upstream := folder.plan.skill_graph.upstream(skill):
        found = f"expected a run with {', '.join(upstream)} trained, found no run; train {upstream[0]} first."
        raise SoulsGraphError(f"{run}: {found}")
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
        with options.workplace(folder, session, worker) as place:
            cards = train_stages(place, stages, screen.console)
            if skill is None:
                _evaluate_and_show(folder, folder.plan.episodes, evaluating.EVALUATION_SEED, place)
            show_fight(place, screen.console)
    if skill is not None:
        screen.show(next(card for card in cards if card.skill == skill).to_dict(), *_notes(folder.plan))


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


def _notes(plan: Plan) -> list[str]:
    return [plan.budget_note] if plan.budget_note else []


def evaluate(
    agents: tuple[Path, ...],
    /,
    *,
    what: Literal["fights", "table", "ablations"] = "fights",
    scenario: str | None = None,
    start: str | None = None,
    random: str = "",
    trained_on: str | None = None,
    episodes: int = Plan.episodes,
    seed: int = evaluating.EVALUATION_SEED,
    games: Path | None = None,
    fleet: Path | None = None,
    run: Path | None = None,
    out: Path | None = None,
) -> None:
    """Evaluate the skills of an agent, greedily: in one fight, or by a table of many.

    Args:
        agents: Run folder with trained skills, or the name of an agent of the zoo; of ablations several, one for each
            training seed.
        what: fights: one setting; table: every row of the paper's Table 1 that the skills allow; ablations: what is
            lost when one skill acts at random, does nothing, or never learned, and what the scripted reference loses by
            it.
        scenario: Scenario to fight in; the run's own if not given.
        start: How episodes begin: mid, long or scattered; the scenario's own if not given.
        random: Skills to replace by uniform random actions, separated by commas.
        trained_on: Scenario whose skill versions play; by default the evaluated one's, where they exist.
        episodes: Evaluation episodes for each setting.
        seed: Seed of the evaluation episodes, the same for every setting and every run by default.
        games: TOML file of real-time games to fight in, side by side; the simulator if not given.
        fleet: TOML file of a fleet whose game PCs fight, each with `soulsgraph fleet host`. Every fight counts that
            began before the episodes had ended, so there are a few more; the games draw seeds of their own.
        run: Run folder for a copy of an agent of the zoo, into which the table is written.
        out: Folder for the results as JSON and Parquet; earlier ones are replaced.
    """
    asked = {"scenario": scenario, "start": start, "random": random, "trained_on": trained_on, "games": games}
    asked |= {"fleet": fleet, "run": run, "out": out}
    takes = {"fights": {*asked} - {"run"}, "table": {"run"}, "ablations": {"scenario", "start", "out"}}[what]
    options.check_taken(f"evaluate --what {what}", asked, takes)
    if len(agents) != 1 and (what in ("fights", "table") or not agents):
        raise SoulsGraphError(f"evaluate: expected one run folder or agent, found {len(agents)}; name one.")
    if out is not None:
        check_extra("evaluate --out", "data")
        check_writable(out)
    if what == "table":
        check_extra("evaluate --what table", "data")
        folder = RunFolder.open(options.own_run(agents[0], run))
        with folder.locked():
            _evaluate_and_show(folder, episodes, seed)
    elif what == "fights":
        place, evaluated = _place(games, fleet, seed), open_run(agents[0])
        setting = _setting(evaluated, scenario, start, random, trained_on)
        _evaluate_fights(evaluated, setting, episodes, seed, place, out)
    else:
        check_extra("evaluate --what ablations", "train")
        from soulsgraph.runs.ablations import measure_ablations, runs_by_seed

        runs = runs_by_seed(map(open_run, agents))
        fight = next(iter(runs.values())).plan.scenario if scenario is None else lasting_name(scenario)
        screen.precompile()
        measured = measure_ablations(runs, fight, episodes, seed, start, screen.display)
        if out is not None:
            measured.save(out)
        screen.show(measured.to_dict(), *measured.to_rich(), *([] if out is None else [f"results in {out}"]))


def _setting(
    run: RunFolder, scenario: str | None, start: str | None, random: str, trained_on: str | None
) -> evaluating.Setting:
    """Return what is evaluated; raises UnknownNameError for a scenario that no version was trained in."""
    evaluated = (scenario and lasting_name(scenario)) or run.plan.scenario
    trained_on = trained_on and lasting_name(trained_on)
    if trained_on:
        lineage.expect_trained_in(run, trained_on)
    source = trained_on or evaluating.source_of(run, evaluated)
    return evaluating.Setting(evaluated, source, start, options.names_of(random))


def _evaluate_fights(
    run: RunFolder, setting: evaluating.Setting, episodes: int, seed: int, place: evaluating.Place, out: Path | None
) -> None:
    source = setting.trained_on
    if unseen := unseen_moves(source, setting.scenario):
        warning = f"warning: its skills were trained in {source}, where no move has the id of: {', '.join(unseen)}"
        screen.console.print(warning, highlight=False, soft_wrap=True)
    screen.precompile()
    from soulsgraph.runs.progress import stage_progress

    display = screen.display if place else "silent"
    with stage_progress("evaluate", episodes, display, unit="episodes") as progress:
        found = evaluating.evaluate(run, setting, episodes, seed, place, progress.advance)
    if out is not None:
        found.save(out)
    means = found.means
    screen.show(
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
        raise SoulsGraphError("expected `games` or `fleet`, found both; leave one out.")
    if seed != evaluating.EVALUATION_SEED:
        raise SoulsGraphError("seed: expected none, for a fleet's games draw seeds of their own; leave it out.")
    check_extra("evaluate --fleet", "train")
    # Imported here: nothing else of this needs a fleet's libraries.
    from soulsgraph_clusters.fleet.protocol.settings import load_fleet

    return load_fleet(fleet)


def _evaluate_and_show(run: RunFolder, episodes: int, seed: int, place: Workplace | None = None) -> None:
    """Evaluate every row of Table 1 the run allows; write it, with every episode, as Parquet and JSON; print it.

    One that was written of the same versions, fights and episodes is shown as it is. Where the run was trained just
    now, the worker of the learning curves plays a part, and the trackers have the table.
    """
    screen.precompile()
    plan, table = run.plan, win_rates(run, episodes, seed, screen.display, None if place is None else place.worker)
    if place is not None:
        rows, markdown = [row.to_dict() for row in table.rows], table.to_markdown()
        place.board.call(lambda tracker: tracker.table("win rates", rows, markdown))
        final = {f"{FINAL_WIN_RATE}{slug(row.setting)}": row.rate for row in table.rows}
        place.board.call(lambda tracker: tracker.results(_learned_by(plan), final))
    screen.show(table.to_dict(), table.to_rich(), *_notes(plan), f"results in {run.path / 'results'}")


def _learned_by(plan: Plan) -> dict[str, str | float]:
    """Return what a run was trained with: options of its plan, and those of its last skill's learner."""
    names = ("scenario", "preset", "graph", "seed", "scale", "lanes", "env_runners")
    learner = asdict(plan.hyperparameters(plan.stages()[-1]))
    values = {name: getattr(plan, name) for name in names} | learner
    return {name: value if isinstance(value, float) else str(value) for name, value in values.items()}
