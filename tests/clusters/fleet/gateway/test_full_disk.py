"""What a gateway writes where a disk is full: to a limit of a file's size, or where a folder takes the file's place."""

import json
import resource

import pytest

from soulsgraph_clusters.fleet.gateway.admission import Admission
from soulsgraph_clusters.fleet.gateway.connections import Connection, Connections
from soulsgraph_clusters.fleet.gateway.journal import Journal
from soulsgraph_clusters.fleet.gateway.status import STATUS_FILE, StatusWriter
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk, Hello, Record
from soulsgraph_clusters.fleet.protocol.settings import FleetSettings
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_envs.core.files import WriteError

TASK = StageTask("iudex-phase1", {"camera": "camera"}, {}, 10.0)


@pytest.fixture
def admission(tmp_path):
    journal = Journal(tmp_path, "camera")
    yield Admission(journal, TASK, 0, FleetSettings())
    journal.close()


def test_a_status_that_cannot_be_written_is_returned_all_the_same(admission, tmp_path):
    (tmp_path / STATUS_FILE).mkdir()
    assert StatusWriter(admission, Connections()).update(7).weights_version == 7


def test_lanes_that_could_not_be_written_are_not_taken(admission, tmp_path):
    first, second = (Connection(Hello(pc=pc, game="1", lanes=4), 0.0) for pc in ("attic", "cellar"))
    (tmp_path / "lanes.json").mkdir()
    with pytest.raises(WriteError):
        admission.task_for(first)
    (tmp_path / "lanes.json").rmdir()
    assert admission.task_for(second).first_lane == 0
    assert admission.task_for(first).first_lane == 4
    assert json.loads((tmp_path / "lanes.json").read_text()) == {"cellar/1 4": [0, 4], "attic/1 4": [4, 4]}


def test_a_record_that_is_written_in_part_counts_as_not_written(tmp_path):
    journal = Journal(tmp_path, "camera")
    first, second = (Record(pc="attic", game="1", chunk=Chunk(sequence=each, columns=bytes(9000))) for each in (1, 2))
    journal.append([first])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    (file,) = tmp_path.glob("*.journal")
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 4000, limits[1]))
    try:
        with pytest.raises(WriteError):
            journal.append([second])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert ("attic", "1", "", 2) not in journal.deduplication
    assert [record.chunk.sequence for _, record in journal.read(0, 9)] == [1]
    assert journal.append([second]) == [second]
    journal.close()
    again = Journal.reading(tmp_path, "camera")
    assert [record.chunk.sequence for _, record in again.read(0, 9)] == [1, 2]
