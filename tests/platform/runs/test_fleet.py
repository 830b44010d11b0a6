"""A fleet by its commands: real processes of a head and a game PC, killed as a power cut would."""

import json
import os
import re
import signal
import time

import numpy as np
import pytest

from fakes.clusters import command_of
from fakes.fleet_in_folder import GAMES, FleetInFolder, read_records, require_once, require_replay
from fakes.waiting import until
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_clusters.fleet.gateway.status import read_status

pytestmark = pytest.mark.slow
#: Games whose stage is still trained when a busy machine comes to break it.
SLOWER = GAMES.replace("speed = 20.0", "speed = 8.0")
#: Games of which one needs so long for a small budget that the other is there before its end.
SLOW = GAMES.replace("speed = 20.0", "speed = 2.0")


def _kill_gateway(training):
    (gateway,) = [pid for pid in training.pids if "GatewayProcess" in " ".join(command_of(pid))]
    os.kill(gateway, signal.SIGKILL)


@pytest.fixture
def fleet(tmp_path):
    fleet = FleetInFolder(tmp_path)
    yield fleet
    fleet.close()


def test_a_pc_plays_and_its_journal_leads_to_the_skill_that_was_saved(fleet):
    fleet.write_games("attic", SLOW)
    host, training = fleet.host(), fleet.train(scale=0.15)
    assert training.wait() == 0, training.logs()
    assert "attic/1 joined" in training.logs()
    assert "attic/2 joined" in training.logs()
    assert RunFolder.open(fleet.run).library.load("camera", 1).card.training.steps == 3000
    require_once(fleet.records())
    require_replay(fleet)
    status = read_status(fleet.run / "journal")
    assert status.decisions["attic/journaled"] >= 3000
    # The last line counts what came while the stage ended.
    surplus, refused = status.decisions["attic/journaled"] - 3000, sum(status.decisions.values())
    refused -= status.decisions["attic/journaled"]
    account = training.logs().rpartition("of the decisions received ")[2].splitlines()[0]
    assert account.startswith(f"3,000 learned, {surplus:,} over budget")
    assert sum(int(one.replace(",", "")) for one in re.findall(r"([\d,]+) refused", account)) == refused
    came = sum(sum(record.chunk.decisions.values()) for record in fleet.records())
    assert came == sum(status.decisions.values())
    assert {(game.state, game.connected) for game in status.games} == {("stage over", False)}
    host.kill()


def test_a_killed_driver_goes_on_where_its_journal_and_checkpoint_are(fleet):
    fleet.write_games("attic", SLOWER)
    fleet.host()
    first = fleet.train(scale=1.0)
    checkpoints = fleet.run / "checkpoints" / "camera"
    until(lambda: list(checkpoints.glob("step-*")) or not first.running, "a checkpoint")
    assert first.running, first.logs()
    first.kill()
    before = len(fleet.records())
    second = fleet.train(scale=1.0)
    assert second.wait() == 0, second.logs()
    assert len(fleet.records()) >= before
    require_once(fleet.records())
    require_replay(fleet)


def test_killed_games_come_back_and_no_chunk_is_lost_or_doubled(fleet):
    fleet.write_games("attic", SLOWER)
    host, training = fleet.host(), fleet.train(scale=1.0)
    for _ in range(2):
        count = len(fleet.records())
        until(lambda count=count: len(fleet.records()) > count + 2 or not training.running, "chunks")
        assert training.running, training.logs()
        games = [pid for pid in host.pids if pid != host.pid]
        for pid in games:
            os.kill(pid, signal.SIGKILL)
    assert training.wait() == 0, training.logs()
    records = fleet.records()
    require_once(records)
    assert len({record.chunk.boot for record in records}) > 2
    require_replay(fleet)


def test_a_killed_gateway_is_started_again_and_loses_nothing_that_was_acknowledged(fleet):
    fleet.host()
    training = fleet.train(scale=1.0)
    until(lambda: len(fleet.records()) > 3 or not training.running, "chunks")
    assert training.running, training.logs()
    _kill_gateway(training)
    assert training.wait() == 0, training.logs()
    assert "the gateway was lost" in training.logs()
    assert "the gateway is back" in training.logs()
    require_once(fleet.records())
    require_replay(fleet)


def test_a_fleet_is_learned_from_without_ray_whatever_is_killed(fleet):
    fleet.write_games("attic", SLOWER)
    fleet.host()
    first = fleet.train(scale=0.5, more=["--no-ray"])
    until(lambda: len(fleet.records()) > 3 or not first.running, "chunks")
    assert first.running, first.logs()
    commands = [" ".join(command_of(pid)) for pid in first.pids]
    assert not [command for command in commands if "ray::" in command or "raylet" in command]
    first.kill()
    second = fleet.train(scale=0.5, more=["--no-ray"])
    assert second.wait() == 0, second.logs()
    require_once(fleet.records())
    require_replay(fleet)


