"""`soulsgraph fleet`: what a person does for a fleet of game PCs, and what the doctor examines of its head."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group
from rich.live import Live
from rich.text import Text

from soulsgraph.cli.output import command_line, screen
from soulsgraph.results.tables import Table
from soulsgraph.runs.lineage import stages_made
from soulsgraph.runs.progress import draws, interruptible, silence_advice, stage_progress
from soulsgraph.zoo import open_run
from soulsgraph_clusters.fleet.gateway.status import FleetStatus, GameStatus, read_status
from soulsgraph_clusters.fleet.protocol import settings
from soulsgraph_clusters.fleet.protocol.certificates import (
    CERTIFICATE,
    ENDS_SOON,
    KEY,
    certified_hosts,
    make_certificate,
    read_certificate,
    read_identity,
)
from soulsgraph_clusters.fleet.protocol.messages import plain
from soulsgraph_clusters.fleet.protocol.settings import Fleet, load_fleet
from soulsgraph_clusters.fleet.protocol.task import project_digests, project_problem, projects_of_hello
from soulsgraph_clusters.fleet.protocol.tokens import Tokens, new_token, write_token_file
from soulsgraph_clusters.fleet.store import UNFINISHED
from soulsgraph_envs.core.config import to_table
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_policies.agents.projects import load_project

if TYPE_CHECKING:
    from soulsgraph.runs.plan import Stage
    from soulsgraph.runs.run_folder import RunFolder
    from soulsgraph_envs.games.doctor import Check, Checks
    from soulsgraph_policies.agents.library import SkillCard

_FLEET = Path("fleet.toml")
_SHOW_EVERY_S, _LOOK_EVERY_S = 1.0, 0.2
#: Of what a game says of itself.
_MOST_LETTERS = 200
#: A status that is older is that of a head that trains no more.
_OLD_S = 5.0
#: Phases of resets that the page names.
_PHASES = 2


def token(pc: str, /, *, fleet: Path = _FLEET, revoke: bool = False, out: Path | None = None) -> None:
    """Make a new token for a game PC, which replaces an older one, or revoke it; the head keeps only its hash.

    Args:
        pc: The PC's name: letters, digits, - and _.
        fleet: The fleet's file.
        revoke: Revoke the token; a head that runs refuses the PC from then on.
        out: New file of the token, of mode 600; NAME.token beside the fleet's file if not given.
    """
    tokens = Tokens(fleet.parent / load_fleet(fleet).settings.tokens)
    if revoke:
        if out is not None:
            raise SoulsGraphError("token: expected `revoke` or `out`, found both; leave one out.")
        tokens.revoke(pc)
        screen.show({"pc": pc, "revoked": True}, f"the token of {pc} is revoked: the head refuses it from now on")
        return
    file = _issue(tokens, pc, out or fleet.parent / f"{pc}.token")
    screen.show(
        {"pc": pc, "revoked": False, "token_file": str(file), "hashes": str(tokens.path)},
        f"token of {pc} in {file}; its hash in {tokens.path}",
        f"move it to {pc}, as a file that only the user of the game there may read (chmod 600), for "
        "`soulsgraph fleet host --token-file` there",
    )


def _issue(tokens: Tokens, pc: str, file: Path) -> Path:
    """Write a new token into a new file, which is there before an older token ends."""
    settings.check_name(pc)
    if file.exists():
        raise SoulsGraphError(f"{file}: expected no such file yet, found one; delete it, or name another by `out`.")
    token = new_token()
    # Of two commands at once the second finds the file of the first, whose token holds.
    write_token_file(file, token, replace=False)
    try:
        tokens.issue(pc, token)
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    return file


def certificates(hosts: tuple[str, ...], /, *, fleet: Path = _FLEET) -> None:
    """Make the head's certificate and its key beside the fleet's file; every PC needs a copy of the certificate.

    Args:
        hosts: Names and addresses by which PCs reach the head, such as head.lan 192.168.1.5.
        fleet: The fleet's file, which need not exist yet.
    """
    ends = make_certificate(fleet.parent, hosts)
    certificate, key = fleet.parent / CERTIFICATE, fleet.parent / KEY
    screen.show(
        {"certificate": str(certificate), "key": str(key), "ends": ends.isoformat()},
        f"the head's certificate is valid until {ends:%Y-%m-%d}; write into {fleet}:",
        f'certificate = "{certificate.name}"\nkey = "{key.name}"',
        f"copy {certificate} to every PC, in place of an older one; {key} stays here",
    )


def status(run: Path, /) -> None:
    """Show the state of each game of a run's fleet, every second until Ctrl-C; once outside a terminal and as JSON.

    Args:
        run: Run folder.
    """
    if screen.json or not draws(screen.console):
        found = _status(run)
        screen.show(to_table(found), _page(found))
        return
    with interruptible() as stopped, Live(console=screen.console, refresh_per_second=1) as page:
        while not stopped():
            try:
                page.update(_page(_status(run)))
            except SoulsGraphError as error:
                # A run that was just begun has nothing to show yet.
                page.update(Text(f"{error}\nlooking again every second until Ctrl-C"))
            time.sleep(_SHOW_EVERY_S)


def replay(folder: RunFolder, name: str) -> None:
    """Learn again what a stage learned from its journal, in this process, and compare it with the versions saved.

    It is named by a skill of the curriculum, by its own name, of which the newest is meant, or as its journal's folder
    is. On one kind of processor both have the same bits, whatever happened to the PCs, the network or the head.
    """
    # Imported here: it takes seconds, and nothing else needs it.
    from soulsgraph.runs.train import StageSetup, trained_artifact

    silence_advice()
    known: dict[str, tuple[str, Stage, list[SkillCard]]] = {}
    for key, (stage, made) in stages_made(folder).items():
        if folder.journal(key).is_dir():
            own = stage.skills if stage.scenario == folder.plan.scenario else ()
            known |= dict.fromkeys((*own, stage.name, key), (key, stage, made))
    if name not in known:
        raise UnknownNameError("finished stage with a journal", name, known)
    key, stage, made = known[name]
    setup = StageSetup(folder, stage, made)
    algorithm = setup.replay()
    began = algorithm.decisions
    try:
        with stage_progress(stage.name, stage.steps, screen.console, began) as progress:
            while not algorithm.finished:
                algorithm.train()
                progress.update(algorithm.decisions, None)
        same = True
        for part, card in zip(stage.parts, made, strict=True):
            saved, learning = folder.library.load(card.skill, card.version), algorithm.training[card.skill]
            weights = algorithm.weights(card.skill)
            learned = trained_artifact(setup, weights, learning.normalizer, learning.decisions, part)
            same = same and learned.card.normalizer == saved.card.normalizer
            same = same and learned.weights.keys() == saved.weights.keys()
            same = same and all(np.array_equal(saved.weights[key], values) for key, values in learned.weights.items())
    finally:
        algorithm.stop()
    found = "the same bits as" if same else "other bits than"
    # What lies before it was pruned.
    since = f", from its checkpoint at {began:,} decisions on," if began else ""
    versions = ", ".join(f"version {card.version} of {card.skill}" for card in made)
    screen.show(
        {"stage": key, "same": same, "from_decision": began},
        f"{name}: the journal{since} leads to {found} {versions}",
        passed=same,
    )


def _status(run: Path) -> FleetStatus:
    found = read_status(open_run(run).path / "journal")
    if found is None:
        raise SoulsGraphError(
            f"{run}: expected a run that games play for, found none yet; train it with `fleet` or `games`."
        )
    return found


def _page(found: FleetStatus) -> Group:
    """Return the games of a fleet as a table, and below it what they lost and what became of their decisions."""
    age_s = found.age_s
    seen = "now" if age_s < _OLD_S else f"{age_s:,.0f} s ago: no head trains here now"
    count = sum(game.connected for game in found.games)
    journal = f", {found.records:,} chunks in the journal" if found.attempt else ""
    title = f"{found.stage}: {count} game{'s' * (count != 1)}{journal}; seen {seen}"
    rows = []
    for game in found.games:
        state = game.state if game.connected else f"{game.state}, {game.silent_s:,.0f} s"
        ticks = f"{game.ticks_per_s:.1f} of {game.ideal_ticks_per_s:g}" if game.plays else "-"
        played = [ticks, f"{game.lateness_p99_ms:.1f} ms", _resets(game), f"{game.stale_ticks:.0f} ticks"]
        rows.append((game.name, state, *(played if game.connected else ["-"] * 4), f"{game.waiting_chunks}"))
    headings = ("game", "state", "ticks/s of ideal", "late p99", "in resets", "weights age", "waiting")
    table = Table("", headings, rows).to_rich(bare=True)
    counts = ", ".join(f"{key} {count:,}" for key, count in sorted(found.decisions.items()))
    lines = [*map(_line, found.games), f"decisions: {counts or 'none yet'}"]
    return Group(title, *([table] if found.games else []), *map(Text, lines))


def _line(game: GameStatus) -> str:
    """Return what a game's row has no room for."""
    if not game.is_game:
        return f"{game.name}: {game.note or game.state}"
    driver = f"{game.driver} x {game.lanes}" if game.lanes > 1 else game.driver
    unsent = game.lost.get(UNFINISHED, 0)
    ended = f" ({unsent:,} as a stage or a pause ended, not sent)" if unsent else ""
    said = [f"{game.name}: {driver}", f"{game.finished:,} decisions finished{ended}", f"lost: {_lost(game)}"]
    said += [f"soulsgraph {game.version or 'unknown'} at {game.address}"] if game.address else []
    return "; ".join([*said, game.note] if game.note else said)


