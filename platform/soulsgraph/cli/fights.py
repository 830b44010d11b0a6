"""Fights: of an agent to watch, of a person who plays, recorded as Parquet files, and a page about one."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from re import fullmatch
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from soulsgraph.cli.options import DEFAULT_FIGHT, FightOptions
from soulsgraph.cli.output import DEFAULT_OUTPUT, DEFAULT_RUN, Flag, OutputOptions, RunOptions, one_action
from soulsgraph.results.tables import text_table
from soulsgraph.runs.evaluate import EVALUATION_SEED, Setting, check_evaluation, evaluation_seeds, source_of
from soulsgraph.runs.plan import Plan, check_range, lasting_name
from soulsgraph.runs.progress import stage_progress
from soulsgraph.zoo import agent_names, open_agent, open_run
from soulsgraph_envs.core.errors import SoulsGraphError, shown
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
_LONGEST_S = 120.0


@dataclass(frozen=True)
class PictureOptions:
    """What a fight is shown in, instead of a window."""

    mp4: Path | None = None
    """MP4 file to write."""
    gif: Path | None = None
    """GIF file to write."""
    png: Path | None = None
    """PNG file to write, of the last moment shown."""
    only_fight: Flag = False
    """Show the fights alone, without the skills."""

    @property
    def file(self) -> tuple[str, Path] | None:
        """The kind and path of the file to write, if one is asked for.

        Raises:
            SoulsGraphError: if more than one is.
        """
        asked = {"mp4": self.mp4, "gif": self.gif, "png": self.png}
        found = [(kind, path) for kind, path in asked.items() if path is not None]
        if len(found) > 1:
            options = " and ".join(f"--{kind}" for kind, _ in found)
            raise SoulsGraphError(f"watch: expected one file to write, found {options}; leave one out.")
        return found[0] if found else None


DEFAULT_PICTURE = PictureOptions()


def watch(
    folder: Positional[Path],
    output: RunOptions = DEFAULT_RUN,
    side_by_side: Path | None = None,
    fight: FightOptions = DEFAULT_FIGHT,
    seed: int = EVALUATION_SEED,
    episodes: int | None = None,
    seconds: float | None = None,
    picture: PictureOptions = DEFAULT_PICTURE,
) -> None:
    """Watch an agent fight in the simulator, with what each of its skills observes, values and chooses.

    It opens a window; with `--mp4`, `--gif` or `--png` it writes a file and needs no display. A run that is still
    training fights with its newest weights, loaded again for every fight.

    Args:
        folder: Run folder, or the name of an agent of the zoo; `RUN@dodge=v1,movement=v2` plays these versions of its
            skills instead of the present ones.
        side_by_side: Another run folder or agent, or the same with other versions, beside the first in fights of the
            same seeds.
        seed: Seed of the fights: those that `evaluate` plays with it.
        episodes: Fights to show, one after another; if not given, until the window is closed, or one in a file.
        seconds: Show at most this many seconds of the game of each fight; 120 if not given.
    """
    # Imported here: a help text need not wait for it.
    from soulsgraph.watch.watching import AgentSource, play_fights

    file, longest_s = picture.file, _LONGEST_S if seconds is None else seconds
    check_evaluation(seed, 1 if episodes is None else episodes)
    check_range("seconds", longest_s, TICK_S, 3600.0)
    if file is not None and episodes is None:
        episodes = 1
    sides = [_side(path) for path in (folder, side_by_side) if path is not None]
    setting = (fight.scenario_name, fight.start, fight.random_skills)
    sources = [AgentSource(open_run(path), *setting, versions) for path, versions in sides]
    for source in sources:
        source.agent()  # What cannot play is refused before anything opens.
    shown: list[dict[str, Any]] = []
    fights = _announced(play_fights(sources, seed, episodes, round(longest_s / TICK_S)), output, shown)
    if file is None:
        _show(fights, len(sources), picture.only_fight, output)
    else:
        _write(*file, fights, picture.only_fight, output)
    plain = {"fights": shown, "file": None if file is None else str(file[1])}
    output.show(plain, *([] if file is None else [f"written: {file[1]}"]))


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


def _announced(fights: Fights, output: OutputOptions, shown: list[dict[str, Any]]) -> Fights:
    """Print a line for each fight before it is shown, and add its summary to `shown`."""
    for played in fights:
        for fight in played:
            shown.append(fight.summary())
            output.console.print(str(fight))
        yield played


def _show(fights: Fights, beside: int, only_fight: bool, output: OutputOptions) -> None:
    from soulsgraph.watch.watching import FIGHT_SIZE, SIZE, FightWindow

    height, width = FIGHT_SIZE if only_fight else SIZE
    with closing(FightWindow((height, width * beside))) as window:
        window.say("making the first fight ready")
        output.precompile()
        for played in fights:
            if not window.play(played, only_fight):
                return


def _write(kind: str, path: Path, fights: Fights, only_fight: bool, output: OutputOptions) -> None:
    from soulsgraph.watch.watching import WRITERS, frames, import_ffmpeg

    check_writable(path.parent)
    if kind == "mp4":
        import_ffmpeg()
    output.precompile()
    WRITERS[kind](path, (picture for played in fights for picture in frames(played, only_fight)))


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
        output.precompile()
        for fight in Play(fought, window, recorder=recorder).fights(seed, episodes):
            shown.append(fight.summary())
            output.console.print(str(fight))
    output.show({"fights": shown})


def replay(
    fight: Annotated[Positional[Path], arg(metavar="FIGHT")],
    html: Annotated[Path, arg(metavar="FILE")],
    output: RunOptions = DEFAULT_RUN,
    run: Annotated[Path | None, arg(metavar="RUN")] = None,
) -> None:
    """Write an HTML page about a recorded fight: tick by tick, with what every skill saw, valued and chose.

    It is one file that needs no network. Of a simulated fight that the agent lost it names the last decision for which
    another action lives at least 2 s longer.

    Args:
        fight: Recorded fight, a Parquet file.
        html: HTML file to write.
        run: Run folder of the agent that fought, to try its other actions; an agent of the zoo is found by its name.
    """
    from soulsgraph.pages.fight_page import last_decision, write_fight_page
    from soulsgraph.recordings.files import read_recording

    recording = read_recording(fight)
    player = recording.header.player
    own = open_run(run) if run is not None else open_agent(player) if player in agent_names() else None
    check_writable(html.parent)
    output.precompile()
    if recording.header.result.outcome == "died" and own is not None:
        output.console.print("trying other actions in the last 30 s of the fight")
    search = last_decision(recording, own)
    write_fight_page(html, recording, search)
    size = html.stat().st_size
    found = None if search.found is None else search.found._asdict()
    plain = {"page": str(html), "bytes": size, "ticks": len(recording), "last_decision": found, "note": search.note}
    output.show(plain, f"written: {html}, {size / 1e6:.2f} MB, {len(recording):,} ticks")


_FIGHTS = 20


@dataclass(frozen=True)
class HandicapOptions:
    """Handicap of the player."""

    random: float = 0.0
    """Share of the decisions of every skill that are drawn at random, from 0 to 1."""
    delay: int = 0
    """Control ticks, of 0.1 s, by which the oracle acts late, from 0 to 20."""


_NO_HANDICAP = HandicapOptions()
Folder = Annotated[Positional[Path], arg(metavar="DIR")]


def record(
    who: Annotated[Positional[Path], arg(metavar="RUN|AGENT|oracle|probe")],
    out: Path,
    output: RunOptions = DEFAULT_RUN,
    episodes: int | None = None,
    seed: int = EVALUATION_SEED,
    fight: FightOptions = DEFAULT_FIGHT,
    handicap: HandicapOptions = _NO_HANDICAP,
    games: Path | None = None,
    after: Path | None = None,
    journal: Flag = False,
) -> None:
    """Record fights, each as a Parquet file with a row for each control tick.

    Fights that exist already are not played again. With `--journal` nothing is played: the fights are those in the
    journals that a fleet left in the run folder, with a row for each decision.

    Args:
        who: Run folder, name of an agent of the zoo, or a script, which fights in iudex-phase1 if no scenario is given:
            `oracle` knows the boss's hit windows; `probe` covers the distances, sides and moments that agents don't.
        out: Folder for the fights; existing files stay, and their fights are not played again.
        episodes: Fights to record; 20 if not given.
        seed: Seed of the fights: those that `evaluate` plays with it.
        games: TOML file of real-time games to fight in, side by side; the simulator if not given.
        after: Folder of earlier fights, for the probe: it plays more often what they leave uncertain about the boss.
        journal: Take the fights of a fleet's journals instead of new ones.
    """
    if journal:
        chosen = vars(fight) | vars(handicap) | {"episodes": episodes, "seed": seed != EVALUATION_SEED}
        chosen |= {"games": games, "after": after}
        _record_journals(who, out, output, [name for name, value in chosen.items() if value])
        return
    from soulsgraph.recordings.recording import ORACLE

    check_evaluation(seed, episodes := _FIGHTS if episodes is None else episodes)
    check_range("random", handicap.random, 0.0, 1.0)
    check_range("delay", handicap.delay, 0, 20)
    check_writable(out)
    fighter = _fighter(who, fight, handicap)
    if after is not None:
        fighter = _focused(fighter, after, games is None)
    if games is not None and fighter.name == ORACLE:
        raise SoulsGraphError("oracle: expected the simulator, whose future it knows, found --games; leave it out.")
    seeds = evaluation_seeds(seed, episodes)
    written = _record(fighter, seeds, out, games, output)
    _list(out, output, written, len(seeds) - len(written))


def _record(fighter: Fighter, seeds: Seeds, out: Path, games: Path | None, output: OutputOptions) -> list[Path]:
    """Record fights with a line of progress, and return their files."""
    from soulsgraph.recordings import recording

    places, written = None if games is None else load_games(games), list[Path]()
    output.precompile()
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


def _focused(fighter: Fighter, after: Path, simulated: bool) -> Fighter:
    """Return the probe with what earlier fights leave open.

    Raises:
        SoulsGraphError: for another player, or fights that `calibrate` refuses.
    """
    # Imported here: what is fitted for few is not loaded for all.
    from soulsgraph.calibrate.exploration import focus_after
    from soulsgraph.recordings.recording import PROBE, Fighter

    if fighter.name != PROBE:
        raise SoulsGraphError(f"--after: expected the probe, found {fighter.name}; leave it out.")
    focus = focus_after(after, fighter.scenario, simulated)
    return Fighter.probe(fighter.scenario, fighter.agent.scenario.start, fighter.random, focus)


def _fighter(who: Path, fight: FightOptions, handicap: HandicapOptions) -> Fighter:
    from soulsgraph.recordings.recording import ORACLE, SCRIPTED, Fighter

    name = str(who)
    scripted = name in SCRIPTED and not who.exists()
    if scripted and fight.randomize:
        raise SoulsGraphError(f"--randomize: expected none for the {name}, found {fight.randomize}; take --random.")
    scenario = fight.scenario_name or "iudex-phase1"
    if scripted and name == ORACLE:
        return Fighter.oracle(scenario, fight.start, handicap.random, handicap.delay)
    if handicap.delay:
        raise SoulsGraphError(f"--delay: expected none but for the oracle, found {handicap.delay}; leave it out.")
    if scripted:
        return Fighter.probe(scenario, fight.start, handicap.random)
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
    marked with the first tick that differs. At the end it says whether the fights suffice for `calibrate`.

    Args:
        folder: Folder with recorded fights, or one file.
    """
    from soulsgraph.recordings import check as checking
    from soulsgraph.recordings.coverage import CoverageCount
    from soulsgraph.recordings.files import recording_files

    paths, found, count = recording_files(folder), [], CoverageCount()
    output.precompile()
    with stage_progress("check", len(paths), output.display, unit="fights") as progress:
        for number, path in enumerate(paths, 1):
            found.append(checking.check_file(path, count.add))
            progress.update(number)
    counts = Counter(one.verdict for one in found)
    lines = [str(one) for one in found if one.verdict not in ("same", "whole")]
    counted = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    passed = not any(one.verdict in checking.WRONG for one in found)
    # For programs it is in the summary: this is a list of verdicts.
    suffices = () if output.json else count.coverage.lines()
    output.show([one.to_dict() for one in found], *lines, f"{len(found)} files: {counted}", *suffices, passed=passed)


def summarize(folder: Folder, output: OutputOptions = DEFAULT_OUTPUT) -> None:
    """Summarize recorded fights by scenario, source, player and versions: win rate, length, damage, flasks used.

    It also says whether they suffice for `calibrate`: what they lack or mix, and how often each boss move was seen.

    Args:
        folder: Folder with recorded fights, or one file.
    """
    from soulsgraph.recordings import check as checking
    from soulsgraph.recordings.coverage import CoverageCount

    count = CoverageCount()
    found = checking.find_recordings(folder, count.add)
    coverage, groups = count.coverage, checking.groups_of(found.headers)
    tables = [
        text_table(title, checking.SUMMARY_HEADINGS, [group.cells for group in alike])
        for title, alike in groupby(groups, lambda group: f"{group.scenario}, {group.source}")
    ]
    plain = {"groups": [group.to_dict() for group in groups], "problems": list(found.problems)}
    output.show(plain | {"calibrate": coverage.to_dict()}, *tables, *found.problems, *coverage.lines())


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
