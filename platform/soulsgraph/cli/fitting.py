"""The simulator beside recordings of a running game: boss data fitted to them, and how wrong a scenario is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from soulsgraph.cli.output import DEFAULT_OUTPUT, Flag, OutputOptions
from soulsgraph.results.tables import finite, text_table
from soulsgraph.runs.evaluate import EVALUATION_SEED, check_evaluation
from soulsgraph.runs.plan import lasting_name
from soulsgraph.runs.progress import stage_progress
from soulsgraph_envs.core.files import check_writable
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario

#: Fights that a predicted win rate is over.
_EPISODES = 400


def calibrate(
    folder: Annotated[Positional[Path], arg(metavar="DIR")],
    boss: str,
    out: Annotated[Path, arg(metavar="FILE.toml")],
    output: OutputOptions = DEFAULT_OUTPUT,
    scenario: str | None = None,
    simulated: Flag = False,
) -> None:
    """Fit a boss's data to recorded fights: values with intervals and verdicts, and a scenario to train in.

    Values that the fights do not determine stay as shipped, and are listed in the file. Nothing is overwritten.

    Args:
        folder: Folder with recorded fights of one scenario, or one file.
        boss: Boss whose data are fitted, by name or as a TOML file; moves that they lack are added.
        out: TOML file of the fitted boss. Its scenario is written beside it, with `-scenario` after the name, and the
            player, if it differs from the shipped one, with `-player`.
        scenario: Scenario in which the fitted boss is fought; the recorded one if not given.
        simulated: Accept fights of the simulator itself, to test the fit on known values.
    """
    # Imported here: a help text need not wait for it.
    from soulsgraph.calibrate.boss_file import check_free, write_fitted
    from soulsgraph.calibrate.calibration import calibrate as fit_boss
    from soulsgraph.calibrate.rows import read_fights
    from soulsgraph.calibrate.values import VALUE_HEADINGS, value_cells

    check_free(out)
    check_writable(out.parent)
    shipped = load_boss(boss)
    fought = read_fights(folder, shipped, simulated)
    name = scenario or fought.scenario
    found = fit_boss(fought, shipped, load_player(load_scenario(name).player))
    paths = write_fitted(out, found, boss, name, shipped)
    table = text_table("", VALUE_HEADINGS, [value_cells(value) for value in (*found.boss, *found.player)])
    counts = ", ".join(f"{count} {verdict}" for verdict, count in found.counts.items())
    lines = [f"{counts}: {found.fights} fights, {found.seconds / 60.0:.0f} min", f"written: {paths[0]}, {paths[1]}"]
    output.show(found.to_dict() | {"files": list(map(str, paths))}, table, *lines)


def fidelity(
    fights: Annotated[Positional[Path], arg(metavar="FIGHTS")],
    output: OutputOptions = DEFAULT_OUTPUT,
    scenario: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="SCENARIO")] = (),
    out: Path | None = None,
    episodes: int = _EPISODES,
    seed: int = EVALUATION_SEED,
) -> None:
    """Measure how wrong the simulator is about recorded fights: errors of replayed rows, moves, win rates.

    Recorded rows are put into the simulator and the recorded controls played for 0.1, 0.5 and 2 s. Every error is
    shown next to its floor: the same error on simulated fights of the same players, since hidden values have to be
    estimated.

    Args:
        fights: Folder with recorded fights of one scenario, or one file.
        scenario: Scenario whose data are measured, by name or file; may be given several times; the recorded one if not
            given.
        out: Folder for the report: Markdown, one HTML page that needs no network, JSON and figures.
        episodes: Fights of each player for its predicted win rate.
        seed: Seed of what is drawn, and of those fights: those that `evaluate` plays with it.
    """
    # Imported here: a help text need not wait for it.
    from soulsgraph.calibrate.fidelity import STEPS, fidelity_tables, measure_fidelity, read_fights

    check_evaluation(seed, episodes)
    if out is not None:
        check_writable(out)
    read = read_fights(fights)
    names = list(dict.fromkeys(map(lasting_name, scenario))) or [read[0].header.scenario]
    output.precompile()
    with stage_progress("fidelity", STEPS * len(names), output.display, unit="steps") as progress:
        found = measure_fidelity(read, names, episodes, seed, lambda: progress.advance(1))
    lines = [f"{found.recorded}; the floor in brackets"]
    if out is not None:
        # Imported here: a table alone needs no figures.
        from soulsgraph.calibrate.fidelity_page import PAGE, write_fidelity

        report = write_fidelity(out, found)
        lines.append(f"report in {report}, as a page in {report.with_name(PAGE)}")
    tables = [text_table(title, *table) for title, table in fidelity_tables(found)]
    output.show(finite(found.to_dict()), *tables, *lines)
