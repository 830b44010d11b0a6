"""Commands that train and evaluate, each a thin function over the library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional

from soulsgraph.cli.options import (
    BASELINE_GRAPH,
    DEFAULT_EVALUATION,
    DEFAULT_OUTPUT,
    DEFAULT_SESSION,
    EvaluationOptions,
    OutputOptions,
    PlanOptions,
    SessionOptions,
    begin_or_resume,
    display_of,
    make_console,
    open_run,
    plan_values,
    print_json,
    workplace,
)
from soulsgraph.cli.remedies import command_line
from soulsgraph.domains import upstream_versions
from soulsgraph.evaluate import Setting, check_library, was_trained_on
from soulsgraph.evaluate import evaluate as evaluate_setting
from soulsgraph.plan import Plan, check_range, lasting_name
from soulsgraph.progress import Counting, silence_advice, stage_progress
from soulsgraph.run_folder import RunFolder
from soulsgraph.tables import WinRateTable
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.drivers.realtime.link import load_games
from soulsgraph_policies.atomic import check_writable


def curriculum(
    plan: PlanOptions,
    session: SessionOptions = DEFAULT_SESSION,
    run: Path = Path("runs/curriculum"),
    resume: bool = False,
) -> None:
    """Train all skills in graph order, then print the table of win rates.

    Args:
        run: Run folder to begin, or to go on with.
        resume: Go on with the run in the folder instead of beginning one.
    """
    from soulsgraph.train import train_stages

    console = make_console(session)
    folder = begin_or_resume(run, plan, resume, Plan.graph)
    with workplace(folder, session) as place:
        watch = f"watch with: tensorboard --logdir {folder.tensorboard}"
        console.print(f"run folder {folder.path}; {watch}", soft_wrap=True)
        train_stages(place, folder.plan.stages(), console)
        _evaluate_and_show(folder, EvaluationOptions(folder.plan.episodes), session, place.board)


def train(
    skill: Positional[str],
    plan: PlanOptions,
    session: SessionOptions = DEFAULT_SESSION,
    run: Path = Path("runs/curriculum"),
) -> None:
    """Train one skill on top of the run's library; an interrupted stage goes on from its checkpoint.

    Args:
        skill: Skill to train; the skills upstream of it must be in the run's library.
        run: Run folder, begun if it does not exist.
    """
    from soulsgraph.train import train_stages

    if (run / "plan.json").exists():
        folder = open_run(run, plan)
        stage = folder.plan.stage(skill)
        # Whether they are there is known before Ray starts.
        upstream_versions(folder, stage)
    else:
        folder = RunFolder.planned(run, Plan(**plan_values(plan)))
        stage = folder.plan.stage(skill)
        if upstream := folder.plan.skill_graph.upstream(skill):
            raise SoulsGraphError(
                f"{run}: expected a run with {', '.join(upstream)} trained, found no run; "
                f"begin it with: {command_line('train', upstream[0], '--run', run)} and the same options."
            )
    with workplace(folder, session) as place:
        cards = train_stages(place, (stage,), make_console(session))
    if session.json:
        print_json(cards[0].to_dict())


def baseline(
    plan: PlanOptions,
    session: SessionOptions = DEFAULT_SESSION,
    run: Path = Path("runs/baseline"),
    resume: bool = False,
) -> None:
    """Train the end-to-end agent of Appendix B (250,000 steps times the scale) and evaluate it.

    Args:
        run: Run folder to begin, or to go on with.
        resume: Go on with the run in the folder instead of beginning one.
    """
    from soulsgraph.train import train_stages

    folder = begin_or_resume(run, plan, resume, BASELINE_GRAPH)
    with workplace(folder, session) as place:
        train_stages(place, folder.plan.stages(), make_console(session))
        _evaluate_and_show(folder, EvaluationOptions(folder.plan.episodes), session, place.board)


def evaluate(
    folder: Annotated[Positional[Path], "RUN"],
    output: OutputOptions = DEFAULT_OUTPUT,
    scenario: str | None = None,
    start: str | None = None,
    trained_on: str | None = None,
    randomize: str = "",
    games: Path | None = None,
    out: Path | None = None,
    evaluation: EvaluationOptions = DEFAULT_EVALUATION,
) -> None:
    """Evaluate one setting of a run's skills, greedily.

    Args:
        folder: Run folder with trained skills.
        scenario: Scenario to evaluate in; the run's own if not given.
        start: How episodes begin: mid, long or scattered; the scenario's own if not given.
        trained_on: Scenario whose skill versions play; by default the evaluated one's, where they exist.
        randomize: Skills to replace by uniform random actions, separated by commas.
        games: TOML file of real-time games to fight in, side by side; the simulator if not given.
        out: Folder for evaluation.json, evaluation.parquet and episodes.parquet; earlier ones are replaced.
    """
    run = RunFolder.open(folder)
    if out is not None:
        check_writable(out)
    evaluated = lasting_name(scenario or run.plan.scenario)
    chance = tuple(name.strip() for name in randomize.split(",") if name.strip())
    trained_on = trained_on and lasting_name(trained_on)
    if trained_on and not was_trained_on(run, trained_on):
        raise SoulsGraphError(
            f"--trained-on: expected a scenario that skills of {folder} were trained on, found {trained_on!r}; "
            f"see {command_line('skills', folder)}."
        )
    source = trained_on or (evaluated if was_trained_on(run, evaluated) else run.plan.scenario)
    setting, lobby = Setting(evaluated, source, start, chance), () if games is None else load_games(games)
    with stage_progress(
        "evaluate", evaluation.episodes, display_of(output) if lobby else "silent", unit="episodes"
    ) as progress:
        found = evaluate_setting(run, setting, evaluation.episodes, evaluation.seed, lobby, Counting(progress))
    if out is not None:
        found.save(out)
    if output.json:
        print_json(found.to_dict())
        return
    console = make_console(output)
    for line in found.lines():
        console.print(line, highlight=False, soft_wrap=True)
    console.print(WinRateTable("", (found.win_rate,)).to_rich())
    means = found.means
    console.print(
        f"mean return {means['mean_return']:.2f}, mean length {means['mean_length']:.0f} decisions, "
        f"{means['mean_seconds']:.1f} s"
    )
    for number, report_of in enumerate(found.games, 1):
        console.print(f"game {number}: {report_of}", highlight=False, soft_wrap=True)
    if out is not None:
        console.print(f"results in {out}", highlight=False, soft_wrap=True)


def table(
    folder: Annotated[Positional[Path], "RUN"],
    output: OutputOptions = DEFAULT_OUTPUT,
    evaluation: EvaluationOptions = DEFAULT_EVALUATION,
) -> None:
    """Evaluate every row of the paper's Table 1 that the run's skills allow.

    Args:
        folder: Run folder with trained skills.
    """
    run = RunFolder.open(folder)
    with run.locked():
        _evaluate_and_show(run, evaluation, output)


def skills(folder: Annotated[Positional[Path], "RUN"], output: OutputOptions = DEFAULT_OUTPUT) -> None:
    """Check the run's skill library, weights included, and show every version and its lineage.

    Args:
        folder: Run folder.
    """
    cards = check_library(RunFolder.open(folder))
    if output.json:
        print_json([card.to_dict() for card in cards])
        return
    console = make_console(output)
    for card in cards:
        parent = "" if card.parent is None else f", continues v{card.parent}"
        upstream = ", ".join(f"{artifact.skill} v{artifact.version}" for artifact in card.upstream) or "nothing"
        console.print(
            f"{card.skill} v{card.version}: {card.training.scenario}, {card.training.steps:,} steps, "
            f"trained on {upstream}{parent}; sha256 {card.sha256[:12]}",
            highlight=False,
            soft_wrap=True,
        )


def bench(
    what: Positional[Literal["train", "sim", "tick", "read"]],
    output: OutputOptions = DEFAULT_OUTPUT,
    rounds: int = 3,
) -> None:
    """Measure speed: training beside stable-baselines3 and stock RLlib, the simulator, a tick, a reading of memory.

    Args:
        what: train: skill steps a CPU second; sim: lane ticks a CPU second; tick: milliseconds a tick;
            read: milliseconds a whole reading of another process.
        rounds: Interleaved rounds; medians and spread are reported.
    """
    from soulsgraph.bench import describe, run_benchmark

    check_range("rounds", rounds, 1, 1000)
    silence_advice()
    console, results = make_console(output), []
    for result in run_benchmark(what, rounds):
        console.print(describe(result), highlight=False, soft_wrap=True)
        results.append(result)
    if output.json:
        print_json(results)


def _evaluate_and_show(
    run: RunFolder, evaluation: EvaluationOptions, output: OutputOptions, board: object = None
) -> None:
    from soulsgraph.progress import Board
    from soulsgraph.train import evaluate_run, show_on_board

    evaluated = evaluate_run(run, evaluation.episodes, evaluation.seed, display_of(output))
    if isinstance(board, Board):
        show_on_board(board, run, evaluated)
    if output.json:
        print_json(evaluated.to_dict())
        return
    console = make_console(output)
    console.print(evaluated.to_rich())
    console.print(f"results in {run.path / 'results'}", highlight=False, soft_wrap=True)
