"""From a planned stage to an RLlib algorithm with everything upstream loaded and frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from soulsgraph.domains import upstream_versions
from soulsgraph.plan import Stage
from soulsgraph.run_folder import RunFolder
from soulsgraph_clusters.env_runner import SkillGraphEnvRunner
from soulsgraph_clusters.placement import place_env_runners
from soulsgraph_clusters.session import Session
from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.errors import SoulsGraphError
from soulsgraph_envs.live.settings import GameSettings
from soulsgraph_envs.scenario import Scenario
from soulsgraph_envs.skills import Mirror, Skill, make_skill, practice_ground
from soulsgraph_policies.agent import Agent
from soulsgraph_policies.algorithm import SkillDQN
from soulsgraph_policies.artifact import Artifact
from soulsgraph_policies.hyperparameters import DQNHyperparameters


@dataclass(frozen=True)
class StageSetup:
    """A stage with its skills made and its artifacts loaded; `skills` ends with the trained one."""

    run: RunFolder
    stage: Stage
    scenario: Scenario
    skills: tuple[Skill, ...]
    upstream: Mapping[str, Artifact]
    parent: Artifact | None

    @classmethod
    def of(cls, run: RunFolder, stage: Stage) -> StageSetup:
        """Load what the stage builds on.

        Raises:
            LibraryError: if an upstream skill or the parent is missing or damaged.
        """
        plan, library = run.plan, run.library
        names = (*plan.skill_graph.upstream(stage.skill), stage.skill)
        skills = tuple(make_skill(name, plan.options) for name in names)
        upstream = {name: library.load(name, version) for name, version in upstream_versions(run, stage).items()}
        for artifact in upstream.values():
            library.check_upstream(artifact.card)
        return cls(
            run=run,
            stage=stage,
            scenario=practice_ground(load_scenario(stage.scenario), skills[-1]),
            skills=skills,
            upstream=upstream,
            parent=None if stage.parent is None else library.load(stage.skill, stage.parent),
        )

    @property
    def hyperparameters(self) -> DQNHyperparameters:
        """The stage's hyperparameters according to the run's plan."""
        return self.run.plan.hyperparameters(self.stage)

    @property
    def agent(self) -> Agent:
        """The stage's agent: the upstream skills trained, its own random until it has weights."""
        upstream = {s.name: self.upstream[s.name].network(s, self.scenario) for s in self.skills[:-1]}
        return Agent(self.scenario, self.skills, upstream, {self.stage.skill: "random"})

    @property
    def steps_before(self) -> int:
        """Decisions in the versions that this stage continues, where its curves begin."""
        if self.parent is None:
            return 0
        lineage = self.run.library.lineage(self.stage.skill, self.parent.card.version)
        return sum(card.training.steps for card in lineage)

    def build(self, session: Session, games: Sequence[GameSettings] = ()) -> SkillDQN:
        """Build the algorithm in a Ray session; real-time `games` are played by remote env runners, one at least.

        Raises:
            ClusterError: if the plan has remote env runners and the session no place for one.
        """
        plan = self.run.plan
        preset = plan.method
        config = SkillDQN.get_default_config().debugging(seed=self.stage.seed, log_level="ERROR")
        mirror = Mirror.of(self.skills[-1], self.scenario)
        config = config.stage(self.skills, self.hyperparameters, preset.decisions_per_round, mirror=mirror)
        runners = len(games) if len(games) > 1 else max(plan.env_runners, len(games))
        config = config.env_runners(env_runner_cls=SkillGraphEnvRunner, **place_env_runners(runners, session))
        lanes = 1 if games else min(plan.lanes or preset.lanes, config.decisions_per_sample)
        sampled = {"scenario": self.scenario, "lanes": lanes, "games": tuple(games)}
        algorithm: SkillDQN = config.environment(env_config=sampled).build_algo()
        algorithm.load_weights({name: artifact.playing for name, artifact in self.upstream.items()})
        if self.parent is not None:
            algorithm.load_weights({self.stage.skill: self.parent.weights})
            algorithm.load_normalizer(self.parent.card.normalizer.normalizer().get_state())
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
