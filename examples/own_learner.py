"""Train dodge by a learner of your own, the other skills as usual: double DQN in plain torch.

`soulsgraph` asks for four things: `act` in a batch of fights, `receive` what came of it, `learn`, and the `layers` of
the network that plays. Run it with `python examples/own_learner.py runs/own`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import soulsgraph as sg
from soulsgraph_policies.learning.own_learner import Layers, LearnerTask
from soulsgraph_policies.learning.sampler import Transitions

Floats = npt.NDArray[np.float32]


class DoubleDQN:
    """Double DQN (van Hasselt et al. 2016) with a replay and a target network."""

    batch_size, train_freq, target_update_interval, gamma = 256, 8, 1_000, 0.99

    def __init__(self, task: LearnerTask) -> None:
        torch.manual_seed(task.seed % 2**31)
        self.task, self.random = task, np.random.default_rng(task.seed)
        sizes = len(task.observed), *task.numbers.fcnet_hiddens, len(task.actions)
        self.network, self.target = (self._layers_of(sizes) for _ in range(2))
        for layer, (weight, bias) in zip(self.network[::2], task.layers or (), strict=False):
            layer.weight.data, layer.bias.data = torch.tensor(weight), torch.tensor(bias)
        self.target.load_state_dict(self.network.state_dict())
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=3e-4)
        self.replay: list[Floats] = []
        self.received = self.updates = self.copies = 0

    @staticmethod
    def _layers_of(sizes: tuple[int, ...]) -> nn.Sequential:
        linear = [nn.Linear(a, b) for a, b in pairwise(sizes)]
        return nn.Sequential(*[part for one in linear for part in (one, nn.ReLU())][:-1])

    @property
    def epsilon(self) -> float:
        """Fall from 1 to 0.05 over the first tenth of the budget."""
        return max(0.05, 1.0 - 0.95 * self.received / (0.1 * self.task.budget))

    def act(self, observations: Floats) -> npt.NDArray[np.int64]:
        """Return epsilon-greedy actions, (lanes,)."""
        with torch.no_grad():
            greedy = self.network(torch.from_numpy(observations)).argmax(dim=1).numpy()
        drawn = self.random.integers(len(self.task.actions), size=len(greedy))
        actions: npt.NDArray[np.int64] = np.where(self.random.random(len(greedy)) < self.epsilon, drawn, greedy)
        return actions

    def receive(self, transitions: Transitions) -> None:
        """Keep decisions in the replay, each as one row."""
        parts = (transitions.actions, transitions.rewards, transitions.terminated)
        columns = np.stack(parts, axis=1, dtype=np.float32)
        self.replay.extend(np.hstack([transitions.observations, transitions.next_observations, columns]))
        self.replay = self.replay[-max(self.task.budget // 3, self.batch_size) :]
        self.received += len(transitions)

    def learn(self) -> Mapping[str, float]:
        """Take the updates that are due, and return the last loss."""
        loss, due = 0.0, max(self.received - 100, 0) // self.train_freq
        if due <= self.updates:
            return {}
        while self.updates < due:
            loss, self.updates = self._update(), self.updates + 1
        if self.received // self.target_update_interval > self.copies:
            self.copies = self.received // self.target_update_interval
            self.target.load_state_dict(self.network.state_dict())
        return {"loss": loss}

    def _update(self) -> float:
        picked = [self.replay[i] for i in self.random.integers(len(self.replay), size=self.batch_size)]
        rows, size = torch.from_numpy(np.array(picked)), len(self.task.observed)
        before, after, (actions, rewards, ended) = rows[:, :size], rows[:, size : 2 * size], rows[:, 2 * size :].T
        with torch.no_grad():
            best = self.network(after).argmax(dim=1, keepdim=True)
            goal = rewards + self.gamma * (1.0 - ended) * self.target(after).gather(1, best)[:, 0]
        value = self.network(before).gather(1, actions.long()[:, None])[:, 0]
        loss = nn.functional.smooth_l1_loss(value, goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def layers(self) -> Layers:
        """Return weight and bias of each layer as arrays."""
        return [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in self.network[::2]]


def main() -> None:
    """Train all skills, dodge by `DoubleDQN`, and print what the run holds and how many fights it wins."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--episodes", type=int, default=400)
    options: Any = parser.parse_args()
    run = sg.train(run=options.run, scale=options.scale, learners={"dodge": DoubleDQN})
    print(run)
    print(run.evaluate(episodes=options.episodes))


if __name__ == "__main__":
    main()
