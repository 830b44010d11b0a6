"""`soulsgraph fleet`: from an empty folder to a head's credentials and a PC's token, and the state of a run's games."""

from __future__ import annotations

import io
import json
import re
import signal
import stat
import tomllib
from pathlib import Path

import pytest

from soulsgraph.cli import main
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_clusters.fleet.protocol.certificates import channel_credentials, credentials_of, read_identity
from soulsgraph_clusters.fleet.protocol.settings import load_fleet
from soulsgraph_clusters.fleet.protocol.tokens import Tokens, read_token_file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a fleet's file that names nothing but its tokens."""
    path = tmp_path / "fleet.toml"
    path.write_text('tokens = "hashes.json"\n')
    return path


def test_a_token_is_in_its_file_and_nowhere_else_until_it_is_revoked(file, printed, refuse):
    shown = printed("fleet", "token", "pc-1", "--fleet", file)
    path, tokens = file.with_name("pc-1.token"), Tokens(file.with_name("hashes.json"))
    token = read_token_file(path)
    assert str(path) in shown
    assert token not in shown + file.with_name("hashes.json").read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # A file of a token is never overwritten, and the older token stays then.
    assert "pc-1.token" in refuse("fleet", "token", "pc-1", "--fleet", file)
    assert "hashes.json" in refuse("fleet", "token", "pc-1", "--fleet", file, "--out", file.with_name("hashes.json"))
    assert tokens.holder_of(token) == ("pc-1", False)
    made = json.loads(printed("fleet", "token", "other", "--fleet", file, "--out", file.with_name("t"), "--json"))
    other = read_token_file(Path(made["token_file"]))
    assert other not in str(made)
    shown = json.loads(printed("fleet", "token", "other", "--revoke", "--fleet", file, "--json"))
    assert shown == {"pc": "other", "revoked": True}
    assert tokens.holder_of(other) == ("", False)


def test_a_path_is_printed_where_the_outputs_encoding_lacks_its_letters(file, monkeypatch):
    written = io.BytesIO()
    # As Windows has it for an output that is no terminal.
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="cp1252"))
    words = ("fleet", "token", "attic", "--fleet", str(file), "--out", "Jürgen 渡辺")
    monkeypatch.setattr("sys.argv", ["soulsgraph", *words])
    monkeypatch.chdir(file.parent)
    main()
    assert r"Jürgen \u6e21\u8fba" in written.getvalue().decode("cp1252")


def test_the_lines_that_certificates_prints_make_a_fleet_that_others_reach(tmp_path, printed):
    file, words = tmp_path / "fleet.toml", ("fleet", "certificates", "--fleet", tmp_path / "fleet.toml")
    shown = printed(*words, "head.lan", "192.168.1.5")
    lines = [line for line in shown.splitlines() if " = " in line]
    assert tomllib.loads("\n".join(lines)) == {"certificate": "head.pem", "key": "head.key"}
    file.write_text("\n".join(['listen = "0.0.0.0:7443"', *lines]))
    assert credentials_of(read_identity(load_fleet(file).settings, tmp_path)) is not None
    assert channel_credentials(tmp_path / "head.pem") is not None


def test_status_shows_where_a_games_time_goes_and_what_it_lost(tmp_path, monkeypatch, printed):
    run = RunFolder.planned(tmp_path / "run", Plan())
    run.begin()
    game = {"name": "attic/1", "driver": "memory", "lanes": 1, "state": "playing", "note": "", "stale_ticks": 12.0}
    game |= {"ticks_per_s": 15.0, "ideal_ticks_per_s": 30.0, "silent_s": 0.2, "waiting_chunks": 1, "finished": 500}
    game |= {"lateness_p99_ms": 4.25, "lost": {"doubtful": 30, "unfinished": 70}, "lost_episodes": {"it is gone": 2}}
    game |= {"version": "0.2.0", "address": "fe80::7", "reset_share": {"reload": 0.25, "aim": 0.1, "place": 0.05}}
    gone = game | {"name": "attic/2", "state": "lost", "note": "silent for 5 s", "silent_s": 1234.0, "connected": False}
    absent = dict.fromkeys(
        ("stale_ticks", "ticks_per_s", "ideal_ticks_per_s", "lanes", "waiting_chunks", "finished"), 0
    )
    absent |= {"name": "den", "driver": "", "state": "refused", "note": "why", "silent_s": 2.0, "connected": False}
    found = {"stage": "camera", "attempt": "a", "written": 1.0, "weights_version": 3, "records": 40}
    found["games"] = [game, gone, absent, game | {"name": "attic/3", "state": "paused"}]
    file = run.path / "journal" / "camera" / "status.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(found))
    monkeypatch.setenv("COLUMNS", "300")
    shown = printed("fleet", "status", run.path)
    # What a paused game plays a second is a mean, and would seem to be now.
    for line in (
        r"attic/3 +paused +- ",
        r"attic/1 +playing +15\.0 of 30 ",
        r"attic/2 +lost, 1,234 s",
        r"den +refused, 2 s",
    ):
        assert re.search(line, shown), line
    for part in ("40% (reload 25%, aim 10%)", "70 as a stage", "2 episodes", "silent for 5 s"):
        assert part in shown, part


def test_a_live_status_waits_for_a_run_that_is_not_there_yet(tmp_path, monkeypatch, printed):
    monkeypatch.setattr("soulsgraph.cli.fleet.draws", lambda _: True)
    looks = iter([lambda: None, lambda: signal.raise_signal(signal.SIGINT)])
    monkeypatch.setattr("soulsgraph.cli.fleet.time.sleep", lambda _: next(looks)())
    assert "no such folder" in printed("fleet", "status", tmp_path / "run")
    assert not [*looks]


def test_a_pc_is_drained_and_one_that_is_unknown_is_not(file, printed, refuse):
    printed("fleet", "token", "attic", "--fleet", file)
    assert "attic" in refuse("fleet", "pause", "cellar", "--fleet", file)
    printed("fleet", "pause", "attic", "--fleet", file)
    tokens = Tokens(file.with_name("hashes.json"))
    assert tokens.known["attic"].drained
    printed("fleet", "pause", "attic", "--undo", "--fleet", file)
    assert not tokens.known["attic"].drained
