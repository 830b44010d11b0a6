"""Record fights as they are fought: of a run's skills, an agent of the zoo or the oracle; simulated or in games."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from threading import Lock

import numpy as np

from soulsgraph.recordings.files import RecordingError, check_columns, is_written
from soulsgraph.recordings.header import (
    SIMULATOR,
    Header,
    Identity,
    Origins,
    PlayedSkill,
    RecordingOrigin,
    make_header,
    run_name,
)
from soulsgraph.recordings.writing import Appearance, Choice, FightWriter
from soulsgraph.runs.evaluate import Setting, load_artifacts, make_agent
from soulsgraph.runs.real_time import PlayedGame, play_in_games
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.combat.loop import Actions, Combat
from soulsgraph_envs.combat.rollout import Doubles, Flags, Rollout, outcome_of
from soulsgraph_envs.combat.scripted import DelayedScript, OracleDodge, OracleFight, Script, engaging
from soulsgraph_envs.core.files import make_folder, slug, writing
from soulsgraph_envs.core.game import Game, LaneIndices
from soulsgraph_envs.core.locks import FileLock, HeldError, LockError
from soulsgraph_envs.core.scenario import load_scenario, started_at
from soulsgraph_envs.core.seeds import Seeds, derive_seeds, uniforms
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.scene import AnimationWords
from soulsgraph_envs.skills import SKILL_NAMES, Skill, SkillOptions, make_skill
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.projects import ProjectDigest

#: The player whose scripts know the boss's hit windows in advance.
ORACLE = "oracle"
_EXPLORING_STREAM = 30
#: Characters of a player or a scenario in the name of a fight.
_LONGEST = 55
#: Characters of a start, or of the skills that are replaced, in it.
_SHORT = 24
#: What of a header differs when the same fight is fought again.
_OF_ITS_TIME = ("driver", "tick_s", "origin", "result")
OnWritten = Callable[[Path], None]


@dataclass(frozen=True)
class Fighter:
    """Who is recorded: a name, a scenario by name or path, an agent, the share of drawn actions, a delay in ticks."""

    name: str
    scenario: str
    agent: Agent
    played: tuple[PlayedSkill, ...]
    options: SkillOptions
    random: float = 0.0
    delay: int = 0
    project: ProjectDigest | None = None

    @classmethod
    def of_run(cls, run: RunFolder, setting: Setting, random: float = 0.0) -> Fighter:
        """Return the agent of a run, as `evaluate` plays it.

        Raises:
            SoulsGraphError: if a skill is missing or damaged, or a name unknown.
        """
        agent = make_agent(run, setting)
        cards = {name: one.card for name, one in load_artifacts(run, setting.trained_on, [*agent.networks]).items()}
        versions = {name: (card.version, card.digest) for name, card in cards.items()}
        played = tuple(_played(skill, agent, *versions.get(skill.name, (-1, ""))) for skill in agent.skills)
        project = ProjectDigest.of(run.plan.graph)
        return cls(run_name(run.path), setting.scenario, agent, played, run.plan.options, random, project=project)

    @classmethod
    def oracle(cls, scenario: str, start: str | None = None, random: float = 0.0, delay: int = 0) -> Fighter:
        """Return the scripted player that knows the boss's hit windows in advance: simulator only.

        It acts `delay` ticks late.

        Raises:
            SoulsGraphError: if a name is unknown.
        """
        scripts: dict[str, Script] = {**engaging(), "dodge": OracleDodge(), "heal_attack": OracleFight()}
        scripts = {name: DelayedScript(script, delay) for name, script in scripts.items()} if delay else scripts
        skills = tuple(make_skill(name) for name in SKILL_NAMES)
        agent = Agent(started_at(load_scenario(scenario), start), skills, replaced=scripts)
        played = tuple(_played(skill, agent) for skill in skills)
        return cls(ORACLE, scenario, agent, played, SkillOptions(), random, delay)

    def header(self, source: Origins, driver: str = "") -> Header:
        """Return the header of its fights, but for their names and seeds."""
        identity = Identity("", self.scenario, source, driver, self.name)
        return make_header(identity, self.agent.scenario, self.played, self.options, project=self.project)

    def fight(self, seed: int) -> str:
        """Return the name of its fight from a seed: another for every other way in which it can be asked to fight."""
        ways = []
        if self.agent.scenario.start != load_scenario(self.scenario).start:
            ways.append(_short(self.agent.scenario.start))
        if replaced := sorted(name for name, by in self.agent.replaced.items() if by == "random"):
            ways.append(_short(f"no-{'-'.join(replaced)}"))
        # Half of what they take of each of the other two.
        longest = _LONGEST - (len("-".join(ways)) + 2) // 2 if ways else _LONGEST
        ways = [slug(self.name)[:longest], slug(self.scenario)[:longest], *ways]
        ways += [f"random{self.random:g}"] if self.random else []
        ways += [f"delay{self.delay}"] if self.delay else []
        # A file that begins with a dash is an option to every other program, and one with a dot is hidden.
        return "-".join([*ways, f"{seed:016x}"]).lstrip("-.")


def _short(name: str) -> str:
    """Return a name as a part of a file's name; a long one by its first letters and a digest."""
    text = slug(name)
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 9]}-{sha256(name.encode()).hexdigest()[:8]}"


