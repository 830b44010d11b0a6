"""Who is watched, and one fight of it: every tick's scene with what each skill observed, valued and chose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np

from soulsgraph.runs import lineage
from soulsgraph.runs.evaluate import (
    Setting,
    checkpoint_files,
    evaluation_seeds,
    load_checkpoint,
    make_agent,
    source_of,
    weights_by_skill,
)
from soulsgraph.runs.plan import Stage
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.combat.rollout import Flags, Floats, Integers, Outcome, outcome_of
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.scenario import load_scenario, started_at
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import StateRows
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.simulator.scene import Scene
from soulsgraph_envs.skills import Skill, make_skill, training_scenario
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks
from soulsgraph_policies.agents.library import LibraryError


@dataclass(frozen=True)
class WatchedAgent:
    """An agent, its name, and by what each of its skills plays, in words."""

    name: str
    agent: Agent
    players: Mapping[str, str]


class AgentSource:
    """The agent of a run as it is now: its library, or of a run still in training the newest checkpoint.

    A run is in training as long as a skill of its graph has no version. Then its stage is watched: the stage's
    training scenario, the frozen skills before it, and the newest weights that the learning curve holds.

    `versions` chooses another version of some skills than the one in play, for which every skill has to be trained.

    Raises:
        UnknownNameError: if a version is chosen of a skill that the run has not.
        LibraryError: if the run has no such version.
        SoulsGraphError: if a skill of which a version is chosen is to play at random.
    """

    def __init__(
        self,
        run: RunFolder,
        scenario: str | None = None,
        start: str | None = None,
        randomize: Sequence[str] = (),
        versions: Mapping[str, int] | None = None,
    ) -> None:
        self.run, self._scenario, self._start, self._randomize = run, scenario, start, tuple(randomize)
        self._versions = dict(versions or {})
        for name, version in self._versions.items():
            _check_version(run, name, version)
            if name in self._randomize:
                raise SoulsGraphError(f"{name}: expected v{version} or random actions, found both; leave one out.")

    @property
    def stage(self) -> Stage | None:
        """The first stage of the curriculum that is not finished; None where all are."""
        return next(
            (stage for stage in lineage.own_stages(self.run) if not lineage.finished_versions(self.run, stage)), None
        )

    def agent(self) -> WatchedAgent:
        """Return who plays now.

        Raises:
            SoulsGraphError: if a skill is missing or damaged, or a name unknown.
        """
        if self._versions:
            return self._trained()
        complete = all(self.run.library.versions(name) for name in self.run.plan.skill_graph.order)
        stage = self.stage
        # Clones fight as they are until one of them learns on.
        learning = stage is not None and stage.cloned and _newest(self.run, stage) is not None
        return self._trained() if stage is None or (complete and not learning) else self._training(stage)

    def _trained(self) -> WatchedAgent:
        run, plan = self.run, self.run.plan
        scenario = self._scenario or plan.scenario
        trained_on = source_of(run, scenario)
        agent = make_agent(run, Setting(scenario, trained_on, self._start, self._randomize))
        players = {name: f"v{lineage.version_in_play(run, name, trained_on)}" for name in agent.networks}
        for skill in agent.skills:
            if (version := self._versions.get(skill.name)) is not None:
                artifact = run.library.load(skill.name, version)
                run.library.check_upstream(artifact.card)
                agent = agent.playing({skill.name: artifact.network(skill, agent.scenario)})
                players[skill.name] = f"v{version}"
        chosen = ",".join(f"{name}=v{version}" for name, version in self._versions.items())
        name = f"{run.path.name}@{chosen}" if chosen else run.path.name
        return WatchedAgent(name, agent, players | dict.fromkeys(agent.replaced, "random"))

    def _training(self, stage: Stage) -> WatchedAgent:
        run, plan = self.run, self.run.plan
        order = (*plan.skill_graph.upstream(stage.skill), stage.skill)
        skills = tuple(make_skill(name, plan.options) for name in plan.skill_graph.order if name in order)
        plan.check_fight(self._scenario or stage.scenario)
        scenario = started_at(load_scenario(self._scenario or stage.scenario), self._start)
        if self._start is None:
            scenario = training_scenario(scenario, skills[-1])
        networks: dict[str, FrozenNetwork] = {}
        players: dict[str, str] = {}
        for name, version in lineage.frozen_versions(run, stage).items():
            skill = next(skill for skill in skills if skill.name == name)
            networks[name], players[name] = run.library.load(name, version).network(skill, scenario), f"v{version}"
        parent = None if stage.parent is None else run.library.load(stage.skill, stage.parent)
        if newest := _newest(run, stage):
            step, path = newest
            weights = weights_by_skill(stage.skill, load_checkpoint(path))[stage.skill]
            # A version that is continued goes on with the observations that it has.
            clip = parent.card.observation_clip if parent else plan.hyperparameters(stage).observation_clip
            networks[stage.skill] = FrozenNetwork.of(skills[-1], scenario, weights, clip)
            players[stage.skill] = f"in training, step {step:,}"
        elif parent is not None:
            networks[stage.skill], players[stage.skill] = parent.network(skills[-1], scenario), f"v{stage.parent}"
        random = {skill.name for skill in skills if skill.name not in networks or skill.name in self._randomize}
        trained = {name: network for name, network in networks.items() if name not in random}
        agent = Agent(scenario, skills, trained, dict.fromkeys(random, "random"))
        return WatchedAgent(run.path.name, agent, players | dict.fromkeys(random, "random"))


def _check_version(run: RunFolder, skill: str, version: int) -> None:
    """Refuse a version that a run has not.

    Raises:
        UnknownNameError: if it has no such skill.
        LibraryError: if the skill has no such version.
    """
    order = run.plan.skill_graph.order
    if skill not in order:
        raise UnknownNameError(f"skill of {run.path.name}", skill, order)
    if version not in (known := run.library.versions(skill)):
        expected = f"one of {', '.join(f'v{number}' for number in known)}" if known else "a trained one"
        raise LibraryError(f"{run.path.name}: version of {skill}", expected, f"v{version}", "choose a version it has")


def _newest(run: RunFolder, stage: Stage) -> tuple[int, Path] | None:
    """Return the step and file of a stage's newest checkpoint; a training process may be writing the next one."""
    folder = lineage.curve_folder(run, stage)
    return max(checkpoint_files(folder).items(), default=None) if lineage.is_of_stage(run, stage, folder) else None


