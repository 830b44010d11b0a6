from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from fakes.fleet_here import random_weights
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import Chunk
from soulsgraph_clusters.fleet.protocol.messages import (
    check_columns,
    check_moments,
    decode_columns,
    decode_weights,
    encode_columns,
    encode_weights,
    read_moments,
    write_moments,
)
from soulsgraph_clusters.fleet.protocol.settings import FleetError
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_envs.games.opening import make_game
from soulsgraph_policies.learning.hyperparameters import skill_hyperparameters
from soulsgraph_policies.learning.sampler import Moments


@pytest.fixture(scope="module")
def task():
    plays = {"camera": "camera", "lock_on": "lock_on"}
    return StageTask("iudex-phase1", plays, {"lock_on": skill_hyperparameters(4000)}, 10.0)


@pytest.fixture(scope="module")
def chunk(task):
    sampler = task.sampler(make_game(3), seed=5)
    sampler.set_networks(task.networks(random_weights(task)))
    return sampler.sample(900)


def test_a_chunk_comes_back_as_it_was(task, chunk):
    back = decode_columns(encode_columns(chunk))
    assert back.transitions.keys() == {"lock_on"}
    for name in vars(chunk.transitions["lock_on"]):
        sent, found = (getattr(one.transitions["lock_on"], name) for one in (chunk, back))
        assert sent.dtype == found.dtype, name
        assert np.array_equal(sent, found), name
    assert np.array_equal(back.episodes["lock_on"].terms, chunk.episodes["lock_on"].terms)


_WHOLE = st.integers(0, 2**31 - 1)


@given(st.dictionaries(st.sampled_from(("dodge", "camera", "lock_on")), st.lists(_WHOLE, min_size=1), min_size=1))
def test_every_transition_keeps_its_version_and_tick(played):
    moments = {name: Moments(np.array(values), np.arange(len(values))) for name, values in played.items()}
    chunk = Chunk(decisions={name: len(values) for name, values in played.items()})
    write_moments(moments, chunk)
    assert chunk.weights_version == min(min(values) for values in played.values())
    back = read_moments(Chunk.FromString(chunk.SerializeToString()))
    assert {name: own.versions.tolist() for name, own in back.items()} == played
    assert all(own.ticks.tolist() == list(range(len(own.versions))) for own in back.values())


@pytest.mark.parametrize(
    "changes",
    [
        {"versions": [2, 3, 4]},
        {"ticks": [1]},
        {"versions": [3, 4], "ticks": [1, 2]},
        {"versions": [4, 4, 4]},
        {"decisions": {}},
    ],
)
def test_versions_that_are_not_the_decisions_own_are_refused_in_one_line(changes):
    values = {"decisions": {"camera": 2, "dodge": 1}, "weights_version": 3, "versions": [3, 3, 5], "ticks": [1, 2, 2]}
    check_moments(Chunk(**values))
    with pytest.raises(FleetError, match="versions"):
        check_moments(Chunk(**values | changes))


def test_bytes_that_are_no_truth_values_and_files_of_another_size_are_refused(task, chunk):
    data = encode_columns(chunk)
    whole = load(data)
    for name in (name for name, array in whole.items() if array.dtype == np.bool_):
        neither = save(whole | {name: np.full(whole[name].shape, 2, np.uint8).view(np.bool_)})
        with pytest.raises(FleetError, match="lock_on"):
            check_columns(neither, task.spaces, task.terms)
    for other in (data[:-1], data + b"\0"):
        with pytest.raises(FleetError, match="safetensors"):
            check_columns(other, task.spaces, task.terms)


def _changed(chunk, change):
    arrays = load(encode_columns(chunk))
    change(arrays)
    return save(arrays)


def _set(name, value, place=0):
    def change(arrays):
        arrays[f"transitions/lock_on/{name}"][place] = value

    return change


def _replaced(name, make):
    def change(arrays):
        arrays[name] = make(arrays[name])

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays.pop("transitions/lock_on/ticks"),
        lambda arrays: arrays.update({"transitions/lock_on/more": np.zeros(900, np.int64)}),
        lambda arrays: arrays.update({"transitions/dodge/ticks": np.zeros(900, np.int64)}),
        _replaced("transitions/lock_on/actions", lambda values: values.astype(np.int32)),
        _replaced("transitions/lock_on/observations", lambda values: values[:, 1:].copy()),
        _replaced("transitions/lock_on/observations", lambda values: values[1:].copy()),
        _replaced("transitions/lock_on/lanes", lambda values: values.reshape(-1, 1)),
        _replaced("episodes/lock_on/terms", lambda values: values[:, :0].copy()),
        _set("actions", 99),
        _set("actions", -1),
        _set("ticks", 0),
    ],
)
def test_columns_that_the_stage_cannot_have_are_refused_by_name(task, chunk, change):
    with pytest.raises(FleetError, match=r"^chunk: "):
        check_columns(_changed(chunk, change), task.spaces, task.terms)


def test_weights_come_back_as_they_were(task):
    weights = random_weights(task)
    back = decode_weights(encode_weights(weights))
    assert back.keys() == weights.keys() == {"camera", "lock_on"}
    for module, own in weights.items():
        np.testing.assert_equal(back[module], own)


def test_weights_that_are_not_finite_or_no_file_are_refused(task):
    weights = random_weights(task)
    next(iter(weights["camera"].values()))[0] = np.nan
    for data in (encode_weights(weights), b"other"):
        with pytest.raises(FleetError):
            decode_weights(data)


@pytest.mark.parametrize("odd", [np.nan, -np.inf, 1.01e9, -1.01e9, 2**62])
def test_no_column_holds_numbers_that_learning_or_results_could_not_be_computed_from(task, chunk, odd):
    whole, taken = load(encode_columns(chunk)), []
    # A game's own lanes are known to who takes the chunk in.
    names = [name for name, array in whole.items() if array.dtype != np.bool_ and not name.endswith("/lanes")]
    names = [name for name in names if whole[name].dtype != np.int64 or odd == 2**62]
    for name in names:
        changed = whole[name].copy()
        changed.reshape(-1)[-1] = odd
        with suppress(FleetError):
            check_columns(save(whole | {name: changed}), task.spaces, task.terms)
            taken.append(name)
    assert len(names) > 5
    assert taken == []