def _played(skill: Skill, agent: Agent, version: int = -1, digest: str = "") -> PlayedSkill:
    replaced = agent.replaced.get(skill.name)
    network = replaced is None
    return PlayedSkill(
        name=skill.name,
        player="network" if network else "random" if replaced == "random" else "script",
        version=version if network else -1,
        digest=digest if network else "",
        valued=network,
        observation=skill.observation.names,
        actions=tuple(action.name for action in skill.actions),
        terms=skill.reward.names,
    )


def record(fighter: Fighter, seeds: Seeds, folder: Path, on_written: OnWritten | None = None) -> int:
    """Play one fight a seed in the simulator, and write each as a file of a folder as it ends.

    Fights that are there already are not played; return how many those are.

    Raises:
        RecordingError: if a file of that name holds another fight, or another process records the same; nothing is
            played then.
        WriteError: if the place cannot be written.
    """
    with _alone(fighter, folder):
        left = _not_written(fighter, seeds, folder, "simulator")
        recorder = FightRecorder(fighter, folder, on_written, "simulator", SIMULATOR)
        if len(left):
            recorder.rollout(make_game()).play(left)
    return len(seeds) - len(left)


def record_in_games(
    fighter: Fighter, seeds: Seeds, folder: Path, games: Sequence[GameSettings], on_written: OnWritten | None = None
) -> tuple[PlayedGame, ...]:
    """Play one fight a seed in running games, a thread each, and write each fight; return how each game ran.

    Fights that are there already are not played.

    Raises:
        RecordingError: as `record`.
        GameError: if a game cannot be reached or reset, and the other games stop.
    """
    lock = Lock()

    def written(path: Path) -> None:
        with lock:
            if on_written is not None:
                on_written(path)

    def rollout(game: Game, settings: GameSettings) -> Rollout:
        return FightRecorder(fighter, folder, written, "game", settings.driver).rollout(game)

    with _alone(fighter, folder):
        left = _not_written(fighter, seeds, folder, "game")
        return play_in_games(fighter.agent, left, games, rollout=rollout)[1] if len(left) else ()


@contextmanager
def _alone(fighter: Fighter, folder: Path) -> Iterator[None]:
    """Keep other processes from playing the fighter's fights for the same folder meanwhile; raises RecordingError."""
    series = fighter.fight(0).rpartition("-")[0]
    try:
        with writing(folder):
            make_folder(folder)
            lock = FileLock(folder / f".{series}.lock")
    except HeldError as error:
        remedy = "wait for its end, or choose another folder"
        raise RecordingError(folder, f"no other process that records {series}", "one", remedy) from error
    except LockError:
        # Its file system has no locks: fights that are played twice are written once.
        yield
        return
    try:
        yield
    finally:
        lock.remove()


def _not_written(fighter: Fighter, seeds: Seeds, folder: Path, source: Origins) -> Seeds:
    """Return the seeds whose fights are not in a folder yet."""
    template = fighter.header(source)
    headers = [replace(template, fight=fighter.fight(int(seed)), seed=str(seed)) for seed in seeds]
    check_columns(folder, template)
    left: Seeds = seeds[[not is_written(folder, header, _OF_ITS_TIME) for header in headers]]
    return left


