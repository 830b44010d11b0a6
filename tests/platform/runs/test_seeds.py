"""What is chosen is chosen by other fights than those by which it is reported, and is trained in neither of them."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.learners import versions_of
from fakes.runs import pretend_run
from soulsgraph.continual import choosing, selecting, unit
from soulsgraph.continual.methods.learning import TaskWorld
from soulsgraph.paper.study import CALIBRATION, CHOOSING, CONFIRMING, REPORTING, Study, evaluation_seed
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs.evaluate import CURVE_SEED, EVALUATION_SEED, evaluation_seeds
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.train import StageSetup
from soulsgraph.tune.folder import Sweep, SweptRun
from soulsgraph.tune.space import SearchSpace
from soulsgraph.tune.trial import CHOICE_SEED, evaluated
from soulsgraph.zoo.card import ZOO_SEED
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.skills import SKILL_NAMES
from zoo_agents import SEEDS

#: Seeds of the fights by which results are reported.
REPORTS = {EVALUATION_SEED, ZOO_SEED, *map(evaluation_seed, (0, REPORTING[0], CONFIRMING[0]))}
#: Seeds of the fights by which checkpoints, settings, presets, versions, and skills to adapt are chosen.
CHOICES = {CURVE_SEED, CHOICE_SEED, evaluation_seed(CALIBRATION[0]), evaluation_seed(CHOOSING[0])}
CHOICES |= {choosing.CHOOSING_SEED, unit.POINT_SEED, selecting.SELECTION_SEED}


def test_no_seed_is_for_choosing_and_reporting():
    assert not REPORTS & CHOICES
    assert CHOICE_SEED != CURVE_SEED
    purposes = {"calibration": CALIBRATION, "choosing": CHOOSING, "reporting": REPORTING, "confirming": CONFIRMING}
    assert len({evaluation_seed(seeds[-1]) for seeds in (*purposes.values(), (0,))}) == 5
    assert evaluation_seed(REPORTING[0]) == EVALUATION_SEED
    for one, other in combinations([*purposes.values(), SEEDS], 2):
        assert not {*one} & {*other}
    assert {*Sweep.seeds} <= {*CHOOSING}
    assert {*Study.seeds} <= {*REPORTING}


@given(
    st.sampled_from(sorted(CHOICES)),
    st.sampled_from(sorted(REPORTS)),
    st.sampled_from([*REPORTS, *CHOICES]) | st.integers(0, 2**31 - 1),
    st.sampled_from(SKILL_NAMES),
    st.none() | st.integers(1, 9),
    st.integers(0, 3),
)
@settings(max_examples=40)
def test_fights_of_training_choosing_and_reporting_are_others(choice, report, trained, skill, parent, runner):
    stage = Plan(seed=trained).stage(skill, parent=parent)
    own = int(derive_seeds(np.uint64(stage.seed), runner)[0])
    fights = [
        {*derive_seeds(own, np.repeat(np.arange(8), 100), np.tile(np.arange(100), 8)).tolist()},
        {*evaluation_seeds(choice, 400).tolist()},
        {*evaluation_seeds(report, 400).tolist()},
    ]
    assert len(set.union(*fights)) == 800 + 400 + 400
    assert evaluation_seeds(choice, 10).tolist() == evaluation_seeds(choice, 20)[:10].tolist()


@pytest.fixture
def played(monkeypatch):
    """Return the seeds of evaluations, as they are asked for."""
    asked, derive = set(), evaluating.derive_seeds

    def noted(seed, *path):
        if path == (evaluating._EVALUATION_STREAM,):
            asked.add(seed)
        return derive(seed, *path)

    monkeypatch.setattr(evaluating, "derive_seeds", noted)
    return asked


def by_a_sweep(run, world, versions):
    evaluated(run, Sweep(Plan(scale=0.01, episodes=2), SearchSpace({"gamma": (0.9,)})))


def by_a_sweep_of_a_skill(run, world, versions):
    camera = SweptRun(str(run.path), "iudex-phase1", ("camera",))
    evaluated(run, Sweep(Plan(scale=0.01, episodes=2), SearchSpace({"gamma": (0.9,)}), stage="camera", source=camera))


def by_a_learning_curve(run, world, versions):
    setup = StageSetup(run, run.plan.stage("camera"))
    evaluating.evaluate_checkpoints(setup.agent, 10.0, [(1_000, {"camera": run.library.load("camera", 1).weights})])


def by_how_a_boss_moves(run, world, versions):
    choosing.fingerprint(world, versions, 1)


def by_fights_of_some_versions(run, world, versions):
    choosing.compared(world, versions)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return pretend_run(tmp_path_factory.mktemp("runs") / "run", Plan(scale=0.01))


@pytest.mark.parametrize(
    "choose", [by_a_sweep, by_a_sweep_of_a_skill, by_a_learning_curve, by_how_a_boss_moves, by_fights_of_some_versions]
)
def test_whoever_chooses_plays_no_fight_that_is_reported(choose, run, played):
    plan, versions = versions_of("five-skills-best-0")
    choose(run, TaskWorld(plan, 0, "five-skills"), versions)
    assert played
    assert played <= CHOICES


def test_a_selection_plays_each_task_and_skill_by_seeds_of_its_own(played):
    plan, versions = versions_of("five-skills-best-0")
    # In a graph that forks chains of two skills may be as long.
    chains = [
        {name: versions[name] for name in chain}
        for chain in (("camera",), ("camera", "lock_on"), ("camera", "movement"))
    ]
    tasks = [TaskWorld(replace(plan, seed=seed), position, "five-skills") for seed in (0, 1) for position in (0, 1)]
    for world in tasks:
        for chain in chains:
            selecting._tried(world, chain, 0, 1)
    # Home is a task as well: an unchanged fight is not compared with itself.
    assert len(played) == len(tasks) * len(chains)
    assert not played & (REPORTS | CHOICES)
