"""Networks in files of other programs: written as ONNX models, read from what stable-baselines3 saved.

An ONNX model has the normalisation inside: raw observations in, Q-values and greedy actions out. A file of
stable-baselines3 is read without unpickling anything. The zip file holds JSON (`data`, in which pickles lie as texts)
and torch's own zip (`policy.pth`): a pickle that says which tensors there are, and beside it each tensor's bytes as a
numbered member. Only these bytes and plain JSON values are read. The tensors are numbered in the order of the policy's
parameters: weight and bias of every layer of the Q-network, then those of the target network; their sizes have to fit
layers that fit the skill.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

import numpy as np

from soulsgraph_envs.core.config import Where, parse
from soulsgraph_envs.core.errors import SoulsGraphError, reading, shown
from soulsgraph_envs.core.extras import pip_install
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, FrozenNetwork, Weights, layer_names, layer_names_at

#: Names of the model's input (n, size) float32 and outputs, (n, actions) float32 and (n,) int64.
OBSERVATION, Q_VALUES, ACTION = "observation", "q_values", "action"
#: Versions that every onnxruntime since 2022 reads.
_OPSET, _IR_VERSION = 17, 8
#: The free axis, by the name that readers of the file show.
_BATCH = "n"


def import_onnx() -> tuple[Any, Any]:
    """Import onnx, which writes models, and onnxruntime, which runs them.

    Raises:
        SoulsGraphError: if one is not installed.
    """
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise SoulsGraphError(
            f"expected onnx and onnxruntime to be installed, found: {error}; install them: {pip_install('onnx')}."
        ) from error
    return onnx, onnxruntime


def onnx_model(network: FrozenNetwork, facts: Mapping[str, str]) -> bytes:
    """Return a network as the bytes of an ONNX file; `facts` are its metadata.

    As in our own inference the observation is normalised in float64, and the layers are float32. The same network and
    facts make the same bytes.

    Raises:
        SoulsGraphError: if onnx or onnxruntime is not installed.
    """
    onnx, _ = import_onnx()
    weights, pairs = network.weights, layer_names(network.weights)
    held = {
        "mean": weights[MEAN],
        "inverse_deviation": 1.0 / weights[DEVIATION],
        "lowest": np.float64(-network.clip),
        "highest": np.float64(network.clip),
        **{name: weights[name] for pair in pairs for name in pair},
    }
    make = onnx.helper.make_node
    nodes = [
        make("Cast", [OBSERVATION], ["exact"], to=onnx.TensorProto.DOUBLE),
        make("Sub", ["exact", "mean"], ["centred"]),
        make("Mul", ["centred", "inverse_deviation"], ["scaled"]),
        make("Clip", ["scaled", "lowest", "highest"], ["clipped"]),
        make("Cast", ["clipped"], ["hidden_0"], to=onnx.TensorProto.FLOAT),
    ]
    for index, (weight, bias) in enumerate(pairs, 1):
        last = index == len(pairs)
        summed, following = (Q_VALUES, "") if last else (f"summed_{index}", f"hidden_{index}")
        nodes.append(make("Gemm", [f"hidden_{index - 1}", weight, bias], [summed], transB=1))
        nodes += [] if last else [make("Relu", [summed], [following])]
    nodes.append(make("ArgMax", [Q_VALUES], [ACTION], axis=1, keepdims=0))
    inputs, *_, actions = network.sizes
    floats, integers = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        network.skill,
        [value(OBSERVATION, floats, [_BATCH, inputs])],
        [value(Q_VALUES, floats, [_BATCH, actions]), value(ACTION, integers, [_BATCH])],
        [onnx.numpy_helper.from_array(np.asarray(values), name) for name, values in held.items()],
    )
    model = onnx.helper.make_model(
        graph,
        producer_name="soulsgraph",
        ir_version=_IR_VERSION,
        opset_imports=[onnx.helper.make_operatorsetid("", _OPSET)],
    )
    onnx.helper.set_model_props(model, dict(facts))
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


#: Bytes that are read at most: of the file, of its networks, of its JSON, and of a short text in it.
MOST_BYTES, _MOST_OF_NETWORKS, _MOST_OF_JSON, _MOST_OF_TEXT = 2**26, 2**24, 2**22, 64
_COMPRESSIONS = (ZIP_STORED, ZIP_DEFLATED)
#: Members of a zip file; each has a record that begins so.
_MOST_MEMBERS, _RECORD = 1_000, b"PK\x01\x02"
_NETWORKS, _VALUES, _VERSION = "policy.pth", "data", "_stable_baselines3_version"
_TENSOR = re.compile(r"[^/]+/data/(0|[1-9]\d{0,3})")
_POLICY, _RELU = "stable_baselines3.dqn.policies", "<class 'torch.nn.modules.activation.ReLU'>"
_REMEDY = "name a file that DQN.save wrote, with an MlpPolicy for this skill"


@dataclass(frozen=True)
class SavedDQN:
    """A saved Q-network by our names of its layers, the steps it was trained for, and stable-baselines3's version."""

    weights: Weights
    steps: int
    version: str


