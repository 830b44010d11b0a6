"""The batched rollout path: the same transitions as the multi-agent face, and as itself after a resume."""

import math
from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest

from fakes.stages import assert_same
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.rollout import Rollout
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.gym.rllib import SkillGraphEnv
from soulsgraph_envs.skills import SKILL_NAMES, make_skill, training_scenario
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks, layer_names_at
from soulsgraph_policies.learning.sampler import SampledModule, Sampler, Transitions


def networks(skills, scenario) -> list[FrozenNetwork]:
    rng = np.random.default_rng(0)
    made = []
    for skill in skills:
        sizes = (skill.observation.size, 16, len(skill.actions))
        weights = {}
        for index, (a, b) in enumerate(pairwise(sizes)):
            weights |= zip(layer_names_at(index), (rng.normal(size=(b, a)), np.zeros(b)), strict=True)
        statistics = {"observation_mean": rng.normal(size=sizes[0])}
        statistics["observation_deviation"] = rng.uniform(0.5, 2.0, sizes[0])
        made.append(FrozenNetwork.of(skill, scenario, weights | statistics, 10.0))
    return made


def fight(last: str, lanes: int):
    skills = tuple(make_skill(name) for name in SKILL_NAMES[: SKILL_NAMES.index(last) + 1])
    scenario = training_scenario(load_scenario("iudex-phase1"), skills[-1])
    return skills, scenario, Combat(make_game(lanes=lanes), skills, scenario, Horizon(last, skills[-1].horizon))


def make_sampler(*trained, lanes=1, exploration=0.3, seed=5, first_lane=0, budget=math.inf) -> Sampler:
    """Return a sampler of modules of one skill each, the first of which has the budget."""
    skills, scenario, combat = fight(trained[-1], lanes)
    budgets = dict.fromkeys(trained, math.inf) | {trained[0]: budget}
    modules = [SampledModule(name, (name,), lambda _: exploration, budgets[name]) for name in trained]
    sampler = Sampler(combat, seed, modules, first_lane)
    sampler.set_networks(networks(skills, scenario))
    return sampler


def strayed(sampler: Sampler, decisions: int) -> list[int]:
    """Sample, and return how often each skill did something else than its network would."""
    combat = sampler._combat
    greedy, found = FusedNetworks(networks(combat.skills, combat.scenario)), np.zeros(len(combat.skills), int)
    expected, step = np.zeros((combat.lanes, len(combat.skills)), np.int64), combat.step

    def watched(actions, active=None):
        greedy.act(combat.rows, combat.due, expected)
        found[:] += ((actions != expected) & combat.due).sum(axis=0)
        step(actions, active)

    combat.step = watched
    sampler.sample(decisions)
    return found.tolist()


def played_by_the_face(trained: str):
    """Yield a skill's transitions as the multi-agent face has them, fight after fight."""
    skills, scenario, _ = fight(trained, 1)
    env = SkillGraphEnv([skill.name for skill in skills], "iudex-phase1")
    greedy, actions = FusedNetworks(networks(skills, scenario)), np.zeros((1, len(skills)), np.int64)
    observations, _ = env.reset(seed=5)
    while True:
        greedy.act(env.combat.rows, env.combat.due, actions)
        chosen = {name: int(actions[0, i]) for i, name in enumerate(env.skills) if name in observations}
        if trained in chosen:
            begun = observations[trained], chosen[trained]
        observations, rewards, terminated, truncated, _ = env.step(chosen)
        if trained in rewards:
            yield *begun, rewards[trained], observations[trained], terminated["__all__"]
        if terminated["__all__"] or truncated["__all__"]:
            observations, _ = env.reset()


@pytest.mark.parametrize("trained", ["lock_on", "heal_attack"])
def test_batched_path_and_multi_agent_face_give_the_same_transitions(trained):
    sampler = make_sampler(trained, exploration=0.0)
    batched = Transitions.join([sampler.sample(50).transitions[trained] for _ in range(12)])
    assert batched.episodes[-1] > batched.episodes[0] + 1
    expected = islice(played_by_the_face(trained), len(batched))
    for index, (before, action, reward, after, ended) in enumerate(expected):
        np.testing.assert_array_equal(batched.observations[index], before)
        assert batched.actions[index] == action
        assert batched.rewards[index] == pytest.approx(reward, abs=1e-6)
        np.testing.assert_array_equal(batched.next_observations[index], after)
        assert batched.terminated[index] == ended


