"""The learner of one skill inside RLlib: DQN updates by autograd or by the compiled CPU kernel.

Both paths work on the same parameter and Adam memory and agree within float tolerance. The batch
holds whole minibatches of the trained skill, already normalised by the replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from ray.rllib.algorithms.dqn.dqn_learner import QF_PREDS, QF_TARGET_NEXT_PREDS
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.core.learner.utils import update_target_network
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from torch import Tensor, nn

from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_policies.hyperparameters import DQNHyperparameters
from soulsgraph_policies.module import QNetworkModule
from soulsgraph_policies.replay import Batch
from soulsgraph_policies.update_kernel import CpuUpdater, FlatMemory, UpdateFigures

#: The learner's two ways to compute the same update.
AUTOGRAD, CPU_KERNEL = "autograd", "cpu"
UPDATE_PATHS = (AUTOGRAD, CPU_KERNEL)

_DECISIONS = "decisions"
_MOMENTS = ("exp_avg", "exp_avg_sq")


def as_multi_agent_batch(skill: str, batch: Batch) -> MultiAgentBatch:
    """Give sampled transitions as what RLlib's learner group takes."""
    rows = SampleBatch(
        {
            Columns.OBS: batch.observations,
            Columns.NEXT_OBS: batch.next_observations,
            Columns.ACTIONS: batch.actions,
            Columns.REWARDS: batch.rewards,
            Columns.TERMINATEDS: batch.terminated,
        }
    )
    return MultiAgentBatch({skill: rows}, env_steps=len(batch.actions))


def _as_batch(rows: SampleBatch) -> Batch:
    names = (Columns.OBS, Columns.NEXT_OBS, Columns.ACTIONS, Columns.REWARDS, Columns.TERMINATEDS)
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


