"""Fights: of an agent or a recording to watch, of a person who plays, recorded as Parquet files."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from re import fullmatch
from typing import TYPE_CHECKING, Any

from soulsgraph.cli.options import check_taken, names_of
from soulsgraph.cli.output import screen
from soulsgraph.results.tables import text_table
from soulsgraph.runs.evaluate import EVALUATION_SEED, Setting, check_evaluation, evaluation_seeds, source_of
from soulsgraph.runs.plan import Plan, check_range, lasting_name
from soulsgraph.runs.progress import stage_progress
from soulsgraph.zoo import agent_names, open_agent, open_run
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.core.files import check_writable
from soulsgraph_envs.core.scenario import load_scenario, started_at
from soulsgraph_envs.games.keys import load_bindings
from soulsgraph_envs.games.link import load_games

if TYPE_CHECKING:
    from soulsgraph.recordings.recording import Fighter
    from soulsgraph.watch.watching import Fight
    from soulsgraph_envs.core.seeds import Seeds

    Fights = Iterator[tuple[Fight, ...]]


#: A control tick, which every picture shows one of.
TICK_S = 0.1
_LONGEST_S, _FIGHTS = 120.0, 20


def watch(
    agent: Path,
    /,
    *,
    file: Path | None = None,
    side_by_side: Path | None = None,
    scenario: str | None = None,
    start: str | None = None,
    random: str = "",
    seed: int = EVALUATION_SEED,
    episodes: int | None = None,
    seconds: float | None = None,
    only_fight: bool = False,
    run: Path | None = None,
) -> None:
    """Watch an agent fight, with what each of its skills observes, values and chooses; or a recorded fight, as a page.

    It opens a window; with `file` it writes one and needs no display. A run that is still training fights with its
    newest weights, loaded again for every fight. The page of a recorded fight is one file that needs no network; of a
    simulated fight that the agent lost it names the last decision for which another action lives at least 2 s longer.

    Args:
        agent: Run folder, or the name of an agent of the zoo; `RUN@dodge=v1,movement=v2` plays these versions of its
            skills instead of the present ones. Or a recorded fight, a Parquet file.
        file: File to write, by its ending: mp4, gif, png (of the last moment); of a recorded fight html.
        side_by_side: Another run folder or agent, or the same with other versions, beside the first in fights of the
            same seeds.
        scenario: Scenario to fight in; the run's own if not given.
        start: How episodes begin: mid, long or scattered; the scenario's own if not given.
        random: Skills to replace by uniform random actions, separated by commas.
        seed: Seed of the fights: those that `evaluate` plays with it.
        episodes: Fights to show, one after another; if not given, until the window is closed, or one in a file.
        seconds: Show at most this many seconds of the game of each fight; 120 if not given.
        only_fight: Show the fights alone, without the skills.
        run: Run folder of the agent of a recorded fight, to try its other actions; an agent of the zoo is found by its
            name.
    """
    # Imported here: a help text need not wait for it.
    from soulsgraph.watch.watching import WRITERS, AgentSource, play_fights

    if agent.suffix == ".parquet":
        asked: dict[str, object] = {
            "side_by_side": side_by_side,
            "scenario": scenario,
            "start": start,
            "random": random,
        }
        asked |= {"seed": seed != EVALUATION_SEED, "episodes": episodes, "seconds": seconds, "only_fight": only_fight}
        check_taken("watch of a recorded fight", asked)
        _write_page(agent, file, run)
        return
    check_taken("watch of an agent", {"run": run})
    if file is not None and (kind := file.suffix[1:].lower()) not in WRITERS:
        raise UnknownNameError(f"ending of {file}", kind, WRITERS)
    longest_s = _LONGEST_S if seconds is None else seconds
    check_evaluation(seed, 1 if episodes is None else episodes)
    check_range("seconds", longest_s, TICK_S, 3600.0)
    if file is not None and episodes is None:
        episodes = 1
    sides = [_side(path) for path in (agent, side_by_side) if path is not None]
    setting = (scenario and lasting_name(scenario), start, names_of(random))
    sources = [AgentSource(open_run(path), *setting, versions) for path, versions in sides]
    for source in sources:
        source.agent()  # What cannot play is refused before anything opens.
    shown: list[dict[str, Any]] = []
    fights = _announced(play_fights(sources, seed, episodes, round(longest_s / TICK_S)), shown)
    if file is None:
        _show(fights, len(sources), only_fight)
    else:
        _write(file, fights, only_fight)
    plain = {"fights": shown, "file": None if file is None else str(file)}
    screen.show(plain, *([] if file is None else [f"written: {file}"]))


def _side(path: Path) -> tuple[Path, dict[str, int]]:
    """Return the run of `RUN@SKILL=vN,...` and the versions chosen of its skills, none for a run alone.

    Raises:
        SoulsGraphError: if what follows the @ is anything else.
    """
    name, at, chosen = str(path).rpartition("@")
    if not at or path.exists():
        return path, {}
    versions: dict[str, int] = {}
    for part in chosen.split(","):
        found = fullmatch(r"(\w+)=v([1-9][0-9]{0,8})", part.strip())
        if found is None or found[1] in versions:
            wrong = "a skill twice" if found else shown(part)
            raise SoulsGraphError(
                f"{path}: expected a version of each skill after the @, found {wrong}; "
                f"write it as {name}@dodge=v1,movement=v2, or the run alone for the versions in play."
            )
        versions[found[1]] = int(found[2])
    return Path(name), versions


def _announced(fights: Fights, shown: list[dict[str, Any]]) -> Fights:
    """Print a line for each fight before it is shown, and add its summary to `shown`."""
    for played in fights:
        for fight in played:
            shown.append(fight.summary())
            screen.console.print(str(fight))
        yield played


def _show(fights: Fights, beside: int, only_fight: bool) -> None:
    from soulsgraph.watch.watching import FIGHT_SIZE, SIZE, FightWindow

    height, width = FIGHT_SIZE if only_fight else SIZE
    with closing(FightWindow((height, width * beside))) as window:
        window.say("making the first fight ready")
        screen.precompile()
        for played in fights:
            if not window.play(played, only_fight):
                return


def _write(path: Path, fights: Fights, only_fight: bool) -> None:
    from soulsgraph.watch.watching import WRITERS, frames, import_ffmpeg

    check_writable(path.parent)
    if (kind := path.suffix[1:].lower()) == "mp4":
        import_ffmpeg()
    screen.precompile()
    WRITERS[kind](path, (picture for played in fights for picture in frames(played, only_fight)))


def _write_page(fight: Path, file: Path | None, run: Path | None) -> None:
    """Write the page of a recorded fight."""
    check_extra("watch", "data")
    from soulsgraph.pages.fight_page import last_decision, write_fight_page
    from soulsgraph.recordings.files import read_recording

    if file is None or file.suffix.lower() != ".html":
        raise SoulsGraphError(f"{fight}: expected an HTML `file` for the page of a fight, found {file}; name it.")
    recording = read_recording(fight)
    player = recording.header.player
    own = open_run(run) if run is not None else open_agent(player) if player in agent_names() else None
    check_writable(file.parent)
    screen.precompile()
    if recording.header.result.outcome == "died" and own is not None:
        screen.console.print("trying other actions in the last 30 s of the fight")
    search = last_decision(recording, own)
    write_fight_page(file, recording, search)
    size = file.stat().st_size
    found = None if search.found is None else search.found._asdict()
    plain = {"page": str(file), "bytes": size, "ticks": len(recording), "last_decision": found, "note": search.note}
    screen.show(plain, f"written: {file}, {size / 1e6:.2f} MB, {len(recording):,} ticks")


def play(
    *,
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
    from soulsgraph.watch.playing import Play, Recorder, make_window, scenario_against

    if scenario is not None and boss is not None:
        raise SoulsGraphError("play: expected one of `scenario` and `boss`, found both; leave one out.")
    if record is not None:
        check_extra("play --record", "data")
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
        screen.precompile()
        for fight in Play(fought, window, recorder=recorder).fights(seed, episodes):
            shown.append(fight.summary())
            screen.console.print(str(fight))
    screen.show({"fights": shown})


def record(
    who: Path,
    /,
    *,
    out: Path,
    episodes: int | None = None,
    seed: int = EVALUATION_SEED,
    scenario: str | None = None,
    start: str | None = None,
    randomize: str = "",
    random: float = 0.0,
    delay: int = 0,
    games: Path | None = None,
    after: Path | None = None,
    journal: bool = False,
) -> None:
    """Record fights, each as a Parquet file with a row for each control tick.

    Fights that exist already are not played again. With `journal` nothing is played: the fights are those in the
    journals that a fleet left in the run folder, with a row for each decision.

    Args:
        who: Run folder, name of an agent of the zoo, or a script, which fights in iudex-phase1 if no scenario is given:
            `oracle` knows the boss's hit windows; `probe` covers the distances, sides and moments that agents don't.
        out: Folder for the fights; existing files stay, and their fights are not played again.
        episodes: Fights to record; 20 if not given.
        seed: Seed of the fights: those that `evaluate` plays with it.
        scenario: Scenario to fight in; the run's own if not given.
        start: How episodes begin: mid, long or scattered; the scenario's own if not given.
        randomize: Skills of a run to replace by uniform random actions, separated by commas.
        random: Share of the decisions of every skill that are drawn at random, from 0 to 1.
        delay: Control ticks, of 0.1 s, by which the oracle acts late, from 0 to 20.
        games: TOML file of real-time games to fight in, side by side; the simulator if not given.
        after: Folder of earlier fights, for the probe: it plays more often what they leave uncertain about the boss.
        journal: Take the fights of a fleet's journals instead of new ones.
    """
    check_extra("data record", "data")
    if journal:
        chosen: dict[str, object] = {"scenario": scenario, "start": start, "randomize": randomize, "random": random}
        chosen |= {"delay": delay, "episodes": episodes, "seed": seed != EVALUATION_SEED, "games": games}
        check_taken("data record --journal", chosen | {"after": after})
        _record_journals(who, out)
        return
    from soulsgraph.recordings.recording import ORACLE

    check_evaluation(seed, episodes := _FIGHTS if episodes is None else episodes)
    check_range("random", random, 0.0, 1.0)
    check_range("delay", delay, 0, 20)
    check_writable(out)
    fighter = _fighter(who, scenario and lasting_name(scenario), start, randomize, random, delay)
    if after is not None:
        fighter = _focused(fighter, after, games is None)
    if games is not None and fighter.name == ORACLE:
        raise SoulsGraphError("oracle: expected the simulator, whose future it knows, found `games`; leave it out.")
    seeds = evaluation_seeds(seed, episodes)
    written = _record(fighter, seeds, out, games)
    _list(written, len(seeds) - len(written))


def _record(fighter: Fighter, seeds: Seeds, out: Path, games: Path | None) -> list[Path]:
    """Record fights with a line of progress, and return their files."""
    from soulsgraph.recordings import recording

    places, written = None if games is None else load_games(games), list[Path]()
    screen.precompile()
    with stage_progress("record", len(seeds), screen.display, unit="fights") as progress:

        def one(path: Path) -> None:
            written.append(path)
            progress.advance(1)

        if places is None:
            recording.record(fighter, seeds, out, one)
        else:
            recording.record_in_games(fighter, seeds, out, places, one)
        progress.update(len(seeds))
    return written


def _record_journals(run: Path, out: Path) -> None:
    from soulsgraph.recordings.journal import journals, record_journal

    folder = open_run(run)
    stages = journals(folder)
    check_writable(out)
    written, left_out = list[Path](), Counter[str]()
    with stage_progress("record", len(stages), screen.display, unit="stages") as progress:
        for number, (kept, stage) in enumerate(stages.items(), 1):
            left_out += record_journal(folder, stage, kept, out, written.append)
            progress.update(number)
    lines = [f"left out: {count} {reason}" for reason, count in sorted(left_out.items())]
    plain = {"fights": len(written), "left_out": dict(left_out)}
    screen.show(plain, f"{len(written)} fights of {len(stages)} stages in {out}", *lines)


def _focused(fighter: Fighter, after: Path, simulated: bool) -> Fighter:
    """Return the probe with what earlier fights leave open.

    Raises:
        SoulsGraphError: for another player, or fights that `calibrate` refuses.
    """
    # Imported here: what is fitted for few is not loaded for all.
    from soulsgraph.calibrate.exploration import focus_after
    from soulsgraph.recordings.recording import PROBE, Fighter

    if fighter.name != PROBE:
        raise SoulsGraphError(f"after: expected the probe, found {fighter.name}; leave it out.")
    focus = focus_after(after, fighter.scenario, simulated)
    return Fighter.probe(fighter.scenario, fighter.agent.scenario.start, fighter.random, focus)


def _fighter(who: Path, scenario: str | None, start: str | None, randomize: str, random: float, delay: int) -> Fighter:
    from soulsgraph.recordings.recording import ORACLE, SCRIPTED, Fighter

    name = str(who)
    scripted = name in SCRIPTED and not who.exists()
    if scripted and randomize:
        raise SoulsGraphError(f"randomize: expected none for the {name}, found {randomize}; take `random`.")
    if scripted and name == ORACLE:
        return Fighter.oracle(scenario or Plan.scenario, start, random, delay)
    if delay:
        raise SoulsGraphError(f"delay: expected none but for the oracle, found {delay}; leave it out.")
    if scripted:
        return Fighter.probe(scenario or Plan.scenario, start, random)
    run = open_run(who)
    fought = scenario or run.plan.scenario
    return Fighter.of_run(run, Setting(fought, source_of(run, fought), start, names_of(randomize)), random)


def _list(written: Sequence[Path], skipped: int) -> None:
    from soulsgraph.recordings import check as checking
    from soulsgraph.recordings.files import read_header

    headers = tuple(map(read_header, written))
    tables = [
        text_table(group.title, checking.LIST_HEADINGS, map(checking.fight_cells, group.headers))
        for group in checking.groups_of(headers)
    ]
    plain = {"fights": [checking.fight_row(header) for header in headers], "skipped": skipped}
    screen.show(plain, *tables, *([f"{skipped} fights were there already"] if skipped else []))