class FightRecorder:
    """A controller that chooses nothing: it writes every fight of a rollout with one lane as it ends.

    A fight that a running game breaks off is dropped, and begun again.
    """

    def __init__(
        self, fighter: Fighter, folder: Path, on_written: OnWritten | None, source: Origins, driver: str
    ) -> None:
        self._fighter, self._folder, self._on_written = fighter, folder, on_written
        agent = fighter.agent
        self._template = fighter.header(source, driver)
        self._words = AnimationWords.of(agent.scenario)
        self._always = np.array([agent.replaced.get(skill.name) == "random" for skill in agent.skills])
        self._random = self._always.copy()

    def rollout(self, game: Game) -> Rollout:
        """Return a rollout of the agent in a game of one lane, whose fights are recorded."""
        agent = self._fighter.agent
        self._exploring = LaneExploration(agent.skills, self._fighter.random)
        rollout = agent.rollout(game, self._exploring, self)
        self._combat, rollout.after_tick = rollout.combat, self._after_tick
        return rollout

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Begin to record the fight from a seed (1,)."""
        seed = int(seeds[0])
        fight, tick_s = self._fighter.fight(seed), self._combat.game.tick_s
        header = replace(self._template, fight=fight, seed=str(seed), tick_s=tick_s, origin=RecordingOrigin.now())
        self._writer = FightWriter(self._folder, header, self._fighter.agent)

    def act(self, combat: Combat, actions: Actions) -> None:
        """Keep what is read as a tick begins, and which skills decide."""
        self._raw, self._seen = combat.raw[0].copy(), self._look()
        self._due = combat.due[0].copy()
        self._random = np.where(self._due, self._exploring.drawn | self._always, self._random)

    def _look(self) -> Appearance:
        return seen_in(self._combat.game, self._combat.raw[0], self._words)

    def _after_tick(self) -> None:
        combat = self._combat
        actions = combat.latest[0].copy()
        choice = Choice(actions, self._due, self._random & (actions >= 0))
        self._writer.add(self._raw, int(combat.controls[0]), self._seen, choice)
        if combat.ended[0]:
            outcome = outcome_of(combat.died[0], combat.won[0])
            path = self._writer.finish(combat.raw[0], outcome, self._look())
            if self._on_written is not None:
                self._on_written(path)


def seen_in(game: Game, raw: Doubles, words: AnimationWords) -> Appearance:
    """Return what a game of one lane with raw values (25,) shows beside them."""
    if isinstance(game, Simulator):
        return Appearance.simulated(game)
    reading = getattr(game, "reading", {})
    found = (reading.get(f"{who}_animation") for who in ("player", "boss"))
    player, boss = (name if isinstance(name, str) else None for name in found)
    doing = words.player.get(int(raw[Raw.PLAYER_ANIMATION])), words.boss.get(int(raw[Raw.BOSS_ANIMATION]))
    return Appearance(None, player, boss, *doing)


class LaneExploration:
    """Draw a share of the decisions of one lane at random, from its fight's seed; `drawn` (skills,) says which."""

    def __init__(self, skills: Sequence[Skill], share: float) -> None:
        self._counts, self._share = np.array([len(skill.actions) for skill in skills]), share
        self._streams = np.zeros(len(skills), np.uint64)
        self.drawn: Flags = np.zeros(len(skills), np.bool_)

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Begin every skill's stream."""
        for skill in range(len(self._streams)):
            self._streams[skill] = derive_seeds(seeds, _EXPLORING_STREAM, skill)[0]

    def act(self, combat: Combat, actions: Actions) -> None:
        """Write drawn actions over a share of those of the skills that are due."""
        self.drawn = np.zeros(len(self._streams), np.bool_)
        due = np.flatnonzero(combat.due[0])
        if self._share <= 0.0 or not due.size:
            return
        self.drawn[due] = uniforms(self._streams, due) < self._share
        chosen = np.flatnonzero(self.drawn)
        actions[0, chosen] = (uniforms(self._streams, chosen) * self._counts[chosen]).astype(np.int64)