class SkillDQNLearner(DQNTorchLearner):
    """Train the one skill of `policies_to_train`; no other module has an optimizer or ever changes."""

    def build(self) -> None:
        """Build the modules and the trained skill's optimizer.

        Raises:
            SoulsGraphError: if the CPU path is asked for on a GPU or for other than two hidden layers.
        """
        super().build()
        # Networks this small gain nothing from more threads, and results stay the same on any machine.
        torch.set_num_threads(1)
        self._decisions = 0
        self._hyperparameters: DQNHyperparameters = self.config.hyperparameters
        self._trained: str = self.config.trained
        self._updater: CpuUpdater | None = None
        if self.config.update_path == CPU_KERNEL:
            self._require_kernel_shape()
            self._updater = self._make_updater()

    @property
    def trained_module(self) -> QNetworkModule:
        """The module in training."""
        module = self.module[self._trained].unwrapped()
        assert isinstance(module, QNetworkModule)
        return module

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The trained skill's Adam."""
        optimizer = self.get_optimizer(self._trained)
        assert isinstance(optimizer, torch.optim.Optimizer)
        return optimizer

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Make an Adam with torch's defaults for the trained skill only."""
        if module_id != self.config.trained:
            return
        parameters = list(self._network(module_id).parameters())
        optimizer = torch.optim.Adam(parameters, lr=self.config.hyperparameters.learning_rate)
        # Zero moments exist from the start, so that they can be saved, restored and shared at any time.
        for parameter in parameters:
            optimizer.state[parameter] = {"step": torch.tensor(0.0)} | {
                name: torch.zeros_like(parameter) for name in _MOMENTS
            }
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=parameters)

    def _network(self, module_id: str) -> nn.Module:
        network = self.module[module_id].unwrapped().q_network
        assert isinstance(network, nn.Module)
        return network

    def _require_kernel_shape(self) -> None:
        sizes, device = self._hyperparameters.hidden_sizes, self._device.type
        if len(sizes) != 2 or device != "cpu":
            raise SoulsGraphError(
                f"update path {CPU_KERNEL!r}: expected two hidden layers on a CPU, found {len(sizes)} on {device}; "
                f"use update path {AUTOGRAD!r}."
            )

    def _make_updater(self) -> CpuUpdater:
        module, optimizer = self.trained_module, self.optimizer
        network = list(module.q_network.parameters())
        moments = [[optimizer.state[parameter][name] for parameter in network] for name in _MOMENTS]
        groups = (network, list(module.target_network.parameters()), *moments)
        memory = FlatMemory(*(_flatten(tensors).numpy() for tensors in groups))
        outputs = [parameter.shape[0] for parameter in network[::2]]
        return CpuUpdater(memory, (network[0].shape[1], outputs[0], outputs[1], outputs[2]), self._hyperparameters)

    def _set_optimizer_state(self, state: dict[str, Any]) -> None:
        super()._set_optimizer_state(state)
        # Loading gives Adam new moment tensors; the kernel must work on those.
        if self._updater is not None:
            self._updater = self._make_updater()

    def update(
        self,
        batch: MultiAgentBatch | None = None,
        *,
        training_data: TrainingData | None = None,
        timesteps: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> dict[str, UpdateFigures]:
        """Take one update for every `batch_size` rows of the trained skill's batch.

        `timesteps` tells how many of its decisions were received so far: the target network is copied
        between the updates where a target period ended. The figures come back as they are, by
        module: RLlib's reduction of logged values would take longer than the updates.

        Raises:
            SoulsGraphError: if the batch is of anything but the trained skill.
        """
        data = batch if batch is not None else training_data.batch if training_data is not None else None
        if data is None or set(data.policy_batches) != {self._trained}:
            found = sorted(data.policy_batches) if data is not None else "no batch"
            raise SoulsGraphError(
                f"learner: expected a batch of {self._trained}, found {found}; train one skill a stage."
            )
        self._weights_seq_no += 1
        decisions = (timesteps or {}).get(NUM_ENV_STEPS_SAMPLED_LIFETIME, self._decisions)
        return {self._trained: self._learn(_as_batch(data.policy_batches[self._trained]), decisions)}

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
        for network, target in self.trained_module.get_target_network_pairs():
            update_target_network(main_net=network, target_net=target, tau=1.0)

    def _updates_done(self) -> int:
        parameter = next(iter(self.trained_module.q_network.parameters()))
        return int(self.optimizer.state[parameter]["step"].item())

    def _take_updates(self, batch: Batch) -> UpdateFigures:
        if self._updater is not None:
            state = self.optimizer.state
            steps = [state[parameter]["step"] for parameter in self.trained_module.q_network.parameters()]
            done = self._updates_done()
            figures = self._updater.update(batch, done)
            for step in steps:
                step.fill_(done + len(batch.actions) // self._hyperparameters.batch_size)
            return figures
        return _mean([self._autograd_update(part) for part in self._minibatches(batch)])

    def _minibatches(self, batch: Batch) -> Iterable[dict[str, Tensor]]:
        size = self._hyperparameters.batch_size
        rows = as_multi_agent_batch(self._trained, batch).policy_batches[self._trained]
        tensors = {name: torch.as_tensor(values, device=self._device) for name, values in rows.items()}
        for start in range(0, len(batch.actions), size):
            yield {name: values[start : start + size] for name, values in tensors.items()}

    def _autograd_update(self, batch: dict[str, Tensor]) -> UpdateFigures:
        numbers, module, optimizer = self._hyperparameters, self.trained_module, self.optimizer
        out = module.forward_train(batch)
        alive = 1.0 - batch[Columns.TERMINATEDS]
        targets = batch[Columns.REWARDS] + alive * numbers.discount * out[QF_TARGET_NEXT_PREDS].amax(dim=1)
        values = out[QF_PREDS].gather(1, batch[Columns.ACTIONS].unsqueeze(1)).squeeze(1)
        loss = functional.smooth_l1_loss(values, targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(module.q_network.parameters(), numbers.max_gradient_norm)
        optimizer.step()
        with torch.no_grad():
            return UpdateFigures(loss.item(), values.mean().item(), (values - targets).abs().mean().item())

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Leave the target network alone: `update` copies it by the count of decisions."""
        Learner.after_gradient_based_update(self, timesteps=timesteps)

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Give RLlib's state and the count of decisions that the target copies go by."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        return state | {_DECISIONS: self._decisions}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`."""
        super().set_state(state)
        self._decisions = state.get(_DECISIONS, self._decisions)

    def get_training_state(self) -> dict[str, Any]:
        """Give what the next update depends on, as arrays and numbers: network, target, Adam, counts."""
        module, state = self.trained_module, self.optimizer.state
        parameters = list(module.q_network.parameters())
        adam = {
            f"{index}": {name: value.cpu().numpy().copy() for name, value in state[parameter].items()}
            for index, parameter in enumerate(parameters)
        }
        weights = {name: value.cpu().numpy().copy() for name, value in module.state_dict().items()}
        return {"weights": weights, "adam": adam, _DECISIONS: self._decisions}

    def set_training_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_training_state`, in place."""
        module = self.trained_module
        with torch.no_grad():
            for name, value in module.state_dict().items():
                value.copy_(torch.from_numpy(state["weights"][name]))
            for index, parameter in enumerate(module.q_network.parameters()):
                for name, value in self.optimizer.state[parameter].items():
                    value.copy_(torch.from_numpy(np.asarray(state["adam"][f"{index}"][name])))
        self._decisions = int(state[_DECISIONS])


def _mean(figures: Sequence[UpdateFigures], weights: Sequence[int] | None = None) -> UpdateFigures:
    rows = np.array([(one.loss, one.q_mean, one.td_error) for one in figures])
    loss, q_mean, td_error = np.average(rows, axis=0, weights=weights).tolist()
    return UpdateFigures(loss, q_mean, td_error)
