"""The learner inside RLlib: DQN updates of each module that learns, by autograd or by the compiled CPU kernel.

Both paths work on the same parameter and Adam memory and agree within float tolerance. A module's batch
holds whole minibatches, already normalised by its replay.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.core.learner.utils import update_target_network
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics import NUM_MODULE_STEPS_SAMPLED_LIFETIME
from torch import Tensor, nn

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.hyperparameters import DQNHyperparameters
from soulsgraph_policies.inference import Weights
from soulsgraph_policies.module import QNetworkModule, TensorBatch, minibatch_loss
from soulsgraph_policies.replay import Batch
from soulsgraph_policies.update_kernel import CpuUpdater, FlatMemory, UpdateFigures

#: The learner's two ways to compute the same update.
AUTOGRAD, CPU_KERNEL = "autograd", "cpu"
UPDATE_PATHS = (AUTOGRAD, CPU_KERNEL)

_DISCOUNTS, _WEIGHTS = "discounts", "weights"
_LEARNING, _DECISIONS, _AVERAGE = "learning", "decisions", "average"
_MOMENTS = ("exp_avg", "exp_avg_sq")


def as_multi_agent_batch(batches: Mapping[str, Batch]) -> MultiAgentBatch:
    """Return transitions sampled for each module as what RLlib's learner group takes."""
    rows = {module: _as_rows(batch) for module, batch in batches.items()}
    return MultiAgentBatch(rows, env_steps=sum(len(batch.actions) for batch in batches.values()))


def _as_rows(batch: Batch) -> SampleBatch:
    return SampleBatch(
        {
            Columns.OBS: batch.observations,
            Columns.NEXT_OBS: batch.next_observations,
            Columns.ACTIONS: batch.actions,
            Columns.REWARDS: batch.rewards,
            _DISCOUNTS: batch.discounts,
            _WEIGHTS: batch.weights,
        }
    )


def _as_batch(rows: SampleBatch) -> Batch:
    names = (Columns.OBS, Columns.NEXT_OBS, Columns.ACTIONS, Columns.REWARDS, _DISCOUNTS, _WEIGHTS)
    return Batch(*(rows[name] for name in names))


