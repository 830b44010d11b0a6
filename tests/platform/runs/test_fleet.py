"""A fleet by its commands: real processes of a head and game PCs, killed as a power cut would."""

import json
import os
import signal
import time

import numpy as np
import pytest

from fakes.clusters import command_of
from fakes.fleet_here import playing
from fakes.fleet_in_folder import GAMES, FleetInFolder, read_records, require_once, require_replay
from fakes.runs import of_stage
from fakes.waiting import until
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_clusters.fleet.actor.stream import Head
from soulsgraph_clusters.fleet.gateway.status import read_status
from soulsgraph_clusters.fleet.store import Spool
from soulsgraph_envs.games.link import GameSettings

pytestmark = pytest.mark.slow
#: Games whose stage is still trained when a busy machine comes to break it.
SLOWER = GAMES.replace("speed = 20.0", "speed = 8.0")


def _kill_gateway(training):
    (gateway,) = [pid for pid in training.pids if "GatewayProcess" in " ".join(command_of(pid))]
    os.kill(gateway, signal.SIGKILL)


@pytest.fixture
def fleet(tmp_path):
    fleet = FleetInFolder(tmp_path)
    yield fleet
    fleet.close()


def _further_chunks(fleet, training, more=2):
    count = fleet.chunks
    until(lambda: fleet.chunks > count + more or not training.running, "chunks")
    assert training.running, training.logs()


def test_whatever_is_killed_no_chunk_is_lost_or_doubled_and_the_journal_leads_to_the_skill(fleet):
    fleet.write_games("attic", SLOWER)
    host, first = fleet.host(), fleet.train(scale=3.0)
    _further_chunks(fleet, first)
    for pid in [pid for pid in host.pids if pid != host.pid]:
        os.kill(pid, signal.SIGKILL)
    _further_chunks(fleet, first)
    _kill_gateway(first)
    checkpoints = fleet.run / "checkpoints"
    until(lambda: list(checkpoints.glob("camera-*/step-*")) or not first.running, "a checkpoint")
    _further_chunks(fleet, first)
    first.kill()
    before = fleet.chunks
    second = fleet.train(scale=3.0)
    assert second.wait() == 0, second.logs()
    records = fleet.records()
    assert len(records) >= before
    assert len({record.boot for record in records}) > 2
    require_once(records)
    require_replay(fleet)
    assert RunFolder.open(fleet.run).library.load("camera", 1).card.training.steps == 60_000
    status = read_status(fleet.run / "journal")
    assert status.decisions["attic/journaled"] >= 60_000
    # The last line counts what came while the stage ended.
    account = second.logs().rpartition("of the decisions received ")[2]
    assert account.startswith("60,000 learned")
    assert {(game.state, game.connected) for game in status.games} == {("stage over", False)}


def test_a_fleet_is_learned_from_without_ray_whatever_is_killed(fleet):
    fleet.write_games("attic", SLOWER)
    fleet.host()
    first = fleet.train(scale=0.3, more=["--no-ray"])
    _further_chunks(fleet, first)
    commands = [" ".join(command_of(pid)) for pid in first.pids]
    assert not [command for command in commands if "ray::" in command or "raylet" in command]
    first.kill()
    second = fleet.train(scale=0.3, more=["--no-ray"])
    assert second.wait() == 0, second.logs()
    require_once(fleet.records())
    require_replay(fleet)


@pytest.mark.release
def test_how_late_acknowledgements_are_while_a_driver_without_ray_learns(tmp_path, keep_result):
    """Print it with `-s`; `--keep-results` keeps it for the page."""
    began_s, delays_s = dict[int, float](), list[float]()

    class Timed(Spool):
        def put(self, chunk):
            kept = super().put(chunk)
            began_s[chunk.sequence] = time.monotonic()
            return kept

        def acknowledge(self, boot, numbers):
            delays_s.extend(time.monotonic() - began_s[number] for number in numbers)
            super().acknowledge(boot, numbers)

    fleet = FleetInFolder(tmp_path)
    head, game = Head(f"127.0.0.1:{fleet.port}", tmp_path / "attic.token"), GameSettings(driver="simulator", speed=3.0)
    try:
        with playing(head, fleet.spool(), game, make_spool=Timed):
            training = fleet.train(scale=0.1, more=["--no-ray"])
            assert training.wait() == 0, training.logs()
    finally:
        fleet.close()
    assert delays_s, "chunks were acknowledged"
    median_s, p99_s = np.percentile(delays_s, [50, 99])
    print(f"{len(delays_s)} chunks, median {median_s:.2f} s, p99 {p99_s:.2f} s")
    keep_result("windows/acknowledgements.json", {"chunks": len(delays_s), "median_s": median_s, "p99_s": p99_s})


def test_one_game_plays_a_curriculum_then_an_adaptation_and_an_evaluation(tmp_path):
    game = '[[games]]\ndriver = "simulator"\nspeed = 20.0\nlanes = 8\n'
    fleet = FleetInFolder(tmp_path, {"attic": game})
    try:
        fleet.host()
        words = ("--run", fleet.run, "--fleet", fleet.file, "--scale", 0.01, "--preset", "best")
        training = fleet.start("train", "curriculum", *words)

        def dodged():
            status = fleet.status()
            return status is not None and status.stage == "dodge" and status.decisions.get("attic/journaled", 0) > 0

        until(lambda: dodged() or not training.running, "chunks of the fourth stage")
        # One that is started again takes up the stage that it died in.
        _kill_gateway(training)
        assert training.wait() == 0, training.logs()
        run, journals = RunFolder.open(fleet.run), fleet.run / "journal"
        order = run.plan.skill_graph.order
        assert len(order) == 5
        for skill in order:
            assert run.library.load(skill, 1).card.training.steps > 0
            records = read_records(of_stage(journals, skill), skill)
            require_once(records)
            assert {(record.pc, record.game) for record in records} == {("attic", "1")}
        logs = training.logs()
        # It stayed connected from stage to stage. One that stands still for seconds may be lost as silent, and a killed
        # gateway may not have said yet who joined.
        assert 1 <= logs.count("attic/1 joined") - logs.count("attic/1 left: silent") <= 2
        code, text = fleet.call("check", fleet.run, "--journal", order[-1])
        assert code == 0, text
        # It stays where it is for the next commands.
        words = ("--scenario", "iudex-phase2", "--skills", "dodge", "--budget", 300, "--fleet", fleet.file)
        code, text = fleet.call("adapt", fleet.run, *words)
        assert code == 0, text
        adapted = run.library.card("dodge", 2)
        assert (adapted.training.scenario, adapted.training.steps) == ("iudex-phase2", 300)
        code, text = fleet.call("evaluate", fleet.run, "--episodes", 2, "--fleet", fleet.file, "--json")
        assert code == 0, text
        assert json.loads(text[text.index("{\n") :])["played_in"] == "attic/1 (simulator x 8)"
    finally:
        fleet.close()
