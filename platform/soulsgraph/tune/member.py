"""A member of a population as Ray Tune trains it: one skill's stage, from one comparison to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray import tune
from ray.tune.result import DONE

from soulsgraph.results.tables import GrowingTable
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs.train import StageSetup, trained_artifact
from soulsgraph.tune.folder import NODE, OPTIONS, RETURN, SEED, STEP, TRAINING_RETURN, SweepFolder
from soulsgraph.tune.trial import evaluated, this_node
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import FrozenNetwork
from soulsgraph_policies.agents.projects import LoadedProject, take_over
from soulsgraph_policies.learning.stage_config import DECISIONS_PER_ITERATION

#: Greedy episodes by which members are compared while they learn; they are reported on others.
_EPISODES = 40
#: Members are compared after each such share of the budget.
CHANGES = 10


def interval(budget: int) -> int:
    """Return the decisions between two comparisons: whole iterations."""
    return max(budget // (CHANGES * DECISIONS_PER_ITERATION), 1) * DECISIONS_PER_ITERATION


class Member(tune.Trainable):
    """Train a skill by the options that the member has now; Tune copies checkpoints, which hold the exact state."""

    def setup(
        self, config: Mapping[str, Any], folder: SweepFolder | None = None, projects: tuple[LoadedProject, ...] = ()
    ) -> None:
        """Build the stage; after it Tune loads the checkpoint from which the member goes on."""
        assert folder is not None
        take_over(projects)
        setting, seed = config[OPTIONS], config[SEED]
        self._folder, self._run = folder, folder.run(folder.run_path(setting, seed, self.trial_id), setting, seed)
        (self._stage,) = folder.plan.stages(self._run)
        self._setup = StageSetup(self._run, self._stage)
        self._algorithm = self._setup.build(Session(local=False))

    def reset_config(self, new_config: Mapping[str, Any]) -> bool:
        """Become another member, in the same process."""
        self.cleanup()
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train to the next comparison, and return the figures; at the end save the version, and evaluate it."""
        algorithm, name = self._algorithm, self._stage.skill
        reached = algorithm.decisions + interval(self._stage.budget)
        while not algorithm.finished and algorithm.decisions < reached:
            algorithm.train()
        setup, decisions = self._setup, algorithm.decisions
        clip = setup.hyperparameters.observation_clip
        own = FrozenNetwork.of(setup.skill(name), setup.scenario, algorithm.weights(name), clip)
        agent = Agent(setup.scenario, setup.skills, {**setup.networks, name: own})
        played = evaluating.play(agent, evaluating.evaluation_seeds(evaluating.CURVE_SEED, _EPISODES))
        point = evaluating.curve_metrics(played)
        figures = {RETURN: point["return"], TRAINING_RETURN: point["return"], STEP: decisions, DONE: algorithm.finished}
        with self._run.locked():
            curve = GrowingTable(self._run.results("curves"))
            # Under the name of the stage, whose key changes with the options.
            curve.forget(self._stage.name, decisions - 1)
            curve.add({"stage": self._stage.name, "skill": name, "step": decisions, **point})
            curve.flush()
            # One that was killed before Tune knew that it had ended has saved its version.
            if algorithm.finished and not self._run.library.versions(name):
                setup.verify_frozen(algorithm)
                learned = algorithm.training[name]
                weights = algorithm.weights(name)
                self._run.library.save(trained_artifact(setup, weights, learned.normalizer, learned.decisions))
        return figures | ({**evaluated(self._run, self._folder.plan), NODE: this_node()} if algorithm.finished else {})

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the exact state: weights, optimizer, replay and clocks."""
        self._algorithm.save_checkpoint(checkpoint_dir)

    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
        """Go on from a state, the member's own or that of one ahead."""
        self._algorithm.load_checkpoint(str(checkpoint))

    def cleanup(self) -> None:
        """Let go of the stage."""
        self._algorithm.stop()