def check_pcs(file: Path, wait_s: float) -> list[Check]:
    """Wait for the PCs that a fleet's file names, and check which of their games could play here; train nothing."""
    from soulsgraph_clusters.fleet.gateway.gateway import Preflight
    from soulsgraph_envs.games.doctor import Checks

    found, checks = load_fleet(file), Checks(f"PCs of {file}")
    if not found.settings.pcs:
        raise SoulsGraphError(f"{file}: expected the PCs to wait for, found none; name them in `pcs`.")
    named = [load_project(folder) for folder in screen.projects]
    projects = {one.project.name: one.digest for one in named} or project_digests()
    with settings.sole_head(found), ExitStack() as listening, interruptible() as stopped:
        preflight = Preflight(found)
        listening.callback(preflight.stop, "the head has seen who is there")
        until_s = time.monotonic() + wait_s
        screen.console.print(f"listening at {found.settings.listen} until every PC has answered, {wait_s:g} s at most")
        while preflight.missing and time.monotonic() < until_s and not stopped():
            time.sleep(_LOOK_EVERY_S)
        # A PC's further games follow its first.
        time.sleep(_SHOW_EVERY_S)
        games, refused, missing = preflight.games, preflight.connections.refusals, preflight.missing
    for name, hello in sorted(games.items()):
        there = projects_of_hello(hello)
        driver, lacks = (
            f"{hello.driver} x {hello.lanes}" if hello.lanes > 1 else hello.driver,
            project_problem(projects, there),
        )
        has = plain(f"{driver}, soulsgraph {hello.version}, projects: {', '.join(there) or 'none'}", _MOST_LETTERS)
        if not lacks:
            checks.ok(name, f"{has}; can play")
        elif named:
            checks.fail(name, f"{has}; {lacks}", "correct it on the PC")
        else:
            checks.warn(name, f"{has}; can play, but not every custom skill: {lacks}", "copy the project there")
    for who, (reason, _) in refused.items():
        checks.fail(who, reason, "correct it on the PC")
    for pc, reason in missing.items():
        checks.fail(pc, reason, "start its host, and look at its log")
    return checks.made


