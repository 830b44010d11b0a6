"""Commands that train, evaluate and reproduce, each a thin function over the library."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from soulsgraph import evaluate as evaluating
from soulsgraph.cli import options
from soulsgraph.cli.remedies import command_line, in_commands
from soulsgraph.domains import upstream_versions
from soulsgraph.files import write_json
from soulsgraph.paper.records import load_reproductions
from soulsgraph.paper.report import Attachment, write_report
from soulsgraph.paper.study import ReproductionFolder, Study
from soulsgraph.plan import Plan, check_range, lasting_name
from soulsgraph.progress import Board, stage_progress
from soulsgraph.run_folder import RunFolder, check_given
from soulsgraph.tables import WinRateTable, write_episodes, write_rows
from soulsgraph_envs.core.config import Where, parse
from soulsgraph_envs.core.errors import DataError, SoulsGraphError
from soulsgraph_envs.drivers.realtime.link import load_games
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.atomic import check_writable
from soulsgraph_policies.library import SkillCard

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
        values["overrides"] = overrides
    return values


def curriculum(
    plan: options.PlanOptions,
    session: options.SessionOptions = options.DEFAULT_SESSION,
    run: Path = Path("runs/curriculum"),
    resume: bool = False,
) -> None:
    """Train all skills in graph order, then print the table of win rates.

    Args:
        run: Run folder to begin, or to go on with.
        resume: Go on with the run in the folder instead of beginning one.
    """
    folder = options.begin_or_resume(run, plan, resume, Plan.graph)
    watch = f"watch with: tensorboard --logdir {folder.tensorboard}"
    _train_and_evaluate(folder, session, f"run folder {folder.path}; {watch}")


def train(
    skill: Positional[str],
    plan: options.PlanOptions,
    session: options.SessionOptions = options.DEFAULT_SESSION,
    run: Path = Path("runs/curriculum"),
) -> None:
    """Train one skill on top of the run's library; an interrupted stage goes on from its checkpoint.

    Args:
        skill: Skill to train; the skills upstream of it must be in the run's library.
        run: Run folder, begun if it does not exist.
    """
    from soulsgraph.train import train_stages

    begun = (run / "plan.json").exists()
    folder = options.open_run(run, plan) if begun else RunFolder.planned(run, Plan(**options.plan_values(plan)))
    stage = folder.plan.stage(skill)
    if begun:
        # Whether they are there is known before Ray starts.
        upstream_versions(folder, stage)
    elif upstream := folder.plan.skill_graph.upstream(skill):
        raise SoulsGraphError(
            f"{run}: expected a run with {', '.join(upstream)} trained, found no run; "
            f"begin it with: {command_line('train', upstream[0], '--run', run)} and the same options."
        )
    with options.workplace(folder, session) as place:
        (card,) = train_stages(place, (stage,), session.console)
    session.show(card.to_dict())


def baseline(
    plan: options.PlanOptions,
    session: options.SessionOptions = options.DEFAULT_SESSION,
    run: Path = Path("runs/baseline"),
    resume: bool = False,
) -> None:
    """Train the end-to-end agent of Appendix B (250,000 steps times the scale) and evaluate it.

    Args:
        run: Run folder to begin, or to go on with.
        resume: Go on with the run in the folder instead of beginning one.
    """
    _train_and_evaluate(options.begin_or_resume(run, plan, resume, options.BASELINE_GRAPH), session)


def evaluate(
    folder: Annotated[Positional[Path], "RUN"],
    output: options.OutputOptions = options.DEFAULT_OUTPUT,
    scenario: str | None = None,
    start: str | None = None,
    trained_on: str | None = None,
    randomize: str = "",
    games: Path | None = None,
    out: Path | None = None,
    evaluation: options.EvaluationOptions = options.DEFAULT_EVALUATION,
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
    if trained_on and not evaluating.was_trained_on(run, trained_on):
        raise SoulsGraphError(
            f"--trained-on: expected a scenario that skills of {folder} were trained on, found {trained_on!r}; "
            f"see {command_line('skills', folder)}."
        )
    source = trained_on or (evaluated if evaluating.was_trained_on(run, evaluated) else run.plan.scenario)
    setting, lobby = evaluating.Setting(evaluated, source, start, chance), () if games is None else load_games(games)
    display = output.display if lobby else "silent"
    with stage_progress("evaluate", evaluation.episodes, display, unit="episodes") as progress:
        found = evaluating.evaluate(run, setting, evaluation.episodes, evaluation.seed, lobby, progress.advance)
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


def table(
    folder: Annotated[Positional[Path], "RUN"],
    output: options.OutputOptions = options.DEFAULT_OUTPUT,
    evaluation: options.EvaluationOptions = options.DEFAULT_EVALUATION,
) -> None:
    """Evaluate every row of the paper's Table 1 that the run's skills allow.

    Args:
        folder: Run folder with trained skills.
    """
    run = RunFolder.open(folder)
    with run.locked():
        _evaluate_and_show(run, evaluation, output)


def skills(folder: Annotated[Positional[Path], "RUN"], output: options.OutputOptions = options.DEFAULT_OUTPUT) -> None:
    """Check the run's skill library, weights included, and show every version and its lineage.

    Args:
        folder: Run folder.
    """
    cards = evaluating.check_library(RunFolder.open(folder))
    output.show([card.to_dict() for card in cards], *map(_describe, cards))


def _describe(card: SkillCard) -> str:
    parent = "" if card.parent is None else f", continues v{card.parent}"
    upstream = ", ".join(f"{artifact.skill} v{artifact.version}" for artifact in card.upstream) or "nothing"
    return (
        f"{card.skill} v{card.version}: {card.training.scenario}, {card.training.steps:,} steps, "
        f"trained on {upstream}{parent}; sha256 {card.sha256[:12]}"
    )


def bench(
    what: Positional[Literal["train", "sim", "tick", "read", "efficiency"]],
    output: options.OutputOptions = options.DEFAULT_OUTPUT,
    rounds: int = 3,
    out: Path = Path("runs/efficiency"),
) -> None:
    """Measure speed: training beside stable-baselines3 and stock RLlib, the simulator, a tick, a reading of memory.

    Beside training and the simulator stands what the machine itself can do, measured in the same rounds.

    Args:
        what: train: skill steps a CPU second; sim: lane ticks a CPU second; tick: milliseconds a tick;
            read: milliseconds a whole reading of another process; efficiency: decisions and CPU seconds until the
            agent wins nine greedy fights in ten, by preset and by stable-baselines3.
        rounds: Interleaved rounds; medians and spread are reported. Efficiency has a training seed a round.
        out: Folder for what efficiency measures, a file for each training, and its figure; it goes on with one
            that is there.
    """
    from soulsgraph.bench import describe, run_benchmark
    from soulsgraph.bench.limits import describe_run
    from soulsgraph.precompile import precompile

    check_range("rounds", rounds, 1, 1000)
    precompile(output.console)
    origin, results = describe_run(), []
    for result in run_benchmark(what, rounds, out, output.display):
        output.console.print(describe(result), soft_wrap=True)
        results.append(result)
    if what == "efficiency":
        output.console.print(f"measurements and figure in {out}", soft_wrap=True)
    output.show({**origin, "results": results})


def reproduce(
    protocol: StudyOptions,
    session: options.SessionOptions = options.DEFAULT_SESSION,
    out: Path = Path("runs/reproduction"),
    resume: options.Flag = False,
) -> None:
    """Run the paper's whole protocol over several seeds in parallel, and write the report.

    Args:
        out: Folder to begin, or to go on with; on a cluster every node must see it under this path.
        resume: Go on with the reproduction in the folder instead of beginning one.
    """
    if resume:
        folder = ReproductionFolder.open(out)
        check_given(out, folder.plan, study_values(protocol, folder.plan.seeds), "begin another folder with --out")
    else:
        folder = ReproductionFolder.planned(out, Study(**study_values(protocol, Study.seeds)))
    # Imported when the options are known to hold: it takes seconds.
    from soulsgraph.paper.work import do_units

    with options.ray_session(folder, session, needed=bool(folder.left)):
        session.console.print(f"folder {folder.path}", soft_wrap=True)
        do_units(folder, session.console, partial(in_commands, command="reproduce"))
    _write_report(folder.path / "report", session, (folder.path,))


def report(
    folders: Annotated[Positional[tuple[Path, ...]], arg(metavar="DIR ...")],
    output: options.OutputOptions = options.DEFAULT_OUTPUT,
    variants: tuple[Path, ...] = (),
    attach: Annotated[tuple[str, ...], arg(metavar="TITLE=PATH.parquet[:COLUMN,...] ...")] = (),
    earlier: Path | None = None,
    out: Path | None = None,
) -> None:
    """Write one report of one or several reproductions, presets beside each other.

    Args:
        folders: Folders that reproduce wrote.
        variants: Folders of an ablation, the reference first.
        attach: Tables of other commands to show in it, as of transfer, recovery or retention.
        earlier: Folder of a report on other seeds; every row is compared with its row there.
        out: Folder of the report; `report` in the first folder if not given.
    """
    if not folders:
        raise SoulsGraphError("report: expected one or more folders of reproductions, found none; name one.")
    attachments = tuple(map(Attachment.parse, attach))
    _write_report(out or folders[0] / "report", output, folders, variants, attachments, earlier)


def _train_and_evaluate(run: RunFolder, session: options.SessionOptions, *notes: str) -> None:
    for note in notes:
        session.console.print(note, soft_wrap=True)
    # Imported after the first line: it takes seconds.
    from soulsgraph.train import train_stages

    with options.workplace(run, session) as place:
        train_stages(place, run.plan.stages(), session.console)
        _evaluate_and_show(run, options.EvaluationOptions(run.plan.episodes), session, place.board)


def _evaluate_and_show(
    run: RunFolder, evaluation: options.EvaluationOptions, output: options.OutputOptions, board: Board | None = None
) -> None:
    """Evaluate every row of Table 1 the run allows; write it, with every episode, as Parquet and JSON; print it."""
    plan, episodes, seed = run.plan, evaluation.episodes, evaluation.seed
    evaluating.check_evaluation(seed, episodes)
    total = episodes * len(evaluating.allowed_rows(run))
    with stage_progress("table", total, output.display, unit="episodes") as progress:
        played = evaluating.evaluate_rows(run, episodes, seed, progress.advance)
    rows = tuple(evaluating.win_rate(row, fights, plan) for row, fights in played.items())
    table = WinRateTable(f"Win rates, {plan.scenario}, {episodes} episodes a row", rows)
    terms = make_skill(plan.skill_graph.order[-1], plan.options).reward.names
    settings, seeds = {row.label: fights for row, fights in played.items()}, evaluating.evaluation_seeds(seed, episodes)
    write_episodes(run.results("episodes"), settings, terms, seeds)
    write_rows(run.results("table"), [row.to_dict() for row in rows])
    write_json(run.path / "results" / "table.json", table.to_dict())
    if board is not None:
        board.text("win rates", table.to_markdown())
        names = ("scenario", "preset", "seed", "scale", "lanes", "env_runners")
        board.hyperparameters(
            {name: getattr(plan, name) or 0 for name in names}, {f"win rate/{row.setting}": row.rate for row in rows}
        )
    output.show(table.to_dict(), table.to_rich(), f"results in {run.path / 'results'}")


def _write_report(out: Path, output: options.OutputOptions, folders: Sequence[Path], *others: Any) -> None:
    written, tables = write_report(folders, out, *others), load_reproductions(folders)
    plain = {"report": str(written), "tables": [table.to_dict() for table in tables]}
    output.show(plain, *(table.to_rich() for table in tables), f"report in {written}")


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
