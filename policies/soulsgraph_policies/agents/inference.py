"""A skill's network as acting needs it, and greedy inference of several at once: State rows in, actions out.

Observation map, normaliser and clip are part of the compiled call. Only the (lane, skill) pairs that are due are
evaluated, one by one or as products of matrices: both sum in one fixed order, however many lanes there are.

The running statistics of observations are those of stable-baselines3's VecNormalize, in float64. Matrix products sum
tiles of the result in the processor's registers, every element in the order of the inner dimension: neither the tile's
size nor the width of vectors changes a bit. `product`, of training, adds by fused multiply-add where the processor has
it; `linear`, of play, rounds every product first, as plain loops do.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, count, pairwise, takewhile
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

from soulsgraph_envs.combat.loop import Actions
from soulsgraph_envs.combat.rollout import Doubles, Flags, Floats, Integers
from soulsgraph_envs.core.compiling import cached, checksum
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.state import STATE_SIZE, StateRows
from soulsgraph_envs.skills.skill import PREPROCESSING, BoundObservation, Skill, normalized, observed

#: A module's parameters and normaliser by name, as numpy arrays; layers in torch's layout, (outputs, inputs).
Weights = dict[str, npt.NDArray[Any]]

MEAN, DEVIATION = "observation_mean", "observation_deviation"
NETWORK, TARGET = "q_network", "target_network"


def layer_names_at(index: int) -> tuple[str, str]:
    """Return the names of weight and bias of the linear layer at an index."""
    # A ReLU without parameters stands between two linear layers.
    return f"{NETWORK}.{2 * index}.weight", f"{NETWORK}.{2 * index}.bias"


def layer_names(weights: Container[str]) -> tuple[tuple[str, str], ...]:
    """Return the names of weight and bias of every linear layer of the network that plays, first to last."""
    return tuple(takewhile(lambda names: names[0] in weights, map(layer_names_at, count())))


@dataclass(frozen=True)
class FrozenNetwork:
    """One skill's network as acting needs it, its weights under the names of `QNetworkModule.weights`.

    The observation (size,) is normalised with mean and deviation in float64 and clipped at +-`clip`; layers in float32.
    """

    skill: str
    observation: BoundObservation
    weights: Weights
    clip: float

    @classmethod
    def of(cls, skill: Skill, scenario: Scenario, weights: Weights, clip: float) -> FrozenNetwork:
        """Make a skill's network for a scenario from `QNetworkModule.weights`, which are copied.

        Raises:
            SoulsGraphError: if they are of another number of observed values or actions than the skill's.
        """
        own: Weights = {name: np.array(weights[name], np.float64) for name in (MEAN, DEVIATION)}
        own |= {name: np.array(weights[name], np.float32) for pair in layer_names(weights) for name in pair}
        network = cls(skill.name, skill.observation.bind(scenario), own, clip)
        expected, found = (skill.observation.size, len(skill.actions)), (network.sizes[0], network.sizes[-1])
        if expected != found:
            raise SoulsGraphError(
                f"network of {skill.name}: expected (observed values, actions) {expected}, found {found}."
            )
        return network

    @property
    def sizes(self) -> list[int]:
        """The numbers of inputs, hidden units and actions."""
        return [len(self.weights[MEAN]), *(len(self.weights[bias]) for _, bias in layer_names(self.weights))]

    def inputs(self, observations: Floats) -> Floats:
        """Return observations (n, size) as an environment of the skill returns them, normalised and clipped."""
        normalised = (np.asarray(observations, np.float64) - self.weights[MEAN]) / self.weights[DEVIATION]
        values: Floats = np.clip(normalised, -self.clip, self.clip).astype(np.float32)
        return values

    def values_of(self, observations: Floats) -> Floats:
        """Return the Q-values, (n, actions), of observations (n, size) as an environment of the skill returns them.

        They agree with those of the compiled play (`FusedNetworks`) within float tolerance.
        """
        values = self.inputs(observations)
        for index, (weight, bias) in enumerate(layer_names(self.weights)):
            values = (np.maximum(values, 0.0) if index else values) @ self.weights[weight].T + self.weights[bias]
        return values


_LEAST_VARIANCE = 1e-8
_INITIAL_COUNT = 1e-4


@cached(error_model="numpy")
def _updated(
    batch: Floats, count_before: float, old_mean: Doubles, old_variance: Doubles, indicators: Flags
) -> tuple[Doubles, Doubles]:
    """Return the mean and variance over all rows: those of the batch and the `count_before` earlier ones."""
    count = batch.shape[0]
    mean, variance = np.zeros_like(old_mean), np.zeros_like(old_mean)
    for row in range(count):
        for column in range(batch.shape[1]):
            mean[column] += batch[row, column]
    mean /= count
    for row in range(count):
        for column in range(batch.shape[1]):
            difference = batch[row, column] - mean[column]
            variance[column] += difference * difference
    variance /= count
    total = count_before + count
    for column in range(batch.shape[1]):
        change = mean[column] - old_mean[column]
        squares = old_variance[column] * count_before + variance[column] * count
        mean[column] = old_mean[column] + change * count / total
        variance[column] = (squares + change * change * count_before * count / total) / total
        if indicators[column]:
            mean[column], variance[column] = 0.0, 1.0
    return mean, variance


class RunningNormalizer:
    """Keep the mean and variance of every observed column; all are float64 (size,).

    A constant column keeps a small deviation, so that a value seen later for the first time comes
    out large; the clip that follows every normalisation bounds it. Where `indicators` (size,) hold,
    the column keeps mean 0 and variance 1, so that an indicator stays 0 or 1: scaled by how rare it is,
    a rare animation would drown all else.
    """

    def __init__(self, size: int, indicators: Flags | None = None) -> None:
        self.mean: Doubles = np.zeros(size)
        self.variance: Doubles = np.ones(size)
        self.count = _INITIAL_COUNT
        self._indicators = np.zeros(size, np.bool_) if indicators is None else indicators

    @property
    def deviation(self) -> Doubles:
        """The divisor of a normalised observation, (size,): never 0."""
        deviation: Doubles = np.sqrt(self.variance + _LEAST_VARIANCE)
        return deviation

    def update(self, batch: Floats) -> None:
        """Update the statistics with a batch of raw observations (n, size)."""
        assert batch.shape[1:] == self.mean.shape
        if not len(batch):
            return
        self.mean, self.variance = _updated(batch, self.count, self.mean, self.variance, self._indicators)
        self.count += len(batch)

    def get_state(self) -> dict[str, Any]:
        """Return the statistics as arrays and numbers."""
        return {"mean": self.mean.copy(), "variance": self.variance.copy(), "count": self.count}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`."""
        self.mean, self.variance = state["mean"].copy(), state["variance"].copy()
        self.count = float(state["count"])


