"""`soulsgraph data` and `clone`: fights as Parquet files, and skills that do as recorded fights show."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from soulsgraph.cli import options
from soulsgraph.cli.options import DEFAULT_FIGHT, FightOptions
from soulsgraph.cli.output import DEFAULT_OUTPUT, DEFAULT_RUN, Flag, OutputOptions, RunOptions, one_action
from soulsgraph.cli.remedies import command_line, in_commands
from soulsgraph.results.tables import text_table
from soulsgraph.runs.evaluate import EVALUATION_SEED, check_evaluation, evaluation_seeds
from soulsgraph.runs.plan import Plan, check_range
from soulsgraph.runs.progress import silence_advice, stage_progress
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.files import check_writable

if TYPE_CHECKING:
    from soulsgraph.recordings.recording import Fighter
    from soulsgraph_envs.core.seeds import Seeds

_FIGHTS = 20


@dataclass(frozen=True)
class HandicapOptions:
    """How much worse a player is than it can be."""

    random: float = 0.0
    """Share of the decisions of every skill that are drawn at random, from 0 to 1."""
    delay: int = 0
    """Control ticks, of 0.1 s, by which the oracle acts late, from 0 to 20."""


_NO_HANDICAP = HandicapOptions()
Folder = Annotated[Positional[Path], arg(metavar="DIR")]


def record(
    who: Annotated[Positional[Path], arg(metavar="RUN|AGENT|oracle")],
    out: Path,
    output: RunOptions = DEFAULT_RUN,
    episodes: int | None = None,
    seed: int = EVALUATION_SEED,
    fight: FightOptions = DEFAULT_FIGHT,
    handicap: HandicapOptions = _NO_HANDICAP,
    games: Path | None = None,
    journal: Flag = False,
) -> None:
    """Record fights, each as a Parquet file with a row a control tick.

    Fights that are there already are not played again. With `--journal` nothing is played: the fights are those in the
    journals that a fleet left in the run folder, with a row a decision.

    Args:
        who: Run folder, name of an agent of the zoo, or `oracle`, the script that knows the boss's hit windows
            and fights in iudex-phase1 if no scenario is given.
        out: Folder for the fights; files that are there stay, and their fights are not played again.
        episodes: Fights to record; 20 if not given.
        seed: Seed of the fights: those that `evaluate` plays with it.
        games: TOML file of real-time games to fight in, side by side; the simulator if not given.
        journal: Take the fights of a fleet's journals instead of new ones.
    """
    if journal:
        chosen = vars(fight) | vars(handicap) | {"episodes": episodes, "seed": seed != EVALUATION_SEED, "games": games}
        _record_journals(who, out, output, [name for name, value in chosen.items() if value])
        return
    from soulsgraph.recordings.recording import ORACLE

    check_evaluation(seed, episodes := _FIGHTS if episodes is None else episodes)
    check_range("random", handicap.random, 0.0, 1.0)
    check_range("delay", handicap.delay, 0, 20)
    check_writable(out)
    fighter = _fighter(who, fight, handicap)
    if games is not None and fighter.name == ORACLE:
        raise SoulsGraphError("oracle: expected the simulator, whose future it knows, found --games; leave it out.")
    seeds = evaluation_seeds(seed, episodes)
    written = _record(fighter, seeds, out, games, output)
    _list(out, output, written, len(seeds) - len(written))


def _record(fighter: Fighter, seeds: Seeds, out: Path, games: Path | None, output: OutputOptions) -> list[Path]:
    """Record fights with a line of progress, and return their files."""
    from soulsgraph.recordings import recording
    from soulsgraph.runs.workers import precompile_playing
    from soulsgraph_envs.games.link import load_games

    places, written = None if games is None else load_games(games), list[Path]()
    precompile_playing(output.console)
    with stage_progress("record", len(seeds), output.display, unit="fights") as progress:

        def one(path: Path) -> None:
            written.append(path)
            progress.advance(1)

        if places is None:
            recording.record(fighter, seeds, out, one)
        else:
            recording.record_in_games(fighter, seeds, out, places, one)
        progress.update(len(seeds))
    return written


def _record_journals(run: Path, out: Path, output: OutputOptions, given: Sequence[str]) -> None:
    if given:
        found = ", ".join(f"--{name}" for name in given)
        raise SoulsGraphError(f"--journal: expected no option of new fights, found {found}; leave it out.")
    from soulsgraph.recordings.journal import journal_stages, record_journal
    from soulsgraph.zoo import open_run

    folder = open_run(run)
    stages = journal_stages(folder)
    check_writable(out)
    written, left_out = list[Path](), Counter[str]()
    with stage_progress("record", len(stages), output.display, unit="stages") as progress:
        for number, stage in enumerate(stages, 1):
            left_out += record_journal(folder, stage, out, written.append)
            progress.update(number)
    lines = [f"left out: {count} {reason}" for reason, count in sorted(left_out.items())]
    plain = {"fights": len(written), "left_out": dict(left_out)}
    output.show(plain, f"{len(written)} fights of {len(stages)} stages in {out}", *lines)


def _fighter(who: Path, fight: FightOptions, handicap: HandicapOptions) -> Fighter:
    from soulsgraph.recordings.recording import ORACLE, Fighter
    from soulsgraph.runs.evaluate import Setting, source_of
    from soulsgraph.zoo import open_run

    if str(who) == ORACLE and not who.exists():
        if fight.randomize:
            raise SoulsGraphError(f"--randomize: expected none for the oracle, found {fight.randomize}; take --random.")
        return Fighter.oracle(fight.scenario_name or "iudex-phase1", fight.start, handicap.random, handicap.delay)
    if handicap.delay:
        raise SoulsGraphError(f"--delay: expected none but for the oracle, found {handicap.delay}; leave it out.")
    run = open_run(who)
    fought = fight.scenario_name or run.plan.scenario
    setting = Setting(fought, source_of(run, fought), fight.start, fight.random_skills)
    return Fighter.of_run(run, setting, handicap.random)


def list_fights(folder: Folder, output: OutputOptions = DEFAULT_OUTPUT) -> None:
    """List recorded fights.

    Args:
        folder: Folder with recorded fights, or one file.
    """
    _list(folder, output)


def _list(folder: Path, output: OutputOptions, only: list[Path] | None = None, skipped: int = 0) -> None:
    from soulsgraph.recordings import check as checking
    from soulsgraph.recordings.files import read_header

    found = (
        checking.find_recordings(folder) if only is None else checking.FolderContents(tuple(map(read_header, only)), ())
    )
    tables = [
        text_table(group.title, checking.LIST_HEADINGS, map(checking.fight_cells, group.headers))
        for group in checking.groups_of(found.headers)
    ]
    plain = {"fights": [checking.fight_row(header) for header in found.headers], "problems": list(found.problems)}
    lines = [f"{skipped} fights were there already"] if skipped else []
    output.show(plain if only is None else plain | {"skipped": skipped}, *tables, *found.problems, *lines)


def check(folder: Folder, output: RunOptions = DEFAULT_RUN) -> None:
    """Play simulated fights again and compare every bit; exit 1 if one differs or a file is damaged.

    A fight whose data have changed since is refused. On another kind of processor than it was recorded on, it is
    marked with the first tick that differs.

    Args:
        folder: Folder with recorded fights, or one file.
    """
    from soulsgraph.recordings import check as checking
    from soulsgraph.recordings.files import recording_files

    paths, found = recording_files(folder), []
    with stage_progress("check", len(paths), output.display, unit="fights") as progress:
        for number, path in enumerate(paths, 1):
            found.append(checking.check_file(path))
            progress.update(number)
    counts = Counter(one.verdict for one in found)
    lines = [in_commands(str(one), "data") for one in found if one.verdict not in ("same", "whole")]
    counted = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    output.show([one.to_dict() for one in found], *lines, f"{len(found)} files: {counted}")
    if any(one.verdict in checking.WRONG for one in found):
        sys.exit(1)


def summarize(folder: Folder, output: OutputOptions = DEFAULT_OUTPUT) -> None:
    """Summarize recorded fights by scenario, source, player and versions: win rate, length, damage, flasks a fight.

    Args:
        folder: Folder with recorded fights, or one file.
    """
    from soulsgraph.recordings import check as checking

    found = checking.find_recordings(folder)
    groups = checking.groups_of(found.headers)
    tables = [
        text_table(title, checking.SUMMARY_HEADINGS, [group.cells for group in alike])
        for title, alike in groupby(groups, lambda group: f"{group.scenario}, {group.source}")
    ]
    plain = {"groups": [group.to_dict() for group in groups], "problems": list(found.problems)}
    output.show(plain, *tables, *found.problems)


def export(
    folder: Folder,
    out: Path,
    output: OutputOptions = DEFAULT_OUTPUT,
    rllib: str | None = None,
    minari: str | None = None,
    name: str | None = None,
) -> None:
    """Export the decisions of one skill for RLlib's offline algorithms, or as a Minari dataset.

    Args:
        folder: Folder with recorded fights, or one file.
        out: With `--rllib` the Parquet file to write, with `--minari` the folder of datasets (MINARI_DATASETS_PATH).
        rllib: Skill whose decisions are written with RLlib's columns.
        minari: Skill whose decisions are written as a Minari dataset.
        name: Name of the Minari dataset; the skill's with `-v0` behind it if not given.
    """
    from soulsgraph.recordings import export as exporting

    if (rllib is None) == (minari is None):
        raise SoulsGraphError("data export: expected --rllib SKILL or --minari SKILL, found both or neither; name one.")
    if minari is None:
        if name is not None:
            raise SoulsGraphError("--name: expected none with --rllib, whose file is --out; leave it out.")
        rows = exporting.export_rllib(folder, str(rllib), out)
        output.show({"file": str(out), "skill": rllib, "decisions": rows}, f"{rows:,} decisions of {rllib} in {out}")
        return
    dataset = name or f"{minari.replace('_', '-')}-v0"
    episodes = exporting.export_minari(folder, minari, out, dataset)
    plain = {"dataset": dataset, "folder": str(out), "skill": minari, "episodes": episodes}
    output.show(plain, f"{episodes:,} episodes of {minari} as {dataset} in {out}")


#: The actions, in the order of the help.
ACTIONS: dict[str, Callable[..., None]] = {
    "record": record,
    "list": list_fights,
    "check": check,
    "summarize": summarize,
    "export": export,
}
_Action: Any = one_action("data", ACTIONS)


def data(action: _Action) -> None:
    """Record fights as Parquet files, list, check and summarize them, and export them for other tools.

    Args:
        action: What to do.
    """


def clone(
    fights: Annotated[Positional[Path], arg(metavar="FIGHTS")],
    run: Annotated[Path, arg(metavar="DIR")],
    plan: options.PlanOptions,
    output: RunOptions = DEFAULT_RUN,
    skills: Annotated[str, arg(metavar="SKILL,...")] = "all",
    graph: options.Graph = None,
) -> None:
    """Clone skills from recorded fights, of people or of anybody else; training goes on from the clones.

    What every skill would have decided is read back from the fights' controls. Each clone becomes the next version of
    its skill, unless that in play is a clone of the same decisions; `train` and `curriculum --resume` go on from the
    newest one, with the fights' decisions in the replay.

    Args:
        fights: Folder with recorded fights of the run's scenario, or one file.
        run: Run folder, begun if it does not exist.
        skills: Skills to clone, separated by commas, or all.
        graph: Skill graph of a new run: paper, or a project's, as PROJECT/GRAPH; by default that of the fights.
    """
    # Imported here: it takes seconds.
    from soulsgraph.recordings.cloning import clone_fights, graph_of
    from soulsgraph.runs.lineage import named_skills
    from soulsgraph.runs.run_folder import RunFolder
    from soulsgraph.runs.workers import precompile_playing
    from soulsgraph_policies.learning.cloning import UPDATES

    begun = (run / RunFolder.plan_file).exists()
    if graph is None and not begun:
        graph = graph_of(fights)
    given = plan if graph is None else {**plan, "graph": graph}
    folder = options.open_run(run, given) if begun else RunFolder.planned(run, Plan(**options.plan_values(given)))
    if (chosen := named_skills(folder, skills)) is None:
        raise UnknownNameError("skill", skills, (*folder.plan.skill_graph.order, "all"))
    silence_advice()
    precompile_playing(output.console)
    with stage_progress("clone", len(chosen) * UPDATES, output.display, unit="updates") as progress:
        found = clone_fights(folder, fights, chosen, lambda: progress.advance(1))
    rows = [one.row() for one in found]
    headings = ("skill", "version", "decisions", "ambiguous ticks", "chosen alike")
    formats = ("{}", "v{}", "{:,}", "{:,}", "{:.1%}")
    cells = [tuple(form.format(value) for form, value in zip(formats, row.values(), strict=True)) for row in rows]
    output.show(
        rows,
        text_table("", headings, cells),
        *(f"{one.card.skill}: already cloned, v{one.card.version}" for one in found if one.earlier),
        f"play them with: {command_line('evaluate', run, *output.repeated)}",
        f"learn on from them with: {command_line('curriculum', '--resume', '--run', run, *output.repeated)}",
    )
