"""What a stage trains from and leaves: its skills and artifacts, the algorithm built of them, the artifact saved.

A version that was cloned has the decisions it was cloned from beside it; a stage that continues the version keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from soulsgraph.runs.identity import how_it_learns, in_words, read_key
from soulsgraph.runs.lineage import frozen_versions, jointly_with, stage_key
from soulsgraph.runs.plan import Stage, scenario_digest
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_clusters.sessions.head import ClusterAwayError
from soulsgraph_clusters.sessions.session import Session, place_env_runners
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_envs.core.files import slug, whole_folder
from soulsgraph_envs.core.scenario import Scenario, load_scenario
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.skills import Mirror, Skill, make_skill, training_scenario
from soulsgraph_policies.agents import library as artifacts
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, RunningNormalizer, Weights, layer_names
from soulsgraph_policies.agents.library import Artifact, SkillCard
from soulsgraph_policies.agents.projects import ProjectDigest, projects_of
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.checkpoint import TrainingStateError, read_training_state, write_training_state
from soulsgraph_policies.learning.env_runners import SkillGraphEnvRunner
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.replay import ReplayBuffer
from soulsgraph_policies.learning.sampler import Transitions
from soulsgraph_policies.learning.stage_config import SkillDQNConfig

if TYPE_CHECKING:
    from soulsgraph_clusters.fleet.gateway.process import FleetStage, Gateways
    from soulsgraph_clusters.fleet.protocol.settings import Fleet

#: A replay keeps no journal small: it saves nothing.
_NO_BOUND_MB = 1e6


class StageSetup:
    """A stage with its skills made and its artifacts loaded; `skills` ends with the last that learns.

    `upstream` holds the frozen skills' artifacts, `parents` those that are continued.

    Raises:
        LibraryError: if an upstream skill or the parent is missing or damaged.
    """

    def __init__(self, run: RunFolder, stage: Stage) -> None:
        self.run, self.stage = run, stage
        plan, library, graph = run.plan, run.library, run.plan.skill_graph
        self.graph, self.project, self.jointly = graph, ProjectDigest.of(plan.graph), jointly_with(stage)
        taking_part = {name for part in stage.parts for name in (*graph.upstream(part.skill), part.skill)}
        order = [name for name in graph.order if name in taking_part]
        self.skills = tuple(make_skill(name, plan.options) for name in order)
        self.scenario = training_scenario(load_scenario(stage.scenario), self.skills[-1])
        #: A digest of the fight, empty where it goes on from what did not record it.
        self.fight = scenario_digest(stage.scenario)
        self.upstream = {name: library.load(name, version) for name, version in frozen_versions(run, stage).items()}
        for artifact in self.upstream.values():
            library.check_upstream(artifact.card)
        self.parents = {p.skill: library.load(p.skill, p.parent) for p in stage.parts if p.parent is not None}
        #: How each skill learns that does.
        self.numbers = {part.skill: self._numbers(part) for part in stage.parts}
        clips = {name: numbers.observation_clip for name, numbers in self.numbers.items()}
        if len({*clips.values()}) > 1:
            found = ", ".join(f"{name} {clip:g}" for name, clip in clips.items())
            raise SoulsGraphError(
                f"stage {stage.name}: expected versions of one observation clip to learn together, found {found}; "
                "adapt them one after the other."
            )

    def _numbers(self, part: Stage) -> DQNHyperparameters:
        """Return how a skill learns by the run's plan; a version goes on with the observations that it has."""
        numbers, parent = self.run.plan.hyperparameters(part), self.parents.get(part.skill)
        return numbers if parent is None else replace(numbers, observation_clip=parent.card.observation_clip)

    @property
    def parent(self) -> Artifact | None:
        """The version that the last skill continues."""
        return self.parents.get(self.stage.skill)

    @property
    def hyperparameters(self) -> DQNHyperparameters:
        """Those of the last skill that learns."""
        return self.numbers[self.stage.skill]

    @property
    def agent(self) -> Agent:
        """Who plays the stage: frozen skills by their networks, those that learn randomly until they have weights."""
        frozen = {name: kept.network(self.skill(name), self.scenario) for name, kept in self.upstream.items()}
        return Agent(self.scenario, self.skills, frozen, dict.fromkeys(self.stage.skills, "random"))

    def skill(self, name: str) -> Skill:
        """Return a skill that takes part."""
        return next(skill for skill in self.skills if skill.name == name)

    def build(self, session: Session, gateways: Gateways | None = None, games: Sequence[GameSettings] = ()) -> SkillDQN:
        """Build the algorithm; remote env runners need a Ray session.

        Of a fleet its gateway is the one runner, and `games` of this machine are played by one.

        Raises:
            ClusterError: if the plan has remote env runners and the session no place for one, or for one of those of
                a synchronous plan.
            SoulsGraphError: if a fleet or games cannot play the stage, or as `check_elsewhere`.
        """
        if gateways is not None:
            return self._built(self._sampled_by_fleet(gateways))
        return self._built(self._sampled_by_games(games) if games else self._sampled(session))

    def replay(self) -> SkillDQN:
        """Build the algorithm that learns from what the stage's journal holds, in this process alone.

        Where the journal was pruned it goes on from the older of the checkpoints that are kept.

        Raises:
            SoulsGraphError: if the journal or the checkpoint is damaged, or of another stage of the same name.
        """
        from soulsgraph_clusters.fleet.gateway.process import FLEET
        from soulsgraph_clusters.fleet.learner.learning import FleetDQN, JournalRunner
        from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings

        found = read_key(self.run.stage_key(self.stage.checkpoint_name))
        if differing := stage_key(self.run, self.stage).differing(found):
            raise SoulsGraphError(
                f"{self.run.journal(self.stage.checkpoint_name)}: expected the journal of {self.stage.name} as it is "
                f"trained now, found one of another {in_words(differing)}; replay it in a copy from before the change."
            )
        config, fleet = self._config(FleetDQN), Fleet(FleetSettings(journal_mb=_NO_BOUND_MB), self.run.path)
        fleet_stage = self._fleet_stage(fleet)
        config.env_runners(env_runner_cls=JournalRunner).environment(env_config={FLEET: fleet_stage})
        algorithm = self._built(config)
        if kept := self._kept_since(fleet_stage):
            algorithm.load_checkpoint(str(kept))
        return algorithm

    def _kept_since(self, stage: FleetStage) -> Path | None:
        """Return the oldest checkpoint from which the journal goes on; None where it begins with the stage."""
        from soulsgraph_clusters.fleet.gateway.journal import Journal

        journal = Journal.reading(stage.journal, stage.name)
        first = journal.first
        journal.close()
        kept = sorted(self.run.checkpoints(self.stage.checkpoint_name).glob("step-*")) if first else []
        states = ((path, read_training_state(path).get("journal", {})) for path in kept)
        return next((path for path, journal in states if int(journal.get("position", -1)) >= first), None)

    def _config(self, method: type[SkillDQN]) -> SkillDQNConfig:
        plan, config = self.run.plan, method.get_default_config().debugging(log_level="ERROR")
        mirrors = {name: Mirror.of(self.skill(name), self.scenario) for name in self.stage.skills}
        most, seed = plan.method.decisions_per_round, self.stage.seed
        clips = {name: artifact.card.observation_clip for name, artifact in self.upstream.items()}
        # RLlib's own seed would load torch's compiler in every process: half of a runner's start.
        staged: SkillDQNConfig = config.stage(
            self.skills, self.numbers, most, mirror=mirrors, seed=seed, synchronous=plan.synchronous, clips=clips
        )
        return staged

    def _built(self, config: SkillDQNConfig) -> SkillDQN:
        algorithm: SkillDQN = config.build_algo()
        algorithm.load_weights({name: artifact.playing for name, artifact in self.upstream.items()})
        for name, parent in self.parents.items():
            algorithm.load_weights({name: parent.weights})
            algorithm.load_normalizer(name, parent.card.normalizer.normalizer().get_state())
            if self.stage.cloned:
                replay = algorithm.training[name].replay
                assert isinstance(replay, ReplayBuffer), "a plan without a replay clones nothing"
                replay.show(kept_demonstrations(self.run, name, parent.card.version))
        return algorithm

    def _sampled(self, session: Session) -> SkillDQNConfig:
        plan, config = self.run.plan, self._config(SkillDQN)
        if plan.env_runners and not session.local:
            check_elsewhere(self.scenario)
        placed = place_env_runners(plan.env_runners, session)
        if plan.synchronous and placed["num_env_runners"] < plan.env_runners:
            raise ClusterAwayError(
                f"env runners: expected a place for each of {plan.env_runners}, by which a synchronous run can be "
                f"repeated, found {placed['num_env_runners']}; join the missing machines and go on with the run."
            )
        config.env_runners(env_runner_cls=SkillGraphEnvRunner, **placed)
        lanes = plan.lanes or plan.method.lanes
        config.environment(env_config={"scenario": self.scenario, "lanes": lanes})
        return config

    def _sampled_by_fleet(self, gateways: Gateways) -> SkillDQNConfig:
        # Imported here, as below: gRPC and what belongs to it take a moment that a run in the simulator need not wait.
        from soulsgraph_clusters.fleet.gateway.process import FLEET, GatewayRunner
        from soulsgraph_clusters.fleet.learner.learning import FleetDQN

        config, stage = self._config(FleetDQN), self._fleet_stage(gateways.fleet)
        stage.task(config)  # What no fleet can play is refused before anything starts.
        config.env_runners(env_runner_cls=GatewayRunner, num_env_runners=1)
        config.environment(env_config={FLEET: replace(stage, process=gateways.process())})
        return config

    def _sampled_by_games(self, games: Sequence[GameSettings]) -> SkillDQNConfig:
        from soulsgraph_clusters.fleet.learner.local_games import GAMES, LocalGamesDQN, LocalGamesRunner, LocalStage

        config, folder = self._config(LocalGamesDQN), self.run.games(self.stage.checkpoint_name).absolute()
        options, projects = self.run.plan.options, tuple(projects_of(skill.name for skill in self.skills).values())
        stage = LocalStage(games, folder, self.stage.name, self.stage.scenario, options, projects)
        stage.task(config)  # What no game can play is refused before anything starts.
        config.env_runners(env_runner_cls=LocalGamesRunner, num_env_runners=0)
        config.environment(env_config={GAMES: stage})
        return config

    def _fleet_stage(self, fleet: Fleet) -> FleetStage:
        from soulsgraph_clusters.fleet.gateway.process import FleetStage

        plan, journal = self.run.plan, self.run.journal(self.stage.checkpoint_name).absolute()
        projects = tuple(projects_of(skill.name for skill in self.skills).values())
        return FleetStage(fleet, journal, self.stage.name, self.stage.scenario, plan.options, projects)

    def fits(self, state: Mapping[str, Any]) -> bool:
        """Return whether a training state was reached on top of the upstream versions that play now."""
        frozen = state.get("frozen", {})
        return all(
            np.array_equal(frozen[name][key], kept.astype(frozen[name][key].dtype))
            for name, artifact in self.upstream.items()
            if name in frozen
            for key, kept in artifact.playing.items()
        )

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


