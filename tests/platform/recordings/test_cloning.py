"""Skills cloned from recorded fights, of scripts and of people, and training that goes on from them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fakes.recordings import read_all, rewritten
from fakes.runs import of_stage
from soulsgraph.paper.seed_job import train_by
from soulsgraph.recordings.cloning import clone_fights, read_shown
from soulsgraph.recordings.files import recording_files
from soulsgraph.recordings.format import SIMULATOR, make_header
from soulsgraph.recordings.recording import Fighter, FightWriter, record
from soulsgraph.runs.evaluate import Setting, evaluate, evaluation_seeds
from soulsgraph.runs.lineage import (
    branch,
    cards_of,
    domain_chain,
    finished_versions,
    own_stage,
    own_stages,
    stage_key,
    stages_made,
)
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup, kept_demonstrations
from soulsgraph.zoo import copy_agent
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import SKILL_NAMES
from soulsgraph_policies.learning import cloning

HOME = "iudex-phase1"


class Quiet:
    """What `train_by` reports to."""

    stop_requested = staticmethod(lambda: False)

    def follow(self, name, total):
        return self

    def update(self, steps, mean_return=None):
        pass


@pytest.fixture(scope="module")
def fights(tmp_path_factory):
    """Three fights of the oracle, which acts two ticks late."""
    folder = tmp_path_factory.mktemp("fights")
    record(Fighter.oracle(HOME, random=0.1, delay=2), evaluation_seeds(21, 3), folder)
    return folder


@pytest.fixture
def run(tmp_path):
    return begin(tmp_path / "run")


@pytest.fixture(autouse=True)
def _few_updates(monkeypatch):
    monkeypatch.setattr(cloning, "UPDATES", 60)


def begin(path, **plan):
    return RunFolder.create(path, Plan(**{"preset": "best", "scale": 0.01, **plan}))


def test_what_is_shown_are_the_decisions_that_were_recorded(fights, run):
    shown = read_shown(run, fights)
    recordings = read_all(fights)
    for name in ("camera", "lock_on", "movement", "dodge"):
        found = shown[name].transitions
        kept, actions, rewards = 0, [], []
        for recording in recordings:
            begins, _ = recording.decisions(name)
            actions.append(recording.column(f"{name}/action")[begins])
            rewards.append(recording.column(f"{name}/reward")[begins])
            kept += len(begins)
        if name == "dodge":
            # Before its clock begins it does nothing, which looks like a decision to do nothing.
            assert kept <= len(found) <= kept + 3 * 4
            assert int((found.actions == 0).sum()) == int((np.concatenate(actions) == 0).sum())
        else:
            assert_array_equal(found.actions, np.concatenate(actions))
            assert_allclose(found.rewards, np.concatenate(rewards), rtol=1e-6)
        assert shown[name].ambiguous == 0
    assert shown["heal_attack"].ambiguous > 0
    over = [recording.header.result.outcome in ("died", "won") for recording in recordings]
    assert shown["dodge"].transitions.terminated.sum() == sum(over) > 0
    # Nobody dies on the ground on which a camera practises.
    assert not shown["camera"].transitions.terminated.any()


def test_clones_play_and_training_goes_on_from_them(fights, run):
    updates: list[None] = []
    clones = clone_fights(run, fights, SKILL_NAMES, lambda: updates.append(None))
    assert len(updates) == 5 * cloning.UPDATES
    for name, one in zip(SKILL_NAMES, clones, strict=True):
        assert (one.card.skill, one.card.version, one.card.parent) == (name, 1, None)
        assert one.card.training.cloned == len(one.shown.transitions) > 100
        assert (one.card.training.steps, one.card.training.budget) == (0, 0)
    assert len(evaluate(run, Setting(HOME, HOME), 4, 5).episodes) == 4
    stages = own_stages(RunFolder.open(run.path))
    assert [(stage.parent, stage.cloned) for stage in stages] == [(1, True)] * 5
    assert not any(finished_versions(run, stage) for stage in stages)

    train_by("soulsgraph", run, stages[:2], Quiet())
    cards = cards_of(run, ("camera", "lock_on"))
    assert [(card.version, card.parent, card.training.cloned > 0) for card in cards] == [
        (1, None, True),
        (2, 1, False),
    ] * 2
    assert [one.version for one in cards[3].upstream] == [2]
    assert [card.version for stage in own_stages(run)[:2] for card in finished_versions(run, stage)] == [2, 2]
    assert domain_chain(run) == (run.plan.scenario,)
    # It begins where the clone was, and keeps what it was cloned from.
    stage = own_stage(run, "movement")
    numbers = run.plan.hyperparameters(stage)
    assert (numbers.margin, numbers.exploration(0)) == (0.8, 0.5)
    algorithm = StageSetup(run, stage).build(Session(local=False))
    try:
        weights = algorithm.weights("movement")
        clone = run.library.load("movement", 1).weights
        assert all((weights[name] == clone[name]).all() for name in clone if name.startswith("q_network"))
        batch = algorithm.training["movement"].draw(1)
        assert (batch.margins > 0.0).all()
        kept = kept_demonstrations(run, "movement", 1)
        assert len(kept) == clones[2].card.training.cloned
    finally:
        algorithm.stop()


@pytest.mark.slow
def test_the_same_command_after_a_kill_clones_what_is_missing_and_nothing_twice(fights, tmp_path, monkeypatch):
    monkeypatch.setattr(cloning, "UPDATES", 10)
    whole, run = begin(tmp_path / "whole"), begin(tmp_path / "run")
    first = clone_fights(whole, fights, SKILL_NAMES)
    made: list[None] = []

    def killed():
        made.append(None)
        if len(made) == 2 * cloning.UPDATES + 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clone_fights(run, fights, SKILL_NAMES, killed)
    made.clear()
    again = clone_fights(run, fights, SKILL_NAMES, lambda: made.append(None))
    assert len(made) == 3 * cloning.UPDATES
    assert [one.earlier for one in again] == [True, True, False, False, False]
    assert [(one.card.digest, one.same) for one in again] == [(one.card.digest, one.same) for one in first]
    assert all(one.earlier for one in clone_fights(run, fights, SKILL_NAMES))
    # Other fights, another seed, or decisions that are gone make another clone.
    fewer = tmp_path / "fewer"
    fewer.mkdir()
    for path in recording_files(fights)[:2]:
        (fewer / path.name).symlink_to(path)
    for folder, version in ((fewer, 2), (fewer, 2), (fights, 3)):
        assert clone_fights(run, folder, ("camera",))[0].card.version == version
    for file in (run.path / "demonstrations" / "camera-v3").iterdir():
        file.write_bytes(file.read_bytes()[:100])
    assert clone_fights(run, fights, ("camera",))[0].card.version == 4
    other = RunFolder(run.path, replace(run.plan, seed=5), run.fight)
    assert clone_fights(other, fights, ("camera",))[0].card.version == 5


def test_a_clone_of_one_skill_joins_an_agent_and_what_is_built_on_it_is_to_be_trained_again(fights, tmp_path):
    run = copy_agent("iudex-phase1-best-0", tmp_path / "run")
    (found,) = clone_fights(run, fights, ("dodge",))
    assert (found.card.version, [one.version for one in found.card.upstream]) == (2, [1, 1, 1])
    stages = own_stages(run)
    assert [stage.parent for stage in stages] == [None, None, None, 2, None]
    assert [bool(finished_versions(run, stage)) for stage in stages] == [True, True, True, False, False]


def test_a_skill_cloned_after_it_was_trained_does_not_bring_back_checkpoints_on_its_earlier_version(fights, run):
    train_by("soulsgraph", run, own_stages(run)[:2], Quiet())
    assert [*of_stage(run.path / "checkpoints", "lock_on").iterdir()]
    clone_fights(run, fights, ("camera",))
    stages = own_stages(run)[:2]
    assert [stage.name for stage in stages] == ["camera@iudex-phase1", "lock_on"]
    train_by("soulsgraph", run, stages, Quiet())
    cards = cards_of(run, ("camera", "lock_on"))
    assert [(card.skill, card.version, card.parent) for card in cards] == [
        *(("camera", 1, None), ("camera", 2, None), ("camera", 3, 2)),
        *(("lock_on", 1, None), ("lock_on", 2, None)),
    ]
    assert [one.version for one in cards[-1].upstream] == [3]
    # A finished stage has the key that it had.
    keys = [stage_key(run, stage) for stage in stages]
    assert [stage_key(run, stage) for stage in own_stages(run)[:2]] == keys
    assert stages_made(run)[keys[0]][1] == [cards[2]]


def test_a_persons_fight_is_cloned_like_any_other(fights, run, tmp_path):
    source = read_all(fights)[0]
    who = {"scenario": HOME, "source": "person", "driver": SIMULATOR, "player": "someone", "seed": 5}
    writer = FightWriter(tmp_path / "person", make_header(load_scenario(HOME), fight="by-hand", **who))
    for row in range(len(source)):
        writer.add(source.raw[row], int(source.controls[row]))
    writer.finish(source.raw[-1], "cut")
    whole, cut = (read_shown(run, folder)["movement"] for folder in (source.path, tmp_path / "person"))
    assert_array_equal(cut.transitions.observations, whole.transitions.observations)
    assert clone_fights(run, tmp_path / "person", ("camera",))[0].card.version == 1


def test_fights_that_do_not_fit_are_refused_and_nothing_is_begun(fights, tmp_path):
    place, fleets = tmp_path / "run", tmp_path / "fleet.parquet"
    rewritten(recording_files(fights)[0], fleets, header={"source": "fleet"})
    for plan, folder, skills, name in (
        (Plan(scenario="vordt"), fights, SKILL_NAMES, "vordt"),
        (Plan(), fights, ("dodge",), "camera, lock_on, movement"),
        (Plan(), fights, ("doge",), "doge"),
        (Plan(), tmp_path / "none", SKILL_NAMES, "none"),
        (Plan(), fleets, SKILL_NAMES, "of a fleet"),
    ):
        with pytest.raises(SoulsGraphError, match=name):
            clone_fights(RunFolder.planned(place, plan), folder, skills)
        assert not place.exists()


def test_a_branch_has_what_its_clones_were_cloned_from_without_which_nothing_is_trained(fights, run, tmp_path):
    clone_fights(run, fights, ("camera",))
    copied = branch(run, tmp_path / "copy", HOME)
    assert len(kept_demonstrations(copied, "camera", 1)) == len(kept_demonstrations(run, "camera", 1))
    for file in (run.path / "demonstrations" / "camera-v1").iterdir():
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(SoulsGraphError, match="camera-v1"):
        StageSetup(run, own_stage(run, "camera")).build(Session(local=False))


def test_the_command_clones_once(printed, fights):
    words = ("data", "clone", fights, "--run", "mine", "--skills", "lock_on,camera", "--json")
    found = json.loads(printed(*words))
    assert [(one["skill"], one["version"]) for one in found] == [("camera", 1), ("lock_on", 1)]
    assert all(one["ambiguous_ticks"] == 0 for one in found)
    assert all(0.3 < one["same"] <= 1.0 for one in found)
    assert [one["version"] for one in json.loads(printed(*words))] == [1, 1]
