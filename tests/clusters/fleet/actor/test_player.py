"""A game that plays for a gateway: paused by a person, drained by the head, broken, and back again."""

import time
from dataclasses import replace

import numpy as np
import pytest

from fakes.fleet_here import CAMERA, GatewayHere, playing, random_weights
from fakes.realtime import FakeLink
from fakes.stored import message
from fakes.waiting import until
from soulsgraph_clusters.fleet.actor import player
from soulsgraph_clusters.fleet.actor.spool import AFTER_FIGHT, AT_ONCE, pause, resume
from soulsgraph_clusters.fleet.actor.stream import Head
from soulsgraph_clusters.fleet.gateway import connections
from soulsgraph_clusters.fleet.gateway import gateway as module
from soulsgraph_clusters.fleet.gateway.gateway import Preflight
from soulsgraph_clusters.fleet.protocol.messages import decode_columns
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetError, FleetSettings
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.fleet.protocol.tokens import Tokens, write_token_file
from soulsgraph_envs.games.cycle_timer import Clock
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.games.live_game import LiveGame
from soulsgraph_envs.games.opening import open_game
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.learning import real_time

#: Decisions of a fight: the camera has one every tick.
HORIZON = make_skill("camera").horizon
FAST = GameSettings(driver="simulator", speed=50.0)


