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
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.core.learner.utils import update_target_network
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
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
UPDATE_PATHS = (AUTOGRAD, CPU_KERNEL)

#: RLlib's names of a `Batch`'s columns; the last three are ours.
_COLUMNS = (Columns.OBS, Columns.NEXT_OBS, Columns.ACTIONS, Columns.REWARDS, "discounts", "weights", "margins")
#: Updates over which loss and Q-values are averaged before they are logged.
UPDATES_PER_LOG = 125
_LEARNING, _CONSTRAINT = "learning", "constraint"
_MOMENTS = ("exp_avg", "exp_avg_sq")


def as_multi_agent_batch(batches: Mapping[str, Batch]) -> MultiAgentBatch:
    """Return transitions sampled for each module as what RLlib's learner group takes."""
    rows = {
        module: SampleBatch(dict(zip(_COLUMNS, vars(batch).values(), strict=True))) for module, batch in batches.items()
    }
    return MultiAgentBatch(rows, env_steps=sum(len(batch.actions) for batch in batches.values()))


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
        self.learning: dict[str, ModuleUpdates] = {name: self._updates_of(name) for name in self.config.trained_modules}

    def q_module(self, module_id: str) -> QNetworkModule:
        """Return a module by its name."""
        module = self.module[module_id].unwrapped()
        assert isinstance(module, QNetworkModule)
        return module

    def _updates_of(self, module_id: str) -> ModuleUpdates:
        numbers, path = self.config.hyperparameters_of(module_id), self.config.update_path_of(module_id)
        optimizer = self.get_optimizer(module_id)
        return ModuleUpdates(self.q_module(module_id), optimizer, numbers, path, self._device)

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Make an Adam with torch's defaults for each module that learns."""
        if module_id not in self.config.trained_modules:
            return
        parameters = list(self.q_module(module_id).q_network.parameters())
        rate = self.config.hyperparameters_of(module_id).lr
        optimizer = Adam(parameters, lr=rate)
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
    ) -> dict[str, UpdateMetrics]:
        """Take one update of a module for every minibatch of its batch; modules without a batch stay.

        `timesteps` holds the decisions of each module received so far: a target network is copied
        between the updates where a target period ended. The metrics come back as they are, by
        module: RLlib's reduction of logged values would take longer than the updates.
        """
        data = batch if training_data is None else training_data.batch
        assert data is not None, "SkillDQN learns from batches"
        self._weights_seq_no += 1
        counts = (timesteps or {}).get(NUM_MODULE_STEPS_SAMPLED_LIFETIME, {})
        return {
            module: self.learning[module].learn(Batch(*(rows[name] for name in _COLUMNS)), counts.get(module))
            for module, rows in data.policy_batches.items()
        }

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
        # Parameters of equal weights (Polyak & Juditsky 1992; Izmailov et al. 2018), and how many were added.
        self._average, self._averaged = copy.deepcopy(module.q_network).requires_grad_(False), 0
        #: What changes the gradients; None nothing.
        self.constraint: Constraint | None = None
        self._pulls: dict[nn.Parameter, ParameterPull] = {}
        self._compiled = path == CPU_KERNEL
        if self._compiled and (device.type != "cpu" or not hyperparameters.compiles):
            raise SoulsGraphError(
                f"update path {CPU_KERNEL!r}: expected two hidden layers on a CPU, found "
                f"{len(hyperparameters.fcnet_hiddens)} on {device.type}; use update path {AUTOGRAD!r}."
            )
        self.bind()

    def bind(self) -> None:
        """Take up the optimizer's tensors: loading a state gives Adam new ones, and counts and kernel work on them."""
        states = [self.optimizer.state[parameter] for parameter in self.module.q_network.parameters()]
        #: Adam's count of steps; it keeps one for every parameter.
        self._steps: Tensor = states[0]["step"]
        self.updater: CpuUpdater | None = None
        self._views: Weights | None = None
        if self._compiled:
            self.updater = self._make_updater()
            for state in states:
                state["step"] = self._steps
            # The arrays share the parameters' memory, which has just moved.
            self._views = self.module.weights()
        self._take_constraint(self.constraint)

    def _take_constraint(self, constraint: Constraint | None) -> None:
        network = dict(self.module.q_network.named_parameters(prefix=NETWORK))
        shapes = {name: tuple(parameter.shape) for name, parameter in network.items()}
        parts = [] if constraint is None else constraint.parts(shapes)
        self.constraint = constraint
        tensors = (ParameterPull(*(torch.as_tensor(one, device=self._device) for one in part)) for part in parts)
        #: The pull of every parameter, in the network's order; none without a constraint.
        self._pulls = dict(zip(network.values(), tensors, strict=False))
        if self.updater is not None:
            self.updater.constrain(parts)

    @torch.no_grad()
    def constrain(self, constraint: Constraint | None) -> None:
        """Let a constraint change the gradients of all later updates, None let none.

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

    def learn(self, batch: Batch, decisions: int | None = None) -> UpdateMetrics:
        """Take one update for every minibatch, at a count of decisions received (by default the last one)."""
        numbers, rows = self._hyperparameters, len(batch.actions)
        reached = self._decisions if decisions is None else decisions
        copied, self._decisions = numbers.target_copy(self._decisions, reached), reached
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
        if numbers.averages(reached):
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

    def newest_weights(self) -> Weights:
        """Return the module's weights as of the last update; on a CPU the arrays share its memory."""
        return self.module.weights() if self._views is None else self._views

    def playing_weights(self) -> Weights:
        """Return the module's weights for greedy play: those of the average once there is one."""
        return self.module.weights(self._average if self._averaged else None)

    def get_counts(self) -> dict[str, Any]:
        """Return what RLlib's own state lacks: the count that target copies go by, average for play and constraint."""
        parameters = self._average.named_parameters() if self._averaged else ()
        network = {name: value.cpu().numpy().copy() for name, value in parameters}
        counts = {"decisions": self._decisions, "average": {"count": self._averaged, "network": network}}
        return counts if self.constraint is None else counts | {_CONSTRAINT: self.constraint.get_state()}

    @torch.no_grad()
    def set_counts(self, state: dict[str, Any]) -> None:
        """Continue from `get_counts`."""
        self._decisions, self._averaged = int(state["decisions"]), int(state["average"]["count"])
        for name, value in state["average"]["network"].items():
            self._average.get_parameter(name).copy_(torch.from_numpy(value))
        constraint = state.get(_CONSTRAINT)
        self._take_constraint(None if constraint is None else Constraint(**constraint))

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
