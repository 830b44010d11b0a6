"""A skill's network as acting needs it, and greedy inference of several at once: State rows in, actions out.

Observation map, normaliser and clip are part of the compiled call. Only the (lane, skill) pairs that are due are
evaluated, one by one or as products of matrices: both sum in one fixed order, however many lanes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, count, pairwise, takewhile
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from soulsgraph_envs.combat.episodes import Doubles, Flags, Floats, Integers
from soulsgraph_envs.combat.loop import Actions
from soulsgraph_envs.core.compiling import cached
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import Scenario
from soulsgraph_envs.core.state import STATE_SIZE, StateRows
from soulsgraph_envs.skills.base import PREPROCESSING, BoundObservation, Skill, normalized, observed
from soulsgraph_policies.agents.matmul import PRODUCTS, filled, linear, zeros

#: A module's parameters and normaliser by name, as numpy arrays; layers in torch's layout, (outputs, inputs).
Weights = dict[str, npt.NDArray[Any]]

MEAN, DEVIATION = "observation_mean", "observation_deviation"
NETWORK, TARGET = "q_network", "target_network"
#: Parameters of a head in the form in which it is trained.
HEAD = "head"


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

    Raises:
        SoulsGraphError: if shapes do not fit each other.
    """

    skill: str
    observation: BoundObservation
    weights: Weights
    clip: float

    def __post_init__(self) -> None:
        columns, means = self.observation.columns, self.weights[MEAN]
        size = inputs = len(columns)
        fits = all(len(part) == size for part in (*vars(self.observation).values(), means, self.weights[DEVIATION]))
        found = []
        for weight, bias in layer_names(self.weights):
            outputs = len(self.weights[bias])
            found.append(self.weights[weight].shape)
            fits, inputs = fits and found[-1] == (outputs, inputs), outputs
        if not fits or not found or size < 1 or not all(0 <= c < STATE_SIZE for c in columns):
            raise SoulsGraphError(
                f"network of {self.skill}: expected layers and statistics that fit {size} observed values, "
                f"found layers {found} and {len(means)} means; load the weights of the same skill."
            )

    @classmethod
    def of(cls, skill: Skill, scenario: Scenario, weights: Weights, clip: float) -> FrozenNetwork:
        """Make a skill's network for a scenario from `QNetworkModule.weights`, which are copied.

        Raises:
            SoulsGraphError: if a weight is missing or of another shape than the skill's.
        """
        try:
            own: Weights = {name: np.array(weights[name], np.float64) for name in (MEAN, DEVIATION)}
            own |= {name: np.array(weights[name], np.float32) for pair in layer_names(weights) for name in pair}
        except KeyError as error:
            raise SoulsGraphError(
                f"network of {skill.name}: expected a weight {error}, found {', '.join(weights)}; "
                "load the weights of a Q-network module."
            ) from error
        network = cls(skill.name, skill.observation.bind(scenario), own, clip)
        if network.sizes[-1] != len(skill.actions):
            raise SoulsGraphError(
                f"network of {skill.name}: expected {len(skill.actions)} actions, found {network.sizes[-1]}; "
                "load the weights of the same skill."
            )
        return network

    @property
    def sizes(self) -> list[int]:
        """The numbers of inputs, hidden units and actions."""
        return [len(self.weights[MEAN]), *(len(self.weights[bias]) for _, bias in layer_names(self.weights))]


Kernel = Callable[..., Any]

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
def _best(values: Floats) -> int:
    best = 0
    for action in range(1, values.shape[0]):
        if values[action] > values[best]:
            best = action
    return best


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


def _build_kernels(sources: tuple[int, int]) -> tuple[Kernel, Kernel, Kernel]:
    """Compile the entry points `act`, `q_values` and `inputs`, cached on disk; `sources` are the code's checksums."""

    @cached()
    def act(rows: StateRows, due: Flags, actions: Actions, plays: Integers, packed: Packed) -> tuple[int, int]:
        lanes = packed[6]
        for skill in range(plays.shape[1]):
            lane = 0
            while lane < due.shape[0]:
                network, count, lane = _next_lanes(due, plays, skill, lane, lanes)
                if count:
                    values = _evaluate(rows, lanes[:count], network, packed)
                    for i in range(count):
                        actions[lanes[i], skill] = _best(values[i])
        return sources

    @cached()
    def q_values(rows: StateRows, network: int, packed: Packed, out: Floats) -> tuple[int, int]:
        for first in range(0, out.shape[0], _TOGETHER):
            lanes = np.arange(first, min(first + _TOGETHER, out.shape[0]))
            values = _evaluate(rows, lanes, network, packed)
            for i in range(lanes.shape[0]):
                out[first + i] = values[i]
        return sources

    @cached()
    def inputs(rows: StateRows, affine: Doubles, out: Floats) -> tuple[int, int]:
        _inputs(rows, np.arange(out.shape[0]), affine, out)
        return sources

    return act, q_values, inputs


def weights_digest(weights: Mapping[str, Weights]) -> bytes:
    """Return a SHA-256 of weights by name: equal digests are equal bits; none of nothing."""
    found = sha256()
    for owner in sorted(weights):
        for name, values in sorted(weights[owner].items()):
            found.update(f"{owner} {name} {values.shape}".encode() + values.astype(np.float64).tobytes())
    return found.digest() if weights else b""


_act, _q_values, _read_inputs = _build_kernels((PREPROCESSING, PRODUCTS))


class FusedNetworks:
    """Evaluate networks for the skills of many lanes.

    `plays` says which network plays a skill: (skills,) for every lane alike, or (lanes, skills); -1 leaves the skill to
    another controller. By default network i plays skill i.
    """

    def __init__(self, networks: Sequence[FrozenNetwork], plays: npt.ArrayLike | None = None) -> None:
        self._plays = np.atleast_2d(np.asarray(np.arange(len(networks)) if plays is None else plays, np.int64))
        if self._plays.size and (self._plays.max() >= len(networks) or self._plays.min() < -1):
            raise SoulsGraphError(
                f"who plays: expected networks 0 to {len(networks) - 1} or -1 for nobody, "
                f"found {self._plays.min()} to {self._plays.max()}; name networks by their place in the list."
            )
        self._allocate(networks)
        for index, network in enumerate(networks):
            self.replace(index, network)

    def _allocate(self, networks: Sequence[FrozenNetwork]) -> None:
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
        if self._plays.shape[0] not in (1, len(due)) or self._plays.shape[1] > due.shape[1]:
            raise SoulsGraphError(
                f"who plays: expected {due.shape[0]} lanes of at most {due.shape[1]} skills, "
                f"found {self._plays.shape}; build the networks for this fight."
            )
        _act(rows, due, actions, self._plays, self._packed)

    def q_values(self, index: int, rows: StateRows) -> Floats:
        """Return one network's Q-values of State rows (n, 25), (n, actions)."""
        values = np.empty((len(rows), self._tables[index, _SIZES + self._tables[index, _LAYERS] - 1]), np.float32)
        _q_values(rows, index, self._packed, values)
        return values

    def inputs(self, index: int, rows: StateRows) -> Floats:
        """Return what one network reads of State rows (n, 25): mapped, normalised, clipped, (n, size)."""
        values = np.empty((len(rows), self._tables[index, _INPUTS]), np.float32)
        _read_inputs(rows, self._map(index), values)
        return values