#: Checksum of the products' code; compiled functions of other modules that call it enclose it.
PRODUCTS = checksum([Path(__file__)])
#: Floats in a vector of the code; a processor with narrower ones takes several for it.
SPAN = 16
#: Rows of a tile, and vectors in each: as many sums as fit into the processor's registers, 32 or 16.
_ROWS = 6
_VECTORS = 4 if "+avx512f" in (config.CPU_FEATURES or get_host_cpu_features()) else 1
_WIDTH = _VECTORS * SPAN
#: Rows of a tile that is one vector wide.
_TALL = 2 * _ROWS

_WORD, _VECTOR = ir.IntType(64), ir.VectorType(ir.FloatType(), SPAN)


class _Elements:
    """The addresses of an array's elements, in the code that is generated for a call."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        array = context.make_array(kind)(context, builder, value)
        self.shape = cgutils.unpack_tuple(builder, array.shape, kind.ndim)
        self._strides = cgutils.unpack_tuple(builder, array.strides, kind.ndim)
        self._builder, self._start = builder, builder.bitcast(array.data, ir.IntType(8).as_pointer())

    def at(self, *indices: Any) -> Any:
        offset = _WORD(0)
        for index, stride in zip(indices, self._strides, strict=True):
            offset = self._builder.add(offset, self._builder.mul(index, stride))
        return self._builder.bitcast(self._builder.gep(self._start, [offset]), ir.FloatType().as_pointer())

    def vector(self, place: int, *indices: Any) -> Any:
        """Return the address of the vector `place` vectors after an element."""
        start = self._builder.gep(self.at(*indices), [_WORD(place * SPAN)])
        return self._builder.bitcast(start, _VECTOR.as_pointer())


def _generate_tile(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Generate the code of `_tile`: `rows` times `vectors` sums in registers, over the inner dimension."""
    fused, *size = (kind.literal_value for kind in signature.args[:3])
    rows, vectors = map(range, size)
    row, column = cgutils.unpack_tuple(builder, arguments[3])
    operands = zip(signature.args[4], cgutils.unpack_tuple(builder, arguments[4]), strict=True)
    out, left, right, bias, mask = (
        kind != types.none and _Elements(context, builder, kind, operand) for kind, operand in operands
    )
    multiply_add = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fmuladd.v{SPAN}f32"
    )
    zero, undefined = _VECTOR(None), _VECTOR(ir.Undefined)
    same = ir.VectorType(ir.IntType(32), SPAN)(None)
    # A row beyond the last is the last one once more: a tile has no smaller sisters to compile.
    last = builder.sub(out.shape[0], _WORD(1))
    wanted = [builder.add(row, _WORD(index)) for index in rows]
    of_tile = [builder.select(builder.icmp_signed("<", index, last), index, last) for index in wanted]
    sums = {(index, place): cgutils.alloca_once(builder, _VECTOR) for index in rows for place in vectors}

    def load(address: Any) -> Any:
        return builder.load(address, align=4)

    def everywhere(number: Any) -> Any:
        return builder.shuffle_vector(builder.insert_element(undefined, number, ir.IntType(32)(0)), undefined, same)

    for (_, place), total in sums.items():
        builder.store(load(bias.vector(place, column)) if bias else zero, total)
    with cgutils.for_range(builder, right.shape[0]) as loop:
        factors = [load(right.vector(place, loop.index, column)) for place in vectors]
        for index in rows:
            number = everywhere(builder.load(left.at(of_tile[index], loop.index)))
            for place in vectors:
                total = builder.load(sums[index, place])
                if fused:
                    total = builder.call(multiply_add, [number, factors[place], total])
                else:
                    total = builder.fadd(total, builder.fmul(number, factors[place]))
                builder.store(total, sums[index, place])
    for (index, place), total in sums.items():
        value = builder.load(total)
        kept = load(mask.vector(place, of_tile[index], column)) if mask else value
        if fused and (bias or mask):
            # NaN is not hidden.
            value = builder.select(builder.fcmp_ordered("<=", kept, zero), zero, value)
        builder.store(value, out.vector(place, of_tile[index], column), align=4)
    return context.get_dummy_value()


