"""`soulsgraph fleet host` and `fleet pause`: on a game PC, play its games for a head that trains."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from soulsgraph.cli.games import report_checks
from soulsgraph.cli.output import command_line, screen
from soulsgraph.runs.progress import interruptible
from soulsgraph_clusters.fleet.actor import host as actor
from soulsgraph_clusters.fleet.actor import spool as spools
from soulsgraph_clusters.fleet.actor.host import HostOptions
from soulsgraph_envs.core.config import to_json
from soulsgraph_envs.core.extras import check_extra
from soulsgraph_envs.games.doctor import Check, Checks, examine
from soulsgraph_envs.games.link import GameSettings, load_games
from soulsgraph_policies.agents.projects import loaded_projects

#: Where a PC's games spool unless told otherwise.
DEFAULT_SPOOL = actor.state_folder()


def host(*, options: Annotated[HostOptions, Parameter(name="*")], check: bool = False) -> None:
    """Play this PC's games for a head that trains, until Ctrl-C.

    A game plays while a stage is trained, and waits in between. It continues while the head is away; what it played is
    kept here until the head has it. With `--json` each line of the log is an object: its time and text, and the game's
    number.

    Args:
        check: Examine this PC, its games and the way to the head, with the remedy beside each failure; play nothing.
    """
    if check:
        _check(options)
        return

    def log(line: str, **of: int) -> None:
        if screen.json:
            time = datetime.now(UTC).isoformat(timespec="milliseconds")
            # At once: whoever follows the log must not wait for a full buffer.
            print(to_json({"time": time, **of, "line": line}), flush=True)
        else:
            screen.console.print(f"game {of['game']}: {line}" if of else line)

    # Each game's process loads them again: what is wrong with one is known before anything starts.
    actor.load_projects(screen.projects, log)
    actor.checked_games(options)  # Before the compilation, which takes long.
    screen.precompile()
    with interruptible() as stopped:
        log(f"looking for the head at {options.head}; end it with Ctrl-C")
        actor.play_games(options, lambda game, line: log(line, game=game), stopped, screen.projects)
    log(f"stopped; what the head does not have yet waits in {options.spool}")


def pause(
    pc: str | None = None,
    /,
    *,
    spool: Path = DEFAULT_SPOOL,
    fleet: Path = Path("fleet.toml"),
    after_fight: bool = False,
    undo: bool = False,
) -> None:
    """Pause the games that this PC plays for a head, or at the head those of a PC; with `undo` they play again.

    On the PC their keys are released, and a person may play. At the head a PC's games end after the fight that each is
    in, and play there no longer.

    Args:
        pc: At the head: the name of the PC.
        spool: On the PC: the folder that `soulsgraph fleet host` was started with.
        fleet: At the head: the fleet's file.
        after_fight: On the PC: let each game end the fight that it is in.
        undo: Let them play again.
    """
    if pc is not None:
        check_extra("fleet pause", "train")
        # Imported here: a game PC need not have it.
        from soulsgraph.cli.fleet import drain

        drain(pc, fleet, undo)
        return
    actor.check_spool(spool)
    if undo:
        paused = spools.resume(spool)
        screen.show({"paused": "", "was_paused": paused}, "this PC's games play" if paused else "no pause was there")
        return
    when = spools.AFTER_FIGHT if after_fight else spools.AT_ONCE
    spools.pause(spool, when)
    playing = any(map(spools.in_use, spool.glob("*/game-*")))
    games = "this PC's games pause" if playing else "no game's process runs now; those that begin with this spool pause"
    go_on = command_line("fleet", "pause", "--undo")
    screen.show({"paused": when, "playing": playing}, f"{games} {when}; continue with: {go_on}")


def _check(options: HostOptions) -> None:
    own = Checks("Projects")
    with own.failing("projects", "correct the project, or leave it out"):
        actor.load_projects(
            screen.projects, lambda line: own.warn("projects", line, "correct the project, or uninstall it")
        )
    for name, loaded in loaded_projects().items():
        own.ok(name, f"code {loaded.digest[:16]} in {loaded.folder}")
    games = load_games(options.games)
    report_checks(own.made + _check_head(options, games) + examine(games))


def _check_head(options: HostOptions, games: Sequence[GameSettings]) -> list[Check]:
    """Check the token, and ask the head for every game."""
    head = Checks("Head")
    with head.failing("token", "ask for one at the head"):
        options.connection()
        # Windows has no modes, and its lists of access are not read.
        found = "is private" if os.name == "posix" else "can be read; let nobody but this user read it"
        head.ok("token", f"{options.token_file} {found}")
        # Together: a head that is not there would keep each of them waiting.
        with ThreadPoolExecutor(len(games)) as pool:
            answers = [pool.submit(actor.ask, options, str(number), game) for number, game in enumerate(games, 1)]
        for number, answer in enumerate(answers, 1):
            with head.failing(f"way of game {number}", "start training there"):
                head.ok(f"way of game {number}", f"{options.head} would let this PC play: {answer.result()}")
    return head.made
