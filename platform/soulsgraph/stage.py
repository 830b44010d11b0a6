"""From a planned stage to an RLlib algorithm with everything upstream loaded and frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from soulsgraph.domains import frozen_versions
from soulsgraph.plan import Stage
from soulsgraph.run_folder import RunFolder
from soulsgraph_clusters.env_runner import SkillGraphEnvRunner
from soulsgraph_clusters.session import Session, place_env_runners
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.drivers.realtime.link import GameSettings
from soulsgraph_envs.skills import Mirror, Skill, make_skill, practice_ground
from soulsgraph_policies.agent import Agent
from soulsgraph_policies.algorithm import SkillDQN
from soulsgraph_policies.artifact import Artifact
from soulsgraph_policies.hyperparameters import DQNHyperparameters


@dataclass(frozen=True)
class StageSetup:
    """A stage with its skills made and its artifacts loaded; `skills` ends with the last that learns.

    `upstream` holds the frozen skills' artifacts, `parents` those that are continued.
    """

    run: RunFolder
    stage: Stage
    scenario: Scenario
    skills: tuple[Skill, ...]
    upstream: Mapping[str, Artifact]
    parents: Mapping[str, Artifact]

    @classmethod
    def of(cls, run: RunFolder, stage: Stage) -> StageSetup:
        """Load what the stage builds on.

        Raises:
            LibraryError: if an upstream skill or the parent is missing or damaged.
        """
        plan, library = run.plan, run.library
        taking_part = {name for part in stage.parts for name in (*plan.skill_graph.upstream(part.skill), part.skill)}
        skills = tuple(make_skill(name, plan.options) for name in plan.skill_graph.order if name in taking_part)
        upstream = {name: library.load(name, version) for name, version in frozen_versions(run, stage).items()}
        for artifact in upstream.values():
            library.check_upstream(artifact.card)
        return cls(
            run=run,
            stage=stage,
            scenario=practice_ground(load_scenario(stage.scenario), skills[-1]),
            skills=skills,
            upstream=upstream,
            parents={p.skill: library.load(p.skill, p.parent) for p in stage.parts if p.parent is not None},
        )

    @property
    def parent(self) -> Artifact | None:
        """The version that the last skill continues."""
        return self.parents.get(self.stage.skill)

    @property
    def hyperparameters(self) -> DQNHyperparameters:
        """The last skill's as the run's plan has them."""
        return self.run.plan.hyperparameters(self.stage)

    @property
    def agent(self) -> Agent:
        """Who plays the stage: frozen skills by their networks, those that learn randomly until they have weights."""
        frozen = {name: kept.network(self.skill(name), self.scenario) for name, kept in self.upstream.items()}
        return Agent(self.scenario, self.skills, frozen, dict.fromkeys(self.stage.skills, "random"))

    def skill(self, name: str) -> Skill:
        """Return a skill that takes part."""
        return next(skill for skill in self.skills if skill.name == name)

    @property
    def steps_before(self) -> int:
        """Decisions that went into the versions that the last skill continues: where its curves go on."""
        if self.parent is None:
            return 0
        lineage = self.run.library.lineage(self.stage.skill, self.parent.card.version)
        return sum(card.training.steps for card in lineage)

    def build(self, session: Session, games: Sequence[GameSettings] = ()) -> SkillDQN:
        """Build the algorithm; remote env runners need a Ray session, and play real-time `games` if there are any.

        Raises:
            ClusterError: if the plan has remote env runners and the session no place for one.
        """
        plan = self.run.plan
        preset = plan.method
        config = SkillDQN.get_default_config().debugging(log_level="ERROR")
        mirrors = {name: Mirror.of(self.skill(name), self.scenario) for name in self.stage.skills}
        numbers = {part.skill: plan.hyperparameters(part) for part in self.stage.parts}
        # RLlib's own seed would load torch's compiler in every process: half of a runner's start.
        config = config.stage(self.skills, numbers, preset.decisions_per_round, mirror=mirrors, seed=self.stage.seed)
        runners = len(games) if len(games) > 1 else max(plan.env_runners, len(games))
        config = config.env_runners(env_runner_cls=SkillGraphEnvRunner, **place_env_runners(runners, session))
        lanes = 1 if games else min(plan.lanes or preset.lanes, config.decisions_per_sample)
        sampled = {"scenario": self.scenario, "lanes": lanes, "games": tuple(games)}
        algorithm: SkillDQN = config.environment(env_config=sampled).build_algo()
        algorithm.load_weights({name: artifact.playing for name, artifact in self.upstream.items()})
        for name, parent in self.parents.items():
            algorithm.load_weights({name: parent.weights})
            algorithm.load_normalizer(name, parent.card.normalizer.normalizer().get_state())
        return algorithm

    def verify_frozen(self, algorithm: SkillDQN) -> None:
        """Check that every copy of an upstream weight is bit for bit what the library holds.

        Raises:
            SoulsGraphError: naming the skill that changed.
        """
        for name, artifact in self.upstream.items():
            copies = algorithm.copies(name)
            for key, kept in artifact.playing.items():
                if not all(np.array_equal(now[key], kept.astype(now[key].dtype)) for now in copies):
                    raise SoulsGraphError(
                        f"stage {self.stage.name}: expected {name} v{artifact.card.version} frozen, found {key} "
                        "changed; this is a defect: report it with the run's plan.json."
                    )
