"""A member of a population: one skill's stage as a trainable of Ray Tune, whose weights and replay others go on from.

Its options change while it learns. How they did, over all members whose weights it went on from, is its schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray import tune

from soulsgraph.results.tables import write_rows
from soulsgraph.runs import evaluate as evaluating
from soulsgraph.runs import lineage
from soulsgraph.runs.train import StageSetup, Workplace, trained_artifact
from soulsgraph.tune.folder import RETURN, TRAINING_RETURN, SweepFolder
from soulsgraph.tune.shared import SharedStages
from soulsgraph.tune.trial import NODE, OPTIONS, SEED, STEP, evaluated, stage_return, this_node
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.core.config import Where, read_file
from soulsgraph_envs.core.files import write_json
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import FrozenNetwork
from soulsgraph_policies.agents.projects import LoadedProject, take_over

#: Greedy episodes by which members are compared while they learn; they are reported on others.
_EPISODES = 40
#: The schedule's file: beside a checkpoint, and in the results of its run.
SCHEDULE = "schedule"


class StageMember(tune.Trainable):
    """Train a stage by iterations of `SkillDQN`; checkpoints hold the exact state, replay and optimizer included."""

    def setup(self, config: dict[str, Any], path: Path, projects: tuple[LoadedProject, ...] = ()) -> None:
        """Train or take the stages upstream, and build the algorithm.

        Raises:
            SoulsGraphError: if the run cannot be trained.
        """
        take_over(projects)
        self._folder = SweepFolder.open(path)
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Go on as another member, or by other options: its checkpoint is loaded next."""
        self._algorithm.stop()
        self._begin(new_config)
        return True

    def _begin(self, config: Mapping[str, Any]) -> None:
        self._run = self._folder.member(self.trial_id, config[OPTIONS], config[SEED])
        *upstream, self._stage = self._folder.plan.stages(self._run)
        with self._run.locked(), Workplace(self._run, Session(local=False), "silent", trackers=()) as place:
            for stage in upstream:
                SharedStages(self._folder.shared).train(place, stage)
        self._setup = StageSetup(self._run, self._stage)
        self._algorithm = self._setup.build(Session(local=False))
        self._schedule: list[dict[str, Any]] = []
        self._note_options(config[OPTIONS])

    def _note_options(self, setting: Mapping[str, Any]) -> None:
        if not self._schedule or any(self._schedule[-1][name] != value for name, value in setting.items()):
            self._schedule.append({STEP: self._algorithm.decisions, **setting})

    def step(self) -> dict[str, Any]:
        """Train an iteration, and play greedily; at the end of the budget save the version and evaluate it."""
        self._algorithm.train()
        played = stage_return(self._agent(), _EPISODES, evaluating.CURVE_SEED)
        result: dict[str, Any] = {
            RETURN: played[RETURN],
            TRAINING_RETURN: played[RETURN],
            STEP: self._algorithm.decisions,
        }
        if self._algorithm.finished:
            self._save_version()
            result |= {**evaluated(self._run, self._folder.plan), NODE: this_node()}
        return {**result, "done": self._algorithm.finished}

    def _agent(self) -> Agent:
        setup, name = self._setup, self._stage.skill
        weights, clip = self._algorithm.weights(name), setup.hyperparameters.observation_clip
        own = FrozenNetwork.of(setup.skill(name), setup.scenario, weights, clip)
        return Agent(setup.scenario, setup.skills, {**setup.agent.networks, name: own})

    def _save_version(self) -> None:
        name, setup = self._stage.skill, self._setup
        setup.verify_frozen(self._algorithm)
        learned = self._algorithm.training[name]
        weights = self._algorithm.weights(name) | self._algorithm.head_weights(name)
        artifact = trained_artifact(setup, weights, learned.normalizer, learned.decisions)
        with self._run.locked():
            lineage.save_version(self._run, self._stage, artifact)
            write_rows(self._run.results(SCHEDULE), self._schedule)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the exact state, and by which options it was reached."""
        self._algorithm.save_checkpoint(checkpoint_dir)
        write_json(Path(checkpoint_dir) / f"{SCHEDULE}.json", self._schedule)

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Go on from a member's state, by the present options."""
        self._algorithm.load_checkpoint(checkpoint_dir)
        setting = self._schedule[-1]
        self._schedule = list(read_file(Where(Path(checkpoint_dir) / f"{SCHEDULE}.json")))
        self._note_options({name: value for name, value in setting.items() if name != STEP})

    def cleanup(self) -> None:
        """Stop the algorithm."""
        self._algorithm.stop()
