"""Networks in files of other programs: written as ONNX models, read from what stable-baselines3 saved.

An ONNX model has the normalisation inside: raw observations in, Q-values and greedy actions out. A file of
stable-baselines3 is a zip file of JSON and of torch's tensors, loaded as weights only: nothing that is pickled runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_policies.agents.inference import (
    DEVIATION,
    MEAN,
    NETWORK,
    FrozenNetwork,
    Weights,
    layer_names,
    layer_names_at,
)

#: Names of the model's input (n, size) float32 and outputs, (n, actions) float32 and (n,) int64.
OBSERVATION, Q_VALUES, ACTION = "observation", "q_values", "action"
#: Versions that every onnxruntime since 2022 reads.
_OPSET, _IR_VERSION = 17, 8
#: The free axis, by the name that readers of the file show.
_BATCH = "n"


def onnx_model(network: FrozenNetwork, facts: Mapping[str, str]) -> bytes:
    """Return a network as the bytes of an ONNX file; `facts` are its metadata.

    As in our own inference the observation is normalised in float64, and the layers are float32. The same network and
    facts make the same bytes.
    """
    # Imported here: it is for this alone.
    import onnx

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


#: Bytes of a file that is read at most.
MOST_BYTES = 2**26
_POLICY, _RELU = "stable_baselines3.dqn.policies", "<class 'torch.nn.modules.activation.ReLU'>"


@dataclass(frozen=True)
class SavedDQN:
    """A saved Q-network by our names of its layers, the steps it was trained for, and stable-baselines3's version."""

    weights: Weights
    steps: int
    version: str


def read_saved_dqn(path: Path, sizes: Sequence[int]) -> SavedDQN:
    """Read the Q-network of a file of `DQN.save`; `sizes` are the numbers of inputs, hidden units and actions.

    Raises:
        SoulsGraphError: if there is no such file, it is too large or damaged, or holds another kind of network, or one
            of other sizes.
    """
    import torch

    def refused(expected: str, found: object) -> SoulsGraphError:
        remedy = "name a file that DQN.save wrote, with an MlpPolicy for this skill"
        return SoulsGraphError(f"{path}: expected {expected}, found {shown(found)}", remedy)

    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES:,} bytes")
        with ZipFile(path) as archive:
            saved = json.loads(archive.read("data"))
            version = archive.read("_stable_baselines3_version").decode("ascii").strip()
            tensors = torch.load(BytesIO(archive.read("policy.pth")), "cpu", weights_only=True)
        policy, steps = saved["policy_class"]["__module__"], int(saved["num_timesteps"])
        activation = saved["policy_kwargs"].get("activation_fn", _RELU)
        layers = {name.removeprefix("q_net."): tensor for name, tensor in tensors.items() if name.startswith("q_net.")}
        weights: Weights = {name.replace("q_net", NETWORK): layer.numpy() for name, layer in layers.items()}
        finite = all(np.isfinite(values).all() for values in weights.values())
    # A damaged file, or a stranger's, fails in as many ways as it has readers.
    except Exception as error:
        raise refused("a file of stable-baselines3's DQN", str(error)) from error
    if (policy, activation) != (_POLICY, _RELU):
        raise refused(f"a policy of {_POLICY} with ReLU", f"{policy} with {activation}")
    shapes: dict[str, tuple[int, ...]] = {}
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        shapes |= zip(layer_names_at(index), ((outputs, inputs), (outputs,)), strict=True)
    if {name: values.shape for name, values in weights.items()} != shapes:
        raise refused(f"layers of {' x '.join(map(str, sizes))} units", [values.shape for values in weights.values()])
    if not finite:
        raise refused("finite weights", "NaN or infinity")
    return SavedDQN(weights, steps, version)
