"""Networks that stable-baselines3 saved: read to the bit, without unpickling, whatever the file holds."""

import base64
import io
import pickle
import re
import zipfile
from itertools import pairwise
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stable_baselines3 import DQN

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.agents.foreign_files import read_saved_dqn

_SIZES = (3, 8, 5, 2)


class _Space(gymnasium.Env):
    """An environment of three values and two actions, which nobody plays."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)


class _Bomb:
    """An object that writes a file when it is unpickled."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return Path.touch, (self._path,)


def _model(**kwargs):
    return DQN("MlpPolicy", _Space(), policy_kwargs={"net_arch": [8, 5], **kwargs}, seed=0, buffer_size=10)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A real file, and the model that wrote it."""
    path, model = tmp_path_factory.mktemp("sb3") / "dqn.zip", _model()
    model.save(path)
    return path, model


def _members(path):
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def _write(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def _zipped(members):
    content = io.BytesIO()
    _write(content, members)
    return content.getvalue()


def _edited(saved, tmp_path, outer=lambda members: members, inner=None, compression=zipfile.ZIP_STORED):
    """Write the real file again with its members, or those of its networks, edited."""
    members = _members(saved[0])
    if inner is not None:
        members["policy.pth"] = _zipped(inner(_members(io.BytesIO(members["policy.pth"]))))
    return _write(tmp_path / "edited.zip", outer(members), compression)


def test_every_weight_is_the_models(saved):
    path, model = saved
    found = read_saved_dqn(path, _SIZES)
    state = model.q_net.q_net.state_dict()
    assert found.weights.keys() == {f"q_network.{name}" for name in state}
    for name, tensor in state.items():
        np.testing.assert_array_equal(found.weights[f"q_network.{name}"], tensor.numpy())
    assert found.steps == 0
    assert found.version.count(".") == 2


def test_what_is_pickled_is_never_read(saved, tmp_path):
    touched = tmp_path / "touched"
    bomb = pickle.dumps(_Bomb(touched), 2)

    def outer(members):
        values = members["data"].decode()
        values = re.sub(r'":serialized:": "[^"]*"', f'":serialized:": "{base64.b64encode(bomb).decode()}"', values)
        return members | {"data": values, "pytorch_variables.pth": bomb, "policy.optimizer.pth": bomb}

    path = _edited(saved, tmp_path, outer, lambda members: members | {"archive/data.pkl": bomb})
    torch.load(io.BytesIO(_members(path)["policy.pth"]), weights_only=False)
    assert touched.exists()
    touched.unlink()
    np.testing.assert_equal(read_saved_dqn(path, _SIZES).weights, read_saved_dqn(saved[0], _SIZES).weights)
    assert not touched.exists()


def _refused(path, sizes=_SIZES):
    with pytest.raises(SoulsGraphError) as caught:
        read_saved_dqn(path, sizes)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    assert str(path) in message
    return message


@pytest.mark.parametrize("sizes", [(4, 8, 5, 2), (3, 8, 2), (3, 8, 5, 3), (3, 5, 8, 2), (3, 8, 5, 5, 2)])
def test_a_network_of_other_sizes(saved, sizes):
    assert "expected layers of " + " x ".join(map(str, sizes)) in _refused(saved[0], sizes)


def test_a_network_of_another_kind(saved, tmp_path):
    other = tmp_path / "tanh.zip"
    _model(activation_fn=torch.nn.Tanh).save(other)
    assert "activation_fn: expected <class 'torch.nn.modules.activation.ReLU'>" in _refused(other)
    _model(activation_fn=torch.nn.ReLU).save(other)
    assert read_saved_dqn(other, _SIZES).steps == 0

    def as_ppo(members):
        return members | {"data": members["data"].replace(b"stable_baselines3.dqn", b"stable_baselines3.ppo")}

    assert "policy_class: expected a policy of stable_baselines3.dqn" in _refused(_edited(saved, tmp_path, as_ppo))


@pytest.mark.parametrize("name", ["data", "policy.pth", "_stable_baselines3_version"])
def test_a_member_that_is_missing_or_too_large(saved, tmp_path, name):
    without = _edited(saved, tmp_path, lambda m: {key: value for key, value in m.items() if key != name})
    assert f"{name}: expected a member of the zip file, found none" in _refused(without)
    # 100 MB of zeros take 100 kB.
    bomb = _members(saved[0]) | {name: bytes(100_000_000)}
    path = _write(tmp_path / "bomb.zip", bomb, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1_000_000
    assert f"{name}: expected at most" in _refused(path)


def test_tensors_that_together_are_too_large(saved, tmp_path):
    def inner(members):
        return members | {"archive/data/0": bytes(12_000_000), "archive/data/1": bytes(12_000_000)}

    members = _members(saved[0])
    content = io.BytesIO()
    _write(content, inner(_members(io.BytesIO(members["policy.pth"]))), zipfile.ZIP_DEFLATED)
    path = _write(tmp_path / "large.zip", members | {"policy.pth": content.getvalue()})
    assert "archive/data/1: expected at most" in _refused(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_that_cannot_be_unpacked_piece_by_piece(saved, tmp_path, compression):
    assert "expected a member that is stored or deflated" in _refused(_edited(saved, tmp_path, compression=compression))


def test_more_members_than_any_model_has(saved, tmp_path):
    path = _edited(saved, tmp_path, lambda members: members | {f"{n}": b"" for n in range(1_000)})
    assert "at most 1,000 members" in _refused(path)
    many = {f"{n}": b"" for n in range(1_000)}
    path = _edited(saved, tmp_path, inner=lambda members: members | many, compression=zipfile.ZIP_DEFLATED)
    assert "policy.pth: expected a zip file of at most 1,000 members" in _refused(path)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "large.zip"
    with path.open("wb") as file:
        file.truncate(2**40)
    assert "expected at most 67,108,864 bytes" in _refused(path)


def test_other_things_than_a_saved_model(saved, tmp_path):
    assert "found none" in _refused(tmp_path / "nothing.zip")
    assert "found something else" in _refused(tmp_path)
    (tmp_path / "text.zip").write_text("dear diary")
    assert "expected a zip file" in _refused(tmp_path / "text.zip")
    for name, content in (("data", b"[1]"), ("data", b"{"), ("data", b"\xff"), ("_stable_baselines3_version", b"x\n")):
        assert f"{name}: expected" in _refused(_edited(saved, tmp_path, lambda m, n=name, c=content: m | {n: c}))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"archive/byteorder": b"big"}, "byteorder: expected little, found b'big'"),
        ({"archive/data/0": np.full(24, np.nan, "<f4").tobytes()}, "expected finite weights"),
        ({"archive/data/12": b"1234"}, "expected layers of 3 x 8 x 5 x 2"),
        ({"archive/data/13": b"1234"}, "expected tensors numbered from 0 on"),
        ({"archive/data/0": b"123"}, "expected float32 values, found 3 bytes"),
        ({"archive/data/0": np.zeros(24, "<f8").tobytes()}, "expected layers of 3 x 8 x 5 x 2"),
    ],
)
def test_tensors_that_are_not_the_networks(saved, tmp_path, edit, message):
    assert message in _refused(_edited(saved, tmp_path, inner=lambda members: members | edit))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=8), kept=st.floats(0, 1))
def test_a_damaged_file_is_read_or_refused_in_one_line(saved, tmp_path, changes, kept):
    content = bytearray(saved[0].read_bytes())
    for place, byte in changes:
        content[int(place * (len(content) - 1))] = byte
    path = tmp_path / "damaged.zip"
    path.write_bytes(content if kept > 0.5 else content[: int(kept * 2 * len(content))])
    try:
        found = read_saved_dqn(path, _SIZES)
    except SoulsGraphError as error:
        message = str(error)
    else:
        message = ""
        shapes = [weight.shape for weight in found.weights.values() if weight.ndim == 2]
        assert shapes == [(outputs, inputs) for inputs, outputs in pairwise(_SIZES)]
    assert "\n" not in message
