"""How wrong the simulator is about recorded fights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from soulsgraph.cli.output import DEFAULT_OUTPUT, OutputOptions
from soulsgraph.results.tables import finite, text_table
from soulsgraph.runs.evaluate import EVALUATION_SEED, check_evaluation
from soulsgraph.runs.plan import lasting_name
from soulsgraph.runs.progress import stage_progress
from soulsgraph_envs.core.files import check_writable

#: Fights that a predicted win rate is over.
_EPISODES = 400


def fidelity(
    fights: Annotated[Positional[Path], arg(metavar="FIGHTS")],
    output: OutputOptions = DEFAULT_OUTPUT,
    scenario: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="SCENARIO")] = (),
    out: Path | None = None,
    episodes: int = _EPISODES,
    seed: int = EVALUATION_SEED,
) -> None:
    """Measure how wrong the simulator is about recorded fights: errors of replayed rows, moves, win rates.

    Recorded rows are put into the simulator and the recorded controls played for 0.1, 0.5 and 2 s. Every error stands
    beside its floor: the same measured on simulated fights of the same players, since what a row does not show is
    guessed.

    Args:
        fights: Folder with recorded fights of one scenario, or one file.
        scenario: Scenario whose data are measured, by name or file; several times for several; the one that was fought
            in if not given.
        out: Folder for the report: Markdown, one HTML page that needs no network, JSON and figures.
        episodes: Fights that each player fights for its predicted win rate.
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
