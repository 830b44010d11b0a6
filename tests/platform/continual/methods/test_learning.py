"""Skills tell apart what a sequence's bosses do; versions are chosen by few fights, of which none is played twice."""

import numpy as np
import pytest

from fakes.learners import versions_of
from soulsgraph.continual.choosing import CHOOSING_FIGHTS, KNOWN_FIGHTS, RECOGNITION_FIGHTS, alike, choose, fingerprint
from soulsgraph.continual.methods.learning import PlayedFights, SkillVersion, TaskWorld
from soulsgraph.runs.plan import Plan
from soulsgraph_envs.continual.sequences import ContinualSequence, ContinualTask
from soulsgraph_envs.core.state import Column
from soulsgraph_policies.agents.inference import DEVIATION, MEAN


def test_skills_tell_apart_every_animation_of_a_sequence_s_bosses():
    fights = "iudex-phase1", "iudex-phase2", "vordt"
    own = ContinualSequence("three", tuple(map(ContinualTask, fights))).boss_animations
    world = TaskWorld(Plan(preset="best"), 0, "vordt", animations=(*own, 900))
    ids = world.skill("dodge").observation.one_hot[Column.BOSS_ANIMATION]
    assert {*own, *range(18), 900} == {*ids}
    assert list(ids) == sorted(ids)
    # They are part of a trained network's shape: none is ever missing.
    shipped = TaskWorld(Plan(preset="best"), 0, "vordt").skill("dodge").observation.one_hot[Column.BOSS_ANIMATION]
    assert list(shipped) == list(range(18))


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
    task, decisions = choose(world, by_task, known, PlayedFights())
    assert task == place
    assert decisions > 0


def test_a_boss_is_recognised_by_how_it_moves():
    plan, trained = versions_of("iudex-phase1-best-0")
    names = [f"generated/timing/{seed}" for seed in (10_001, 10_002, 10_003, 10_005)]
    worlds = [TaskWorld(plan, position, name) for position, name in enumerate(names)]
    known = [fingerprint(world, trained)[0] for world in worlds]
    others = [{name: forgetful(one, seed) for name, one in trained.items()} for seed in range(4)]
    # Whoever plays: the versions of no task win here.
    assert [choose(world, others, known, PlayedFights())[0] for world in worlds] == [0, 1, 2, 3]


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
    world = TaskWorld(plan, 0, "iudex-phase1")
    assert choose(world, [trained, dict(trained)], [{}, {}], PlayedFights()) == (1, 0)


class CountedFights(PlayedFights):
    """Fights of one decision each, of which all end alike: what a choice takes is the number that it asked for."""

    def of(self, play, world, versions, *more):
        count = CHOOSING_FIGHTS - RECOGNITION_FIGHTS
        return ({}, RECOGNITION_FIGHTS) if play is fingerprint else (np.zeros(count), np.ones(count, np.int64))


@pytest.mark.parametrize("count", [2, 7, 33])
def test_no_more_fights_are_asked_for_than_may_be(count):
    plan, trained = versions_of("iudex-phase1-best-0")
    by_task = [{name: forgetful(one, seed) for name, one in trained.items()} for seed in range(count)]
    _, decisions = choose(TaskWorld(plan, 0, "iudex-phase1"), by_task, [{}] * count, CountedFights())
    # Hardly any is left unplayed where every version gets one.
    assert CHOOSING_FIGHTS - (2 if count < 9 else 5) <= decisions <= CHOOSING_FIGHTS


def test_the_same_versions_play_a_task_once_and_the_results_asked_for_last_are_kept():
    plan, trained = versions_of("iudex-phase1-best-0")
    worlds = [TaskWorld(plan, place, name) for place, name in enumerate(("iudex-phase1", "vordt", "iudex-phase1"))]
    played, fights = [], PlayedFights(most=2)

    def note(world, versions, *more):
        played.append((world.name, *more))
        return len(played)

    assert [fights.of(note, world, trained, 1) for world in worlds] == [1, 2, 1]
    assert fights.of(note, worlds[0], dict(trained), 2) == 3
    assert [fights.of(note, world, trained, 1) for world in worlds] == [1, 4, 1]
    other = {**trained, "dodge": forgetful(trained["dodge"], 0)}
    assert fights.of(note, worlds[0], other, 1) == 5
