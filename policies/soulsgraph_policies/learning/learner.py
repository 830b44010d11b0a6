"""What learns: the learner inside RLlib, by autograd or by the compiled CPU kernel, and the driver's side of a module.

Both paths work on the same parameter and Adam memory and agree within float tolerance. A module's batch
holds whole minibatches, already normalised by its replay.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from ray.rllib.algorithms.dqn.dqn_learner import QF_LOSS_KEY, QF_MEAN_KEY, TD_ERROR_MEAN_KEY
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.core.learner.utils import update_target_network
from ray.rllib.utils.metrics import NUM_MODULE_STEPS_SAMPLED_LIFETIME
from torch import Tensor, nn

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.machine import compute_on_one_thread
from soulsgraph_envs.skills.skill import ObservationMap
from soulsgraph_policies.agents.inference import NETWORK, RunningNormalizer, Weights
from soulsgraph_policies.learning.constraint import Constraint
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.module import QNetworkModule, minibatch_loss
from soulsgraph_policies.learning.replay import Batch, ReplayBuffer
from soulsgraph_policies.learning.sampler import Transitions
from soulsgraph_policies.learning.update_kernel import CpuUpdater, FlatMemory, UpdateMetrics

#: The learner's two ways to compute the same update.
AUTOGRAD, CPU_KERNEL = "autograd", "cpu"

#: Updates over which loss and Q-values are averaged before they are logged.
UPDATES_PER_LOG = 125
_MOMENTS = ("exp_avg", "exp_avg_sq")


def _flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Move tensors into one flat vector, in their order, each becoming a view of its part."""
    flat = nn.utils.parameters_to_vector(tensors).detach()
    nn.utils.vector_to_parameters(flat, tensors)
    return flat


class Adam(torch.optim.Adam):
    """Adam that does not load torch's compiler."""

    # torch wraps these in a decorator that loads its compiler, which takes as long as loading torch itself.
    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    state_dict = inspect.unwrap(torch.optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Adam.load_state_dict)


def make_adam(network: nn.Module, learning_rate: float) -> Adam:
    """Return an Adam with torch's defaults."""
    optimizer = Adam(network.parameters(), lr=learning_rate)
    # Zero moments exist from the start, so that they can be saved, restored and shared at any time.
    for parameter in network.parameters():
        moments = {name: torch.zeros_like(parameter) for name in _MOMENTS}
        optimizer.state[parameter] = {"step": torch.tensor(0.0), **moments}
    return optimizer


class ParameterPull(NamedTuple):
    """A constraint of one parameter, of its shape: strength * importance, the anchor, and 1 where it learns."""

    factor: Tensor
    anchor: Tensor
    mask: Tensor


