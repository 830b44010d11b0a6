"""`soulsgraph host`: on a game PC, play its games for a head that trains."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from tyro.conf import UseAppendAction, arg

from soulsgraph.cli.doctor import show
from soulsgraph.cli.output import DEFAULT_OUTPUT, Flag, OutputOptions
from soulsgraph.cli.remedies import command_line, in_commands
from soulsgraph.runs.progress import interruptible
from soulsgraph.runs.workers import precompile_playing
from soulsgraph_clusters.fleet.actor.host import (
    HostOptions,
    ask,
    check_spool,
    checked_games,
    load_projects,
    play_games,
    state_folder,
)
from soulsgraph_clusters.fleet.actor.spool import AFTER_FIGHT, AT_ONCE, free_mb, in_use
from soulsgraph_clusters.fleet.actor.spool import pause as pause_games
from soulsgraph_clusters.fleet.actor.spool import resume as resume_games
from soulsgraph_envs.games.doctor import Check, Checks
from soulsgraph_envs.games.link import GameSettings, load_games

#: Where a PC's games spool unless told otherwise.
DEFAULT_SPOOL = state_folder()


#: May be given several times.
Projects = Annotated[UseAppendAction[tuple[Path, ...]], arg(metavar="DIR")]


def host(
    options: HostOptions, output: OutputOptions = DEFAULT_OUTPUT, check: Flag = False, project: Projects = ()
) -> None:
    """Play this PC's games for a head that trains, until Ctrl-C.

    A game plays while a stage is trained, and waits in between. It goes on while the head is away; what it played is
    kept here until the head has it.

    Args:
        check: Examine this PC, its games and the way to the head, with the remedy beside each failure; play nothing.
        project: Folder of a project whose own skills this PC may play, once for each; installed ones are known already.
    """
    if check:
        _check(options, output, project)
        return

    def say(line: str) -> None:
        output.console.print(in_commands(line, "host"), soft_wrap=True)

    # Each game's process loads them again: what is wrong with one is known before anything starts.
    load_projects(project, say)
    checked_games(options)  # Before the compilation, which takes long.
    precompile_playing(output.console)
    with interruptible() as stopped:
        output.console.print(f"looking for the head at {options.head}; end it with Ctrl-C", soft_wrap=True)
        play_games(options, say, stopped, project)
    output.console.print(f"stopped; what the head does not have yet waits in {options.spool}", soft_wrap=True)


def pause(output: OutputOptions = DEFAULT_OUTPUT, spool: Path = DEFAULT_SPOOL, after_fight: Flag = False) -> None:
    """Pause the games that this PC plays for a head: their keys are released, and a person may play.

    Args:
        spool: The folder that `soulsgraph host` was started with.
        after_fight: Let each game end the fight that it is in.
    """
    when = AFTER_FIGHT if after_fight else AT_ONCE
    check_spool(spool)
    pause_games(spool, when)
    playing = any(map(in_use, spool.glob("game-*")))
    games = "this PC's games pause" if playing else "no game's process runs now; those that begin with this spool pause"
    output.show({"paused": when, "playing": playing}, f"{games} {when}; go on with: {command_line('resume')}")


def resume(output: OutputOptions = DEFAULT_OUTPUT, spool: Path = DEFAULT_SPOOL) -> None:
    """Let this PC's games play for their head again.

    Args:
        spool: The folder that `soulsgraph host` was started with.
    """
    check_spool(spool)
    paused = resume_games(spool)
    output.show({"paused": "", "was_paused": paused}, "this PC's games play" if paused else "no pause was there")


def _check(options: HostOptions, output: OutputOptions, projects: Sequence[Path]) -> None:
    # Imported here: playing needs nothing of it.
    from soulsgraph_envs.games.doctor import examine
    from soulsgraph_policies.agents.projects import loaded_projects

    own = Checks("Projects")
    with own.failing("projects", "correct the project, or leave it out"):
        load_projects(projects, lambda line: own.warn("projects", line, "correct the project, or uninstall it"))
    for name, loaded in loaded_projects().items():
        own.ok(name, f"code {loaded.digest[:16]} in {loaded.folder}")
    games = load_games(options.games)
    checks = own.made + _check_head(options, games) + _check_spool(options, len(games)) + examine(games)
    passed = all(one.passed for one in checks)
    show(checks, output.console)
    output.show({"passed": passed, "checks": [asdict(one) for one in checks]})
    if not passed:
        sys.exit(1)


def _check_head(options: HostOptions, games: Sequence[GameSettings]) -> list[Check]:
    """Check the token, and ask the head for every game, at each of its addresses."""
    head = Checks("Head")
    with head.failing("token", "ask for one at the head"):
        options.connection()
        # Windows has no modes, and its lists of access are not read.
        found = "is private" if os.name == "posix" else "can be read; let nobody but this user read it"
        head.ok("token", f"{options.token_file} {found}")
        asked = [(address, number) for address in options.addresses for number in range(1, len(games) + 1)]
        # Together: a head that is not there would keep each of them waiting.
        with ThreadPoolExecutor(len(asked)) as pool:
            answers = [pool.submit(ask, options, address, str(n), games[n - 1]) for address, n in asked]
        for (address, number), answer in zip(asked, answers, strict=True):
            with head.failing(f"way of game {number}", "start training there"):
                head.ok(f"way of game {number}", f"{address} would let this PC play: {answer.result()}")
    return head.made


def _check_spool(options: HostOptions, games: int) -> list[Check]:
    """Check that what was played can be kept: a folder to write to, room on its disk, no other host that uses it."""
    spool, wanted_mb = Checks("Spool"), games * options.spool_mb
    with spool.failing("folder", "name another folder for the spool"):
        found_mb = free_mb(options.spool)
        spool.ok("folder", f"{options.spool} can be written")
        remedy = "free some, or let games keep less: with a full disk play goes on, and what has no room is lost"
        spool.expect("room", found_mb >= wanted_mb, f"{found_mb:,} MB free, {wanted_mb:,} at most needed", remedy)
        used = [str(game) for game in range(1, games + 1) if in_use(options.spool / f"game-{game}")]
        found = f"game {', '.join(used)} is played by a host now" if used else "used by no other host"
        spool.expect("use", not used, found, "end that host before another begins, or name a spool of its own for it")
    return spool.made
