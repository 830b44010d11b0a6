"""A skill's network as an ONNX model, normalisation inside: raw observations in, Q-values and greedy actions out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from soulsgraph_envs.core.distribution import pip_install
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.inference import DEVIATION, MEAN, FrozenNetwork, layer_names

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
