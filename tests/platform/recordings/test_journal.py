"""Fights out of a fleet's journal: every whole one, decision by decision, whatever the order of its chunks."""

import json
import random
import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fakes.fleet_here import random_weights
from fakes.runs import pretend_run, pretend_training
from fakes.stored import append, stored
from soulsgraph.recordings.check import check_file
from soulsgraph.recordings.files import RecordingError, read_header, read_recording, recording_files
from soulsgraph.recordings.journal import journals, record_journal, task_of
from soulsgraph.runs.lineage import adaptation_stages, stage_key
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk
from soulsgraph_clusters.fleet.protocol.messages import encode_columns, write_moments
from soulsgraph_clusters.fleet.store import Journal
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.learning import sampler

BOOT = "0123456789abcdef"


def sampled(run, stage, lanes=2, chunks=4):
    """Return what a game of some lanes sends."""
    task = task_of(run, stage)
    playing = task.sampler(make_game(lanes), 3)
    playing.set_networks(task.networks(random_weights(task)))
    found = [playing.sample(200) for _ in range(chunks)]
    playing.close()
    return found


def _chunk(number, played):
    """Return a chunk whose weights changed with every decision."""
    counts = {name: len(part) for name, part in played.transitions.items()}
    chunk = Chunk(boot=BOOT, sequence=number, decisions=counts, columns=encode_columns(played))
    own = {name: np.arange(count) + 1000 * number + 1 for name, count in counts.items()}
    write_moments({name: sampler.Moments(versions, versions) for name, versions in own.items()}, chunk)
    return chunk


def write_journal(run, stage, chunks, left_out=-1):
    """Write chunks into the stage's journal in a drawn order, without one of them."""
    records = [stored(_chunk(number, chunk)) for number, chunk in enumerate(chunks) if number != left_out]
    random.Random(5).shuffle(records)
    journal = Journal(run.journal(stage_key(run, stage)), stage.name)
    append(journal, records)
    journal.close()


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "run", Plan())


@pytest.mark.parametrize("skill", ["camera", "heal_attack"])
def test_every_whole_fight_of_a_journal_is_recorded_decision_by_decision(run, skill, tmp_path):
    stage = run.plan.stage(skill)
    if skill != "camera":  # else the stage is under way
        pretend_training(run, run.plan.stages())
    chunks = sampled(run, stage)
    write_journal(run, stage, chunks)
    counts = [len(chunk.transitions[skill]) for chunk in chunks]
    numbers = np.repeat(np.arange(len(chunks)), counts) * 1000 + 1
    versions = numbers + np.concatenate([np.arange(count) for count in counts])
    ((kept, own),) = journals(run).items()
    assert own == stage
    left_out = record_journal(run, stage, kept, tmp_path / "fights")
    whole = sampler.Transitions.join([chunk.transitions[skill] for chunk in chunks])
    ended = sum(len(chunk.episodes[skill]) for chunk in chunks)
    files = recording_files(tmp_path / "fights")
    assert len(files) == ended > 2
    assert left_out == {"fights without an end": len({*zip(whole.lanes, whole.episodes, strict=True)}) - ended}
    for path in files:
        recording = read_recording(path)
        lane, fight = (int(re.search(rf"-{word}(\d+)-", path.stem)[1]) for word in ("lane", "fight"))
        own = (whole.lanes == lane) & (whole.episodes == fight)
        played = {
            "observation": whole.observations,
            "action": whole.actions,
            "reward": whole.rewards,
            "version": versions,
        }
        for name, values in played.items():
            assert_array_equal(recording.column(f"{skill}/{name}")[:-1], values[own])
        assert_array_equal(recording.column(f"{skill}/observation")[-1], whole.next_observations[own][-1])
        assert recording.header.skills[0].version == versions[own].min()
        assert recording.header.source == "fleet"
        assert np.diff(recording.column("tick")).min() >= 1
        assert (recording.header.result.outcome == "died") == bool(whole.terminated[own][-1] and skill == "heal_attack")
        assert check_file(path).verdict == "whole"


def test_fights_that_lack_decisions_are_left_out_and_counted(run, tmp_path):
    stage = run.plan.stage("camera")
    chunks = sampled(run, stage)
    write_journal(run, stage, chunks, left_out=2)
    left_out = record_journal(run, stage, *journals(run), tmp_path / "fights")
    assert left_out["fights with decisions missing"] + left_out["fights without an end"] > 2
    whole = {len(read_recording(path)) for path in recording_files(tmp_path / "fights")}
    assert whole == {make_skill("camera").horizon}


@pytest.mark.parametrize("jointly", [False, True])
def test_an_adaptation_is_recorded_beside_the_stage_that_the_same_start_of_a_game_played_before(tmp_path, jointly):
    run = pretend_run(tmp_path / "run", Plan(scale=0.01))
    own, together = run.plan.stage("heal_attack"), ("dodge", "heal_attack")
    stages = adaptation_stages(run, "iudex-phase2", together if jointly else ("heal_attack",), jointly=jointly)
    pretend_training(run, stages)
    played = (own, *stages)
    for stage in played:
        write_journal(run, stage, sampled(run, stage))
    found = journals(run)
    assert {one.name for one in found.values()} == {one.name for one in played}
    counted = {}
    for kept, stage in found.items():
        record_journal(run, stage, kept, tmp_path / "fights")
        counted[stage.name] = len(recording_files(tmp_path / "fights")) - sum(counted.values())
    assert min(counted.values()) > 2
    headers = [read_header(path) for path in recording_files(tmp_path / "fights")]
    fought = {(header.scenario, header.skills[0].name) for header in headers}
    assert fought == {
        ("iudex-phase1", "heal_attack"),
        *(("iudex-phase2", skill) for skill in (together if jointly else together[1:])),
    }
    assert {check_file(path).verdict for path in recording_files(tmp_path / "fights")} == {"whole"}


def test_the_command_records_every_journal_of_a_run(run, tmp_path, command):
    stage = run.plan.stage("camera")
    write_journal(run, stage, sampled(run, stage, chunks=3))
    words = ("data", "record", run.path, "--journal", "--out", tmp_path / "fights", "--json")
    printed = json.loads(command(*words)[1])
    assert printed["fights"] == len(recording_files(tmp_path / "fights")) > 0
    assert printed["left_out"] == {"fights without an end": 2}
    again = json.loads(command(*words)[1])
    assert (again["fights"], again["left_out"]["fights there already"]) == (0, printed["fights"])


def test_a_run_without_a_journal_is_one_line(run):
    with pytest.raises(RecordingError, match="journal"):
        journals(run)
