"""Networks that stable-baselines3 saved: read to the bit, without unpickling, whatever the file holds."""

import base64
import io
import pickle
import re
import zipfile
from collections.abc import Mapping
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


def _zipped(members: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, part in members.items():
            archive.writestr(name, part)
    return content.getvalue()


def test_every_weight_is_the_models(saved):
    path, model = saved
    found = read_saved_dqn(path, _SIZES)
    state = model.q_net.q_net.state_dict()
    assert found.weights.keys() == {f"q_network.{name}" for name in state}
    for name, tensor in state.items():
        np.testing.assert_array_equal(found.weights[f"q_network.{name}"], tensor.numpy())
    assert found.steps == 0
    assert found.version.count(".") == 2


def test_nothing_that_is_pickled_runs(saved, tmp_path):
    touched, path, members = tmp_path / "touched", tmp_path / "edited.zip", _members(saved[0])
    bomb = pickle.dumps(_Bomb(touched), 2)
    text = base64.b64encode(bomb).decode()
    values = re.sub(r'":serialized:": "[^"]*"', f'":serialized:": "{text}"', members["data"].decode())
    network = _zipped(_members(io.BytesIO(members["policy.pth"])) | {"archive/data.pkl": bomb})
    bombs = {"data": values, "policy.pth": network, "pytorch_variables.pth": bomb, "policy.optimizer.pth": bomb}
    path.write_bytes(_zipped(members | bombs))
    torch.load(io.BytesIO(network), weights_only=False)
    assert touched.exists()
    touched.unlink()
    _refused(path, str(path))
    path.write_bytes(_zipped(members | bombs | {"policy.pth": members["policy.pth"]}))
    np.testing.assert_equal(read_saved_dqn(path, _SIZES).weights, read_saved_dqn(saved[0], _SIZES).weights)
    assert not touched.exists()


def _refused(path, name, sizes=_SIZES):
    with pytest.raises(SoulsGraphError, match=re.escape(name)) as caught:
        read_saved_dqn(path, sizes)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("part", "edit"),
    [
        ("policy.pth", None),
        ("policy.pth", b"dear diary"),
        ("data", b"[1]"),
        ("data", b"\xff"),
        ("data", (b"baselines3.dqn", b"baselines3.ppo")),
        ("data", (b'"num_timesteps"', b'"steps"')),
        ("data", (b'"num_timesteps": 0', b'"num_timesteps": "many"')),
        ("_stable_baselines3_version", None),
    ],
)
def test_a_file_that_holds_something_else_is_refused(saved, tmp_path, part, edit):
    members, path = _members(saved[0]), tmp_path / "edited.zip"
    content = members.pop(part)
    if edit is not None:
        members[part] = content.replace(*edit) if isinstance(edit, tuple) else edit
    path.write_bytes(_zipped(members))
    _refused(path, str(path))


def test_another_network_and_no_file_of_one_are_refused(saved, tmp_path):
    for sizes in ((4, 8, 5, 2), (3, 8, 2), (3, 5, 8, 2)):
        _refused(saved[0], " x ".join(map(str, sizes)), sizes)
    path, model = tmp_path / "dqn.zip", _model(activation_fn=torch.nn.Tanh)
    _refused(path, str(path))
    model.save(path)
    _refused(path, "ReLU")
    model = _model(activation_fn=torch.nn.ReLU)
    next(iter(model.q_net.parameters())).data[0] = torch.nan
    model.save(path)
    _refused(path, "finite")
    with path.open("wb") as file:
        file.truncate(2**40)
    _refused(path, str(path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=8), kept=st.floats(0, 1))
def test_a_damaged_file_is_read_or_refused_in_one_line(saved, tmp_path, changes, kept):
    content = bytearray(saved[0].read_bytes())
    for place, byte in changes:
        content[int(place * (len(content) - 1))] = byte
    path = tmp_path / "damaged.zip"
    path.write_bytes(content if kept > 0.5 else content[: int(kept * 2 * len(content))])
    expected = [(outputs, inputs) for inputs, outputs in pairwise(_SIZES)]
    message, shapes = "", expected
    try:
        found = read_saved_dqn(path, _SIZES)
        shapes = [weight.shape for weight in found.weights.values() if weight.ndim == 2]
    except SoulsGraphError as error:
        message = str(error)
    assert shapes == expected
    assert "\n" not in message