def read_saved_dqn(path: Path, sizes: Sequence[int]) -> SavedDQN:
    """Read the Q-network of a file of `DQN.save`; `sizes` are the numbers of inputs, hidden units and actions.

    Raises:
        DataError: if there is no such file, it is too large or damaged, or holds another kind of network, or one of
            other sizes.
        ReadError: if it cannot be read.
    """
    where = Where(path, remedy=_REMEDY)
    archive = _opened(_content(where), where)
    text = _member(archive, _VALUES, _MOST_OF_JSON, where).decode(errors="replace")
    steps = _checked_steps(parse(text, "JSON", where.at(_VALUES)), where.at(_VALUES))
    version = _member(archive, _VERSION, _MOST_OF_TEXT, where).decode("ascii", errors="replace").strip()
    if not re.fullmatch(r"\d+(\.\w+){1,4}", version):
        raise where.at(_VERSION).error("a version", shown(version))
    there = where.at(_NETWORKS)
    networks = _opened(_member(archive, _NETWORKS, _MOST_OF_NETWORKS, where), there)
    return SavedDQN(_weights(_tensors(networks, there), sizes, there), steps, version)


def _content(where: Where) -> bytes:
    path = Path(str(where.file))
    try:
        with reading(path):
            if not path.is_file():
                raise where.error("a file of stable-baselines3", "something else" if path.exists() else "none")
            with path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
    except (FileNotFoundError, ValueError) as error:
        raise where.error("a file of stable-baselines3", "none") from error
    if len(content) > MOST_BYTES:
        raise where.error(f"at most {MOST_BYTES:,} bytes", "more")
    return content


def _opened(content: bytes, where: Where) -> ZipFile:
    # A record takes 46 bytes and as a Python object far more.
    if (members := content.count(_RECORD)) > _MOST_MEMBERS:
        raise where.error(f"a zip file of at most {_MOST_MEMBERS:,} members", f"{members:,}")
    try:
        return ZipFile(BytesIO(content))
    except (BadZipFile, ValueError, NotImplementedError, EOFError, OSError) as error:
        raise where.error("a zip file", shown(str(error))) from error


def _member(archive: ZipFile, name: str, most: int, where: Where) -> bytes:
    """Return a member's bytes; what it says of its size is not relied on."""
    there = where.at(name)
    try:
        kind = archive.getinfo(name).compress_type
        # Others are unpacked a whole block at a time, however little is asked for.
        there.demand(kind in _COMPRESSIONS, "a member that is stored or deflated", f"compression {kind}")
        with archive.open(name) as member:
            content = member.read(most + 1)
    except KeyError as error:
        raise there.error("a member of the zip file", "none") from error
    except (BadZipFile, RuntimeError, NotImplementedError, EOFError, ValueError, OSError, zlib.error) as error:
        raise there.error("a readable member of the zip file", shown(str(error))) from error
    if len(content) > most:
        raise there.error(f"at most {most:,} bytes", "more")
    return content


def _checked_steps(values: Any, where: Where) -> int:
    """Check what the JSON says in plain values of the network's kind; return the steps it was trained for."""
    if not isinstance(values, Mapping):
        raise where.error("a table", shown(values))
    # Beside the pickle of a value stands its description.
    policy, settings = values.get("policy_class"), values.get("policy_kwargs")
    module = policy.get("__module__") if isinstance(policy, Mapping) else None
    if module != _POLICY:
        raise where.at("policy_class").error(f"a policy of {_POLICY}", shown(module))
    activation = settings.get("activation_fn", _RELU) if isinstance(settings, Mapping) else _RELU
    if activation != _RELU:
        raise where.at("policy_kwargs").at("activation_fn").error(_RELU, shown(activation))
    steps = values.get("num_timesteps")
    if type(steps) is not int or steps < 0:
        raise where.at("num_timesteps").error("a number of steps", shown(steps))
    return steps


def _tensors(archive: ZipFile, where: Where) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    """Return the numbered tensors in order, each flat."""
    found = {int(match[1]): name for name in archive.namelist() if (match := _TENSOR.fullmatch(name))}
    order = next((name for name in archive.namelist() if name.endswith("/byteorder")), None)
    if order is not None and (ending := _member(archive, order, _MOST_OF_TEXT, where)) != b"little":
        raise where.at(order).error("little", shown(ending))
    if not found or [*sorted(found)] != [*range(len(found))]:
        raise where.error("tensors numbered from 0 on", f"{len(found)} of them")
    tensors, left = [], _MOST_OF_NETWORKS
    for number in range(len(found)):
        content = _member(archive, found[number], left, where)
        left -= len(content)
        if len(content) % 4:
            raise where.at(found[number]).error("float32 values", f"{len(content)} bytes")
        tensors.append(np.frombuffer(content, "<f4"))
    return tensors


def _weights(tensors: Sequence[Any], sizes: Sequence[int], where: Where) -> Weights:
    """Return the layers of the Q-network; the target network has to be of the same sizes."""
    expected = [count for inputs, outputs in pairwise(sizes) for count in (inputs * outputs, outputs)]
    if (found := [tensor.size for tensor in tensors]) != expected * 2:
        expected_sizes = f"layers of {' x '.join(map(str, sizes))} units and a target network of the same"
        raise where.error(f"{expected_sizes}, tensors of {expected} values", shown(found))
    weights: Weights = {}
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        weight, bias = layer_names_at(index)
        weights[weight] = tensors[2 * index].reshape(outputs, inputs).astype(np.float32)
        weights[bias] = tensors[2 * index + 1].astype(np.float32)
    if not all(np.isfinite(values).all() for values in weights.values()):
        raise where.error("finite weights", "NaN or infinity")
    return weights