def check_elsewhere(scenario: Scenario) -> None:
    """Refuse a fight whose boss or player is a file of this machine: the cluster's other machines do not have it.

    Raises:
        SoulsGraphError: naming the files.
    """
    named = [name for phase in scenario.phases() for name in (phase.boss, phase.player)]
    if files := list(dict.fromkeys(name for name in named if name.endswith(".toml"))):
        raise SoulsGraphError(
            f"scenario {slug(scenario.name)}: expected a shipped boss and player, which every machine of a cluster "
            f"has, found {', '.join(map(shown, files))}; train on this machine alone, without `address` or RAY_ADDRESS."
        )


def trained_artifact(
    setup: StageSetup,
    weights: Weights,
    normalizer: RunningNormalizer,
    steps: int,
    part: Stage | None = None,
    beside: Sequence[SkillCard] = (),
) -> Artifact:
    """Make the artifact of a stage's skill from its module's weights, head included.

    `part` is the stage of the skill, by default the last that learns; `beside` are the cards of
    those that learned in the same fights and are already saved.
    """
    stage, graph = part or setup.stage, setup.graph
    skill = setup.skill(stage.skill)
    parameters = {name: values for name, values in weights.items() if name not in (MEAN, DEVIATION)}
    known = [*(artifact.card for artifact in setup.upstream.values()), *beside]
    cards = [card for card in known if card.skill in graph.upstream(skill.name)]
    card = SkillCard(
        skill=skill.name,
        version=0,
        **artifacts.graph_fields(graph),
        observation=skill.observation.names,
        normalizer=artifacts.NormalizerStatistics.of(normalizer),
        observation_clip=setup.numbers[skill.name].observation_clip,
        layer_sizes=(skill.observation.size, *(len(weights[bias]) for _, bias in layer_names(weights))),
        training=artifacts.Training(
            scenario=stage.scenario,
            start=setup.scenario.start,
            preset=setup.run.plan.preset,
            budget=stage.budget,
            steps=steps,
            seed=stage.seed,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            packages=artifacts.package_versions(),
            jointly=setup.jointly,
            project=setup.project,
            fight=setup.fight,
            learning=how_it_learns(setup.run.plan, stage),
        ),
        upstream=tuple(artifacts.UpstreamArtifact(card.skill, card.version, card.digest) for card in cards),
        parent=stage.parent,
    )
    return Artifact(card, parameters)


def keep_demonstrations(run: RunFolder, skill: str, version: int, transitions: Transitions) -> None:
    """Keep the decisions that a version is cloned from; raises WriteError."""
    with whole_folder(run.demonstrations(skill, version), replace=True) as temporary:
        write_training_state(temporary, vars(transitions))


def kept_demonstrations(run: RunFolder, skill: str, version: int) -> Transitions:
    """Return the decisions that a version was cloned from.

    Raises:
        SoulsGraphError: if they are missing or damaged.
    """
    folder = run.demonstrations(skill, version)
    try:
        state = read_training_state(folder)
        return Transitions(**{field.name: state[field.name] for field in fields(Transitions)})
    except (TrainingStateError, KeyError) as error:
        raise SoulsGraphError(
            f"{folder}: expected the decisions that {skill} v{version} was cloned from, found none or damaged ones; "
            "restore the folder from a copy, or clone the fights again."
        ) from error
