"""`soulsgraph fleet`: from an empty folder to a head's credentials and a PC's token."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from fakes.waiting import PATIENCE_S
from soulsgraph.cli import main
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_clusters.fleet.protocol.security import (
    Tokens,
    channel_credentials,
    credentials_of,
    make_certificates,
    read_identity,
    read_token_file,
)
from soulsgraph_clusters.fleet.protocol.settings import load_fleet, read_drained


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a fleet's file that names nothing but its tokens."""
    path = tmp_path / "fleet.toml"
    path.write_text('tokens = "hashes.json"\n')
    return path


def fleet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> str:
    monkeypatch.setattr("sys.argv", ["soulsgraph", "fleet", *map(str, words)])
    main()
    return capsys.readouterr().out


def test_a_token_is_in_its_file_and_nowhere_else(file, monkeypatch, capsys):
    shown = fleet(monkeypatch, capsys, "token", "pc-1", "--fleet", file)
    path = file.with_name("pc-1.token")
    token = read_token_file(path)
    assert str(path) in shown
    assert token not in shown + file.with_name("hashes.json").read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Tokens(file.with_name("hashes.json")).name_of(token) == "pc-1"


def test_a_path_is_printed_where_the_outputs_encoding_lacks_its_letters(file, monkeypatch):
    written = io.BytesIO()
    # As Windows has it for an output that is no terminal.
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="cp1252"))
    monkeypatch.setattr(
        "sys.argv", ["soulsgraph", "fleet", "token", "attic", "--fleet", str(file), "--out", "Jürgen 渡辺"]
    )
    monkeypatch.chdir(file.parent)
    main()
    assert r"in Jürgen \u6e21\u8fba;" in written.getvalue().decode("cp1252")


def test_a_revoked_token_has_no_name(file, monkeypatch, capsys):
    made = json.loads(fleet(monkeypatch, capsys, "token", "pc", "--fleet", file, "--out", file.parent / "t", "--json"))
    token = read_token_file(Path(made["token_file"]))
    assert token not in str(made)
    shown = json.loads(fleet(monkeypatch, capsys, "token", "pc", "--revoke", "--fleet", file, "--json"))
    assert shown == {"pc": "pc", "revoked": True}
    assert Tokens(file.with_name("hashes.json")).name_of(token) is None


def test_the_lines_that_certificates_prints_make_a_fleet_that_others_reach(tmp_path, monkeypatch, capsys):
    file = tmp_path / "fleet.toml"
    shown = fleet(monkeypatch, capsys, "certificates", "--fleet", file, "--hosts", "head.lan", "192.168.1.5")
    lines = [line for line in shown.splitlines() if " = " in line]
    assert tomllib.loads("\n".join(lines)) == {"certificate": "head.pem", "key": "head.key"}
    file.write_text("\n".join(['listen = "0.0.0.0:7443"', *lines]))
    assert credentials_of(read_identity(load_fleet(file).settings, tmp_path)) is not None
    assert channel_credentials(tmp_path / "ca.pem") is not None
    assert f"copy {tmp_path / 'ca.pem'} to every PC" in shown
    again = fleet(monkeypatch, capsys, "certificates", "--fleet", file, "--hosts", "head.lan")
    assert "PCs that have a copy need no other" in again


def test_a_token_file_is_never_overwritten_and_an_older_token_stays_then(file, monkeypatch, capsys, refuse):
    fleet(monkeypatch, capsys, "token", "pc", "--fleet", file)
    token = read_token_file(file.with_name("pc.token"))
    assert "expected no such file yet, found one" in refuse("fleet", "token", "pc", "--fleet", file)
    assert "hashes.json" in refuse("fleet", "token", "pc", "--fleet", file, "--out", file.with_name("hashes.json"))
    assert "expected a place to write to" in refuse("fleet", "token", "pc", "--fleet", file, "--out", file / "t")
    assert Tokens(file.with_name("hashes.json")).name_of(token) == "pc"


def test_gateways_that_cannot_be_are_refused_before_anything_starts(file, tmp_path, refuse):
    make_certificates(tmp_path, ["10.0.0.1"])
    train = ("train", "camera", "--run", tmp_path / "run", "--gateways", "2")
    assert "--gateways: expected a fleet that it is for, found none" in refuse(*train)
    assert "gateways: expected 1 to 1, as the fleet's file has addresses, found 2" in refuse(*train, "--fleet", file)
    file.write_text('relays = ["10.0.0.3:7443"]\ncertificate = "head.pem"\nkey = "head.key"\n')
    assert "expected a certificate that holds for 10.0.0.3" in refuse(*train, "--fleet", file)
    reproduced = refuse("reproduce", "--out", tmp_path / "paper", "--gateways", "2")
    assert "reproduce: expected the simulator alone, found --games, --fleet, --gateways or --no-ray" in reproduced
    assert not (tmp_path / "run").exists()


