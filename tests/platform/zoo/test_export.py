"""Skills as ONNX files: they choose what our own inference chooses, say what they are, and are written whole or not."""

import json
from itertools import pairwise

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soulsgraph.runs.evaluate import Setting, make_agent
from soulsgraph.zoo import conversion as exporting
from soulsgraph.zoo import open_agent
from soulsgraph.zoo.conversion import both_values, compare_model, export_onnx, recorded_rows
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.skills import SKILL_NAMES, make_skill
from soulsgraph_policies.agents.foreign_files import onnx_model
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, FrozenNetwork, layer_names

_AGENT, _PHASE_1 = "iudex-phase1-best-0", Setting("iudex-phase1", "iudex-phase1")


@pytest.fixture(scope="module")
def agent():
    return make_agent(open_agent(_AGENT), _PHASE_1)


@pytest.fixture(scope="module")
def rows(agent):
    return recorded_rows(agent, 2_000)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("onnx")
    return folder, export_onnx(open_agent(_AGENT), folder, _PHASE_1, 2_000)


def _session(folder, skill):
    return onnxruntime.InferenceSession(folder / f"{skill}.onnx")


def test_every_skill_of_an_agent_is_a_file_that_chooses_as_we_do_in_its_own_fights(exported, rows):
    folder, found = exported
    assert all((fought[:, Column.PLAYER_HP] > 0.0).all() for fought in rows.values())
    assert sorted(path.name for path in folder.iterdir()) == sorted(["check.json", *(f"{s}.onnx" for s in SKILL_NAMES)])
    assert [one.skill for one in found] == [*SKILL_NAMES]
    assert all((one.observations, one.clear_differing) == (2_000, 0) for one in found)
    assert all(one.near < 20 and one.largest_difference < 1e-5 for one in found)
    written = json.loads((folder / "check.json").read_text())
    assert written["skills"] == [one.to_dict() for one in found]
    assert {"commit", "machine", "scenario", "margin"} <= written.keys()


def test_the_batch_axis_is_free_and_an_answer_does_not_depend_on_it(exported, agent, rows):
    dodge, network = _session(exported[0], "dodge"), agent.networks["dodge"]
    observations = network.observation(rows["dodge"])
    together = dodge.run(["q_values", "action"], {"observation": observations})
    assert together[0].shape == (2_000, len(make_skill("dodge").actions))
    assert (together[1].dtype, together[1].shape) == (np.int64, (2_000,))
    for n in (0, 7):
        alone, action = dodge.run(["q_values", "action"], {"observation": observations[n : n + 1]})
        np.testing.assert_allclose(alone[0], together[0][n], rtol=1e-5)
        assert action == [together[1][n]]
    assert dodge.run(["action"], {"observation": observations[:0]})[0].shape == (0,)


def test_a_file_says_what_it_is(exported, agent):
    card = open_agent(_AGENT).library.card("heal_attack", 1)
    facts = _session(exported[0], "heal_attack").get_modelmeta().custom_metadata_map
    assert (facts["skill"], facts["skill_version"], facts["scenario"]) == ("heal_attack", "1", "iudex-phase1")
    assert (facts["card_digest"], facts["weights_sha256"]) == (card.digest, card.sha256)
    observation = agent.networks["heal_attack"].observation
    assert json.loads(facts["observation_offset"]) == observation.offset.tolist()
    assert json.loads(facts["observation_scale"]) == observation.scale.tolist()
    assert json.loads(facts["actions"]) == [action.name for action in make_skill("heal_attack").actions]


@st.composite
def _networks(draw):
    """A network of any weights, normaliser and layers for a skill."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    skill = make_skill(draw(st.sampled_from(SKILL_NAMES)))
    hidden = draw(st.lists(st.integers(1, 70), max_size=3))
    sizes = [skill.observation.size, *hidden, len(skill.actions)]
    weights = {MEAN: generator.normal(size=sizes[0]), DEVIATION: generator.uniform(1e-4, 3.0, sizes[0])}
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        weights[f"q_network.{2 * index}.weight"] = generator.normal(size=(outputs, inputs)).astype(np.float32)
        weights[f"q_network.{2 * index}.bias"] = generator.normal(size=outputs).astype(np.float32)
    clip = draw(st.sampled_from([0.5, 10.0, 1e9]))
    return FrozenNetwork.of(skill, load_scenario("iudex-phase2"), weights, clip)


#: Two sums of 25 and 3 times 70 products and a bias, each in float32 and an order of its own, differ by at most this
#: share of the sum of their terms' sizes.
_ROUNDING = 2 * (26 + 3 * 71) * 2.0**-24


def _sizes_of_terms(network, rows):
    """The values that rows would have if no two terms cancelled, the largest of each row, (rows,)."""
    weights = network.weights
    sizes = (np.abs(network.observation(rows)) + np.abs(weights[MEAN])) / weights[DEVIATION]
    sizes = np.minimum(sizes, network.clip)
    for weight, bias in layer_names(weights):
        sizes = sizes @ np.abs(weights[weight].astype(np.float64)).T + np.abs(weights[bias])
    return sizes.max(axis=1)


@settings(max_examples=40)
@given(_networks())
def test_any_network_agrees_with_its_file(network):
    rows = np.random.default_rng(1).normal(0.0, 5.0, (300, 25)).astype(np.float32)
    ((ours, theirs, actions),) = both_values(network, onnx_model(network, {}), rows)
    rounding = _ROUNDING * _sizes_of_terms(network, rows)
    assert (np.abs(ours - theirs).max(axis=1) <= rounding).all()
    second, best = np.sort(ours, axis=1)[:, -2:].T
    clear = best - second > 2 * rounding
    np.testing.assert_array_equal(actions[clear], ours.argmax(axis=1)[clear])


def test_equal_values_are_near_ties_and_the_first_is_chosen(agent):
    network = agent.networks["camera"]
    flat = {name: values if name in (MEAN, DEVIATION) else 0 * values for name, values in network.weights.items()}
    same = FrozenNetwork("camera", network.observation, flat, network.clip)
    found = compare_model(same, onnx_model(same, {}), np.ones((10, 25), np.float32))
    assert (found.near, found.near_differing, found.clear) == (10, 0, 0)


def test_a_file_that_chooses_otherwise_is_refused_and_nothing_is_written(agent, monkeypatch, tmp_path):
    other = make_agent(open_agent("iudex-phase1-best-1"), _PHASE_1).networks
    monkeypatch.setattr(
        exporting.foreign_files, "onnx_model", lambda network, facts: onnx_model(other[network.skill], facts)
    )
    with pytest.raises(SoulsGraphError, match="camera"):
        export_onnx(open_agent(_AGENT), tmp_path / "out", _PHASE_1, 500)
    assert not (tmp_path / "out").exists()
