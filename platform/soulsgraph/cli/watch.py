"""The command that shows an agent's fights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from re import fullmatch
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional

from soulsgraph.cli.options import DEFAULT_FIGHT, FightOptions
from soulsgraph.cli.output import DEFAULT_RUN, Flag, OutputOptions, RunOptions
from soulsgraph.runs.evaluate import EVALUATION_SEED, check_evaluation
from soulsgraph.runs.plan import check_range
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_envs.core.files import check_writable

if TYPE_CHECKING:
    from soulsgraph.watch.fights import Fight

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
    folder: Annotated[Positional[Path], "RUN"],
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
    training fights by its newest checkpoint, a newer one in every fight.

    Args:
        folder: Run folder, or the name of an agent of the zoo; `RUN@dodge=v1,movement=v2` plays these versions of its
            skills in place of those in play.
        side_by_side: Another run folder or agent, or the same with other versions, shown beside the first in fights of
            the same seeds.
        seed: Seed of the fights: those that `evaluate` plays with it.
        episodes: Fights to show, one after another; until the window is closed if not given, one in a file.
        seconds: Seconds of the game to show of each fight at most; 120 if not given.
    """
    # Imported here: a help text need not wait for it.
    from soulsgraph.watch.fights import AgentSource, play_fights
    from soulsgraph.zoo import open_run

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
            output.console.print(str(fight), soft_wrap=True)
        yield played


def _show(fights: Fights, beside: int, only_fight: bool, output: OutputOptions) -> None:
    from soulsgraph.runs.workers import precompile_playing
    from soulsgraph.watch.showing import FIGHT_SIZE, SIZE, FightWindow

    height, width = FIGHT_SIZE if only_fight else SIZE
    with closing(FightWindow((height, width * beside), TICK_S)) as window:
        window.say("making the first fight ready")
        precompile_playing(output.console)
        for played in fights:
            if not window.play(played, only_fight):
                return


def _write(kind: str, path: Path, fights: Fights, only_fight: bool, output: OutputOptions) -> None:
    from soulsgraph.runs.workers import precompile_playing
    from soulsgraph.watch.showing import WRITERS, frames, import_ffmpeg

    check_writable(path.parent)
    if kind == "mp4":
        import_ffmpeg()
    precompile_playing(output.console)
    WRITERS[kind](path, (picture for played in fights for picture in frames(played, only_fight)), TICK_S)