def _flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Move tensors into one flat vector, in their order, each becoming a view of its part."""
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    start = 0
    for tensor in tensors:
        end = start + tensor.numel()
        tensor.data = flat[start:end].view_as(tensor)
        start = end
    return flat


class _Adam(torch.optim.Adam):
    # torch wraps these in a decorator that loads its compiler, which takes as long as loading torch itself.
    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    state_dict = inspect.unwrap(torch.optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Adam.load_state_dict)


class SkillDQNLearner(DQNTorchLearner):
    """Train the modules of `policies_to_train`; no other module has an optimizer or ever changes."""

    def build(self) -> None:
        """Build the modules and the optimizers of those that learn.

        Raises:
            SoulsGraphError: if the CPU path is asked for on a GPU, for other than two hidden layers, or for
                a head that is trained in another form than it plays.
        """
        super().build()
        # Networks this small gain nothing from more threads, and results do not depend on their number.
        torch.set_num_threads(1)
        #: What learns, by module.
        self.learning: dict[str, ModuleUpdates] = {name: self._updates_of(name) for name in self.config.trained_modules}

    def _q_module(self, module_id: str) -> QNetworkModule:
        module = self.module[module_id].unwrapped()
        assert isinstance(module, QNetworkModule)
        return module

    def _updates_of(self, module_id: str) -> ModuleUpdates:
        numbers, path = self.config.hyperparameters_of(module_id), self.config.update_path_of(module_id)
        return ModuleUpdates(self._q_module(module_id), self._adam(module_id), numbers, path, self._device)

    def _adam(self, module_id: str) -> torch.optim.Optimizer:
        optimizer = self.get_optimizer(module_id)
        assert isinstance(optimizer, torch.optim.Optimizer)
        return optimizer

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Make an Adam with torch's defaults for each module that learns."""
        if module_id not in self.config.trained_modules:
            return
        parameters = list(self._q_module(module_id).q_network.parameters())
        rate = self.config.hyperparameters_of(module_id).learning_rate
        optimizer = _Adam(parameters, lr=rate)
        # Zero moments exist from the start, so that they can be saved, restored and shared at any time.
        for parameter in parameters:
            optimizer.state[parameter] = {"step": torch.tensor(0.0)} | {
                name: torch.zeros_like(parameter) for name in _MOMENTS
            }
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=parameters)

    def _set_optimizer_state(self, state: dict[str, Any]) -> None:
        super()._set_optimizer_state(state)
        for learning in self.learning.values():
            learning.bind()

    def update(
        self,
        batch: MultiAgentBatch | None = None,
        *,
        training_data: TrainingData | None = None,
        timesteps: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> dict[str, UpdateFigures]:
        """Take one update of a module for every `batch_size` rows of its batch; modules without a batch stay.

        `timesteps` holds the decisions of each module received so far: a target network is copied
        between the updates where a target period ended. The figures come back as they are, by
        module: RLlib's reduction of logged values would take longer than the updates.

        Raises:
            SoulsGraphError: if there is no batch, or one of a module that does not learn.
        """
        data = batch if batch is not None else training_data.batch if training_data is not None else None
        if data is None or not data.policy_batches or not set(data.policy_batches) <= set(self.learning):
            found = sorted(data.policy_batches) if data is not None else "none"
            raise SoulsGraphError(
                f"learner: expected batches of {', '.join(self.learning) or 'nothing, for no module learns'}, "
                f"found {found}; add what is to learn to policies_to_train."
            )
        self._weights_seq_no += 1
        counts = (timesteps or {}).get(NUM_MODULE_STEPS_SAMPLED_LIFETIME, {})
        return {
            module: self.learning[module].learn(_as_batch(rows), counts.get(module))
            for module, rows in data.policy_batches.items()
        }

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Leave the target networks alone: `update` copies them by the counts of decisions."""
        Learner.after_gradient_based_update(self, timesteps=timesteps)

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return RLlib's state, and the counts and averages of the modules that learn."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        return state | {_LEARNING: {module: learning.get_counts() for module, learning in self.learning.items()}}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`."""
        super().set_state(state)
        for module, counts in state.get(_LEARNING, {}).items():
            self.learning[module].set_counts(counts)


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
        self._average = NetworkAverage(module.q_network)
        self._compiled = path == CPU_KERNEL
        if self._compiled:
            self._require_kernel_shape()
        self.bind()

    def bind(self) -> None:
        """Take up the optimizer's tensors: loading a state gives Adam new ones, and counts and kernel work on them."""
        states = [self.optimizer.state[parameter] for parameter in self.module.q_network.parameters()]
        #: Adam's count of steps; it keeps one for every parameter.
        self._steps: Tensor = states[0]["step"]
        self.updater = self._make_updater() if self._compiled else None
        if self._compiled:
            for state in states:
                state["step"] = self._steps
        # The arrays share the parameters' memory, which has just moved.
        self._views = self.module.weights() if self._compiled else None

    def _require_kernel_shape(self) -> None:
        sizes, device = self._hyperparameters.hidden_sizes, self._device.type
        if len(sizes) != 2 or device != "cpu" or not self._hyperparameters.plain_head:
            head = "a plain head" if self._hyperparameters.plain_head else "dueling streams or quantiles"
            raise SoulsGraphError(
                f"update path {CPU_KERNEL!r}: expected two hidden layers and a plain head on a CPU, found {len(sizes)} "
                f"and {head} on {device}; use update path {AUTOGRAD!r}."
            )

    def _make_updater(self) -> CpuUpdater:
        module, optimizer = self.module, self.optimizer
        network = list(module.q_network.parameters())
        moments = [[optimizer.state[parameter][name] for parameter in network] for name in _MOMENTS]
        groups = (network, list(module.target_network.parameters()), *moments)
        memory = FlatMemory(*(_flatten(tensors).numpy() for tensors in groups))
        outputs = [parameter.shape[0] for parameter in network[::2]]
        return CpuUpdater(memory, (network[0].shape[1], outputs[0], outputs[1], outputs[2]), self._hyperparameters)

    def learn(self, batch: Batch, decisions: int | None = None) -> UpdateFigures:
        """Take one update for every `batch_size` rows, at a count of decisions received (by default the last one)."""
        reached = self._decisions if decisions is None else decisions
        figures = self._learn(batch, reached)
        if self._hyperparameters.averages(reached):
            self._average.add(self.module.q_network)
        return figures

    def _learn(self, batch: Batch, decisions: int) -> UpdateFigures:
        numbers, rows = self._hyperparameters, len(batch.actions)
        copy, self._decisions = numbers.target_copy(self._decisions, decisions), decisions
        if copy is None:
            return self._take_updates(batch)
        before = min(numbers.updates_before(copy, self._updates_done()) * numbers.batch_size, rows)
        figures = [self._take_updates(batch.part(0, before))] if before else []
        self._copy_target()
        if before < rows:
            figures.append(self._take_updates(batch.part(before, rows)))
        return _mean(figures, [before, rows - before] if len(figures) > 1 else None)

    def _copy_target(self) -> None:
        self._update_target(1.0)

    def _update_target(self, share: float) -> None:
        for network, target in self.module.get_target_network_pairs():
            update_target_network(main_net=network, target_net=target, tau=share)

    def _updates_done(self) -> int:
        return int(self._steps.item())

    def _take_updates(self, batch: Batch) -> UpdateFigures:
        if self.updater is not None:
            done = self._updates_done()
            figures = self.updater.update(batch, done)
            self._steps.fill_(done + len(batch.actions) // self._hyperparameters.batch_size)
            return figures
        return _mean([self._autograd_update(part) for part in self._minibatches(batch)])

    def _minibatches(self, batch: Batch) -> Iterable[TensorBatch]:
        size = self._hyperparameters.batch_size
        tensors = [torch.as_tensor(values, device=self._device) for values in vars(batch).values()]
        for start in range(0, len(batch.actions), size):
            yield TensorBatch(*(values[start : start + size] for values in tensors))

    def _autograd_update(self, batch: TensorBatch) -> UpdateFigures:
        numbers, module, optimizer = self._hyperparameters, self.module, self.optimizer
        result = minibatch_loss(module, batch, numbers)
        optimizer.zero_grad()
        result.loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(module.q_network.parameters(), numbers.max_gradient_norm)
        optimizer.step()
        if numbers.target_rate:
            self._update_target(numbers.target_rate)
        errors = result.errors.abs().cpu().numpy()
        return UpdateFigures(result.loss.item(), result.values.mean().item(), float(errors.mean()), errors)

    def newest_weights(self) -> Weights:
        """Return the module's weights as of the last update; on a CPU the arrays share its memory."""
        return self.module.weights() if self._views is None else self._views

    def playing_weights(self) -> Weights:
        """Return the module's weights for greedy play: those of the average once there is one."""
        return self.module.weights(self._average.network)

    def playing_head(self) -> Weights:
        """Return the trained head's parameters that go with `playing_weights`."""
        return self.module.head_weights(self._average.network)

    def get_counts(self) -> dict[str, Any]:
        """Return what RLlib's own state lacks: the count that target copies go by, and the average for play."""
        return {_DECISIONS: self._decisions, _AVERAGE: self._average.get_state()}

    def set_counts(self, state: dict[str, Any]) -> None:
        """Continue from `get_counts`."""
        self._decisions = int(state[_DECISIONS])
        self._average.set_state(state[_AVERAGE])

    def get_training_state(self) -> dict[str, Any]:
        """Return what the next update depends on, as arrays and numbers: network, target, Adam, counts."""
        module, state = self.module, self.optimizer.state
        parameters = list(module.q_network.parameters())
        adam = {
            f"{index}": {name: value.cpu().numpy().copy() for name, value in state[parameter].items()}
            for index, parameter in enumerate(parameters)
        }
        weights = {name: value.cpu().numpy().copy() for name, value in module.state_dict().items()}
        return {"weights": weights, "adam": adam, **self.get_counts()}

    def set_training_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_training_state`, in place."""
        module = self.module
        with torch.no_grad():
            for name, value in module.state_dict().items():
                value.copy_(torch.from_numpy(state["weights"][name]))
            for index, parameter in enumerate(module.q_network.parameters()):
                for name, value in self.optimizer.state[parameter].items():
                    value.copy_(torch.from_numpy(np.asarray(state["adam"][f"{index}"][name])))
        self.set_counts(state)


def _mean(figures: Sequence[UpdateFigures], weights: Sequence[int] | None = None) -> UpdateFigures:
    rows = np.array([(one.loss, one.q_mean, one.td_error) for one in figures])
    loss, q_mean, td_error = np.average(rows, axis=0, weights=weights).tolist()
    return UpdateFigures(loss, q_mean, td_error, np.concatenate([one.errors for one in figures]))


class NetworkAverage:
    """Average parameters with equal weights (Polyak & Juditsky 1992; Izmailov et al. 2018)."""

    def __init__(self, network: nn.Sequential) -> None:
        self._network = copy.deepcopy(network).requires_grad_(False)
        self._count = 0

    @property
    def network(self) -> nn.Sequential | None:
        """The average as a network; None before the first one was added."""
        return self._network if self._count else None

    @torch.no_grad()
    def add(self, network: nn.Sequential) -> None:
        """Add a network of the same layout to the average."""
        self._count += 1
        for mean, value in zip(self._network.parameters(), network.parameters(), strict=True):
            mean.add_((value - mean) / self._count)

    def get_state(self) -> dict[str, Any]:
        """Return everything that later averages depend on, as arrays and numbers; only the count 0 before the first."""
        parameters = self._network.named_parameters() if self._count else ()
        return {"count": self._count, "network": {name: value.cpu().numpy().copy() for name, value in parameters}}

    @torch.no_grad()
    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`."""
        self._count = int(state["count"])
        for name, value in self._network.named_parameters():
            if self._count:
                value.copy_(torch.from_numpy(state["network"][name]))
