"""What the doctor examines of a fleet's head: its file, tokens, certificate and addresses; it waits for no PC."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import grpc

from soulsgraph.cli.remedies import command_line
from soulsgraph_clusters.fleet.gateway.gateway import SERVER_OPTIONS, bind
from soulsgraph_clusters.fleet.protocol import security
from soulsgraph_clusters.fleet.protocol.settings import METRICS_READER, Fleet, load_fleet, read_drained, split_address
from soulsgraph_envs.core.access import family_of, join_address, read_private
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.games.doctor import Check, Checks

_CORRECT = "correct the fleet's file"


def check_fleet(file: Path) -> list[Check]:
    """Check what a head needs before its game PCs dial it."""
    checks = Checks(f"Fleet of {file}")
    fleet = None
    with checks.failing("file", _CORRECT):
        fleet = load_fleet(file)
        checks.ok("file", f"{len(fleet.settings.pcs)} PCs named")
    if fleet is None:
        checks.skip("needs the fleet's file", "listen", "certificate", "tokens", "metrics")
        return checks.made
    _check_listening(checks, fleet)
    _check_certificate(checks, fleet, file)
    _check_tokens(checks, fleet, file)
    _check_private_files(checks, fleet)
    _check_metrics(checks, fleet, file)
    plan = command_line("fleet", "plan", "--fleet", file)
    checks.skip(f"not asked here; {plan} waits for them and compares versions", "the PCs themselves")
    return checks.made


def _check_listening(checks: Checks, fleet: Fleet) -> None:
    remedy = "end the other program, which may be a run of this fleet, or correct `listen`"
    with checks.failing("listen", remedy), ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, options=SERVER_OPTIONS)
        try:
            bind(server, fleet.settings.listen, None)
        finally:
            server.stop(None).wait()
        checks.ok("listen", f"{fleet.settings.listen} is free")


def _check_certificate(checks: Checks, fleet: Fleet, file: Path) -> None:
    settings, name = fleet.settings, "certificate"
    if not settings.certificate:
        checks.ok(name, "none: only this machine reaches the head")
        return
    remedy = f"make it anew: {command_line('fleet', 'certificates', '--fleet', file, '--hosts', 'HOST')}"
    with checks.failing(name, remedy):
        chain, _ = security.read_pair(fleet.folder / settings.certificate, fleet.folder / settings.key, remedy)
        security.read_identity(settings, fleet.folder, settings.relays)
        ends, hosts = chain[0].not_valid_after_utc, ", ".join(security.certified_hosts(chain[0])) or "no host"
        lasts = ends - datetime.now(UTC) >= security.ENDS_SOON
        checks.expect(name, lasts, f"of {hosts}, until {ends:%Y-%m-%d}", remedy)


def _check_tokens(checks: Checks, fleet: Fleet, file: Path) -> None:
    drained: frozenset[str] = frozenset()
    with checks.failing("drained PCs", "delete the file, and drain PCs anew"):
        drained = read_drained(fleet.folder)
    with checks.failing("tokens", _CORRECT):
        known = security.Tokens(fleet.folder / fleet.settings.tokens).names
        of_pcs = [name for name in known if name != METRICS_READER]
        if not fleet.settings.pcs:
            found = f"of {', '.join(of_pcs)}; every PC with one may play" if of_pcs else "none"
            checks.expect("tokens", bool(of_pcs), found, f"make one: {_token('NAME', file)}", "fail")
        for pc in fleet.settings.pcs or of_pcs:
            if pc not in known:
                checks.fail(pc, "no token", f"make it: {_token(pc, file)}")
            elif pc in drained:
                again = command_line("fleet", "drain", pc, "--undo", "--fleet", file)
                checks.warn(pc, "has a token, and is drained: it plays no longer", f"let it play: {again}")
            else:
                checks.ok(pc, "has a token")
        for pc in (name for name in of_pcs if fleet.settings.pcs and name not in fleet.settings.pcs):
            checks.warn(pc, "has a token, and no table in the file: refused", f"add [pcs.{pc}], or revoke its token")


def _token(pc: str, file: Path) -> str:
    return command_line("fleet", "token", pc, "--fleet", file)


def _check_private_files(checks: Checks, fleet: Fleet) -> None:
    """Check that nobody else may read keys and tokens beside the file; the head's own key came with its certificate."""
    for path in sorted(fleet.folder.glob("*.token")):
        with checks.failing(path.name, "delete it, and issue another token"):
            security.read_token_file(path)
            checks.ok(path.name, "only its owner may read it")
    key = fleet.folder / "ca.key"
    if key.exists():
        with checks.failing(key.name, f"chmod 600 {key}"):
            read_private(key, "private key", "restore it")
            checks.ok(key.name, "only its owner may read it")


def _check_metrics(checks: Checks, fleet: Fleet, file: Path) -> None:
    address, name = fleet.settings.metrics, "metrics"
    if not address:
        checks.skip("off; `metrics` in the fleet's file turns them on", name)
        return
    host, port = split_address(address)
    with checks.failing(name, "end the other program, which may be a run of this fleet, or correct `metrics`"):
        _check_port(host, port)
        if (
            fleet.settings.certificate
            and METRICS_READER not in security.Tokens(fleet.folder / fleet.settings.tokens).names
        ):
            checks.fail(name, f"{address} is free, and no token reads them", f"make it: {_token(METRICS_READER, file)}")
            return
        checks.ok(name, f"{address} is free")


def _check_port(host: str, port: int) -> None:
    """Listen for a moment as the metrics' server does.

    Raises:
        SoulsGraphError: if that fails.
    """
    try:
        with socket.create_server((host, port), family=family_of(host)):
            pass
    except OSError as error:
        raise SoulsGraphError(
            f"metrics: expected to listen at {join_address(host, port)}, found: {error.strerror or error}; end the "
            "other program, which may be a run of this fleet, or correct `metrics`."
        ) from error
