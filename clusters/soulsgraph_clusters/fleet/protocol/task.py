"""What a fleet's games play in a stage: scenario, skills, who plays each of them, who learns and how it explores.

Projects of own skills are named by name and digest, never by a place: a PC has those that a person there named to its
host, or installed, and nothing that is received leads to an import.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import CODE
from soulsgraph_clusters.fleet.protocol.settings import PROTOCOL, FleetError, play_digest
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.core.config import Where, is_generated, parse, shipped_names, to_json, to_table, validate
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.core.game import Game
from soulsgraph_envs.core.scenario import Scenario, load_scenario, started_at
from soulsgraph_envs.games.cycle_timer import Clock, TimedGame, stoppable
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.games.opening import make_game, open_game
from soulsgraph_envs.skills import Skill, SkillOptions, make_skill, training_scenario
from soulsgraph_envs.skills.skill import definition_of
from soulsgraph_policies.agents.inference import DEVIATION, MEAN, FrozenNetwork, Weights, layer_names_at, weights_digest
from soulsgraph_policies.agents.projects import is_name, loaded_projects, projects_of
from soulsgraph_policies.learning.hyperparameters import DQNHyperparameters
from soulsgraph_policies.learning.real_time import RealTimeSampling
from soulsgraph_policies.learning.sampler import SampledModule, Sampler, Transitions

if TYPE_CHECKING:
    from soulsgraph_policies.agents.projects import LoadedProject
    from soulsgraph_policies.learning.stage_config import SkillDQNConfig

_REMEDY = "use the head's version of soulsgraph on the PC"
#: How the keys of a hello's digests begin that are of projects.
_KEY = "project/"
_PROJECT_DIGEST = re.compile(r"[0-9a-f]{64}")
#: A digest is shown by its first digits.
_SHOWN = 16
_COPY_PROJECT = (
    "copy the head's project to the PC, name its folder to the host there (`project`), and start the host anew"
)


#: Opens a game to play by a clock.
OpenGame = Callable[[GameSettings, Clock], TimedGame]


@dataclass(frozen=True)
class StageTask:
    """One stage as its games play it; names only, nothing in it is a path or a program.

    `plays` maps each skill, in graph order, to the module that plays it, `learns` each module that learns to its
    hyperparameters. Where none learns, the last skill's module is sampled. With a `start` the scenario is fought as it
    is, from there; else it is the last skill's training scenario. Modules in `random` have no weights: each of their
    actions is drawn. `projects` maps each project that declares some of the skills to the digest of its code. What a
    module's networks see is bounded by its own of `clips`, or by `observation_clip`.

    Raises:
        UnknownNameError: for a scenario that is neither shipped nor generated, a start that it does not have, and a
            skill that is not known here.
        FleetError: if a project is not loaded here, or has other code.
        SoulsGraphError: if a skill's project is not named, a module that learns or is random plays no skill, one is
            both, or no skill takes part.
    """

    scenario: str
    plays: Mapping[str, str]
    learns: Mapping[str, DQNHyperparameters]
    observation_clip: float
    options: SkillOptions = field(default_factory=SkillOptions)
    start: str = ""
    random: tuple[str, ...] = ()
    projects: Mapping[str, str] = field(default_factory=dict)
    clips: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if is_generated(self.scenario):
            load_scenario(self.scenario)
        elif self.scenario not in shipped_names("scenario"):
            raise UnknownNameError("scenario of a fleet", self.scenario, shipped_names("scenario"))
        self._check_skills()
        sampled = {*self.learns, *self.random}
        if not self.plays or not sampled <= set(self.plays.values()):
            raise SoulsGraphError(
                f"task: expected skills, and one that each of {', '.join(sorted(sampled)) or 'the modules'} plays, "
                f"found {', '.join(self.plays) or 'none'}; {_REMEDY}."
            )
        if both := set(self.learns) & set(self.random):
            raise SoulsGraphError(f"task: expected modules that learn or are random, found both of {both}; {_REMEDY}.")
        if self.start:
            started_at(load_scenario(self.scenario), self.start)

    @classmethod
    def of(
        cls, config: SkillDQNConfig, scenario: str, options: SkillOptions, projects: Iterable[LoadedProject] = ()
    ) -> StageTask:
        """Return what games play of a stage, as RLlib's configuration says who plays and who learns.

        `projects` are those whose skills take part. Raises as the constructor.
        """
        learns = {module: config.hyperparameters_of(module) for module in config.trained_modules}
        plays = config.modules_of_skills()
        clip = config.clip_of(config.sampled_modules[-1])
        clips = {module: own for module in plays.values() if (own := config.clip_of(module)) != clip}
        digests = {loaded.project.name: loaded.digest for loaded in projects}
        return cls(scenario, plays, learns, clip, options, projects=digests, clips=clips)

    def _check_skills(self) -> None:
        """Check that this process has the code of every skill as the head has it."""
        require_projects(self.projects, project_digests(), "skills")
        for name in self.plays:
            definition_of(name)
        if unnamed := digests_of_skills(self.plays).keys() - self.projects.keys():
            raise SoulsGraphError(
                f"skills: expected the digest of every project whose skills it has, found none of "
                f"{', '.join(sorted(unnamed))}; {_REMEDY}."
            )

    @cached_property
    def skills(self) -> tuple[Skill, ...]:
        """The skills that take part, in graph order."""
        return tuple(make_skill(name, self.options) for name in self.plays)

    @cached_property
    def ground(self) -> Scenario:
        """The scenario as the last skill trains on it, or as it is from `start`."""
        scenario = load_scenario(self.scenario)
        return started_at(scenario, self.start) if self.start else training_scenario(scenario, self.skills[-1])

    @property
    def modules(self) -> tuple[str, ...]:
        """Every module that plays by weights."""
        return tuple(module for module in dict.fromkeys(self.plays.values()) if module not in self.random)

    @cached_property
    def frozen(self) -> dict[str, str]:
        """The skills that play by weights which do not change, each with its module."""
        return {skill: module for skill, module in self.plays.items() if module not in {*self.learns, *self.random}}

    def frozen_digest(self, weights_of: Callable[[str], Weights]) -> bytes:
        """Return the digest of what frozen skills are to be played by; `weights_of` returns a module's weights."""
        return weights_digest({skill: weights_of(module) for skill, module in self.frozen.items()})

    def number(self, played: Mapping[str, Transitions], first_lane: int, first_episode: int) -> None:
        """Number a game's lanes and episodes, by module, apart from those of other games and of other processes."""
        for module, transitions in played.items():
            transitions.lanes[...] += first_lane * len(self.skills_of([module]))
            transitions.episodes[...] += first_episode

    @property
    def sampled(self) -> tuple[str, ...]:
        """The modules whose decisions are collected."""
        last = self.plays[self.skills[-1].name]
        wanted = {*self.learns, *self.random} | ({last} if not self.learns else set())
        return tuple(module for module in dict.fromkeys(self.plays.values()) if module in wanted)

    def skills_of(self, modules: Collection[str]) -> tuple[Skill, ...]:
        """Return the skills that these modules play."""
        return tuple(skill for skill in self.skills if self.plays[skill.name] in modules)

    @cached_property
    def spaces(self) -> dict[str, tuple[int, int]]:
        """Observed values and actions of every module that is sampled."""
        first = {module: self.skills_of([module])[0] for module in self.sampled}
        return {module: (skill.observation.size, len(skill.actions)) for module, skill in first.items()}

    @cached_property
    def terms(self) -> dict[str, int]:
        """The number of reward terms of every skill that is sampled."""
        return {skill.name: len(skill.reward.names) for skill in self.skills_of(self.sampled)}

    def sampler(self, game: Game, seed: int) -> Sampler:
        """Return a sampler of the stage in a game."""
        last = self.skills[-1]
        combat = Combat(game, self.skills, self.ground, Horizon(last.name, last.horizon))
        return Sampler(combat, seed, [self._sampled(module) for module in self.sampled])

    def _sampled(self, module: str) -> SampledModule:
        names = tuple(skill.name for skill in self.skills_of([module]))
        numbers = self.learns.get(module)
        if numbers is None:
            explored = 1.0 if module in self.random else 0.0
            return SampledModule(module, names, lambda _: explored, inf)
        return SampledModule(module, names, numbers.exploration, numbers.budget)

    def networks(self, weights: Mapping[str, Weights]) -> list[FrozenNetwork]:
        """Return the networks of every skill that these modules play, and one without effect for each random skill.

        Raises:
            SoulsGraphError: if a weight is missing or does not fit its skill.
        """
        found = [(skill, weights[self.plays[skill.name]]) for skill in self.skills_of(weights)]
        found += [(skill, _no_weights(skill)) for skill in self.skills_of(self.random)]
        clips = {name: self.clips.get(module, self.observation_clip) for name, module in self.plays.items()}
        return [FrozenNetwork.of(skill, self.ground, own, clips[skill.name]) for skill, own in found]

    def to_json(self) -> str:
        """Return the task as `from_json` reads it."""
        return to_json(to_table(self))

    @classmethod
    def from_json(cls, text: str) -> StageTask:
        """Read a task.

        Raises:
            SoulsGraphError: if it is none, or names what this version does not have.
        """
        where = Where("task", remedy=_REMEDY)
        return validate(cls, parse(text, "JSON", where), where)