def _compiled_tile(typing: Any, fused: Any, rows: Any, vectors: Any, place: Any, operands: Any) -> Any:
    given = [kind for kind in operands if kind != types.none]
    assert all(kind.dtype == types.float32 and (kind.layout == "C" or kind == operands[1]) for kind in given), given
    return types.void(fused, rows, vectors, place, operands), _generate_tile


def _plain_tile(fused: bool, rows: int, vectors: int, corner: tuple[int, int], operands: tuple[Any, ...]) -> None:
    """Compute a tile without a compiler, as where `NUMBA_DISABLE_JIT` is set."""
    (row, column), (out, left, right, bias, mask) = corner, operands
    place = slice(row, min(row + rows, len(out))), slice(column, column + vectors * SPAN)
    values = left[place[0], : len(right)] @ right[:, place[1]]
    if bias is not None:
        values = bias[place[1]] + values
    if fused and bias is not None:
        values = np.maximum(values, np.float32(0.0))
    out[place] = values if mask is None else np.where(mask[place] <= 0.0, np.float32(0.0), values)


_tile: Any = _plain_tile if config.DISABLE_JIT else intrinsic(prefer_literal=True)(_compiled_tile)


def _build(fused: bool) -> Callable[..., None]:
    @njit
    def multiply(out: Floats, left: Floats, right: Floats, bias: Any, mask: Any) -> None:
        operands = (out, left, right, bias, mask)
        rows, columns = out.shape
        wide = columns - columns % _WIDTH
        for row in range(0, rows, _ROWS):
            for column in range(0, wide, _WIDTH):
                _tile(fused, _ROWS, _VECTORS, (row, column), operands)
        for row in range(0, rows, _TALL):
            for column in range(wide, columns, SPAN):
                _tile(fused, _TALL, 1, (row, column), operands)

    return cast(Callable[..., None], multiply)


