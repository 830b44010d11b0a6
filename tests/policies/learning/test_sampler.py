"""The batched rollout path: the same transitions as the multi-agent face, and as itself after a resume."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.rollout import Episodes, Rollout
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import episode_seeds
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.gym.rllib import SkillGraphEnv
from soulsgraph_envs.skills import SKILL_NAMES, make_skill, training_scenario
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks, layer_names_at
from soulsgraph_policies.learning.sampler import SampledModule, Sampler, Transitions


def networks(skills, scenario, seed=0) -> list[FrozenNetwork]:
    rng = np.random.default_rng(seed)
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


def fight(trained: str, lanes: int):
    names = SKILL_NAMES[: SKILL_NAMES.index(trained) + 1]
    skills = tuple(make_skill(name) for name in names)
    scenario = training_scenario(load_scenario("iudex-phase1"), skills[-1])
    combat = Combat(make_game(lanes=lanes), skills, scenario, Horizon(trained, skills[-1].horizon))
    return skills, scenario, combat


def make_sampler(trained: str, lanes: int, exploration: float = 0.3, seed: int = 5) -> Sampler:
    skills, scenario, combat = fight(trained, lanes)
    sampler = Sampler(combat, seed, [SampledModule(trained, (trained,), lambda _: exploration)])
    sampler.set_networks(networks(skills, scenario))
    return sampler


@pytest.mark.parametrize("trained", ["lock_on", "dodge", "heal_attack"])
def test_batched_path_and_multi_agent_face_give_the_same_transitions(trained):
    sampler = make_sampler(trained, lanes=1, exploration=0.0)
    batched = [sampler.sample(50).transitions[trained] for _ in range(40)]
    skills, scenario, _ = fight(trained, 1)
    env = SkillGraphEnv([skill.name for skill in skills], "iudex-phase1")
    played = FusedNetworks(networks(skills, scenario))
    actions = np.zeros((1, len(skills)), np.int64)
    observations, _ = env.reset(seed=5)
    transitions, open_decision = [], None
    for _ in range(6000):
        played.act(env.combat.rows, env.combat.due, actions)
        chosen = {name: int(actions[0, i]) for i, name in enumerate(env.skills) if name in observations}
        if trained in chosen:
            open_decision = (observations[trained], chosen[trained])
        observations, rewards, terminated, truncated, _ = env.step(chosen)
        if trained in rewards:
            transitions.append((*open_decision, rewards[trained], observations[trained], terminated["__all__"]))
        if terminated["__all__"] or truncated["__all__"]:
            observations, _ = env.reset()
    compared = 0
    for part in batched:
        for i in range(len(part)):
            before, action, reward, after, ended = transitions[compared]
            assert np.array_equal(part.observations[i], before)
            assert part.actions[i] == action
            assert part.rewards[i] == pytest.approx(reward, abs=1e-6)
            assert np.array_equal(part.next_observations[i], after)
            assert part.terminated[i] == ended
            compared += 1
    assert compared > 1000


def test_a_sample_never_brings_more_than_asked_for_and_paper_rounds_are_exact():
    one = make_sampler("dodge", lanes=1)
    assert {len(one.sample(4).transitions["dodge"]) for _ in range(50)} == {4}
    many = make_sampler("dodge", lanes=32)
    counts = [len(many.sample(128).transitions["dodge"]) for _ in range(50)]
    assert max(counts) <= 128
    assert min(counts) > 96


def test_only_the_trained_skill_explores():
    def actions_of(exploration):
        skills, scenario, combat = fight("dodge", 8)
        sampler = Sampler(combat, 1, [SampledModule("dodge", ("dodge",), lambda _: exploration)])
        sampler.set_networks(networks(skills, scenario))
        greedy = FusedNetworks(networks(skills, scenario))
        expected, strayed = np.zeros((8, len(skills)), np.int64), np.zeros(len(skills), int)
        step = combat.step

        def watched(actions, active=None):
            greedy.act(combat.rows, combat.due, expected)
            strayed[:] += ((actions != expected) & combat.due).sum(axis=0)
            step(actions, active)

        combat.step = watched
        sampler.sample(400)
        return strayed

    assert actions_of(0.0).tolist() == [0, 0, 0, 0]
    frozen, trained = actions_of(1.0)[:3], actions_of(1.0)[3]
    assert not frozen.any()
    assert trained > 0


def test_a_resumed_sampler_continues_bit_for_bit():
    original, resumed = make_sampler("heal_attack", lanes=4), make_sampler("heal_attack", lanes=4)
    original.sample(300)
    resumed.set_state(original.get_state())
    one, other = original.sample(300), resumed.sample(300)
    for name in ("observations", "next_observations", "actions", "rewards", "terminated"):
        assert np.array_equal(
            getattr(one.transitions["heal_attack"], name), getattr(other.transitions["heal_attack"], name)
        )
    assert np.array_equal(one.episodes["heal_attack"].terms, other.episodes["heal_attack"].terms)


def test_episodes_count_what_the_transitions_add_up_to():
    sampler = make_sampler("dodge", lanes=1)
    chunks = [sampler.sample(1) for _ in range(1500)]
    rewards = np.concatenate([chunk.transitions["dodge"].rewards for chunk in chunks])
    ends, start = [i for i, chunk in enumerate(chunks) if len(chunk.episodes["dodge"])], 0
    assert len(ends) > 2
    for end in ends:
        episode = chunks[end].episodes["dodge"]
        assert episode.lengths[0] == end + 1 - start
        assert episode.returns[0] == pytest.approx(rewards[start : end + 1].sum(), abs=1e-3)
        start = end + 1


def test_long_samples_hold_what_short_ones_do():
    short, long = make_sampler("dodge", lanes=1), make_sampler("dodge", lanes=1)
    parts, whole = [short.sample(1) for _ in range(1500)], long.sample(1500)
    for name, values in vars(whole.transitions["dodge"]).items():
        joined = np.concatenate([getattr(part.transitions["dodge"], name) for part in parts])
        np.testing.assert_array_equal(values, joined, err_msg=name)
    assert len(whole.episodes["dodge"]) > 2
    episodes = Episodes.join([part.episodes["dodge"] for part in parts])
    for name, values in vars(whole.episodes["dodge"]).items():
        joined = getattr(episodes, name)
        np.testing.assert_array_equal(values, joined, err_msg=name)


def test_lanes_have_episodes_of_their_own():
    seeds = episode_seeds(5, np.arange(32), 0)
    assert len(set(seeds.tolist())) == 32


def test_transitions_of_a_lane_and_episode_follow_each_other():
    skills, scenario, combat = fight("dodge", 3)
    sampler = Sampler(combat, 5, [SampledModule("dodge", ("dodge",), lambda _: 0.3)], first_lane=6)
    sampler.set_networks(networks(skills, scenario))
    transitions = sampler.sample(2000).transitions["dodge"]
    assert set(transitions.lanes.tolist()) == {6, 7, 8}
    np.testing.assert_array_equal(transitions.ticks, np.where(transitions.actions == 0, 5, 1))
    followed = 0
    for lane in (6, 7, 8):
        rows = np.flatnonzero(transitions.lanes == lane)
        for before, after in pairwise(rows):
            same = transitions.episodes[before] == transitions.episodes[after]
            joins = np.array_equal(transitions.next_observations[before], transitions.observations[after])
            assert joins or not same
            assert not (same and transitions.terminated[before])
            followed += same
    assert 1900 < followed < len(transitions) - 3


def joint_sampler(lanes: int = 4, budget: float = math.inf, modules: tuple[str, str] = ("dodge", "heal_attack")):
    skills, scenario, combat = fight("heal_attack", lanes)
    sampled = [SampledModule(name, (name,), lambda _: 0.5, budget if name == "dodge" else math.inf) for name in modules]
    sampler = Sampler(combat, 5, sampled)
    sampler.set_networks(networks(skills, scenario))
    return sampler


def test_a_sample_of_several_modules_ends_when_any_has_its_share():
    sampler = joint_sampler()
    for _ in range(20):
        counts = {module: len(found) for module, found in sampler.sample(64).transitions.items()}
        assert set(counts) == {"dodge", "heal_attack"}
        assert 64 - 4 < max(counts.values()) <= 64
        assert min(counts.values()) < max(counts.values())


def test_each_of_several_modules_gets_what_it_would_get_alone():
    joint, chunks = joint_sampler(), []
    for _ in range(30):
        chunks.append(joint.sample(64))
    for skill in ("dodge", "heal_attack"):
        transitions = Transitions.join([chunk.transitions[skill] for chunk in chunks])
        episodes = Episodes.join([chunk.episodes[skill] for chunk in chunks])
        assert transitions.observations.shape[1] == make_skill(skill).observation.size
        assert len(episodes) > 3
        lane = transitions.lanes == episodes.lanes[0]
        first = lane & (transitions.episodes == transitions.episodes[lane][0])
        assert first.sum() == episodes.lengths[0]
        assert transitions.rewards[first].sum() == pytest.approx(episodes.returns[0], abs=1e-3)


def test_a_module_at_its_budget_plays_greedily_and_is_collected_no_more():
    sampler = joint_sampler(budget=100)
    sampler.receive({"dodge": 100, "heal_attack": 0})
    combat, strayed = sampler._combat, np.zeros(5, int)
    skills, scenario, _ = fight("heal_attack", 4)
    greedy, expected, step = FusedNetworks(networks(skills, scenario)), np.zeros((4, 5), np.int64), combat.step

    def watched(actions, active=None):
        greedy.act(combat.rows, combat.due, expected)
        strayed[:] += ((actions != expected) & combat.due).sum(axis=0)
        step(actions, active)

    combat.step = watched
    chunk = sampler.sample(400)
    assert set(chunk.transitions) == {"heal_attack"} == set(chunk.episodes)
    assert strayed[:4].tolist() == [0, 0, 0, 0]
    assert strayed[4] > 0


def test_several_modules_resume_bit_for_bit():
    original, resumed = joint_sampler(), joint_sampler()
    original.sample(300)
    resumed.set_state(original.get_state())
    one, other = original.sample(300), resumed.sample(300)
    for skill in ("dodge", "heal_attack"):
        for name, values in vars(one.transitions[skill]).items():
            assert np.array_equal(values, getattr(other.transitions[skill], name))
        assert np.array_equal(one.episodes[skill].terms, other.episodes[skill].terms)


def test_two_skills_of_one_module_have_lanes_of_their_own():
    skills, scenario, combat = fight("lock_on", 2)
    twin = replace(skills[0], name="camera_twin")
    both = Combat(combat.game, (skills[0], twin), scenario, Horizon("camera_twin", twin.horizon))
    sampler = Sampler(both, 5, [SampledModule("shared", ("camera", "camera_twin"), lambda _: 0.3)], first_lane=2)
    sampler.set_networks(networks((skills[0], twin), scenario))
    chunk = sampler.sample(40)
    (transitions,) = chunk.transitions.values()
    assert len(transitions) == 40
    assert set(transitions.lanes.tolist()) == {4, 5, 6, 7}
    assert sampler.decisions == {"shared": 40}
    for lane in range(4, 8):
        rows = np.flatnonzero(transitions.lanes == lane)
        joins = [
            np.array_equal(transitions.next_observations[a], transitions.observations[b]) for a, b in pairwise(rows)
        ]
        assert all(joins)


def test_a_sampler_says_so_when_no_fight_lasts_to_a_decision(monkeypatch):
    skills, scenario, combat = fight("heal_attack", 2)
    # Half of the fights begin with the skill due, as its clock is drawn; here no decision of it ever ends.
    monkeypatch.setattr(Rollout, "log", lambda self: 0)
    monkeypatch.setattr(Combat, "ended", np.ones(2, np.bool_))
    sampler = Sampler(combat, 5, [SampledModule("heal_attack", ("heal_attack",), lambda _: 0.3)])
    sampler.set_networks(networks(skills, scenario))
    with pytest.raises(GameError, match=r"expected fights in which heal_attack decides, found 400 in a row"):
        sampler.sample(64)


def test_the_first_of_many_samplers_draws_from_the_streams_that_always_were_its():
    def random():
        return make_sampler("dodge", 2, seed=2**63 + 5)._collecting[0].draw.random.random(3)

    np.testing.assert_array_equal(random(), np.random.default_rng([2**63 + 5, 1, 0]).random(3))
    again = make_sampler("dodge", 2, seed=2**63 + 5)
    again.begin_streams(0)
    np.testing.assert_array_equal(random(), again._collecting[0].draw.random.random(3))
    again.begin_streams(1)
    assert (random() != again._collecting[0].draw.random.random(3)).all()
    assert again.get_state()["episodes"].min() > 10**6