def test_bad_input_is_one_line(file, refuse):
    assert "expected a name of 1 to 40 letters" in refuse("fleet", "token", "pc 1", "--fleet", file)
    assert "expected a PC with a token (none), found 'pc'" in refuse(
        "fleet", "token", "pc", "--revoke", "--fleet", file
    )
    both = refuse("fleet", "token", "pc", "--revoke", "--out", "t", "--fleet", file)
    assert "expected --revoke or --out, found both" in both
    assert "none.toml: expected a readable TOML file" in refuse(
        "fleet", "token", "pc", "--fleet", file.with_name("none.toml")
    )
    hosts = refuse("fleet", "certificates", "--fleet", file, "--hosts", "head.lan:7443")
    assert "expected a name or address by which PCs reach the head, found 'head.lan:7443'" in hosts
    assert "by which PCs reach the head, found none" in refuse("fleet", "certificates", "--fleet", file, "--hosts")
    assert "expected 1 to 3650 days" in refuse(
        "fleet", "certificates", "--fleet", file, "--hosts", "head.lan", "--days", "0"
    )
    file.write_text('listen = "0.0.0.0:7443"\n')
    assert "expected a certificate and its key to listen on 0.0.0.0" in refuse("fleet", "token", "pc", "--fleet", file)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_status_shows_where_a_games_time_goes_and_what_it_lost(tmp_path, monkeypatch, capsys):
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
    shown = fleet(monkeypatch, capsys, "status", run.path, "--once")
    assert "40% (reload 25%, aim 10%)" in shown
    assert "500 decisions finished (70 as a stage or a pause ended, not sent); lost: 30 doubtful, 2 epi" in shown
    assert "2 episodes: it is gone" in shown
    assert "soulsgraph 0.2.0 at fe80::7" in shown
    assert "4.2 ms" in shown
    assert "no head trains here now" in shown
    assert "camera: 2 games" in shown
    # What it plays a second is a mean, and would seem to be now.
    assert re.search(r"attic/3 +paused +- +4\.2 ms", shown)
    assert re.search(r"attic/1 +playing +15\.0 of 30 ", shown)
    assert "lost, 1,234 s" in shown
    assert "silent for 5 s" in shown
    assert "refused, 2 s" in shown
    assert "den: why" in shown


def test_a_head_whose_clock_is_another_trains_if_its_status_is_written_again(tmp_path, monkeypatch, capsys):
    run = RunFolder.planned(tmp_path / "run", Plan())
    run.begin()
    file = run.path / "journal" / "camera" / "status.json"
    file.parent.mkdir(parents=True)

    def write(_=None):
        written = {"stage": "camera", "attempt": "a", "weights_version": 3, "records": 40, "boot": "another"}
        file.write_text(json.dumps(written | {"written": time.time() - 60.0}))

    write()
    monkeypatch.setattr("soulsgraph.cli.fleet.time.sleep", write)
    assert "seen now" in fleet(monkeypatch, capsys, "status", run.path, "--once")
    monkeypatch.setattr("soulsgraph.cli.fleet.time.sleep", lambda _: None)
    assert re.search(r"seen \d+ s ago: no head", fleet(monkeypatch, capsys, "status", run.path, "--once"))


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_live_status_waits_for_a_run_that_is_not_there_yet(tmp_path):
    ours, terminal = os.openpty()
    words = ["-c", "from soulsgraph.cli import main; main()", "fleet", "status", str(tmp_path / "run")]
    shown, environment = b"", os.environ | {"COLUMNS": "200", "TERM": "xterm"}
    with subprocess.Popen([sys.executable, *words], stdout=terminal, stderr=terminal, env=environment) as process:
        os.close(terminal)
        while b"looking again" not in shown:
            shown += os.read(ours, 10_000)
        assert b"expected the folder of a run, found no such folder" in shown
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    os.close(ours)


def test_a_pc_that_is_unknown_is_not_drained_and_the_known_ones_are_named_without_the_metrics_reader(
    file, monkeypatch, capsys, refuse
):
    for name in ("attic", "metrics"):
        fleet(monkeypatch, capsys, "token", name, "--fleet", file)
    for name in ("cellar", "metrics"):
        assert f"expected a PC with a token (attic), found {name}" in refuse(
            "fleet", "drain", name, "--fleet", str(file)
        )
    fleet(monkeypatch, capsys, "drain", "attic", "--fleet", file)
    assert read_drained(file.parent) == {"attic"}


def test_a_replay_of_a_stage_that_is_not_finished_says_so(tmp_path, refuse):
    run = RunFolder.planned(tmp_path / "run", Plan())
    run.begin()
    line = refuse("fleet", "replay", run.path, "camera")
    assert "camera: expected a stage that is finished" in line
    assert "continue with the run first" in line
    assert "damage" not in line