class TaskPlay:
    """Play a task in a game in real time, which `open_it` opens in the thread that plays it.

    Raises:
        SoulsGraphError: if the task does not fit the game's lanes.
    """

    def __init__(self, task: StageTask, settings: GameSettings, seed: int, open_it: OpenGame = open_game) -> None:
        self.task, self._settings, self._seed, self._open_it = task, settings, seed, open_it
        #: The game, once it is open.
        self.game: TimedGame | None = None
        self.sampling = RealTimeSampling(self._open, task.sampler(make_game(settings.lanes), seed))

    def _open(self, stop: threading.Event) -> Sampler:
        game = self._open_it(self._settings, stoppable(stop))
        try:
            sampler = self.task.sampler(game, self._seed)
        except BaseException:
            game.close()
            raise
        self.game = game
        return sampler

    def use(self, weights: Mapping[str, Weights], version: int, decisions: Mapping[str, int]) -> None:
        """Play by newer weights of some modules, first of all; raises SoulsGraphError where they do not fit."""
        self.sampling.receive(decisions)
        self.sampling.set_networks(self.task.networks(weights), version)

    @property
    def frozen(self) -> bytes:
        """The digest of the weights that frozen skills are played by."""
        return weights_digest({skill: self.sampling.weights(skill) for skill in self.task.frozen})

    @property
    def reset_s(self) -> dict[str, float]:
        """Seconds of the game's resets by phase."""
        return {} if self.game is None else dict(self.game.timing().reset_s)

    @property
    def lateness_p99_ms(self) -> float:
        """How late the latest ticks began."""
        return 0.0 if self.game is None else self.game.timing().lateness.p99_ms