#: Multiply (n, k) by (k, m) into `out`; m is a multiple of 16, and columns of `left` beyond k are not read. With a
#: `bias` (m,) it is a rectified layer's; elements where a `mask` (n, m) is at most 0 become 0.
product = _build(fused=True)
#: Write a layer's values, with its `bias` and not rectified: every product is rounded before it is added.
linear = _build(fused=False)


def filled(columns: int) -> int:
    """Return a number of columns filled up to whole vectors."""
    return (columns + SPAN - 1) // SPAN * SPAN


def zeros(*shape: int) -> Floats:
    """Return zeros of a shape whose last size is `filled` up to whole vectors; each row begins where a vector does."""
    *rows, columns = shape
    padded = (*rows, filled(columns))
    memory = np.zeros(prod(padded) + SPAN, np.float32)
    start = -memory.ctypes.data // memory.itemsize % SPAN
    return memory[start : start + prod(padded)].reshape(padded)


# Rows of a network's integer table: where its observation and parameters begin, and its sizes.
_OBSERVATION, _PARAMETERS, _INPUTS, _LAYERS, _SIZES = range(5)
# Rows of the affine table; one column an observed value.
_COLUMN, _ID, _OFFSET, _SCALE, _CLIP, _MEAN, _INVERSE, _DEVIATION = range(8)

#: Lanes that are evaluated together, and the fewest for which it pays.
_TOGETHER, _FEWEST = 48, 4

#: Integer tables (networks, ...), affine table (8, columns), all parameters, the outputs of a layer filled up to whole
#: vectors; then, of one evaluation: the layer read and the one written (`_TOGETHER` lanes), inputs not 0, and lanes.
Packed = tuple[Integers, Doubles, Floats, Floats, Floats, Integers, Integers]


_filled = njit(filled)


@njit
def _inputs(rows: StateRows, lanes: Integers, affine: Doubles, out: Floats) -> None:
    """Write what a network reads of the lanes' State rows, (lanes, size): mapped, normalised, clipped."""
    values = np.empty(lanes.shape[0], np.float32)
    for i in range(affine.shape[1]):
        column, indicated = np.uint64(affine[_COLUMN, i]), np.float32(affine[_ID, i])
        offset, scale = np.float32(affine[_OFFSET, i]), np.float32(affine[_SCALE, i])
        mean, inverse, clip = affine[_MEAN, i], affine[_INVERSE, i], affine[_CLIP, i]
        # The first and the last loop jump through memory; the one between them is vectorised.
        for n in range(values.shape[0]):
            values[n] = rows[np.uint64(lanes[n]), column]
        for n in range(values.shape[0]):
            values[n] = normalized(observed(values[n], offset, scale, indicated), mean, inverse, clip)
        for n in range(values.shape[0]):
            out[n, i] = values[n]


@njit
def _layer(weight: Floats, bias: Floats, source: Floats, active: Integers, out: Floats) -> None:
    """Write W x + b of one lane for W (inputs, outputs), passing over inputs that are 0: the bits of `linear`."""
    # The inner loops run over units, so the compiler vectorises them without reordering a sum.
    inputs, outputs = weight.shape
    for unit in range(outputs):
        out[unit] = bias[unit]
    count = 0
    for i in range(inputs):
        active[count] = i
        count += source[i] != 0.0
    whole = count - count % 4
    for n in range(0, whole, 4):
        a, b, c, d = active[n], active[n + 1], active[n + 2], active[n + 3]
        x, y, z, w = source[a], source[b], source[c], source[d]
        for unit in range(outputs):
            total = out[unit] + x * weight[a, unit]
            total += y * weight[b, unit]
            total += z * weight[c, unit]
            out[unit] = total + w * weight[d, unit]
    for n in range(whole, count):
        a = active[n]
        x = source[a]
        for unit in range(outputs):
            out[unit] += x * weight[a, unit]