class Played(GatewayHere):
    """A gateway with what its games are asked here."""

    def state(self, pc="attic"):
        return next((one.health.state for one in self.gateway.connections.live if one.hello.pc == pc), "")

    def health(self, pc="attic"):
        return next(one.health for one in self.gateway.connections.live if one.hello.pc == pc)

    def until_further_chunks(self, count=2):
        end = self.journal.end + count
        until(lambda: self.journal.end >= end, "chunks")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Let games report, send chunks and get weights and acknowledgements many times a second."""
    intervals = (
        *((player, "CHUNK_S"), (player, "COLLECT_EVERY_S"), (player, "HEALTH_EVERY_S"), (connections, "RIDE_WITHIN_S")),
        *((module, "_WATCH_EVERY_S"), (module, "PUBLISH_EVERY_S")),
    )
    for owner, name in intervals:
        monkeypatch.setattr(owner, name, 0.05)


@pytest.fixture
def head(tmp_path):
    with Played(tmp_path, CAMERA) as head:
        yield head


def _keys(records):
    """Return lane and episode of every decision, one set for all."""
    parts = [decode_columns(message(one).columns).transitions["camera"] for one in records]
    return {key for part in parts for key in zip(part.lanes.tolist(), part.episodes.tolist(), strict=True)}


def test_every_decision_carries_the_weights_that_made_it_and_its_tick(head):
    head.play(replace(FAST, lanes=1))
    head.until_further_chunks()
    head.publish(7)
    until(lambda: any(7 in message(one).versions for one in head.records()), "decisions of the newer weights")
    chunks = sorted(map(message, head.records()), key=lambda chunk: chunk.sequence)
    versions, ticks = ([value for one in chunks for value in getattr(one, name)] for name in ("versions", "ticks"))
    assert set(versions) == {1, 7}
    assert versions == sorted(versions)
    # One lane: a camera's decision a tick, and no tick without one.
    assert ticks == list(range(1, len(ticks) + 1))
    assert [one.weights_version for one in chunks] == [min(one.versions) for one in chunks]
    pause(head.folder / "attic", AT_ONCE)
    until(lambda: head.state() == "paused" and not head.health().waiting_chunks, "a pause after the last chunk")
    played = head.health().ticks
    resume(head.folder / "attic")
    head.until_further_chunks()
    # Another play of the same boot goes on counting; the ticks that a pause broke off count, too.
    assert max(message(head.records()[-1]).ticks) > played
    assert min(message(head.records()[-1]).ticks) > max(ticks)


@pytest.mark.parametrize("when", [AT_ONCE, AFTER_FIGHT])
def test_a_person_pauses_the_game_and_lets_it_play_other_fights_afterwards(head, when):
    head.play(FAST)
    head.until_further_chunks()
    pause(head.folder / "attic", when)
    until(lambda: head.state() == "paused" and not head.health().waiting_chunks, "a pause after the last chunk")
    until(lambda: any("attic/1 is paused" in note for note in head.gateway.notes), "a note")
    before = head.records()
    assert resume(head.folder / "attic")
    head.until_further_chunks()
    # What a game says of itself may come behind the chunks.
    until(lambda: head.state() == "playing", "play")
    after = head.records()[len(before) :]
    assert _keys(before).isdisjoint(_keys(after))
    until(lambda: any("attic/1 plays again" in note for note in head.gateway.notes), "a note")


def test_a_pause_at_once_ends_the_fight_that_an_earlier_one_let_play(head):
    head.play(replace(FAST, speed=0.3))
    until(lambda: head.state() == "playing", "play")
    pause(head.folder / "attic", AFTER_FIGHT)
    # Time to see the first one: a game that saw only the second would show nothing.
    time.sleep(0.5)
    pause(head.folder / "attic", AT_ONCE)
    until(lambda: head.state() == "paused", "a pause")
    assert head.health().finished_decisions < HORIZON


def test_a_drained_pc_loses_nothing_and_plays_again_when_that_is_undone(head):
    head.play(FAST)
    head.until_further_chunks()
    head.tokens.drain("attic", True)
    until(lambda: head.state() == "drained", "the end of the fight")
    assert any("attic/1 is drained" in note for note in head.gateway.notes)
    assert head.health().finished_decisions > 0
    assert head.health().lost_decisions["unfinished"] == 0
    until(lambda: head.journal.decisions["attic/journaled"] == head.health().finished_decisions, "every decision")
    # One that joins meanwhile is drained as well.
    head.head("den")
    head.tokens.drain("den", True)
    head.play(FAST, "den")
    until(lambda: head.state("den") == "drained", "a drained game")
    head.tokens.drain("attic", False)
    until(lambda: head.state() == "playing", "play")
    assert head.state("den") == "drained"


def test_a_game_that_the_task_refuses_is_closed(head, monkeypatch):
    monkeypatch.setattr(real_time, "RETRY_AFTER_S", 0.01)
    opened, closed = [], []

    def open_poor(*words):
        poor = open_game(*words)
        poor.capabilities = replace(poor.capabilities, supplies=frozenset())
        poor.close = lambda: closed.append(poor)
        opened.append(poor)
        return poor

    monkeypatch.setattr(player, "open_game", open_poor)
    head.play(FAST)
    until(lambda: head.state() == "broken", "a game that is of no use")
    until(lambda: len(opened) > 1 and opened[0] in closed, "the end of the first game")


def test_a_preflight_names_who_is_there_and_who_is_missing(tmp_path):
    settings = FleetSettings(listen="127.0.0.1:0", pcs=("attic", "cellar", "den"))
    tokens = Tokens(tmp_path / settings.tokens)
    write_token_file(tmp_path / "attic.token", tokens.issue("attic"))
    tokens.issue("den")
    tokens.drain("den", True)
    preflight = Preflight(Fleet(settings, tmp_path))
    assert preflight.missing == {"attic": "has not answered", "cellar": "has no token"}
    lines, head = [], Head(f"127.0.0.1:{preflight.port}", tmp_path / "attic.token")
    with playing(head, tmp_path / "spool", FAST, "7", lines.append):
        until(lambda: preflight.games, "an answer")
        ((name, hello),) = preflight.games.items()
        assert (name, hello.driver, hello.lanes) == ("attic/7", "simulator", 1)
        assert preflight.missing == {"cellar": "has no token"}
        preflight.stop("that was all")
        until(lambda: any("that was all" in line for line in lines), "the reason why nothing is played")


def test_what_is_played_by_altered_weights_of_a_frozen_skill_is_refused_and_the_game_gets_them_anew(
    tmp_path, monkeypatch
):
    samplers, sampler = [], StageTask.sampler

    def kept(*arguments):
        samplers.append(sampler(*arguments))
        return samplers[-1]

    monkeypatch.setattr(StageTask, "sampler", kept)
    task = StageTask(
        "iudex-phase1", {"camera": "camera", "lock_on": "lock_on"}, {"lock_on": CAMERA.learns["camera"]}, 10.0
    )
    with Played(tmp_path, task) as head:
        head.play(replace(FAST, lanes=2))
        head.until_further_chunks()
        head.publish()
        head.until_further_chunks()
        assert not any(one.refused for one in head.records())
        assert all(len(message(one).frozen) == 32 for one in head.records())
        # Camera is the first network.
        samplers[-1]._networks._parameters[0] += np.float32(1e-3)
        until(lambda: head.journal.decisions["attic/altered"], "a verdict")
        refused = head.journal.end
        until(lambda: any(not one.refused for one in head.records()[refused:]), "decisions by the stage's weights")


def test_a_game_that_cannot_use_what_came_says_so_and_plays_once_it_gets_another_task(head, monkeypatch):
    failing, decode = [True], player.decode_weights

    def fails(data):
        if failing:
            raise FleetError("weights: expected those of the task, found others; try again.")
        return decode(data)

    monkeypatch.setattr(player, "decode_weights", fails)
    lines = head.play(FAST)
    until(lambda: head.state() == "cannot play", "a game that cannot play")
    assert any(line.startswith("cannot play: weights") for line in lines)
    until(lambda: any("attic/1 is cannot play" in note for note in head.gateway.notes), "a note")
    failing.clear()
    head.tokens.drain("attic", True)
    until(lambda: head.state() == "drained", "a drained game")
    head.tokens.drain("attic", False)
    head.until_further_chunks()


def test_weights_of_a_module_that_takes_no_part_are_left_alone(head):
    mine = random_weights(head.task)
    head.publish(1, mine | {"another": next(iter(mine.values()))})
    head.play(FAST)
    head.until_further_chunks()
    until(lambda: head.state() == "playing", "play")


class _RealTime:
    """The machine's own clock, for a fake game that runs without a program."""

    def __init__(self):
        self.clock = Clock()

    @property
    def now_s(self):
        return self.clock.now()

    def pass_by(self, seconds):
        self.clock.sleep(seconds)


def test_a_game_in_real_time_and_simulators_of_another_speed_play_one_stage(head, monkeypatch):
    def open_either(settings, clock):
        if settings.driver == "simulator":
            return open_game(settings, clock)
        return LiveGame(FakeLink(_RealTime()), settings, clock)

    monkeypatch.setattr(player, "open_game", open_either)
    head.play(GameSettings(driver="memory", speed=3.0))
    head.play(replace(FAST, lanes=4), "cellar")
    until(lambda: all(head.journal.decisions[f"{pc}/journaled"] > 20 for pc in ("attic", "cellar")), "both")
    games = {game.name: game for game in head.status.describe(1).games}
    assert {name: (game.driver, game.lanes) for name, game in games.items()} == {
        "attic/1": ("memory", 1),
        "cellar/1": ("simulator", 4),
    }
    records = head.records()
    assert not any(record.refused for record in records)
    # Nobody plays another's lanes.
    lanes = {(record.pc, record.first_lane) for record in records}
    assert lanes == {("attic", 0), ("cellar", 1)} or lanes == {("attic", 4), ("cellar", 0)}
