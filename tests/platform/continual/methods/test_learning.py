"""Skills learn in a task in memory; a task's one-hot; versions are chosen by few fights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.learners import versions_of
from soulsgraph.continual.choosing import (
    CHOOSING_FIGHTS,
    KNOWN_FIGHTS,
    RECOGNITION_FIGHTS,
    ChoosingFights,
    alike,
    choose,
    fingerprint,
)
from soulsgraph.continual.methods.learning import SkillVersion, TaskWorld, replace_task, versions_digest
from soulsgraph.runs.plan import Plan
from soulsgraph_envs.continual.sequences import ContinualSequence, ContinualTask
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import STATE_SIZE, Column
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agents.inference import DEVIATION, MEAN


@given(task=st.integers(0, 6), seed=st.integers(0, 2**31))
def test_a_task_is_a_one_hot_behind_what_a_skill_observes(task, seed):
    rows = np.random.default_rng(seed).uniform(-1.0, 1.0, (4, STATE_SIZE)).astype(np.float32)
    rows[:, Column.LOCKED] = [0.0, 1.0, 0.0, 1.0]
    scenario, skill = load_scenario("iudex-phase1"), make_skill("dodge")
    shown = replace_task(skill.observation, task, 7)
    observed = shown(rows, scenario)
    assert shown.size == skill.observation.size + 7
    assert (observed[:, : skill.observation.size] == skill.observation(rows, scenario)).all()
    assert observed[:, skill.observation.size :].tolist() == [np.eye(7)[task].tolist()] * 4
    assert shown.indicators[-7:].all()
    assert len({*shown.names}) == shown.size


def test_skills_tell_apart_every_animation_of_a_sequence_s_bosses():
    fights = "iudex-phase1", "iudex-phase2", "vordt"
    most = ContinualSequence("three", tuple(map(ContinualTask, fights))).boss_animations
    world = TaskWorld(Plan(preset="best"), 0, "vordt", animations=most + 3)
    assert world.skill("dodge").observation.one_hot[Column.BOSS_ANIMATION] == most + 3
    # Counts are part of a trained network's shape: they never shrink.
    assert TaskWorld(Plan(preset="best"), 0, "vordt").skill("dodge").observation.one_hot[Column.BOSS_ANIMATION] == 18


def forgetful(version, seed):
    """Return a version with weights that learned nothing."""
    random = np.random.default_rng(seed)
    drawn = {
        name: values if name in (MEAN, DEVIATION) else random.normal(0.0, 0.1, values.shape).astype(np.float32)
        for name, values in version.weights.items()
    }
    return SkillVersion(drawn, version.normalizer)


@pytest.mark.parametrize("place", [0, 2])
def test_versions_that_win_are_chosen_among_those_that_learned_nothing(place):
    plan, trained = versions_of("iudex-phase1-best-0")
    others = [{name: forgetful(one, seed) for name, one in trained.items()} for seed in range(2)]
    by_task = [*others[:place], trained, *others[place:]]
    world = TaskWorld(plan, 0, "iudex-phase1")
    known = [fingerprint(world, trained)[0]] * 3
    # All bosses look alike. The agent wins above 90 %, the others next to nothing: a fight tells them apart.
    choice = choose(world, by_task, known)
    assert choice.task == place
    assert choice.decisions > 0


def test_a_boss_is_recognised_by_how_it_moves():
    plan, trained = versions_of("iudex-phase1-best-0")
    names = [f"generated/timing/{seed}" for seed in (10_001, 10_002, 10_003, 10_005)]
    worlds = [TaskWorld(plan, position, name) for position, name in enumerate(names)]
    known = [fingerprint(world, trained)[0] for world in worlds]
    others = [{name: forgetful(one, seed) for name, one in trained.items()} for seed in range(4)]
    # Whoever plays: the versions of no task win here.
    assert [choose(world, others, known).task for world in worlds] == [0, 1, 2, 3]


def test_a_boss_that_was_learned_looks_alike_whoever_plays_it():
    plan, trained = versions_of("five-skills-best-0")
    world = TaskWorld(plan, 0, "five-skills")
    players = [trained, {name: forgetful(one, 0) for name, one in trained.items()}]
    known = [fingerprint(world, versions, KNOWN_FIGHTS)[0] for versions in players]
    for seen in [fingerprint(world, versions)[0] for versions in players]:
        # A task whose share is this much below the best counts as another boss's.
        assert min(alike(seen, one) for one in known) > 0.95


def test_versions_that_are_the_same_need_no_fight():
    plan, trained = versions_of("iudex-phase1-best-0")
    choice = choose(TaskWorld(plan, 0, "iudex-phase1"), [trained, dict(trained)], [{}, {}])
    assert (choice.task, choice.decisions) == (1, 0)


class CountedFights(ChoosingFights):
    """It counts the fights whose results it was asked for."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def fingerprint(self, world, versions):
        self.asked += [(versions_digest(versions), "recognised", fight) for fight in range(RECOGNITION_FIGHTS)]
        return super().fingerprint(world, versions)

    def scores(self, world, versions, first, count):
        self.asked += [(versions_digest(versions), "tried", fight) for fight in range(first, first + count)]
        return super().scores(world, versions, first, count)


@pytest.mark.parametrize("count", [2, 7, 33])
def test_no_more_fights_are_asked_for_than_may_be(count):
    plan, trained = versions_of("iudex-phase1-best-0")
    by_task = [{name: forgetful(one, seed) for name, one in trained.items()} for seed in range(count)]
    world, known, fights = TaskWorld(plan, 0, "iudex-phase1"), [{}] * count, CountedFights()
    choice = choose(world, by_task, known, fights)
    # Hardly any is left unplayed where every version gets one.
    assert CHOOSING_FIGHTS - (2 if count < 9 else 5) <= len(fights.asked) <= CHOOSING_FIGHTS
    # None is asked for twice, and what was kept leads to the same choice at the same cost.
    assert len({*fights.asked}) == len(fights.asked)
    assert choose(world, by_task, known, fights) == choose(world, by_task, known) == choice
