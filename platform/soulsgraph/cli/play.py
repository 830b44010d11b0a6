"""The command by which a person fights."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path
from typing import Any

from soulsgraph.cli.output import DEFAULT_OUTPUT, OutputOptions
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import check_writable


def play(
    output: OutputOptions = DEFAULT_OUTPUT,
    scenario: str | None = None,
    boss: str | None = None,
    start: str | None = None,
    seed: int | None = None,
    episodes: int | None = None,
    keys: str = "play",
    record: Path | None = None,
    player: str = "person",
) -> None:
    """Play against the boss in the simulator, by keyboard or gamepad, in a window at the game's speed.

    The keys are shown below the fight. Enter fights again after its end, Tab pauses, Escape ends.

    Args:
        scenario: Scenario to fight in; iudex-phase1 if neither it nor a boss is given.
        boss: Boss to fight, in a scenario that comes with the package.
        start: How a fight begins: mid, long or scattered; the scenario's own if not given.
        seed: Seed of the fights: those that `evaluate` plays with it; drawn if not given.
        episodes: Fights to play at most; until the window is closed if not given.
        keys: Name of shipped bindings, or a TOML file of one's own.
        record: Folder in which every fight becomes a Parquet file.
        player: Name of the person in what is recorded; any name will do.
    """
    # Imported here: a help text need not wait for it.
    from soulsgraph.runs.evaluate import check_evaluation
    from soulsgraph.runs.plan import Plan, lasting_name
    from soulsgraph.runs.workers import precompile_playing
    from soulsgraph.watch.playing import Play, Recorder, make_window, scenario_against
    from soulsgraph_envs.core.scenario import load_scenario, started_at
    from soulsgraph_envs.games.keys import load_bindings

    if scenario is not None and boss is not None:
        raise SoulsGraphError("play: expected one of --scenario and --boss, found both; leave one out.")
    name = scenario_against(boss) if boss is not None else lasting_name(scenario or Plan.scenario)
    fought, bindings = started_at(load_scenario(name), start), load_bindings(keys)
    seed = secrets.randbelow(2**31) if seed is None else seed
    check_evaluation(seed, 1 if episodes is None else episodes)
    recorder = None if record is None else Recorder(record, name, player)
    if record is not None:
        check_writable(record)
    shown: list[dict[str, Any]] = []
    with closing(make_window(fought, bindings)) as window:
        window.say("making the fight ready")
        precompile_playing(output.console)
        for fight in Play(fought, window, recorder=recorder).fights(seed, episodes):
            shown.append(fight.summary())
            output.console.print(str(fight), soft_wrap=True)
    output.show({"fights": shown})
