"""Fights: of an agent or a recording to watch, of a person who plays, recorded as Parquet files."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from soulsgraph.api import Run, fight_page, run_of
from soulsgraph.api.playing import FightPage
from soulsgraph.cli.options import taken
from soulsgraph.cli.output import screen
from soulsgraph.runs.evaluate import EVALUATION_SEED, EpisodeCount, FightSeed, Setting, evaluation_seeds, source_of
from soulsgraph.runs.plan import Plan, lasting_name
from soulsgraph.runs.progress import stage_progress
from soulsgraph.zoo import agent_names, open_agent, open_run
from soulsgraph_envs.core.config import Between, Keywords, listed
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.files import check_writable
from soulsgraph_envs.core.scenario import load_scenario, started_at
from soulsgraph_envs.games.keys import load_bindings
from soulsgraph_envs.games.link import load_games

_Share = Annotated[float, Between(0.0, 1.0)]


def _page(fight: Path, /, *, file: Path | None = None, run: Path | None = None) -> FightPage:
    """Write the page of a recorded fight.

    Args:
        run: Run folder of the agent of a recorded fight, to try its other actions; an agent of the zoo is found by its
            name.
    """
    check_extra("watch", "data")
    from soulsgraph.recordings.files import read_header

    if file is None or file.suffix.lower() != ".html":
        raise SoulsGraphError(f"{fight}: expected an HTML `file` for the page of a fight, found {file}; name it.")
    player = read_header(fight).player
    own = open_run(run) if run is not None else open_agent(player) if player in agent_names() else None
    screen.precompile()
    return fight_page(fight, file, own)


def watch(agent: Path, /, **given: Annotated[Any, Keywords((Run.watch, _page))]) -> Any:
    """Watch an agent fight, with what each of its skills observes, values and chooses; or a recorded fight, as a page.

    It opens a window; with `file` it writes one and needs no display. A run that is still training fights with its
    newest weights, loaded again for every fight. The page of a recorded fight is one file that needs no network; of a
    simulated fight that the agent lost it names the last decision for which another action lives at least 2 s longer.

    Args:
        agent: Run folder, or the name of an agent of the zoo; `RUN@dodge=v1,movement=v2` plays these versions of its
            skills instead of the present ones. Or a recorded fight, a Parquet file, whose page `file` is.
    """
    if agent.suffix == ".parquet":
        return taken("watch of a recorded fight", _page, given)(agent)
    return taken("watch of an agent", run_of(str(agent)).watch, given)(quiet=screen.json)


def play(
    *,
    scenario: str | None = None,
    boss: str | None = None,
    start: str | None = None,
    seed: FightSeed | None = None,
    episodes: EpisodeCount | None = None,
    keys: str = "play",
    record: Path | None = None,
    player: str = "person",
) -> None:
    """Play against the boss in the simulator, by keyboard or gamepad, in a window at the game's speed.

    The keys are shown below the fight. Enter begins it, and another one after its end; Tab pauses, Escape ends.

    Args:
        scenario: Scenario to fight in; iudex-phase1 if neither it nor a boss is given.
        boss: Boss to fight, in a scenario that comes with the package.
        start: How a fight begins: mid, long or scattered; the scenario's own if not given.
        seed: Seed of the fights: those that `evaluate` plays with it; drawn if not given.
        episodes: Fights to play at most; until the window is closed if not given.
        keys: Name of shipped bindings, or a TOML file of your own.
        record: Folder in which every fight becomes a Parquet file.
        player: Name of the person in the recordings; any name will do.
    """
    # Imported here: a help text need not wait for it.
    from soulsgraph.watch.playing import Play, PlayWindow, Recorder, scenario_against

    if scenario is not None and boss is not None:
        raise SoulsGraphError("play: expected one of `scenario` and `boss`, found both; leave one out.")
    if record is not None:
        check_extra("play --record", "data")
    name = scenario_against(boss) if boss is not None else lasting_name(scenario or Plan.scenario)
    fought, bindings = started_at(load_scenario(name), start), load_bindings(keys)
    seed = secrets.randbelow(2**31) if seed is None else seed
    recorder = None if record is None else Recorder(record, name, player)
    if record is not None:
        check_writable(record)
    shown: list[dict[str, Any]] = []
    with closing(PlayWindow(fought, bindings)) as window:
        window.say("making the fight ready")
        screen.precompile()
        for fight in Play(fought, window, recorder=recorder).fights(seed, episodes):
            shown.append(fight.summary())
            screen.console.print(str(fight))
    screen.show({"fights": shown})


def _seeds(*, episodes: EpisodeCount = 20, seed: FightSeed = EVALUATION_SEED) -> Any:
    """Return the seeds of new fights.

    Args:
        episodes: New fights to record.
        seed: Seed of the new fights: those that `evaluate` plays with it.
    """
    return evaluation_seeds(seed, episodes)


def _of_run(
    who: Path,
    /,
    *,
    scenario: str | None = None,
    start: str | None = None,
    random: _Share = 0.0,
    randomize: str = "",
    games: Path | None = None,
) -> Any:
    """Return the agent of a run.

    Args:
        scenario: Scenario to fight in; the run's own if not given.
        start: How episodes begin: mid, long or scattered; the scenario's own if not given.
        random: Share of the decisions of every skill that are drawn at random, from 0 to 1.
        randomize: Skills of a run to replace by uniform random actions, separated by commas.
        games: TOML file of real-time games to fight in, side by side; the simulator if not given.
    """
    from soulsgraph.recordings.recording import Fighter

    run = open_run(who)
    fought = lasting_name(scenario or run.plan.scenario)
    return Fighter.of_run(run, Setting(fought, source_of(run, fought), start, listed(randomize)), random)


def _oracle(
    who: Path,
    /,
    *,
    scenario: str = Plan.scenario,
    start: str | None = None,
    random: _Share = 0.0,
    delay: Annotated[int, Between(0, 20)] = 0,
) -> Any:
    """Return the script that knows the boss's hit windows.

    Args:
        delay: Control ticks, of 0.1 s, by which the oracle acts late, from 0 to 20.
    """
    from soulsgraph.recordings.recording import Fighter

    return Fighter.oracle(lasting_name(scenario), start, random, delay)


def _probe(
    who: Path,
    /,
    *,
    scenario: str = Plan.scenario,
    start: str | None = None,
    random: _Share = 0.0,
    games: Path | None = None,
    after: Path | None = None,
) -> Any:
    """Return the script that covers what agents don't.

    Args:
        after: Folder of earlier fights, for the probe: it plays more often what they leave uncertain about the boss.
    """
    # Imported here: what is fitted for few is not loaded for all.
    from soulsgraph.calibrate.exploration import focus_after
    from soulsgraph.recordings.recording import Fighter

    fought = lasting_name(scenario)
    focus = None if after is None else focus_after(after, fought, games is None)
    return Fighter.probe(fought, start, random, focus)


def _record_journals(run: Path, /, *, out: Path) -> None:
    from soulsgraph.recordings.journal import journals, record_journal

    folder = open_run(run)
    kept, written = journals(folder), list[Path]()
    check_writable(out)
    found = screen.each(
        "record", kept, lambda one: record_journal(folder, kept[one], one, out, written.append), "stages"
    )
    left_out = sum(found, Counter[str]())
    lines = [f"left out: {count} {reason}" for reason, count in sorted(left_out.items())]
    plain = {"fights": len(written), "left_out": dict(left_out)}
    screen.show(plain, f"{len(written)} fights of {len(kept)} stages in {out}", *lines)


def record(
    who: Path,
    /,
    *,
    out: Path,
    journal: bool = False,
    **given: Annotated[Any, Keywords((_seeds, _of_run, _oracle, _probe))],
) -> None:
    """Record fights, each as a Parquet file with a row for each control tick.

    Fights that exist already are not played again. With `journal` nothing is played: the fights are those in the
    journals that a fleet left in the run folder, with a row for each decision.

    Args:
        who: Run folder, name of an agent of the zoo, or a script, which fights in iudex-phase1 if no scenario is given:
            `oracle` knows the boss's hit windows; `probe` covers the distances, sides and moments that agents don't.
        out: Folder for the fights; existing files stay, and their fights are not played again.
        journal: Take the fights of a fleet's journals instead of new ones.
    """
    check_extra("data record", "data")
    if journal:
        taken("data record --journal", _record_journals, given)(who, out=out)
        return
    from soulsgraph.recordings import recording

    asked: dict[str, Any] = {name: given.pop(name) for name in ("episodes", "seed") if name in given}
    seeds = taken("data record", _seeds, asked)()
    check_writable(out)
    scripts: dict[str, Callable[..., Any]] = {recording.ORACLE: _oracle, recording.PROBE: _probe}
    script = None if who.exists() else scripts.get(str(who))
    fighter = taken(f"data record {who}", script or _of_run, given)(who)
    places = load_games(given["games"]) if "games" in given else None
    written = list[Path]()
    screen.precompile()
    with stage_progress("record", len(seeds), screen.console, unit="fights") as progress:

        def one(path: Path) -> None:
            written.append(path)
            progress.advance(1)

        if places is None:
            recording.record(fighter, seeds, out, one)
        else:
            recording.record_in_games(fighter, seeds, out, places, one)
        progress.update(len(seeds))
    _list(written, len(seeds) - len(written))


def _list(written: Sequence[Path], skipped: int) -> None:
    from soulsgraph.recordings import check as checking
    from soulsgraph.recordings.files import read_header

    headers = tuple(map(read_header, written))
    plain = {"fights": [checking.fight_row(header) for header in headers], "skipped": skipped}
    screen.show(plain, *checking.list_fights(headers), *([f"{skipped} fights were there already"] if skipped else []))