def drain(pc: str, fleet: Path, undo: bool) -> None:
    """Stop a PC's games for this head after the fight that each is in, or let them play again."""
    Tokens(fleet.parent / load_fleet(fleet).settings.tokens).drain(pc, not undo)
    line = f"{pc} plays again" if undo else f"the games of {pc} end after their fights, and play here no longer"
    screen.show({"pc": pc, "drained": not undo}, line)


def _resets(game: GameStatus) -> str:
    """Return the share of a game's time in resets, and the phases that took most of it."""
    shares = sorted(game.reset_share.items(), key=lambda item: -item[1])
    named = ", ".join(f"{phase} {share:.0%}" for phase, share in shares[:_PHASES] if share >= 0.01)
    return f"{sum(game.reset_share.values()):.0%}" + (f" ({named})" if named else "")


def _lost(game: GameStatus) -> str:
    """Return the decisions that never came but should have, and the episodes that were broken off, by reason."""
    counts = [f"{count:,} {reason}" for reason, count in game.lost.items() if count and reason != UNFINISHED]
    counts += [f"{count:,} episodes: {reason}" for reason, count in game.lost_episodes.items()]
    return ", ".join(counts) or "0"


_CORRECT = "correct the fleet's file"


def check_fleet(file: Path) -> list[Check]:
    """Check what a head needs before its game PCs dial it: its file, its certificate, and a token for every PC.

    Whether its ports are free, and whether others may read its secrets, a run that begins says itself.
    """
    # Imported here: no action needs the drivers of real-time games.
    from soulsgraph_envs.games.doctor import Checks

    checks = Checks(f"Fleet of {file}")
    with checks.failing("file", _CORRECT):
        fleet = load_fleet(file)
        checks.ok("file", f"{len(fleet.settings.pcs)} PCs named")
        _check_certificate(checks, fleet, file)
        _check_tokens(checks, fleet, file)
        plan = command_line("doctor", "--fleet", file, "--wait-s", 60)
        checks.skip(f"not asked here; {plan} waits for them and compares versions", "the PCs themselves")
    return checks.made


