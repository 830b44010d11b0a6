"""Fused inference, against the RLlib module it replaces."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from ray.rllib.core.columns import Columns

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import SKILL_NAMES, Skill, SkillOptions, make_skill
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks
from soulsgraph_policies.learning.module import QNetworkModule

SCENARIO = load_scenario("iudex-phase1")
SKILLS = [make_skill(name) for name in SKILL_NAMES]


def _module(skill: Skill, seed: int = 0, hidden: tuple[int, ...] = (64, 64)) -> QNetworkModule:
    size = skill.observation.size
    module = QNetworkModule(
        observation_space=Box(-np.inf, np.inf, (size,), np.float32),
        action_space=Discrete(len(skill.actions)),
        model_config={"hidden_sizes": hidden, "observation_clip": 10.0, "seed": seed},
    )
    random = np.random.default_rng(seed)
    module.set_normalizer(random.normal(0, 5, size), random.uniform(1e-4, 3, size))
    return module


def _network(skill: Skill, seed: int = 0) -> FrozenNetwork:
    return FrozenNetwork.of(skill, SCENARIO, _module(skill, seed).weights(), 10.0)


def _rows(count: int, seed: int = 0, scale: float = 30.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((count, 25)) * scale).astype(np.float32)


ONE_HOT = SkillOptions(animations="one_hot", observations="extended")


@pytest.mark.parametrize(
    "skill", [*SKILLS, make_skill("dodge", ONE_HOT), make_skill("heal_attack", ONE_HOT)], ids=lambda skill: skill.name
)
def test_q_values_equal_the_module_on_raw_observations(skill: Skill) -> None:
    module, rows = _module(skill), _rows(200)
    rows[:, [0, 2]] = np.random.default_rng(1).integers(-1, 20, (200, 2))  # some ids that no data know
    with torch.no_grad():
        expected = module.q_network(module.normalize(torch.from_numpy(skill.observation(rows, SCENARIO)))).numpy()
    found = FusedNetworks([_network(skill)]).q_values(0, rows)
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("skill", [*SKILLS, make_skill("dodge", ONE_HOT)], ids=lambda skill: skill.name)
def test_what_a_network_reads_equals_the_module_and_is_what_its_q_values_are_of(skill: Skill) -> None:
    module, rows = _module(skill), _rows(100)
    rows[:, [0, 2]] = np.random.default_rng(1).integers(-1, 20, (100, 2))
    expected = module.normalize(torch.from_numpy(skill.observation(rows, SCENARIO)))
    networks = FusedNetworks([_network(SKILLS[0]), _network(skill)])
    found = networks.inputs(1, rows)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)
    assert np.abs(found).max() == 10.0
    with torch.no_grad():
        values = module.q_network(torch.from_numpy(found)).numpy()
    np.testing.assert_allclose(networks.q_values(1, rows), values, atol=2e-5)


@settings(max_examples=60)
@given(row=arrays(np.float32, 25, elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_values_out_of_range_are_clipped_as_in_the_module(row: np.ndarray) -> None:
    skill = SKILLS[3]
    module = _module(skill)
    with torch.no_grad():
        observation = torch.from_numpy(skill.observation(row[None], SCENARIO))
        expected = module.q_network(module.normalize(observation)).numpy()
    found = FusedNetworks([_network(skill)]).q_values(0, row[None])
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_column_that_was_constant_in_training_is_clipped_when_it_changes() -> None:
    skill = SKILLS[0]
    module = _module(skill)
    module.set_normalizer(np.zeros(skill.observation.size), np.full(skill.observation.size, 1e-6))
    networks = FusedNetworks([FrozenNetwork.of(skill, SCENARIO, module.weights(), 10.0)])
    near, far = np.full((1, 25), 1e-3, np.float32), np.full((1, 25), 1e6, np.float32)
    np.testing.assert_array_equal(networks.q_values(0, near), networks.q_values(0, far))


@settings(max_examples=25)
@given(lanes=st.integers(1, 110), seed=st.integers(0, 100))
def test_actions_do_not_depend_on_the_number_of_lanes(lanes: int, seed: int) -> None:
    networks, rows = FusedNetworks([_network(skill) for skill in SKILLS]), _rows(lanes, seed)
    together, alone = np.zeros((lanes, 5), np.int64), np.zeros((lanes, 5), np.int64)
    networks.act(rows, np.ones((lanes, 5), np.bool_), together)
    for lane in range(lanes):
        one = slice(lane, lane + 1)
        networks.act(rows[one], np.ones((1, 5), np.bool_), alone[one])
    np.testing.assert_array_equal(together, alone)
    values = np.concatenate([networks.q_values(0, rows[lane : lane + 1]) for lane in range(lanes)])
    np.testing.assert_array_equal(values, networks.q_values(0, rows))


@settings(max_examples=15)
@given(hidden=st.lists(st.integers(1, 70), min_size=1, max_size=3).map(tuple), lanes=st.integers(1, 60))
def test_networks_of_any_sizes_are_the_modules_and_the_same_for_many_lanes(hidden, lanes) -> None:
    skills, rows = SKILLS[2:4], _rows(lanes)
    modules = [_module(skill, hidden=hidden) for skill in skills]
    networks = FusedNetworks(
        [
            FrozenNetwork.of(skill, SCENARIO, module.weights(), 10.0)
            for skill, module in zip(skills, modules, strict=True)
        ]
    )
    for index, (skill, module) in enumerate(zip(skills, modules, strict=True)):
        with torch.no_grad():
            expected = module.q_network(module.normalize(torch.from_numpy(skill.observation(rows, SCENARIO)))).numpy()
        found = networks.q_values(index, rows)
        np.testing.assert_allclose(found, expected, atol=5e-5)
        np.testing.assert_array_equal(found, np.concatenate([networks.q_values(index, row[None]) for row in rows]))
        kept = networks.weights(index)
        assert all(
            (kept[name] == values).all() for name, values in module.weights().items() if "observation" not in name
        )


def test_greedy_action_is_the_modules_and_only_where_due() -> None:
    rows, due = _rows(300), np.random.default_rng(1).random((300, 5)) < 0.5
    actions = np.full((300, 5), -7, np.int64)
    FusedNetworks([_network(skill) for skill in SKILLS]).act(rows, due, actions)
    assert (actions[~due] == -7).all()
    for index, skill in enumerate(SKILLS):
        batch = {Columns.OBS: torch.from_numpy(skill.observation(rows, SCENARIO))}
        expected = _module(skill).forward_inference(batch)[Columns.ACTIONS].numpy()
        shown = due[:, index]
        assert (actions[shown, index] == expected[shown]).mean() > 0.99  # a tie may round either way


def test_each_lane_may_play_another_version() -> None:
    skill, rows = SKILLS[4], _rows(60)
    versions = [_network(skill, seed) for seed in range(3)]
    plays = np.random.default_rng(2).integers(-1, 3, (60, 1))
    actions = np.full((60, 1), -7, np.int64)
    FusedNetworks(versions, plays).act(rows, np.ones((60, 1), np.bool_), actions)
    for version, network in enumerate(versions):
        lanes = plays[:, 0] == version
        expected = FusedNetworks([network]).q_values(0, rows).argmax(axis=1)
        np.testing.assert_array_equal(actions[lanes, 0], expected[lanes])
    assert (actions[plays[:, 0] == -1] == -7).all()


def test_replaced_network_plays_as_if_built_with_it() -> None:
    networks, rows = FusedNetworks([_network(SKILLS[1]), _network(SKILLS[2])]), _rows(20)
    networks.replace(1, _network(SKILLS[2], seed=9))
    expected = FusedNetworks([_network(SKILLS[2], seed=9)]).q_values(0, rows)
    np.testing.assert_array_equal(networks.q_values(1, rows), expected)


def test_loaded_weights_play_as_if_built_with_them_and_are_copies() -> None:
    networks, rows, newer = FusedNetworks([_network(skill) for skill in SKILLS]), _rows(20), _module(SKILLS[2], seed=9)
    networks.load(2, newer.weights())
    expected = FusedNetworks([_network(SKILLS[2], seed=9)]).q_values(0, rows)
    np.testing.assert_array_equal(networks.q_values(2, rows), expected)
    for name, values in newer.weights().items():
        kept = networks.weights(2)[name]
        np.testing.assert_array_equal(kept, values, err_msg=name)
        kept += 1.0
        values += 1.0
    np.testing.assert_array_equal(networks.q_values(2, rows), expected)
    for other in (0, 1, 3, 4):
        alone = FusedNetworks([_network(SKILLS[other])]).q_values(0, rows)
        np.testing.assert_array_equal(networks.q_values(other, rows), alone)


@pytest.mark.parametrize("wrong", ["a weight is missing", "a weight more", "another shape"])
def test_what_does_not_fit_is_not_loaded(wrong: str) -> None:
    networks, rows = FusedNetworks([_network(SKILLS[0])]), _rows(5)
    before, weights = networks.q_values(0, rows), _module(SKILLS[0], seed=3).weights()
    last = list(weights)[-1]
    if wrong == "a weight is missing":
        del weights[last]
    elif wrong == "a weight more":
        weights["q_network.6.bias"] = np.zeros(3, np.float32)
    else:
        weights[last] = weights[last][:1]
    with pytest.raises(SoulsGraphError, match="network of camera: expected weights of shapes"):
        networks.load(0, weights)
    np.testing.assert_array_equal(networks.q_values(0, rows), before)


def test_weights_of_another_skill_are_refused() -> None:
    with pytest.raises(SoulsGraphError, match="network of dodge"):
        FrozenNetwork.of(make_skill("dodge"), SCENARIO, _module(make_skill("heal_attack")).weights(), 10.0)
    with pytest.raises(SoulsGraphError, match="expected a weight"):
        FrozenNetwork.of(make_skill("dodge"), SCENARIO, {}, 10.0)
    with pytest.raises(SoulsGraphError, match="keep the layer sizes"):
        FusedNetworks([_network(SKILLS[0])]).replace(0, _network(SKILLS[1]))
