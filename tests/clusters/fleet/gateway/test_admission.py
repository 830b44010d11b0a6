"""What becomes of every chunk, and which lanes and fights a game gets, without a gateway in between."""

import numpy as np
import pytest
from safetensors.numpy import load, save

from fakes.fleet_here import random_weights
from fakes.stored import decided, message
from soulsgraph_clusters.fleet.gateway.admission import ALTERED, MALFORMED, OTHER_STAGE, STALE, Admission
from soulsgraph_clusters.fleet.gateway.connections import Connection
from soulsgraph_clusters.fleet.gateway.runner import read_chunk
from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import encode_columns
from soulsgraph_clusters.fleet.protocol.settings import MOST_MESSAGE_BYTES, FleetSettings
from soulsgraph_clusters.fleet.store import Journal
from soulsgraph_envs.core.files import FullDiskError
from soulsgraph_envs.games.opening import make_game
from soulsgraph_policies.learning.sampler import Chunk

STAGE, LANES, BOOT = "lock_on", 3, "00000000000000b0"


class Stage:
    """The admission of a stage, and games that were let in."""

    def __init__(self, folder, task, columns, settings=None):
        self.folder, self._columns = folder, columns
        self.journal = Journal(folder, STAGE)
        self.admission = Admission(self.journal, task, 0, settings or FleetSettings())

    def game(self, pc="attic", game="1", boot=BOOT, lanes=LANES):
        connection = Connection(wire.Hello(pc=pc, game=game, boot=boot, lanes=lanes), 0.0)
        self.admission.admit(connection)
        return connection

    def task(self, **values):
        return self.admission.task_for(self.game(**values))

    def chunk(self, sequence, **changes):
        return decided(self.journal, sequence, **{"columns": self._columns} | changes)

    def take(self, game, *chunks, now_s=0.0):
        """Write chunks of a game in one group, and return the refused decisions by reason."""
        refused = {}
        for _, answer in self.admission.write([(game, chunk) for chunk in chunks], now_s):
            refused |= dict(answer.refused)
        return refused

    def records(self):
        return self.journal.read(0, 10**6)

    def verdicts(self):
        return [(one.number, one.refused) for one in self.records()]


@pytest.fixture
def begin(tmp_path, lock_on_task, columns):
    """Begin a stage in the test's folder, or go on with it; all are closed at the end."""
    begun = []

    def make(settings=None):
        for one in begun:
            one.journal.close()
        begun.append(Stage(tmp_path, lock_on_task, columns, settings))
        return begun[-1]

    yield make
    begun[-1].journal.close()


@pytest.fixture
def stage(begin):
    return begin()


# Verdicts.


def _with(name, change):
    def changed(columns):
        arrays = load(columns)
        arrays[name] = change(arrays[name])
        return {"columns": save(arrays)}

    return changed


@pytest.mark.parametrize(
    "change",
    [
        lambda columns: {"columns": columns[:-1]},
        lambda columns: {"columns": encode_columns(Chunk({}, {}, 0)), "decisions": {}},
        lambda columns: {"decisions": {"lock_on": 29}},
        lambda columns: {"decisions": {"lock_on": 30, "camera": 1}},
        lambda columns: {"versions": [1] * 29},
        _with("transitions/lock_on/observations", lambda values: values * np.float32(np.nan)),
        # Lanes of other games, and one for which no learner has the memory.
        _with("transitions/lock_on/lanes", lambda values: np.full_like(values, LANES)),
        _with("transitions/lock_on/lanes", lambda values: values - LANES),
        _with("transitions/lock_on/lanes", lambda values: values + 2**62),
    ],
)
def test_bytes_that_are_not_the_declared_columns_are_acknowledged_and_not_learned(stage, lock_on_task, columns, change):
    game, bad = stage.game(), stage.chunk(1, **change(columns))
    claimed = sum(bad.decisions.values())
    assert stage.take(game, bad, stage.chunk(2)) == {MALFORMED: claimed}
    assert stage.verdicts() == [(1, MALFORMED), (2, "")]
    assert [read_chunk(one, lock_on_task, b"") is not None for one in stage.records()] == [False, True]
    assert stage.journal.decisions[f"attic/{MALFORMED}"] == claimed
    # What nobody learns from is not kept.
    refused, learned = stage.records()
    assert refused.content is None
    assert message(learned) == stage.chunk(2)