def _check_certificate(checks: Checks, fleet: Fleet, file: Path) -> None:
    own, name = fleet.settings, "certificate"
    if not own.certificate:
        checks.ok(name, "none: only this machine reaches the head")
        return
    remedy = f"make a new one: {command_line('fleet', 'certificates', 'HOST', '--fleet', file)}"
    with checks.failing(name, remedy):
        read_identity(own, fleet.folder)
        found = read_certificate(fleet.folder / own.certificate, remedy)
        ends, hosts = found.not_valid_after_utc, ", ".join(certified_hosts(found)) or "no host"
        lasts = ends - datetime.now(UTC) >= ENDS_SOON
        checks.expect(name, lasts, f"of {hosts}, until {ends:%Y-%m-%d}", remedy)


def _check_tokens(checks: Checks, fleet: Fleet, file: Path) -> None:
    with checks.failing("tokens", _CORRECT):
        known = Tokens(fleet.folder / fleet.settings.tokens).known
        if not fleet.settings.pcs:
            found = f"of {', '.join(known)}; every PC with one may play" if known else "none"
            checks.expect("tokens", bool(known), found, f"make one: {_token('NAME', file)}", "fail")
        for pc in fleet.settings.pcs or known:
            if pc not in known:
                checks.fail(pc, "no token", f"make it: {_token(pc, file)}")
            elif known[pc].drained:
                again = command_line("fleet", "pause", pc, "--undo", "--fleet", file)
                checks.warn(pc, "has a token, and is drained: it plays no longer", f"let it play: {again}")
            else:
                checks.ok(pc, "has a token")
        for pc in (name for name in known if fleet.settings.pcs and name not in fleet.settings.pcs):
            checks.warn(pc, "has a token, and is not in the file: refused", "add it to `pcs`, or revoke its token")


def _token(pc: str, file: Path) -> str:
    return command_line("fleet", "token", pc, "--fleet", file)
