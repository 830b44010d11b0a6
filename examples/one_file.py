"""The whole idea in one file: five skills, each trained with everything upstream frozen, then evaluated together.

    python examples/one_file.py --seed 0 --scale 1.0

Vanilla DQN in numpy on the environments of soulsgraph_envs, with the hyperparameters of the paper's Appendix C and
32 fights in parallel. Everything that counts (updates, exploration, target copies) counts decisions of the skill in
training. An action of a skill takes a whole number of control ticks while the other skills go on deciding.
"""

import argparse
import json
import os
from itertools import pairwise

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: products this small take twice as long on two

import gymnasium
import numpy as np

import soulsgraph_envs  # noqa: F401 - registers the environments

#: The skill graph is a chain; each skill has a budget of its own decisions.
BUDGETS = {"camera": 20_000, "lock_on": 20_000, "movement": 20_000, "dodge": 80_000, "heal_attack": 90_000}
CHAIN = list(BUDGETS)

LANES, HIDDEN, BATCH = 32, 64, 256
LEARNING_RATE, DISCOUNT, CLIP, GREATEST_NORM = 3e-4, 0.99, 10.0, 10.0
LEARNING_STARTS, DECISIONS_PER_UPDATE, TARGET_PERIOD = 100, 4, 10_000
EPSILON_FIRST, EPSILON_LAST, EPSILON_FALLS_OVER = 1.0, 0.05, 0.1


class Network:
    """A ReLU network of two hidden layers with Adam; `parameters` are weights (inputs, outputs) and biases in turn."""

    def __init__(self, inputs, outputs, random):
        sizes = [inputs, HIDDEN, HIDDEN, outputs]
        self.parameters = []
        for fan_in, fan_out in pairwise(sizes):
            bound = fan_in**-0.5
            for shape in ((fan_in, fan_out), (fan_out,)):
                self.parameters.append(random.uniform(-bound, bound, shape).astype(np.float32))
        self.first = [np.zeros_like(p) for p in self.parameters]
        self.second = [np.zeros_like(p) for p in self.parameters]
        self.steps = 0

    def layers(self, inputs):
        """Return the output of every layer, (n, units) each; the last are the Q-values (n, actions)."""
        w1, b1, w2, b2, w3, b3 = self.parameters
        h1 = np.maximum(inputs @ w1 + b1, 0)
        h2 = np.maximum(h1 @ w2 + b2, 0)
        return h1, h2, h2 @ w3 + b3

    def learn(self, inputs, actions, targets):
        """Take one Adam step on the Huber loss between Q(inputs, actions) and the targets, (n,) each."""
        _, _, w2, _, w3, _ = self.parameters
        h1, h2, values = self.layers(inputs)
        rows = np.arange(len(actions))
        slopes = np.zeros_like(values)
        slopes[rows, actions] = np.clip(values[rows, actions] - targets, -1, 1) / len(actions)
        back_2 = (slopes @ w3.T) * (h2 > 0)
        back_1 = (back_2 @ w2.T) * (h1 > 0)
        pairs = (inputs, back_1), (h1, back_2), (h2, slopes)
        self._step([part for before, back in pairs for part in (before.T @ back, back.sum(axis=0))])

    def _step(self, gradients):
        norm = np.sqrt(sum(float((g * g).sum()) for g in gradients))
        scale = min(GREATEST_NORM / (norm + 1e-6), 1.0)
        self.steps += 1
        correction_1, correction_2 = 1 - 0.9**self.steps, np.sqrt(1 - 0.999**self.steps)
        for p, m, v, gradient in zip(self.parameters, self.first, self.second, gradients, strict=True):
            g = gradient * np.float32(scale)
            m += np.float32(0.1) * (g - m)
            v += np.float32(0.001) * (g * g - v)
            p -= np.float32(LEARNING_RATE / correction_1) * m / (np.sqrt(v) / np.float32(correction_2) + 1e-8)


class Policy:
    """A skill's network behind running statistics of its observations."""

    def __init__(self, inputs, outputs, random):
        self.network = Network(inputs, outputs, random)
        self.mean, self.variance, self.count = np.zeros(inputs), np.ones(inputs), 1e-4

    def observe(self, observations):
        """Update the statistics with observations (n, inputs)."""
        n, total = len(observations), self.count + len(observations)
        change = observations.mean(axis=0) - self.mean
        squares = self.variance * self.count + observations.var(axis=0) * n + change**2 * self.count * n / total
        self.mean, self.variance, self.count = self.mean + change * n / total, squares / total, total

    def normalized(self, observations):
        """Return observations (n, inputs) normalised and clipped."""
        scaled = (observations - self.mean) / np.sqrt(self.variance + 1e-8)
        return np.clip(scaled, -CLIP, CLIP).astype(np.float32)

    def greedy(self, observations):
        """Return the best action of each observation, (n,)."""
        return self.network.layers(self.normalized(observations))[-1].argmax(axis=1)


class Upstream:
    """Play the skills upstream: by their frozen policies, or at random where a skill has None."""

    def __init__(self, policies, seed=0):
        self._policies, self._random = policies, np.random.default_rng(seed)

    def begin(self, lanes, seeds):
        """Do nothing: policies have no state between decisions."""

    def act(self, combat, actions):
        """Write an action wherever a skill decides on this tick."""
        for index, skill in enumerate(combat.skills):
            lanes = combat.due[:, index].nonzero()[0]
            if skill.name not in self._policies or not lanes.size:
                continue
            policy = self._policies[skill.name]
            if policy is None:
                actions[lanes, index] = self._random.integers(len(skill.actions), size=len(lanes))
            else:
                actions[lanes, index] = policy.greedy(skill.observation(combat.rows[lanes], combat.scenario))


