"""stable-baselines3's DQN as the learner of a stage: what our learner is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from soulsgraph.paper.study import check_stable_baselines
from soulsgraph.results.tables import GrowingTable
from soulsgraph.runs.evaluate import CHECKPOINT_INTERVAL, CurveEvaluator, CurvePoint
from soulsgraph.runs.plan import Stage
from soulsgraph.runs.progress import Interruption
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup, trained_artifact
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph_envs.core.machine import compute_on_one_thread
from soulsgraph_envs.gym.skill_env import SkillEnv
from soulsgraph_policies.agents.agent import NetworkController
from soulsgraph_policies.agents.inference import NETWORK, RunningNormalizer
from soulsgraph_policies.agents.library import Artifact, SkillCard
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters


def make_dqn(env: VecEnv, hyperparameters: DQNHyperparameters, seed: int, gradient_steps: int) -> DQN:
    """Make stable-baselines3's DQN with the same hyperparameters and normalised observations."""
    # A constant share is one point.
    (_, first), (end, last) = hyperparameters.epsilon[0], hyperparameters.epsilon[-1]
    normalised = VecNormalize(env, norm_reward=False, clip_obs=hyperparameters.observation_clip)
    return DQN(
        "MlpPolicy",
        normalised,
        learning_rate=hyperparameters.lr,
        buffer_size=hyperparameters.capacity,
        learning_starts=hyperparameters.num_steps_sampled_before_learning_starts,
        batch_size=hyperparameters.train_batch_size_per_learner,
        gamma=hyperparameters.gamma,
        train_freq=round(hyperparameters.train_batch_size_per_learner / hyperparameters.training_intensity),
        gradient_steps=gradient_steps,
        target_update_interval=hyperparameters.target_network_update_freq,
        exploration_initial_eps=first,
        exploration_fraction=end / hyperparameters.budget,
        exploration_final_eps=last,
        max_grad_norm=hyperparameters.grad_clip,
        policy_kwargs={"net_arch": list(hyperparameters.fcnet_hiddens)},
        seed=seed,
        device="cpu",
    )


#: Called with the decisions done so far; training stops if it returns False.
GoOn = Callable[[int], bool]

_PACKAGE = "stable-baselines3"


def train_with_stable_baselines(
    run: RunFolder, stage: Stage, go_on: GoOn = lambda steps: True, worker: WorkerProcess | None = None
) -> SkillCard:
    """Train a stage with stable-baselines3's DQN, and save the skill's next version.

    A stopped stage starts again from the beginning: stable-baselines3 does not resume exactly.

    Raises:
        LibraryError: if an upstream skill is missing or damaged.
        Interruption: if `go_on` returned False before the end.
        SoulsGraphError: if the plan asks for more than vanilla DQN.
        WriteError: if the run folder cannot be written.
    """
    check_stable_baselines(run.plan.method)
    setup = StageSetup(run, stage)
    model = build_model(setup)
    try:
        model.learn(stage.budget, callback=_Watch(setup, go_on, worker), log_interval=None)
    finally:
        model.get_env().close()
    if model.num_timesteps < stage.budget:
        raise Interruption(
            f"stopped in stage {stage.name} after {model.num_timesteps} of {stage.budget} steps of {_PACKAGE}; "
            "the stage begins anew when the run goes on."
        )
    return run.library.save(export(setup, model))


def build_model(setup: StageSetup) -> DQN:
    """Build the stage's model; an adapted skill begins with its parent's network and normaliser."""
    compute_on_one_thread()
    skill, networks = setup.skills[-1], [*setup.networks.values()]
    controller = NetworkController.upstream(networks) if networks else None
    env = DummyVecEnv([lambda: SkillEnv(skill.name, setup.scenario, controller, setup.run.plan.options)])
    model = make_dqn(env, setup.hyperparameters, setup.stage.seed, gradient_steps=1)
    if setup.parent is not None:
        named = setup.parent.parameters.items()
        weights = {name.removeprefix(f"{NETWORK}."): torch.from_numpy(values.copy()) for name, values in named}
        for network in (model.q_net, model.q_net_target):
            network.q_net.load_state_dict(weights)
        kept, statistics = setup.parent.card.normalizer.normalizer(), model.get_vec_normalize_env().obs_rms
        statistics.mean, statistics.var, statistics.count = kept.mean, kept.variance, kept.count
    return model


def export(setup: StageSetup, model: DQN) -> Artifact:
    """Return the model as an artifact that says which learner made it."""
    parameters, statistics = model.q_net.q_net.state_dict(), model.get_vec_normalize_env().obs_rms
    weights = {f"{NETWORK}.{name}": tensor.numpy(force=True) for name, tensor in parameters.items()}
    normalizer = RunningNormalizer(statistics.mean.size)
    normalizer.set_state({"mean": statistics.mean, "variance": statistics.var, "count": statistics.count})
    artifact = trained_artifact(setup, weights, normalizer, int(model.num_timesteps))
    training = artifact.card.training
    training = replace(training, packages={**training.packages, _PACKAGE: version(_PACKAGE)})
    return replace(artifact, card=replace(artifact.card, training=training))


class _Watch(BaseCallback):
    """Record finished episodes and a greedy learning curve, and check regularly whether to stop."""

    def __init__(self, setup: StageSetup, go_on: GoOn, worker: WorkerProcess | None) -> None:
        super().__init__()
        self._setup, self._go_on = setup, go_on
        self._table, self._curve = (GrowingTable(setup.run.results(name)) for name in ("training", "curves"))
        folder = setup.run.curve(setup.key)
        self._evaluator = CurveEvaluator(folder, setup.agent, setup.hyperparameters.observation_clip, worker)
        # A stage that was stopped begins anew.
        for table in (self._table, self._curve):
            table.forget(setup.key, after_step=0)
        self._evaluator.take_up(known=set(), reached=0)
        self._return, self._length, self._reached = 0.0, 0, 0
        self._ended: list[tuple[float, int, float, bool]] = []

    def _on_step(self) -> bool:
        self._return += float(self.locals["rewards"][0])
        self._length += 1
        if self.locals["dones"][0]:
            info = self.locals["infos"][0]
            self._ended.append((self._return, self._length, info["seconds"], info["won"]))
            self._return, self._length = 0.0, 0
        if self.num_timesteps % CHECKPOINT_INTERVAL:
            return True
        self._write()
        self._evaluator.add(self.num_timesteps, {self._setup.stage.skill: export(self._setup, self.model).weights})
        self._draw(self._evaluator.collect())
        return self._go_on(self.num_timesteps)

    def _on_training_end(self) -> None:
        if self.num_timesteps > self._reached:
            self._write()
        self._draw(self._evaluator.finish())
        self._table.flush()
        self._curve.flush()

    def _write(self) -> None:
        self._reached = self.num_timesteps
        means = np.mean(self._ended, axis=0).tolist() if self._ended else []
        figures = zip(("return", "length", "seconds", "win_rate"), means, strict=False)
        self._table.add({**self._place(self._reached), "episodes": len(self._ended), **dict(figures)})
        self._ended = []

    def _draw(self, points: Sequence[CurvePoint]) -> None:
        for point in points:
            self._curve.add({**self._place(point.step), **point.metrics})

    def _place(self, step: int) -> dict[str, str | float]:
        return {"stage": self._setup.key, "skill": self._setup.stage.skill, "step": step}