def _no_weights(skill: Skill) -> Weights:
    """Return weights by which every action is as good as any other."""
    weight, bias = layer_names_at(0)
    size, actions = skill.observation.size, len(skill.actions)
    return {
        MEAN: np.zeros(size),
        DEVIATION: np.ones(size),
        weight: np.zeros((actions, size), np.float32),
        bias: np.zeros(actions, np.float32),
    }


def project_digests() -> dict[str, str]:
    """Return the digest of every project that is loaded in this process, by name."""
    return {name: loaded.digest for name, loaded in loaded_projects().items()}


def digests_of_skills(skills: Iterable[str]) -> dict[str, str]:
    """Return the digest of every project that declares some of these skills, by name."""
    return {name: loaded.digest for name, loaded in projects_of(skills).items()}


def make_hello(game: str, driver: str, lanes: int, **fields: Any) -> wire.Hello:
    """Return what a game of this PC says of itself, with the digests of all that its play depends on."""
    known = {CODE: play_digest(), **{f"{_KEY}{name}": digest for name, digest in project_digests().items()}}
    return wire.Hello(protocol=PROTOCOL, game=game, driver=driver, lanes=lanes, digests=known, **fields)


def projects_of_hello(hello: wire.Hello) -> dict[str, str]:
    """Return the digests of the projects that a PC has, by name; what is no name or no digest is left out."""
    said = {key.removeprefix(_KEY): digest for key, digest in hello.digests.items() if key.startswith(_KEY)}
    return {
        name: digest for name, digest in sorted(said.items()) if is_name(name) and _PROJECT_DIGEST.fullmatch(digest)
    }


def project_problem(needed: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Return which needed project is missing or has other code, expected, found and remedy; empty if none."""
    for name, digest in needed.items():
        if there.get(name) != digest:
            other = f"other files ({there[name][:_SHOWN]})" if name in there else "none of that name"
            expected = f"the project {shown(name)} with the head's files ({digest[:_SHOWN]})"
            return f"expected {expected}, found {other}; {_COPY_PROJECT}"
    return ""


def require_projects(needed: Mapping[str, str], there: Mapping[str, str], who: str) -> None:
    """Refuse who lacks a project that is needed, or has other code of it.

    Raises:
        FleetError: naming the project, both digests and the remedy.
    """
    if found := project_problem(needed, there):
        raise FleetError(f"{who}: {found}.")