class Replay:
    """The latest transitions of one skill, a third of its budget."""

    def __init__(self, capacity, inputs):
        self.before, self.after = np.zeros((2, capacity, inputs), np.float32)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards, self.alive = np.zeros((2, capacity), np.float32)
        self.written = 0

    def add(self, before, actions, rewards, after, terminated):
        """Store one transition a lane, over the oldest ones."""
        rows = (self.written + np.arange(len(actions))) % len(self.actions)
        self.before[rows], self.after[rows], self.actions[rows] = before, after, actions
        self.rewards[rows], self.alive[rows] = rewards, ~terminated
        self.written += len(actions)

    def draw(self, random):
        """Return the rows of a batch, drawn uniformly."""
        return random.integers(min(self.written, len(self.actions)), size=BATCH)


def make_envs(skill, policies, lanes):
    """Return fights in which `skill` is the agent and the skills before it in the chain play by `policies`."""
    upstream = {name: policies[name] for name in CHAIN[: CHAIN.index(skill)]}
    return gymnasium.make_vec(
        "soulsgraph/Skill-v0",
        lanes,
        vectorization_mode="vector_entry_point",
        skill=skill,
        controller=Upstream(upstream),
        autoreset_mode="SameStep",
    )


def train(skill, budget, policies, seed):
    """Train one skill with everything upstream frozen and return its policy."""
    random = np.random.default_rng([seed, CHAIN.index(skill)])
    envs = make_envs(skill, policies, LANES)
    inputs, choices = envs.single_observation_space.shape[0], int(envs.single_action_space.n)
    policy, target = Policy(inputs, choices, random), Network(inputs, choices, random)
    target.parameters = [p.copy() for p in policy.network.parameters]
    replay = Replay(max(budget // 3, LANES), inputs)
    observations, _ = envs.reset(seed=seed)
    decisions = updates = 0
    while decisions < budget:
        progress = min(decisions / (EPSILON_FALLS_OVER * budget), 1.0)
        epsilon = EPSILON_FIRST + progress * (EPSILON_LAST - EPSILON_FIRST)
        actions = policy.greedy(observations)
        explores = random.random(LANES) < epsilon
        actions[explores] = random.integers(choices, size=explores.sum())
        following, rewards, terminated, _, info = envs.step(actions)
        # A lane whose episode ended has begun the next one; its true last observation is in `info`.
        last = following.copy()
        for lane in np.flatnonzero(info.get("_final_obs", ())):
            last[lane] = info["final_obs"][lane]
        policy.observe(observations)
        replay.add(observations, actions, rewards, last, terminated)
        observations, before, decisions = following, decisions, decisions + LANES
        if decisions // TARGET_PERIOD > before // TARGET_PERIOD:
            target.parameters = [p.copy() for p in policy.network.parameters]
        while updates < (decisions - LEARNING_STARTS) // DECISIONS_PER_UPDATE:
            rows = replay.draw(random)
            best = target.layers(policy.normalized(replay.after[rows]))[-1].max(axis=1)
            targets = replay.rewards[rows] + np.float32(DISCOUNT) * replay.alive[rows] * best
            policy.network.learn(policy.normalized(replay.before[rows]), replay.actions[rows], targets)
            updates += 1
    envs.close()
    return policy


def curriculum(seed=0, scale=1.0, skills=None, report=lambda skill: None):
    """Train the skills in graph order, by default all, and return their policies by name."""
    policies = {}
    for skill in skills or CHAIN:
        policies[skill] = train(skill, max(round(BUDGETS[skill] * scale), LANES), policies, seed)
        report(skill)
    return policies


def play(skill, policies, episodes=100, seed=1_000_000):
    """Play one episode a lane by the policies, None at random; return the returns and whether each was won."""
    envs, random = make_envs(skill, policies, episodes), np.random.default_rng(seed)
    observations, _ = envs.reset(seed=seed)
    returns, won, running = np.zeros(episodes), np.zeros(episodes, bool), np.ones(episodes, bool)
    while running.any():
        if policies[skill] is None:
            actions = random.integers(envs.single_action_space.n, size=episodes)
        else:
            actions = policies[skill].greedy(observations)
        observations, rewards, terminated, truncated, info = envs.step(actions)
        returns += running * rewards
        ended = running & (terminated | truncated)
        if ended.any():
            won[ended] = info["final_info"]["won"][ended]
        running &= ~ended
    envs.close()
    return returns, won


def main():
    """Train, then print the ablations of the paper's Table 1a."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies every skill's budget")
    parser.add_argument("--episodes", type=int, default=400, help="evaluation episodes a row")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    asked = parser.parse_args()
    policies = curriculum(asked.seed, asked.scale, report=lambda skill: asked.json or print(f"trained {skill}"))
    rows = {}
    for random_skills in (("heal_attack", "dodge"), ("heal_attack",), ("dodge",), ()):
        players = policies | dict.fromkeys(random_skills)
        name = " and ".join(random_skills) or "nothing"
        rows[f"{name} random"] = float(100 * play("heal_attack", players, asked.episodes)[1].mean())
    print(json.dumps(rows) if asked.json else "\n".join(f"{name}: {rate:.1f} % won" for name, rate in rows.items()))


if __name__ == "__main__":
    main()