def test_a_sample_never_brings_more_than_asked_for_and_paper_rounds_are_exact():
    one, many = make_sampler("dodge"), make_sampler("dodge", lanes=32)
    assert {len(one.sample(4).transitions["dodge"]) for _ in range(50)} == {4}
    counts = [len(many.sample(128).transitions["dodge"]) for _ in range(20)]
    assert max(counts) <= 128
    assert min(counts) > 96


def test_only_the_trained_skill_explores():
    assert strayed(make_sampler("dodge", lanes=8, exploration=0.0), 400) == [0, 0, 0, 0]
    *frozen, trained = strayed(make_sampler("dodge", lanes=8, exploration=1.0), 400)
    assert not any(frozen)
    assert trained > 0


def test_a_module_at_its_budget_plays_greedily_and_is_collected_no_more():
    sampler = make_sampler("dodge", "heal_attack", lanes=4, exploration=0.5, budget=100)
    sampler.receive({"dodge": 100, "heal_attack": 0})
    chunk = sampler.sample(64)
    assert set(chunk.transitions) == {"heal_attack"} == set(chunk.episodes)
    *greedy, explores = strayed(sampler, 400)
    assert greedy == [0, 0, 0, 0]
    assert explores > 0


@pytest.mark.parametrize("trained", [("heal_attack",), ("dodge", "heal_attack")])
def test_a_resumed_sampler_continues_bit_for_bit(trained):
    original, resumed = (make_sampler(*trained, lanes=4) for _ in range(2))
    original.sample(300)
    resumed.set_state(original.get_state())
    one, other = original.sample(300), resumed.sample(300)
    for name in trained:
        assert_same(vars(one.transitions[name]), vars(other.transitions[name]))
        assert_same(vars(one.episodes[name]), vars(other.episodes[name]))


def test_transitions_of_a_lane_and_episode_follow_each_other():
    transitions = make_sampler("dodge", lanes=3, first_lane=6).sample(1000).transitions["dodge"]
    assert set(transitions.lanes.tolist()) == {6, 7, 8}
    np.testing.assert_array_equal(transitions.ticks, np.where(transitions.actions == 0, 5, 1))
    followed = 0
    for lane in (6, 7, 8):
        for before, after in pairwise(np.flatnonzero(transitions.lanes == lane)):
            same = transitions.episodes[before] == transitions.episodes[after]
            joins = np.array_equal(transitions.next_observations[before], transitions.observations[after])
            assert joins or not same
            assert not (same and transitions.terminated[before])
            followed += same
    assert 900 < followed < len(transitions) - 3


def test_a_sample_of_several_modules_ends_when_any_has_its_share():
    joint = make_sampler("dodge", "heal_attack", lanes=4, exploration=0.5)
    for _ in range(20):
        counts = {module: len(found) for module, found in joint.sample(64).transitions.items()}
        assert set(counts) == {"dodge", "heal_attack"}
        assert 64 - 4 < max(counts.values()) <= 64
        assert min(counts.values()) < max(counts.values())


def test_two_skills_of_one_module_have_lanes_of_their_own():
    skills, scenario, combat = fight("lock_on", 2)
    twin = replace(skills[0], name="camera_twin")
    both = Combat(combat.game, (skills[0], twin), scenario, Horizon("camera_twin", twin.horizon))
    sampler = Sampler(both, 5, [SampledModule("shared", ("camera", "camera_twin"), lambda _: 0.3)], first_lane=2)
    sampler.set_networks(networks((skills[0], twin), scenario))
    (transitions,) = sampler.sample(40).transitions.values()
    assert len(transitions) == 40
    assert set(transitions.lanes.tolist()) == {4, 5, 6, 7}
    assert sampler.decisions == {"shared": 40}
    for lane in range(4, 8):
        rows = np.flatnonzero(transitions.lanes == lane)
        np.testing.assert_array_equal(transitions.next_observations[rows[:-1]], transitions.observations[rows[1:]])


def test_a_sampler_says_so_when_no_fight_lasts_to_a_decision(monkeypatch):
    # Half of the fights begin with the skill due, as its clock is drawn; here no decision of it ever ends.
    monkeypatch.setattr(Rollout, "log", lambda self: 0)
    monkeypatch.setattr(Combat, "ended", np.ones(2, np.bool_))
    with pytest.raises(GameError, match="heal_attack"):
        make_sampler("heal_attack", lanes=2).sample(64)