def test_how_late_acknowledgements_are_while_a_driver_without_ray_learns(tmp_path, keep_result):
    """Print it with `-s`; `--keep-results` keeps it for the page. A chunk's file goes when it is acknowledged."""
    fleet = FleetInFolder(tmp_path, {"attic": '[[games]]\ndriver = "simulator"\nspeed = 3.0\n'})
    try:
        fleet.host()
        training, began_s, delays_s = fleet.train(scale=0.1, more=["--no-ray"]), dict[str, float](), list[float]()
        while training.running:
            there, now_s = {path.name for path in fleet.spool().glob("game-1/*.chunk")}, time.monotonic()
            began_s |= dict.fromkeys(there - began_s.keys(), now_s)
            delays_s += [now_s - began_s.pop(name) for name in [*began_s] if name not in there]
            time.sleep(0.01)
        assert training.wait() == 0, training.logs()
    finally:
        fleet.close()
    median_s, p99_s = np.percentile(delays_s, [50, 99])
    print(f"{len(delays_s)} chunks, median {median_s:.2f} s, p99 {p99_s:.2f} s")
    keep_result("windows/acknowledgements.json", {"chunks": len(delays_s), "median_s": median_s, "p99_s": p99_s})


def test_what_needs_ray_is_refused_without_it(fleet):
    for words, found in (
        (("--env-runners", 1), "found --fleet for a run of 1 env runners"),
        (("--gateways", 2), "--gateways: expected 1 where no Ray is used"),
        (("--address", "127.0.0.1:1"), "--no-ray: expected work that needs no Ray, found a cluster's address"),
    ):
        training = fleet.train(scale=0.1, more=["--no-ray", *words])
        assert training.wait() == 2
        assert found in training.logs()


def test_a_stage_that_nobody_plays_ends_with_one_line(fleet):
    file = fleet.folder / "fleet.toml"
    file.write_text("alone_for_s = 3.0\n" + file.read_text())
    training = fleet.train(scale=0.1)
    assert training.wait() == 2
    assert "expected a game that plays, found none for 3 s" in training.logs().splitlines()[-1]


def test_one_game_plays_a_curriculum_then_an_adaptation_and_an_evaluation(tmp_path):
    game = '[[games]]\ndriver = "simulator"\nspeed = 20.0\nlanes = 8\n'
    fleet = FleetInFolder(tmp_path, {"attic": game})
    try:
        fleet.host()
        words = ("--run", fleet.run, "--fleet", fleet.file, "--scale", 0.01, "--preset", "best")
        training = fleet.start("train", "curriculum", *words)

        def dodged():
            return any(not record.refused for record in read_records(fleet.run / "journal" / "dodge", "dodge"))

        def joined():
            # A machine that stands still for seconds may lose a game as silent, which comes back.
            logs = training.logs()
            return logs.count("attic/1 joined") - logs.count("attic/1 left: silent")

        until(lambda: dodged() or not training.running, "chunks of the fourth stage")
        assert joined() == 1, "it stayed connected"
        # One that is started again takes up the stage that it died in.
        _kill_gateway(training)
        assert training.wait() == 0, training.logs()
        run, journals = RunFolder.open(fleet.run), fleet.run / "journal"
        order = run.plan.skill_graph.order
        assert len(order) == 5
        for skill in order:
            assert run.library.load(skill, 1).card.training.steps > 0
            records = read_records(journals / skill, skill)
            require_once(records)
            assert {(record.pc, record.game) for record in records} == {("attic", "1")}
        assert joined() == 2
        code, text = fleet.call("fleet", "replay", fleet.run, order[-1])
        assert code == 0, text
        # It stays where it is for the next commands.
        words = ("--scenario", "iudex-phase2", "--skills", "dodge", "--budget", 300, "--fleet", fleet.file)
        code, text = fleet.call("adapt", fleet.run, *words)
        assert code == 0, text
        adapted = run.library.card("dodge", 2)
        assert (adapted.training.scenario, adapted.training.steps) == ("iudex-phase2", 300)
        assert "attic/1 joined" in text
        code, text = fleet.call("evaluate", fleet.run, "--episodes", 2, "--fleet", fleet.file, "--json")
        assert code == 0, text
        assert json.loads(text[text.index("{\n") :])["played_in"] == "attic/1 (simulator x 8)"
    finally:
        fleet.close()
