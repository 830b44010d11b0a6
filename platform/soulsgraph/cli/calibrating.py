"""The simulator beside recordings of a running game: boss data fitted to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from soulsgraph.cli.output import DEFAULT_OUTPUT, Flag, OutputOptions
from soulsgraph.results.tables import text_table
from soulsgraph_envs.core.files import check_writable
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario


def calibrate(
    folder: Annotated[Positional[Path], arg(metavar="DIR")],
    boss: str,
    out: Annotated[Path, arg(metavar="FILE.toml")],
    output: OutputOptions = DEFAULT_OUTPUT,
    scenario: str | None = None,
    simulated: Flag = False,
) -> None:
    """Fit a boss's data to recorded fights: a value, its interval and a verdict each, and a scenario to train in.

    Values that the fights do not determine stay as shipped, and are listed in the file. Nothing is overwritten.

    Args:
        folder: Folder with recorded fights of one scenario, or one file.
        boss: Boss whose data are fitted, by name or as a TOML file; moves that they lack are added.
        out: TOML file of the fitted boss; beside it appears its scenario, with `-scenario` behind the name,
            and where the player is not as shipped that, with `-player`.
        scenario: Scenario in which the fitted boss is fought; the recorded one if not given.
        simulated: Accept fights of the simulator itself, to try out how much comes back.
    """
    # Imported here: a help text need not wait for it.
    from soulsgraph.calibrate.boss_file import check_free, player_path_of, scenario_path_of, write_fitted
    from soulsgraph.calibrate.calibration import calibrate as fit_boss
    from soulsgraph.calibrate.rows import read_fights
    from soulsgraph.calibrate.values import VALUE_HEADINGS, value_cells

    for path in (out, scenario_path_of(out), player_path_of(out)):
        check_free(path)
    check_writable(out.parent)
    shipped = load_boss(boss)
    fought = read_fights(folder, shipped, simulated)
    name = scenario or fought.scenario
    found = fit_boss(fought, shipped, load_player(load_scenario(name).player))
    paths = write_fitted(out, found, boss, name, shipped)
    table = text_table("", VALUE_HEADINGS, map(value_cells, (*found.boss, *found.player)))
    counts = ", ".join(f"{count} {verdict}" for verdict, count in found.counts.items())
    lines = [f"{counts}: {found.fights} fights, {found.seconds / 60.0:.0f} min", f"written: {paths[0]}, {paths[1]}"]
    output.show(found.to_dict() | {"files": list(map(str, paths))}, table, *lines)