@njit
def _evaluate(rows: StateRows, lanes: Integers, network: int, packed: Packed) -> Floats:
    """Return the Q-values of one network in up to `_TOGETHER` lanes, (lanes, actions), until the next call."""
    tables, affine, parameters, source, out, active, _ = packed
    table, count = tables[network], lanes.shape[0]
    first, inputs, start = table[_OBSERVATION], table[_INPUTS], table[_PARAMETERS]
    values = source[: count * inputs].reshape((count, inputs))
    _inputs(rows, lanes, affine[:, first : first + inputs], values)
    for layer in range(table[_LAYERS]):
        outputs, width = table[_SIZES + layer], _filled(table[_SIZES + layer])
        end = start + inputs * width
        weight, bias = parameters[start:end].reshape((inputs, width)), parameters[end : end + width]
        following = out[: count * width].reshape((count, width))
        if count >= _FEWEST:
            linear(following, values, weight, bias, None)
        else:
            for n in range(count):
                _layer(weight, bias, values[n], active, following[n])
        start, inputs = end + width, outputs
        if layer < table[_LAYERS] - 1:
            flat = out[: count * width]
            for i in range(flat.shape[0]):
                flat[i] = max(flat[i], np.float32(0.0))
        values, source, out = following, out, source
    return values[:, :inputs]


@njit
def _next_lanes(due: Flags, plays: Integers, skill: int, lane: int, lanes: Integers) -> tuple[int, int, int]:
    """Write the next lanes from `lane` on in which one network plays a skill; return it, their count and the end."""
    network, count = -1, 0
    while lane < due.shape[0] and count < lanes.shape[0]:
        player = plays[lane if plays.shape[0] > 1 else 0, skill]
        if due[lane, skill] and player >= 0:
            if count and player != network:
                break
            network = player
            lanes[count] = lane
            count += 1
        lane += 1
    return network, count, lane


