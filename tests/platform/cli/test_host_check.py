"""`soulsgraph host`: with `--check` the spool and the head's answer for every game; its log; `pause` without a host."""

import json
import os
import signal
from datetime import UTC, datetime

import pytest

from fakes.clusters import Program
from fakes.fleet_here import CAMERA, GatewayHere
from fakes.fleet_in_folder import SOULSGRAPH
from fakes.waiting import until
from soulsgraph_clusters.fleet.protocol import messages
from soulsgraph_clusters.fleet.store import Spool


@pytest.fixture
def here(tmp_path):
    with GatewayHere(tmp_path, CAMERA) as here:
        yield here


@pytest.fixture
def check(here, tmp_path, command):
    """Return a function that examines a PC with games of these lanes; it returns the checks of the head."""
    games = tmp_path / "games.toml"

    def check(*lanes, head=here.address):
        games.write_text("".join(f'[[games]]\ndriver = "simulator"\nlanes = {each}\n' for each in lanes))
        words = ["fleet", "host", "--head", head, "--token-file", here.token_file(), "--games", games]
        words += ["--spool", tmp_path / "spool", "--check", "--json"]
        code, printed, _ = command(*words)
        made = json.loads(printed)["checks"]
        return code, {one["name"]: one for one in made if one["topic"] == "Head"}

    return check


def _status(found):
    return {name: one["status"] for name, one in found.items()}


def test_every_game_asks_the_head(check, here, tmp_path, monkeypatch):
    monkeypatch.setattr(messages, "MOST_LANES", 4)
    code, found = check(1, 4, 5)
    assert code == 1
    ways = {"way of game 1": "ok", "way of game 2": "ok", "way of game 3": "fail"}
    assert _status(found) == {"token": "ok", **ways}
    assert "lanes" in found["way of game 3"]["found"]
    assert here.journal.end == 0
    assert not (tmp_path / "spool").exists()
    assert check(1)[0] == 0


def test_a_head_that_is_away_is_a_failure_of_each_game(check):
    code, found = check(1, 1, head="127.0.0.1:9")
    assert code == 1
    assert [_status(found)[name] for name in ("way of game 1", "way of game 2")] == ["fail"] * 2


def test_a_pause_says_whether_a_host_plays(tmp_path, printed):
    words = ("fleet", "pause", "--spool", tmp_path)
    alone = printed(*words)
    spool = Spool(tmp_path / "attic" / "game-1")
    assert printed(*words) != alone
    spool.close()
    assert printed(*words) == alone


@pytest.mark.slow
def test_for_machines_each_line_of_the_log_is_an_object_with_its_time_and_game(here, tmp_path):
    here.publish()
    (tmp_path / "games.toml").write_text('[[games]]\ndriver = "simulator"\n' * 2)
    words = [
        "fleet",
        "host",
        "--head",
        here.address,
        "--token-file",
        here.token_file(),
        "--games",
        tmp_path / "games.toml",
    ]
    words += ["--spool", tmp_path / "spool", "--json"]
    host = Program("host", [SOULSGRAPH, *map(str, words)], os.environ, tmp_path)
    try:
        until(lambda: host.logs().count('"playing"') == 2 or not host.running, "two games that play")
        os.kill(host.pid, signal.SIGTERM)
        host.wait()
    finally:
        host.kill()
    log = [json.loads(line) for line in host.logs().splitlines()]
    games = {number: [one["line"] for one in log if one.get("game") == number] for number in (None, 1, 2)}
    assert "playing" in games[1]
    assert "playing" in games[2]
    assert here.address in games[None][0]
    assert str(tmp_path / "spool") in games[None][-1]
    times = [datetime.fromisoformat(one["time"]) for one in log]
    assert {one.tzinfo for one in times} == {UTC}
