"""Fused inference, against the RLlib module it replaces."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import SKILL_NAMES, Skill, SkillOptions, make_skill
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks, weights_digest
from soulsgraph_policies.learning.cloning import make_module
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.module import QNetworkModule

SCENARIO = load_scenario("iudex-phase1")
SKILLS = [make_skill(name) for name in SKILL_NAMES]
ONE_HOT = SkillOptions(animations="one_hot", observations="extended")


def _module(skill: Skill, seed: int = 0, hidden: tuple[int, ...] = (64, 64)) -> QNetworkModule:
    size, random = skill.observation.size, np.random.default_rng(seed)
    numbers = DQNHyperparameters(budget=1, capacity=1, fcnet_hiddens=hidden)
    module = make_module(size, len(skill.actions), numbers, seed)
    module.set_normalizer(random.normal(0, 5, size), random.uniform(1e-4, 3, size))
    return module


def _network(skill: Skill, seed: int = 0, hidden: tuple[int, ...] = (64, 64)) -> FrozenNetwork:
    return FrozenNetwork.of(skill, SCENARIO, _module(skill, seed, hidden).weights(), 10.0)


def _rows(count: int, seed: int = 0) -> np.ndarray:
    rows = (np.random.default_rng(seed).standard_normal((count, 25)) * 30.0).astype(np.float32)
    rows[:, [0, 2]] = np.random.default_rng(seed + 1).integers(-1, 20, (count, 2))  # Some ids that no data know.
    return rows


def _expected(module: QNetworkModule, skill: Skill, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what a module reads and its Q-values."""
    with torch.no_grad():
        inputs = module.normalize(torch.from_numpy(skill.observation(rows, SCENARIO)))
        return inputs.numpy(), module.q_network(inputs).numpy()


@pytest.mark.parametrize(
    "skill", [*SKILLS, make_skill("dodge", ONE_HOT), make_skill("heal_attack", ONE_HOT)], ids=lambda skill: skill.name
)
def test_what_a_network_reads_and_its_q_values_equal_the_modules(skill: Skill) -> None:
    rows, networks = _rows(200), FusedNetworks([_network(SKILLS[0]), _network(skill)])
    inputs, values = _expected(_module(skill), skill, rows)
    found = _network(skill).inputs(skill.observation(rows, SCENARIO))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, inputs, atol=1e-6)
    assert np.abs(found).max() == 10.0
    np.testing.assert_allclose(networks.q_values(1, rows), values, atol=2e-5)
    np.testing.assert_allclose(_network(skill).values_of(skill.observation(rows, SCENARIO)), values, atol=2e-5)


@settings(max_examples=20)
@given(
    hidden=st.lists(st.integers(1, 70), min_size=1, max_size=3).map(tuple),
    lanes=st.integers(1, 110),
    seed=st.integers(0, 100),
)
def test_networks_of_any_sizes_are_the_modules_and_act_alike_however_many_lanes(hidden, lanes, seed) -> None:
    skills, rows = SKILLS[2:4], _rows(lanes, seed)
    networks = FusedNetworks([_network(skill, hidden=hidden) for skill in skills])
    together, alone = np.zeros((lanes, 2), np.int64), np.zeros((lanes, 2), np.int64)
    networks.act(rows, np.ones((lanes, 2), np.bool_), together)
    for lane in range(lanes):
        networks.act(rows[lane : lane + 1], np.ones((1, 2), np.bool_), alone[lane : lane + 1])
    np.testing.assert_array_equal(together, alone)
    for index, skill in enumerate(skills):
        found = networks.q_values(index, rows)
        np.testing.assert_allclose(found, _expected(_module(skill, hidden=hidden), skill, rows)[1], atol=5e-5)
        np.testing.assert_array_equal(found, np.concatenate([networks.q_values(index, row[None]) for row in rows]))
        np.testing.assert_array_equal(together[:, index], found.argmax(axis=1))


def test_each_lane_may_play_another_version_and_only_where_due() -> None:
    random, rows = np.random.default_rng(2), _rows(60)
    versions = [_network(SKILLS[4], seed) for seed in range(3)]
    plays, due, actions = random.integers(-1, 3, (60, 1)), random.random((60, 1)) < 0.7, np.full((60, 1), -7, np.int64)
    FusedNetworks(versions, plays).act(rows, due, actions)
    expected = np.full(60, -7)
    for version, network in enumerate(versions):
        lanes = (plays[:, 0] == version) & due[:, 0]
        expected[lanes] = FusedNetworks([network]).q_values(0, rows).argmax(axis=1)[lanes]
    np.testing.assert_array_equal(actions[:, 0], expected)


def test_loaded_weights_play_as_if_built_with_them_and_are_copies() -> None:
    networks, rows, newer = FusedNetworks([_network(skill) for skill in SKILLS]), _rows(20), _module(SKILLS[2], seed=9)
    networks.load(2, newer.weights())
    networks.replace(1, _network(SKILLS[1], seed=7))
    for name, values in newer.weights().items():
        kept = networks.weights(2)[name]
        np.testing.assert_array_equal(kept, values, err_msg=name)
        kept += 1.0
        values += 1.0
    for index, seed in enumerate((0, 7, 9, 0, 0)):
        alone = FusedNetworks([_network(SKILLS[index], seed)])
        np.testing.assert_array_equal(networks.q_values(index, rows), alone.q_values(0, rows))


def test_a_digest_is_that_of_names_and_bits() -> None:
    one, other = _network(SKILLS[0]).weights, _network(SKILLS[0], seed=1).weights
    digests = [weights_digest(weights) for weights in ({"a": one}, {"a": dict(one)}, {"b": one}, {"a": other}, {})]
    assert digests[0] == digests[1]
    assert len({*digests}) == 4


def test_what_does_not_fit_is_not_loaded() -> None:
    networks, rows = FusedNetworks([_network(SKILLS[0])]), _rows(5)
    before, weights = networks.q_values(0, rows), _module(SKILLS[0], seed=3).weights()
    last = list(weights)[-1]
    for wrong in (
        {name: values for name, values in weights.items() if name != last},
        weights | {"q_network.6.bias": np.zeros(3, np.float32)},
        weights | {last: weights[last][:1]},
        _network(SKILLS[1]).weights,
    ):
        with pytest.raises(SoulsGraphError, match="camera"):
            networks.load(0, wrong)
    np.testing.assert_array_equal(networks.q_values(0, rows), before)
    with pytest.raises(SoulsGraphError, match="dodge"):
        FrozenNetwork.of(make_skill("dodge"), SCENARIO, _module(make_skill("heal_attack")).weights(), 10.0)
