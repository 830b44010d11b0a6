"""A learner of your own for one skill: what it is asked, what the library keeps of it, and what is refused."""

import sys
from itertools import pairwise

import numpy as np
import pytest

import soulsgraph as sg
from soulsgraph.runs.lineage import finished_versions, own_stage
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_policies.learning.own_learner import find_learner, learner_name


class CountingLearner:
    """A network whose bias of an action counts how often it was chosen; it checks what it is called with."""

    wrong, hidden = False, ()

    def __init__(self, task):
        self.task, self.counts = task, np.zeros(len(task.actions), np.float32)
        self.random, self.learned, self.received = np.random.default_rng(task.seed), 0, 0

    def act(self, observations):
        assert observations.shape == (self.task.lanes, len(self.task.observed))
        assert np.abs(observations).max() <= self.task.numbers.observation_clip
        return self.random.integers(len(self.task.actions), size=len(observations))

    def receive(self, transitions):
        assert len(transitions) <= self.task.lanes
        self.received += len(transitions)
        assert self.received <= self.task.budget
        np.add.at(self.counts, transitions.actions, 1.0)

    def learn(self):
        self.learned += 1
        return {"loss": float(self.learned)}

    def layers(self):
        sizes = [len(self.task.observed) + self.wrong, *(self.hidden or self.task.numbers.fcnet_hiddens)]
        hidden = [(np.zeros((after, before)), np.zeros(after)) for before, after in pairwise(sizes)]
        return [*hidden, (np.zeros((len(self.counts), sizes[-1])), self.counts)]


class ResumableLearner(CountingLearner):
    """It keeps its counts in checkpoints."""

    def get_state(self):
        return {"counts": self.counts.copy(), "received": self.received}

    def set_state(self, state):
        self.counts, self.received = np.array(state["counts"]), int(state["received"])


def _setup(folder, learner=CountingLearner):
    run = RunFolder.create(folder, Plan(scale=0.04, lanes=2, learners={"camera": learner_name(learner)}))
    return StageSetup(run, own_stage(run, "camera"))


def test_it_receives_its_budget_and_its_layers_are_what_plays(tmp_path):
    training = _setup(tmp_path / "run").build_own(CountingLearner)
    while not training.finished:
        training.train()
    assert training.decisions == training.learner.received == 800
    assert training.learner.counts.sum() == 800
    np.testing.assert_array_equal(training.weights("camera")["q_network.4.bias"], training.learner.counts)
    assert training.drain_episodes()["camera"].lengths.min() >= 1


def test_a_stage_is_the_learners_and_its_adaptation_continues_with_the_same_one(tmp_path):
    begun = []

    class NotebookLearner(CountingLearner):
        """One that nobody can import."""

        def __init__(self, task):
            super().__init__(task)
            begun.append(task.layers)

    own = {"camera": NotebookLearner}
    run = sg.train(preset="fast", run=tmp_path / "run", scale=0.02, learners=own, quiet=True)
    folder = run.folder
    assert folder.plan.learners == {"camera": learner_name(NotebookLearner)}
    np.testing.assert_array_equal(run.skills["camera"].network.weights["q_network.0.weight"], 0.0)
    assert run.training().query("skill == 'camera'")["loss"].iloc[-1] > 1.0
    assert finished_versions(folder, own_stage(folder, "camera"))
    usual = RunFolder(folder.path, Plan(scale=0.02, preset="fast"), folder.fight)
    assert not finished_versions(usual, own_stage(usual, "camera"))
    with pytest.raises(SoulsGraphError, match="learners"):
        sg.train(run=tmp_path / "run", learners={"camera": CountingLearner})

    wrong = ({"camera": CountingLearner}, "camera"), ({"dodge": CountingLearner}, "dodge"), ({}, "NotebookLearner")
    for learners, name in wrong:
        with pytest.raises(SoulsGraphError, match=name):
            run.adapt("vordt", "camera", budget=400, learners=learners, quiet=True)
    adapted = run.adapt("vordt", "camera", budget=400, learners=own, quiet=True)
    assert adapted.folder.library.versions("camera") == [1, 2]
    first, second = begun
    assert first is None
    assert second is not None


@pytest.mark.parametrize(("learner", "decisions"), [(ResumableLearner, 800), (CountingLearner, 0)])
def test_it_goes_on_from_a_checkpoint_if_it_keeps_its_state(tmp_path, learner, decisions):
    setup = _setup(tmp_path / "run", learner)
    first, second = (setup.build_own(learner) for _ in range(2))
    first.train()
    first.save_checkpoint(str(tmp_path / "checkpoint"))
    second.load_checkpoint(str(tmp_path / "checkpoint"))
    assert second.decisions == decisions
    if decisions:
        np.testing.assert_array_equal(second.learner.counts, first.learner.counts)
        np.testing.assert_array_equal(second.normalizer.mean, first.normalizer.mean)


def test_layers_that_do_not_fit_the_skill_are_refused_before_a_fight(tmp_path):
    class WrongLearner(CountingLearner):
        wrong = True

    class SmallLearner(CountingLearner):
        hidden = (8,)

    setup = _setup(tmp_path / "run")
    for learner, name in ((WrongLearner, "camera"), (SmallLearner, "64, 64")):
        with pytest.raises(SoulsGraphError, match=name):
            setup.build_own(learner)


def test_a_learner_that_is_not_there_is_named(tmp_path):
    assert find_learner(learner_name(CountingLearner)) is CountingLearner
    for name in ("__main__:Lost", "antigravity:fly_to"):
        with pytest.raises(SoulsGraphError, match=name):
            find_learner(name)
    assert "antigravity" not in sys.modules
    with pytest.raises(UnknownNameError, match="doge"):
        Plan(learners={"doge": "a:B"})