def test_episodes_of_other_games_lanes_are_not_learned(stage, lock_on_task):
    sampler = lock_on_task.sampler(make_game(LANES), seed=5)
    sampler.set_networks(lock_on_task.networks(random_weights(lock_on_task)))
    played = sampler.sample(8)
    while not (played.transitions and len(played.episodes.get(STAGE, ()))):
        played = sampler.sample(8)
    decisions = {name: len(part) for name, part in played.transitions.items()}
    game, arrays = stage.game(), load(encode_columns(played))
    for sequence, lane in enumerate((0, LANES - 1, LANES, -1)):
        arrays["episodes/lock_on/lanes"][...] = lane
        stage.take(game, stage.chunk(sequence, columns=save(arrays), decisions=decisions))
    assert [verdict for _, verdict in stage.verdicts()] == ["", "", MALFORMED, MALFORMED]


@pytest.mark.parametrize(
    ("change", "verdict", "claimed"),
    [
        ({"decisions": {"lock_on": 2**64 - 1}}, MALFORMED, MOST_MESSAGE_BYTES),
        ({"decisions": {"a" * 201: 7}}, MALFORMED, 7),
        ({"stage": "dodge"}, OTHER_STAGE, 30),
        ({"attempt": "another"}, OTHER_STAGE, 30),
    ],
)
def test_a_chunk_of_another_stage_or_with_more_than_any_is_refused_by_name_and_kept_small(
    stage, change, verdict, claimed
):
    game = stage.game()
    assert stage.take(game, stage.chunk(1, **change), stage.chunk(2)) == {verdict: claimed}
    assert stage.journal.decisions == {f"attic/{verdict}": claimed, "attic/journaled": 30}
    assert stage.records()[0].content is None
    # Once more it is the same chunk.
    stage.take(game, stage.chunk(1, **change), stage.chunk(3))
    assert stage.verdicts() == [(1, verdict), (2, ""), (3, "")]


def test_a_chunk_of_stale_weights_is_refused_and_one_of_fresh_weights_is_not(begin):
    stage = begin(FleetSettings(most_stale_ticks=10))
    game, publish = stage.game(), stage.admission.published
    publish(5, 100.0)
    publish(6, 200.0)
    publish(6, 900.0)
    for sequence, (version, now_s) in enumerate([(5, 201.0), (5, 201.2), (6, 1000.0), (0, 101.2)]):
        stage.take(game, stage.chunk(sequence, weights_version=version), now_s=now_s)
    # Newer ones have been out for 1 s, which are ten ticks, for more, not at all, and for a version of another gateway.
    assert [verdict for _, verdict in stage.verdicts()] == ["", STALE, "", STALE]


def test_what_is_played_by_other_frozen_weights_is_refused_once_these_are_known(stage, lock_on_task):
    game, weights = stage.game(), random_weights(lock_on_task)
    frozen = lock_on_task.frozen_digest(weights.__getitem__)
    stage.take(game, stage.chunk(1, frozen=b"a" * 32))
    stage.admission.freeze({"lock_on": weights["lock_on"]})
    stage.take(game, stage.chunk(2, frozen=b"a" * 32))
    stage.admission.freeze(weights)
    stage.take(game, *(stage.chunk(3 + place, frozen=found) for place, found in enumerate((b"a" * 32, b"", frozen))))
    assert [verdict for _, verdict in stage.verdicts()] == ["", "", ALTERED, "", ""]


# Lanes, and fights.


def test_lanes_of_games_do_not_overlap_whatever_their_names_and_outlive_the_gateway(begin, stage):
    names = ["1", '"', "\\", '": [0, 1], "x', "1 3", "Ü"]
    first = {name: stage.task(game=name).first_lane for name in names}
    assert sorted(first.values()) == [0, 3, 6, 9, 12, 15]
    assert stage.task(lanes=5).first_lane == 18
    again = begin()
    assert {name: again.task(game=name).first_lane for name in names} == first
    assert again.task(game="new").first_lane == 23


def test_lanes_that_could_not_be_written_down_are_nobodys(stage):
    stage.journal._run("PRAGMA max_page_count = 1")
    names = [f"{number:040d}" for number in range(1000)]
    with pytest.raises(FullDiskError):
        [stage.game(game=name) for name in names]
    stage.journal._run("PRAGMA max_page_count = 1000000")
    (written,) = stage.journal._run("SELECT COUNT(*) FROM lanes").fetchone()
    assert 0 < written < len(names)
    assert stage.task(pc="cellar").first_lane == LANES * written
    assert stage.task(game=names[written]).first_lane == LANES * (written + 1)


def test_a_game_that_was_started_again_has_fights_of_its_own_whichever_gateway_it_dials(begin, stage):
    boots = [f"{number:016x}" for number in range(16)]
    seeds = {boot: stage.task(boot=boot).seed for boot in boots}
    assert len({*seeds.values(), stage.task(game="2", boot=boots[0]).seed}) == len(boots) + 1
    again = begin()
    assert {boot: again.task(boot=boot).seed for boot in boots} == seeds