@dataclass(frozen=True)
class Mind:
    """What one skill observed, valued and chose at the decision that is under way, tick by tick.

    observations (ticks, size), values (ticks, actions) or None for a skill without a network, actions (ticks,), -1
    before the first decision; `begun` (ticks,) holds where a decision began.
    """

    skill: Skill
    player: str
    observations: Floats
    values: Floats | None
    actions: Integers
    begun: Flags


@dataclass(frozen=True)
class Fight:
    """One fight, tick by tick: its scenes, every skill's mind, and how it ended; `number` counts fights from 1."""

    name: str
    number: int
    seed: int
    tick_s: float
    scenes: tuple[Scene, ...]
    minds: tuple[Mind, ...]
    outcome: Outcome

    def __len__(self) -> int:
        return len(self.scenes)

    @property
    def seconds(self) -> float:
        """How long it took, in seconds of the game."""
        return len(self) * self.tick_s

    def summary(self) -> dict[str, Any]:
        """Return the fight's number, seed, players, end and length as plain values."""
        players = {mind.skill.name: mind.player for mind in self.minds}
        about = {"fight": self.number, "agent": self.name, "seed": self.seed, "players": players}
        return {**about, "outcome": self.outcome, "seconds": self.seconds}

    def __str__(self) -> str:
        players = ", ".join(f"{mind.skill.name} {mind.player}" for mind in self.minds)
        return f"fight {self.number}: {self.name} ({players}): {self.outcome} after {self.seconds:.1f} s"


def play_fights(
    sources: Sequence[AgentSource], seed: int, episodes: int | None, most_ticks: int
) -> Iterator[tuple[Fight, ...]]:
    """Yield fights of several agents beside each other, from the seeds of an evaluation's episodes.

    Each takes its agent as it is then; without a number of `episodes` there is no end.

    Raises:
        SoulsGraphError: if a seed or a number is out of range, or an agent cannot play any more.
    """
    for number in count(1) if episodes is None else range(1, episodes + 1):
        seeds = evaluation_seeds(seed, number)[-1:]
        yield tuple(play_fight(source.agent(), seeds, most_ticks, number) for source in sources)


def play_fight(watched: WatchedAgent, seeds: Seeds, most_ticks: int, number: int = 1) -> Fight:
    """Play one fight in the simulator from the one seed in `seeds`, for `most_ticks` at most, and keep every tick."""
    agent, game = watched.agent, make_game()
    rollout = agent.rollout(game)
    combat = rollout.combat
    scenes: list[Scene] = []
    rows: list[StateRows] = []
    latest: list[Integers] = []
    decisions: list[Integers] = []

    def keep() -> None:
        scenes.append(game.scene(0))
        rows.append(np.stack([combat.starts(index)[0] for index in range(len(combat.skills))]))
        latest.append(combat.latest[0].copy())
        # Decisions that ended before this tick: a new one is under way where the number has changed.
        decisions.append((combat.decisions[0] - combat.completed[0]).copy())

    rollout.after_tick = keep
    rollout.play(seeds, most_ticks=most_ticks)
    begun = _begun(np.array(decisions), np.array(latest))
    minds = [
        _mind(watched, skill, np.array(rows)[:, index], np.array(latest)[:, index], begun[:, index])
        for index, skill in enumerate(agent.skills)
    ]
    outcome = outcome_of(combat.died[0], combat.won[0], combat.truncated[0])
    return Fight(watched.name, number, int(seeds[0]), game.tick_s, tuple(scenes), tuple(minds), outcome)


def _begun(decisions: Integers, latest: Integers) -> Flags:
    """Return whether a decision began with each tick, (ticks, skills)."""
    numbers = np.where(latest < 0, -1, decisions)
    before = np.vstack([np.full((1, numbers.shape[1]), -1), numbers[:-1]])
    begun: Flags = numbers != before
    return begun


def _mind(watched: WatchedAgent, skill: Skill, rows: StateRows, actions: Integers, begun: Flags) -> Mind:
    agent, rows = watched.agent, np.ascontiguousarray(rows)
    network = None if skill.name in agent.replaced else agent.networks[skill.name]
    values = FusedNetworks([cast(FrozenNetwork, network)]).q_values(0, rows) if network is not None else None
    observed = skill.observation(rows, agent.scenario)
    return Mind(skill, watched.players[skill.name], observed, values, actions, begun)