class SkillDQNLearner(DQNTorchLearner):
    """Train the modules of `policies_to_train`; no other module has an optimizer or ever changes."""

    def build(self) -> None:
        """Build the modules and the optimizers of those that learn.

        Raises:
            SoulsGraphError: if the CPU path is asked for on a GPU, or for other than two hidden layers.
        """
        super().build()
        compute_on_one_thread()
        #: What learns, by module.
        self.learning: dict[str, ModuleUpdates] = {
            name: ModuleUpdates(
                *(self.q_module(name), self.get_optimizer(name), self.config.hyperparameters_of(name)),
                *(self.config.update_path_of(name), self._device),
            )
            for name in self.config.trained_modules
        }

    def q_module(self, module_id: str) -> QNetworkModule:
        """Return a module by its name."""
        module = self.module[module_id].unwrapped()
        assert isinstance(module, QNetworkModule)
        return module

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Make an Adam for each module that learns."""
        if module_id not in self.config.trained_modules:
            return
        network, rate = self.q_module(module_id).q_network, self.config.hyperparameters_of(module_id).lr
        self.register_optimizer(
            module_id=module_id, optimizer=make_adam(network, rate), params=list(network.parameters())
        )

    def update(
        self, *, training_data: TrainingData, timesteps: Mapping[str, Any], **kwargs: Any
    ) -> dict[str, UpdateMetrics]:
        """Take one update of a module for every minibatch of its `Batch`; modules without one stay.

        `timesteps` holds the decisions of each module received so far: a target network is copied
        between the updates where a target period ended. The metrics come back as they are, by
        module: RLlib's reduction of logged values would take longer than the updates.
        """
        counts = timesteps[NUM_MODULE_STEPS_SAMPLED_LIFETIME]
        return {name: self.learning[name].learn(batch, counts[name]) for name, batch in training_data.batch.items()}


class ModuleUpdates:
    """The updates of one module: its network and target network, Adam, average for play, and count of decisions.

    Raises:
        SoulsGraphError: as `SkillDQNLearner.build`.
    """

    def __init__(
        self,
        module: QNetworkModule,
        optimizer: torch.optim.Optimizer,
        hyperparameters: DQNHyperparameters,
        path: str,
        device: torch.device,
    ) -> None:
        self.module, self.optimizer, self._device = module, optimizer, device
        self._hyperparameters, self._decisions = hyperparameters, 0
        # Parameters of equal weights (Polyak & Juditsky 1992; Izmailov et al. 2018), and how many were added.
        self._average, self._averaged = copy.deepcopy(module.q_network).requires_grad_(False), 0
        #: What changes the gradients, if anything does, and the pull of every parameter.
        self.constraint: Constraint | None = None
        self._pulls: dict[nn.Parameter, ParameterPull] = {}
        states = [optimizer.state[parameter] for parameter in module.q_network.parameters()]
        #: Adam's count of steps; it keeps one for every parameter.
        self._steps: Tensor = states[0]["step"]
        self.updater: CpuUpdater | None = None
        if path == CPU_KERNEL:
            if device.type != "cpu" or not hyperparameters.compiles:
                raise SoulsGraphError(
                    f"update path {CPU_KERNEL!r}: expected two hidden layers on a CPU, found "
                    f"{len(hyperparameters.fcnet_hiddens)} on {device.type}; use update path {AUTOGRAD!r}."
                )
            self.updater = self._make_updater()
            for state in states:
                state["step"] = self._steps

    def _take_constraint(self, constraint: Constraint) -> None:
        network = dict(self.module.q_network.named_parameters(prefix=NETWORK))
        parts = constraint.parts({name: tuple(parameter.shape) for name, parameter in network.items()})
        tensors = (ParameterPull(*(torch.as_tensor(one, device=self._device) for one in part)) for part in parts)
        self.constraint, self._pulls = constraint, dict(zip(network.values(), tensors, strict=True))
        if self.updater is not None:
            self.updater.constrain(parts)

    @torch.no_grad()
    def constrain(self, constraint: Constraint) -> None:
        """Let a constraint change the gradients of all later updates.

        What its mask holds stays bit-identical in the network and in the average for play: Adam forgets the moments by
        which it would move on.

        Raises:
            SoulsGraphError: if a name or shape differs from the network's parameters.
        """
        self._take_constraint(constraint)
        for parameter, pull in self._pulls.items():
            for name in _MOMENTS:
                moment = self.optimizer.state[parameter][name]
                moment.masked_fill_(pull.mask == 0.0, 0.0)

    def _make_updater(self) -> CpuUpdater:
        module, optimizer = self.module, self.optimizer
        network = list(module.q_network.parameters())
        moments = [[optimizer.state[parameter][name] for parameter in network] for name in _MOMENTS]
        groups = (network, list(module.target_network.parameters()), *moments)
        memory = FlatMemory(*(_flatten(tensors).numpy() for tensors in groups))
        first, second, actions = (parameter.shape[0] for parameter in network[::2])
        return CpuUpdater(memory, (network[0].shape[1], first, second, actions), self._hyperparameters)

    def learn(self, batch: Batch, decisions: int) -> UpdateMetrics:
        """Take one update for every minibatch, at a count of decisions received."""
        numbers, rows = self._hyperparameters, len(batch.actions)
        copied, self._decisions = numbers.target_copy(self._decisions, decisions), decisions
        if copied is None:
            metrics = self._take_updates(batch)
        else:
            before = min(
                numbers.updates_before(copied, int(self._steps.item())) * numbers.train_batch_size_per_learner, rows
            )
            parts = [self._take_updates(batch.part(0, before))] if before else []
            update_target_network(main_net=self.module.q_network, target_net=self.module.target_network, tau=1.0)
            if before < rows:
                parts.append(self._take_updates(batch.part(before, rows)))
            metrics = _mean(parts, [before, rows - before] if len(parts) > 1 else None)
        if numbers.averages(decisions):
            self._add_to_average()
        return metrics

    @torch.no_grad()
    def _add_to_average(self) -> None:
        self._averaged += 1
        for mean, value in zip(self._average.parameters(), self.module.q_network.parameters(), strict=True):
            mean.add_((value - mean) / self._averaged)
            if pull := self._pulls.get(value):
                # The mean of equal numbers may differ from them in a last bit.
                mean.copy_(torch.where(pull.mask > 0.0, mean, value))

    def _take_updates(self, batch: Batch) -> UpdateMetrics:
        size = self._hyperparameters.train_batch_size_per_learner
        if self.updater is not None:
            done = int(self._steps.item())
            metrics = self.updater.update(batch, done)
            self._steps.fill_(done + len(batch.actions) // size)
            return metrics
        tensors = [torch.as_tensor(values, device=self._device) for values in vars(batch).values()]
        starts = range(0, len(batch.actions), size)
        return _mean([self._autograd_update([part[start : start + size] for part in tensors]) for start in starts])

    def _autograd_update(self, columns: Sequence[Tensor]) -> UpdateMetrics:
        numbers, module, optimizer = self._hyperparameters, self.module, self.optimizer
        result = minibatch_loss(module, columns, numbers)
        optimizer.zero_grad()
        result.loss.backward()  # type: ignore[no-untyped-call]
        self._constrain_gradients()
        nn.utils.clip_grad_norm_(module.q_network.parameters(), numbers.grad_clip)
        optimizer.step()
        errors = result.errors.abs().cpu().numpy()
        return UpdateMetrics(result.loss.item(), result.values.mean().item(), float(errors.mean()), errors)

    @torch.no_grad()
    def _constrain_gradients(self) -> None:
        for parameter, pull in self._pulls.items():
            assert parameter.grad is not None
            parameter.grad.addcmul_(pull.factor, parameter - pull.anchor).mul_(pull.mask)

    def playing_weights(self) -> Weights:
        """Return the module's weights for greedy play: those of the average once there is one."""
        return self.module.weights(self._average if self._averaged else None)

    def get_state(self) -> dict[str, Any]:
        """Return what the next update depends on, as arrays and numbers: network, target, Adam, counts, constraint."""
        adam = [self.optimizer.state[parameter] for parameter in self.module.q_network.parameters()]
        average = dict(self._average.named_parameters()) if self._averaged else {}
        state = {
            "weights": _arrays(self.module.state_dict()),
            "adam": {f"{index}": _arrays(one) for index, one in enumerate(adam)},
            "decisions": self._decisions,
            "average": {"count": self._averaged, "network": _arrays(average)},
        }
        return state if self.constraint is None else state | {"constraint": vars(self.constraint)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`, in place."""
        _copy(state["weights"], self.module.state_dict())
        for index, parameter in enumerate(self.module.q_network.parameters()):
            _copy(state["adam"][f"{index}"], self.optimizer.state[parameter])
        self._decisions, self._averaged = int(state["decisions"]), int(state["average"]["count"])
        _copy(state["average"]["network"], dict(self._average.named_parameters()))
        if "constraint" in state:
            self._take_constraint(Constraint(**state["constraint"]))


def _arrays(tensors: Mapping[str, Tensor]) -> Weights:
    return {name: tensor.numpy(force=True).copy() for name, tensor in tensors.items()}


@torch.no_grad()
def _copy(arrays: Weights, tensors: Mapping[str, Tensor]) -> None:
    for name, values in arrays.items():
        tensors[name].copy_(torch.from_numpy(np.asarray(values)))


def _mean(metrics: Sequence[UpdateMetrics], weights: Sequence[int] | None = None) -> UpdateMetrics:
    rows = np.array([(one.loss, one.q_mean, one.td_error) for one in metrics])
    loss, q_mean, td_error = np.average(rows, axis=0, weights=weights).tolist()
    return UpdateMetrics(loss, q_mean, td_error, np.concatenate([one.errors for one in metrics]))


class ModuleTraining:
    """What the driver keeps for a module that learns: replay, normaliser, generator and clocks of its own decisions.

    Batches are drawn by `entropy`.
    """

    def __init__(
        self, name: str, hyperparameters: DQNHyperparameters, observation: ObservationMap, entropy: Sequence[int] | None
    ) -> None:
        self.name, self.hyperparameters = name, hyperparameters
        self.replay = ReplayBuffer(hyperparameters, observation.size)
        self.normalizer = RunningNormalizer(observation.size, observation.indicators)
        self._generator = np.random.Generator(np.random.PCG64(entropy))
        #: Whether the statistics of observations stay as they are.
        self.normalizer_frozen = False
        self.decisions, self.updates = 0, 0
        #: Control ticks that the decisions took.
        self.ticks = 0
        #: Sums of loss, Q-value and TD error over the updates since the last `metrics`.
        self._sums, self._summed = np.zeros(3), 0

    @property
    def finished(self) -> bool:
        """Whether the whole budget was received."""
        return self.decisions >= self.hyperparameters.budget

    @property
    def epsilon(self) -> float:
        """The share of random actions at this count of decisions."""
        return self.hyperparameters.exploration(self.decisions)

    @property
    def owed(self) -> int:
        """The number of updates owed."""
        return max(self.hyperparameters.updates_owed(self.decisions, self.updates), 0)

    def receive(self, transitions: Transitions) -> None:
        """Store transitions up to the budget, and drop the surplus."""
        received = transitions.first(self.hyperparameters.budget - self.decisions)
        if not self.normalizer_frozen:
            self.normalizer.update(received.observations)
        self.replay.add(received)
        self.decisions += len(received)
        self.ticks += int(received.ticks.sum())

    def draw(self, updates: int) -> Batch:
        """Sample the transitions of this number of updates."""
        count = updates * self.hyperparameters.train_batch_size_per_learner
        return self.replay.sample(count, self._generator, self.normalizer, self.decisions)

    def learned(self, metrics: UpdateMetrics, updates: int) -> None:
        """Count updates that were taken, with what the learner reports of them."""
        self.updates += updates
        self._sums += updates * np.array([metrics.loss, metrics.q_mean, metrics.td_error])
        self._summed += updates
        self.replay.learned(metrics.errors)

    def metrics(self) -> dict[str, float] | None:
        """Return means of the learner's metrics once there are enough updates, or at the end; else None."""
        if not self.finished and self._summed < UPDATES_PER_LOG:
            return None
        means = (self._sums / max(self._summed, 1)).tolist()
        self._sums, self._summed = np.zeros(3), 0
        return dict(zip((QF_LOSS_KEY, QF_MEAN_KEY, TD_ERROR_MEAN_KEY), means, strict=True))

    def get_state(self) -> dict[str, Any]:
        """Return everything that later batches depend on, as nested arrays and plain values."""
        return {
            "decisions": self.decisions,
            "updates": self.updates,
            "ticks": self.ticks,
            "generator": self._generator.bit_generator.state,
            "normalizer": self.normalizer.get_state(),
            "normalizer_frozen": self.normalizer_frozen,
            "replay": self.replay.get_state(),
            "sums": self._sums.copy(),
            "summed": self._summed,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`."""
        self.decisions, self.updates = int(state["decisions"]), int(state["updates"])
        self.ticks = int(state["ticks"])
        self._generator.bit_generator.state = state["generator"]
        self.normalizer.set_state(state["normalizer"])
        self.normalizer_frozen = bool(state["normalizer_frozen"])
        self.replay.set_state(state["replay"])
        self._sums, self._summed = np.array(state["sums"]), int(state["summed"])