def _build_kernels(sources: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Compile the entry points `act` and `q_values`, cached on disk.

    `sources` is the checksum of the code of other modules that they call.
    """

    @cached()
    def act(rows: StateRows, due: Flags, actions: Actions, plays: Integers, packed: Packed) -> int:
        lanes = packed[6]
        for skill in range(plays.shape[1]):
            lane = 0
            while lane < due.shape[0]:
                network, count, lane = _next_lanes(due, plays, skill, lane, lanes)
                if count:
                    values = _evaluate(rows, lanes[:count], network, packed)
                    for i in range(count):
                        actions[lanes[i], skill] = np.argmax(values[i])
        return sources

    @cached()
    def q_values(rows: StateRows, network: int, packed: Packed, out: Floats) -> int:
        for first in range(0, out.shape[0], _TOGETHER):
            lanes = packed[6][: min(_TOGETHER, out.shape[0] - first)]
            for i in range(lanes.shape[0]):
                lanes[i] = first + i
            values = _evaluate(rows, lanes, network, packed)
            # By element: numba takes seconds to compile the message of a row assignment's failure.
            for i in range(lanes.shape[0]):
                for action in range(out.shape[1]):
                    out[first + i, action] = values[i, action]
        return sources

    return act, q_values


def weights_digest(weights: Mapping[str, Weights]) -> bytes:
    """Return a SHA-256 of weights by name: equal digests are equal bits; none of nothing."""
    found = sha256()
    for owner in sorted(weights):
        for name, values in sorted(weights[owner].items()):
            found.update(f"{owner} {name} {values.shape}".encode() + values.astype(np.float64).tobytes())
    return found.digest() if weights else b""


_act, _q_values = _build_kernels(PREPROCESSING)


class FusedNetworks:
    """Evaluate networks for the skills of many lanes.

    `plays` says which network plays a skill: (skills,) for every lane alike, or (lanes, skills); -1 leaves the skill to
    another controller. By default network i plays skill i.
    """

    def __init__(self, networks: Sequence[FrozenNetwork], plays: npt.ArrayLike | None = None) -> None:
        self._plays = np.atleast_2d(np.asarray(np.arange(len(networks)) if plays is None else plays, np.int64))
        shapes = [network.sizes for network in networks]
        widest = max(chain(*shapes), default=1)
        self._tables: Integers = np.zeros((len(networks), _SIZES + max(map(len, shapes), default=1) - 1), np.int64)
        columns = parameters = 0
        for table, sizes in zip(self._tables, shapes, strict=True):
            inputs, *outputs = sizes
            table[: _SIZES + len(outputs)] = columns, parameters, inputs, len(outputs), *outputs
            columns += inputs
            parameters += sum((fan_in + 1) * filled(fan_out) for fan_in, fan_out in pairwise(sizes))
        self._affine: Doubles = np.zeros((_DEVIATION + 1, columns))
        self._parameters: Floats = zeros(parameters)
        work = zeros(_TOGETHER * filled(widest)), zeros(_TOGETHER * filled(widest))
        numbers = np.zeros(widest, np.int64), np.zeros(_TOGETHER, np.int64)
        self._packed = (self._tables, self._affine, self._parameters, *work, *numbers)
        self._skills = [network.skill for network in networks]
        self._memory = [self._views(index) for index in range(len(networks))]
        for index, network in enumerate(networks):
            self.replace(index, network)

    def _map(self, index: int) -> Doubles:
        """Return a network's part of the affine table, a view."""
        first = self._tables[index, _OBSERVATION]
        return self._affine[:, first : first + self._tables[index, _INPUTS]]

    def _views(self, index: int) -> Weights:
        """Return where a network's weights lie, under their names and in torch's layout."""
        table, part = self._tables[index], self._map(index)
        start, inputs = int(table[_PARAMETERS]), int(table[_INPUTS])
        views: Weights = {MEAN: part[_MEAN], DEVIATION: part[_DEVIATION]}
        for layer, outputs in enumerate(table[_SIZES : _SIZES + table[_LAYERS]].tolist()):
            width = filled(outputs)
            end = start + inputs * width
            weight, bias = layer_names_at(layer)
            views[weight] = self._parameters[start:end].reshape(inputs, width)[:, :outputs].T
            views[bias] = self._parameters[end : end + outputs]
            start, inputs = end + width, outputs
        return views

    def replace(self, index: int, network: FrozenNetwork) -> None:
        """Replace a network by another one of the same shapes; raises as `load` does."""
        self.load(index, network.weights)
        part, observation = self._map(index), network.observation
        part[_COLUMN], part[_ID] = observation.columns, observation.ids
        part[_OFFSET], part[_SCALE], part[_CLIP] = observation.offset, observation.scale, network.clip

    def load(self, index: int, weights: Mapping[str, npt.NDArray[Any]]) -> None:
        """Play a network by newer weights (`QNetworkModule.weights`) from now on.

        Raises:
            SoulsGraphError: if a name or shape differs.
        """
        memory = self._memory[index]
        if weights.keys() != memory.keys() or any(memory[name].shape != weights[name].shape for name in memory):
            expected, found = ([values.shape for values in group.values()] for group in (memory, weights))
            raise SoulsGraphError(
                f"network of {self._skills[index]}: expected weights of shapes {expected}, found {found}; "
                "keep the layer sizes of the stage."
            )
        for name, values in weights.items():
            memory[name][...] = values
        self._map(index)[_INVERSE] = 1.0 / memory[DEVIATION]

    def weights(self, index: int) -> Weights:
        """Return a copy of one network's weights, by the names of `QNetworkModule.weights`."""
        found = {name: values.copy() for name, values in self._memory[index].items()}
        # What is played by is the inverse, and dividing by it twice may change a last bit.
        inverse, kept = self._map(index)[_INVERSE], found[DEVIATION]
        return found | {DEVIATION: np.where(inverse == 1.0 / kept, kept, 1.0 / inverse)}

    def act(self, rows: StateRows, due: Flags, actions: Actions) -> None:
        """Write greedy actions, the first of equals, where `due` holds, (lanes, skills); `rows` are (lanes, 25)."""
        # The compiled code looks at no bounds.
        assert self._plays.shape[0] in (1, len(due)), self._plays.shape
        assert self._plays.shape[1] <= due.shape[1], self._plays.shape
        _act(rows, due, actions, self._plays, self._packed)

    def q_values(self, index: int, rows: StateRows) -> Floats:
        """Return one network's Q-values of State rows (n, 25), (n, actions)."""
        assert rows.shape[1:] == (STATE_SIZE,)
        values = np.empty((len(rows), self._tables[index, _SIZES + self._tables[index, _LAYERS] - 1]), np.float32)
        _q_values(rows, index, self._packed, values)
        return values
