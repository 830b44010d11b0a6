"""Record fights as they are fought: of a run's skills, an agent of the zoo or the oracle; simulated or in games.

A `FightRecorder` adds tick after tick to a `FightWriter`, and the whole file appears when the fight is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import isfinite, nan
from pathlib import Path
from threading import Lock
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from soulsgraph.recordings.clock import measured_clock
from soulsgraph.recordings.files import check_new, is_written, write_table
from soulsgraph.recordings.format import (
    CONTROLS,
    READINGS,
    SEEN,
    SIMULATOR,
    Header,
    Identity,
    Origins,
    PlayedSkill,
    RecordingOrigin,
    Result,
    make_header,
    run_name,
)
from soulsgraph.runs.evaluate import PlayedGame, Setting, load_artifacts, make_agent, play_in_games
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.combat.loop import Actions, Combat, Controller, Exploration, SeededDraw
from soulsgraph_envs.combat.probe import Focus, Probe
from soulsgraph_envs.combat.rollout import Doubles, Flags, Floats, Integers, Outcome, Rollout, outcome_of
from soulsgraph_envs.combat.scripted import DelayedScript, OracleDodge, OracleFight, Script, engaging
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import slug
from soulsgraph_envs.core.game import Game, LaneIndices
from soulsgraph_envs.core.scenario import load_scenario, started_at
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import Raw, RawValues, StateRows, state_rows
from soulsgraph_envs.games.link import GameSettings
from soulsgraph_envs.games.live_game import LiveGame, Measurement
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.games.readings import boss_animation_as_read
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.scene import AnimationWords, Part, Scene
from soulsgraph_envs.skills import SKILL_NAMES, Decisions, Skill, SkillOptions, make_skill
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks
from soulsgraph_policies.agents.projects import ProjectDigest

#: The player whose scripts know the boss's hit windows in advance.
ORACLE = "oracle"
#: The player whose script draws where it stands, steps and rolls, for the boss's data to be estimated from.
PROBE = "probe"
#: The players that are scripts, by names that no run need have.
SCRIPTED = (ORACLE, PROBE)
_EXPLORING_STREAM = 30
#: Characters of a player or a scenario in the name of a fight.
_LONGEST = 55
#: Characters of a start, or of the skills that are replaced, in it.
_SHORT = 24
#: What of a header differs when the same fight is fought again.
_OF_ITS_TIME = ("driver", "map", "game_version", "speed", "tick_s", "origin", "result")
OnWritten = Callable[[Path], None]


@dataclass(frozen=True)
class Fighter:
    """Who is recorded: a name, a scenario by name or path, an agent, the share of drawn actions, a delay in ticks.

    `after` is the number of earlier fights by which a probe chooses what it plays.
    """

    name: str
    scenario: str
    agent: Agent
    played: tuple[PlayedSkill, ...]
    options: SkillOptions
    random: float = 0.0
    delay: int = 0
    project: ProjectDigest | None = None
    after: int = 0

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
        return replace(cls._scripted(ORACLE, scenario, start, scripts), random=random, delay=delay)

    @classmethod
    def probe(cls, scenario: str, start: str | None = None, random: float = 0.0, focus: Focus | None = None) -> Fighter:
        """Return the scripted player that covers what agents don't, for the simulator and running games.

        With a `focus` it plays more often what earlier fights leave open.

        Raises:
            SoulsGraphError: if a name is unknown.
        """
        scripts, after = Probe(load_scenario(scenario), focus).scripts, 0 if focus is None else focus.fights
        return replace(cls._scripted(PROBE, scenario, start, scripts), random=random, after=after)

    @classmethod
    def _scripted(cls, name: str, scenario: str, start: str | None, scripts: Mapping[str, Script]) -> Fighter:
        skills = tuple(make_skill(name) for name in SKILL_NAMES)
        agent = Agent(started_at(load_scenario(scenario), start), skills, replaced=scripts)
        return cls(name, scenario, agent, tuple(_played(skill, agent) for skill in skills), SkillOptions())

    def header(self, source: Origins, game: GameSettings | None = None) -> Header:
        """Return the header of its fights in the simulator or a running game, but for their names and seeds."""
        identity = Identity("", self.scenario, source, SIMULATOR, self.name)
        if game is not None:
            # The name of a file of your own, not where it lies.
            identity = replace(identity, driver=game.driver, map=Path(game.map).name, speed=game.speed)
        return make_header(identity, self.agent.scenario, self.played, self.options, project=self.project)

    def fight(self, seed: int, source: Origins = "simulator") -> str:
        """Return the name of its fight from a seed: another for every other way in which it can be asked to fight."""
        ways = []
        if self.agent.scenario.start != load_scenario(self.scenario).start:
            ways.append(_short(self.agent.scenario.start))
        if replaced := sorted(name for name, by in self.agent.replaced.items() if by == "random"):
            ways.append(_short(f"no-{'-'.join(replaced)}"))
        # Half of what they take of each of the other two.
        longest = _LONGEST - (len("-".join(ways)) + 2) // 2 if ways else _LONGEST
        ways = [_short(self.name, longest), _short(self.scenario, longest), *ways]
        ways += [f"random{_shortest(self.random)}"] if self.random else []
        ways += [f"delay{self.delay}"] if self.delay else []
        ways += [f"after{self.after}"] if self.after else []
        ways += ["games"] if source == "game" else []
        # A file that begins with a dash is an option to every other program, and one with a dot is hidden.
        return "-".join([*ways, f"{seed:016x}"]).lstrip("-.")


def _short(name: str, longest: int = _SHORT) -> str:
    """Return a name as a part of a file's name; a long one by its first letters and a digest."""
    text = slug(name)
    return text if len(text) <= longest else f"{text[: longest - 9]}-{sha256(name.encode()).hexdigest()[:8]}"


def _shortest(share: float) -> str:
    """Return a number in as few digits as tell it from others."""
    return next(text for text in (f"{share:g}", repr(share)) if float(text) == share)


def _played(skill: Skill, agent: Agent, version: int = -1, digest: str = "") -> PlayedSkill:
    if (replaced := agent.replaced.get(skill.name)) is None:
        return PlayedSkill.of(skill, "network", version, digest)
    return PlayedSkill.of(skill, "random" if replaced == "random" else "script")


def record(fighter: Fighter, seeds: Seeds, folder: Path, on_written: OnWritten | None = None) -> int:
    """Play one fight a seed in the simulator, and write each as a file of a folder as it ends.

    Fights that are there already are not played; return how many those are.

    Raises:
        RecordingError: if a file of that name holds another fight; nothing is played then.
        WriteError: if the place cannot be written.
    """
    left = _not_written(fighter, seeds, folder, "simulator")
    recorder = FightRecorder(fighter, folder, on_written, fighter.header("simulator"))
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
        return FightRecorder(fighter, folder, written, fighter.header("game", settings)).rollout(game)

    left = _not_written(fighter, seeds, folder, "game")
    return play_in_games(fighter.agent, left, games, rollout=rollout)[1] if len(left) else ()


def _not_written(fighter: Fighter, seeds: Seeds, folder: Path, source: Origins) -> Seeds:
    """Return the seeds whose fights are not there yet."""
    template = fighter.header(source)
    headers = (replace(template, fight=fighter.fight(int(seed), source), seed=str(seed)) for seed in seeds)
    left: Seeds = seeds[[not is_written(folder, header, _OF_ITS_TIME) for header in headers]]
    return left


class FightRecorder:
    """A controller that chooses nothing: it writes every fight of a rollout with one lane as it ends.

    `template` is the header of its fights but for their names and seeds. A fight that a running game breaks off is
    dropped, and begun again.
    """

    def __init__(self, fighter: Fighter, folder: Path, on_written: OnWritten | None, template: Header) -> None:
        self._fighter, self._folder, self._on_written = fighter, folder, on_written
        agent, self._template = fighter.agent, template
        self._words = AnimationWords.of(agent.scenario)
        self._always = np.array([agent.replaced.get(skill.name) == "random" for skill in agent.skills])
        self._random = self._always.copy()

    def rollout(self, game: Game, *further: Controller) -> Rollout:
        """Return a rollout of the agent in a game of one lane, whose fights are recorded.

        `further` controllers act after the agent's own.
        """
        agent = self._fighter.agent
        draw = SeededDraw(len(agent.skills), 1, _EXPLORING_STREAM, frugal=True)
        exploration = Exploration(dict(enumerate(agent.skills)), lambda: self._fighter.random, draw, self._explored)
        rollout = agent.rollout(game, exploration, *further, self)
        self._combat, rollout.after_tick = rollout.combat, self._after_tick
        return rollout

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Begin to record the fight from a seed (1,)."""
        seed = int(seeds[0])
        fight, game = self._fighter.fight(seed, self._template.source), self._combat.game
        version = game.version if isinstance(game, LiveGame) else ""
        header = replace(self._template, fight=fight, seed=str(seed), tick_s=game.tick_s, game_version=version)
        header = replace(header, origin=RecordingOrigin.now())
        self._writer = FightWriter(self._folder, header, self._fighter.agent)

    def act(self, combat: Combat, actions: Actions) -> None:
        """Keep what is read as a tick begins, and which skills decide."""
        self._raw, self._seen = combat.raw[0].copy(), self._look()
        self._due = combat.due[0].copy()

    def _explored(self, skill: int, lanes: LaneIndices, explored: Flags) -> None:
        self._random[skill] = explored[0] or self._always[skill]

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
    doing = words.player.get(int(raw[Raw.PLAYER_ANIMATION])), words.boss.get(int(raw[Raw.BOSS_ANIMATION]))
    if not isinstance(game, LiveGame):
        return Appearance(None, None, None, *doing)
    names = (game.reading.get(f"{who}_animation") for who in ("player", "boss"))
    player, boss = (name if isinstance(name, str) else None for name in names)
    return Appearance(None, player, boss, *doing, game.measurement)


Columns = dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """What the skills did in a tick, (skills,) each: the action under way, -1 for none, where a decision began with
    this tick, and whether the action was drawn at random; or what one skill did in every row, (ticks + 1,) each."""

    actions: Integers
    decides: Flags
    random: Flags


@dataclass(frozen=True)
class Appearance:
    """What of a moment is more than raw values: the scene as the simulator knows it, and the animations' names.

    Without a scene both fighters' animations may be said in words, and a running game has measured more.
    """

    scene: Scene | None = None
    player_animation: str | None = None
    boss_animation: str | None = None
    player_doing: str | None = None
    boss_doing: str | None = None
    measurement: Measurement | None = None

    @classmethod
    def simulated(cls, game: Simulator) -> Appearance:
        """Return what a simulator of one lane shows."""
        names, scene = game.animation_names(0), game.scene(0)
        read = boss_animation_as_read({"boss_animation": names.boss, "boss_attack_id": names.boss_attack})
        lost = scene.player_change.points if game.values(0)["refill"] and scene.player_change.age_s == 0.0 else 0.0
        hp = float(scene.raw[Raw.PLAYER_HP]) + lost
        return cls(scene, names.player, names.boss, measurement=Measurement(nan, nan, read, hp, scene.phase))


NOTHING_SEEN = Appearance()


class FightWriter:
    """Keep the ticks of one fight; `finish` writes `<fight>.parquet` into a folder, whole or not at all.

    `agent` has the skills of the header, in their order; without one a person played. Nothing is on the disk before
    `finish`. What is wrong with the header is said at once, not when the fight was fought.

    Raises:
        SoulsGraphError: for a header that cannot be written, or a fight that is there already.
    """

    def __init__(self, folder: Path, header: Header, agent: Agent | None = None) -> None:
        check_new(folder, header)
        self._folder, self._header, self._agent = folder, header, agent
        self._raws: list[npt.NDArray[np.float64]] = []
        self._controls: list[int] = []
        self._seen: list[Appearance] = []
        self._choices: list[Choice] = []

    def __len__(self) -> int:
        return len(self._controls)

    def add(self, raw: RawValues, controls: int, seen: Appearance = NOTHING_SEEN, choice: Choice | None = None) -> None:
        """Add a tick: the raw values (25,) and what was seen as it began, the controls and actions in it."""
        self._raws.append(np.array(raw, np.float64))
        self._controls.append(int(controls))
        self._seen.append(seen)
        if choice is not None:
            self._choices.append(choice)

    def finish(self, raw: RawValues, outcome: Outcome, seen: Appearance = NOTHING_SEEN) -> Path:
        """Add the moment at which the fight ended, write the file and return its path.

        Raises:
            SoulsGraphError: for a fight without a tick, or one that is there already.
            WriteError: if the place cannot be written.
        """
        if not self._controls:
            raise SoulsGraphError(f"{self._header.fight}: expected a fight of at least one tick, found none.")
        raws = np.vstack([*self._raws, np.array(raw, np.float64)])
        header = replace(self._header, result=_result(self._header, raws, outcome))
        written: Columns = {
            **key_columns(header, np.arange(len(raws))),
            **reading_columns({raw: raws[:, raw] for raw in Raw}),
            **_measured_columns(header, [*self._seen, seen]),
            **seen_columns([*self._seen, seen]),
            **_controls([*self._controls, 0]),
        }
        if self._agent is not None:
            written |= _agent_columns(header, self._agent, state_rows(raws), self._choices)
        return write_table(self._folder, header, written)


def key_columns(header: Header, ticks: Integers) -> Columns:
    """Return what is the same in all rows, and the time of each, `ticks` (rows,)."""
    rows = len(ticks)
    constant = {name: getattr(header, name) for name in ("fight", "scenario", "source", "player")}
    constant["outcome"] = header.result.outcome
    return {
        **{name: [value] * rows for name, value in constant.items()},
        "tick": ticks.astype(np.int32),
        "time_s": tick_times(header, ticks),
        "last": np.arange(rows) == rows - 1,
    }


def tick_times(header: Header, ticks: Integers) -> Doubles:
    """Return the game time of ticks (rows,) in seconds, if each lasts as long as it should."""
    times: Doubles = np.round(ticks * header.tick_s, 6)
    return times


def reading_columns(values: Mapping[Raw, Doubles]) -> Columns:
    """Return the columns of raw values, (rows,) each; NaN is a missing value."""
    kinds = {READINGS[raw]: column for raw, column in values.items()}
    return {kind.name: pa.array(column, from_pandas=True).cast(kind.type) for kind, column in kinds.items()}


def _controls(controls: Sequence[int]) -> Columns:
    bits = np.array(controls, np.uint32)
    return {column.name: (bits & np.uint32(control)) != 0 for control, column in CONTROLS.items()}


def _measured_columns(header: Header, seen: Sequence[Appearance]) -> Columns:
    """Return the columns of what a game of control ticks measured, one row each; its clock is the simulator's own."""
    measured = [one.measurement for one in seen]
    if header.driver == SIMULATOR:
        clock_s: Any = tick_times(header, np.arange(len(seen)))
    else:
        known = [one for one in measured if one is not None]
        times = np.array([(one.elapsed_s, one.game_s) for one in known]).reshape(-1, 2)
        clock_s = measured_clock(*times.T) if len(known) == len(seen) else [None] * len(seen)
    return {
        "clock_s": clock_s,
        "boss_animation_read": [None if one is None else one.boss_animation for one in measured],
        "player_hp_unfilled": [None if one is None else one.player_hp for one in measured],
    }


def seen_columns(seen: Sequence[Appearance]) -> Columns:
    """Return the columns of what was seen beside raw values, one row each."""
    rows = [_scene_values(one) for one in seen]
    return {column.name: [row.get(column.name) for row in rows] for column in SEEN}


def _scene_values(seen: Appearance) -> Columns:
    names: Columns = {"player_animation_name": seen.player_animation, "boss_animation_name": seen.boss_animation}
    if seen.measurement is not None:
        names["phase"] = seen.measurement.phase
    if (scene := seen.scene) is None:
        return names | {"player_doing": seen.player_doing, "boss_doing": seen.boss_doing}
    return names | {
        "phase": scene.phase,
        "player_doing": scene.player.name,
        "boss_doing": scene.boss.name,
        "player_parts": _parts(scene.player.parts),
        "boss_parts": _parts(scene.boss.parts),
        "player_moment": scene.player.moment,
        "hit_areas": [
            {
                "reach_m": area.window.reach_m,
                "half_arc_rad": area.window.half_arc_rad,
                "offset_m": area.window.offset_m,
                "winding_up": area.winding_up,
                "open": area.open,
            }
            for area in scene.areas
        ],
        "until_hit_s": scene.until_hit_s,
        "invulnerable": scene.invulnerable,
        "player_change": scene.player_change.points,
        "player_change_age_s": scene.player_change.age_s,
        "boss_change": scene.boss_change.points,
        "boss_change_age_s": scene.boss_change.age_s,
        "build_up": scene.build_up,
    }


def _parts(parts: Sequence[Part]) -> list[dict[str, float]]:
    return [{"first": first, "last": last} for first, last in parts]


def _result(header: Header, raws: RawValues, outcome: Outcome) -> Result:
    ticks, refilled = len(raws) - 1, header.ground.refill
    flasks = _lost(raws, Raw.FLASKS)
    return Result(
        outcome=outcome,
        steps=ticks,
        ticks=ticks,
        seconds=round(ticks * header.tick_s, 6),
        boss_hp=_known(raws[-1, Raw.BOSS_HP]),
        player_hp=_known(raws[-1, Raw.PLAYER_HP]),
        # In a training scenario HP is full again after every tick, whatever was lost.
        damage_dealt=None if refilled else _lost(raws, Raw.BOSS_HP),
        damage_taken=None if refilled else _lost(raws, Raw.PLAYER_HP),
        flasks_used=None if flasks is None else int(flasks),
    )


def _lost(raws: RawValues, raw: Raw) -> float | None:
    """Return what was lost of a raw value from tick to tick, together; None where a tick lacks it."""
    return _known(np.maximum(-np.diff(raws[:, raw]), 0.0).sum())


def _known(value: float) -> float | None:
    return float(value) if isfinite(value) else None


def _agent_columns(header: Header, agent: Agent, rows: StateRows, choices: Sequence[Choice]) -> Columns:
    # At the moment of the end nothing is under way and nothing begins.
    none = np.zeros(len(agent.skills), np.bool_)
    whole = [*choices, Choice(np.full(len(agent.skills), -1), none, none)]
    actions, decides, random = (np.vstack([getattr(choice, name) for choice in whole]) for name in vars(whole[0]))
    columns: Columns = {}
    for index, (played, skill) in enumerate(zip(header.skills, agent.skills, strict=True)):
        choice = Choice(actions[:, index], decides[:, index], random[:, index])
        columns |= _skill_columns(played, skill, agent, rows, choice, header.result.outcome)
    return columns


@dataclass(frozen=True)
class Spans:
    """Decisions of one skill in a fight: the rows in which they begin and end, and their actions, (n,) each.

    The row of an end is the next one that can begin a decision; it may lie behind the end of the fight.
    """

    begins: Integers
    ends: Integers
    actions: Integers

    def ended(self, rows: StateRows, outcome: Outcome) -> Spans:
        """Return those that came to an end, in one of the State rows (ticks + 1, 25) of the fight."""
        last = len(rows) - 1
        # The end of a fight ends what is under way; where it is cut, nobody knows what it would have brought.
        ended = Spans(self.begins, np.minimum(self.ends, last), self.actions)
        return ended.where(self.ends <= last) if outcome == "cut" else ended

    def where(self, kept: Flags) -> Spans:
        """Return those that are `kept` (n,)."""
        return Spans(self.begins[kept], self.ends[kept], self.actions[kept])

    def decisions(self, rows: StateRows, outcome: Outcome) -> Decisions:
        """Return decisions that came to an end, from the State rows (ticks + 1, 25) of the fight."""
        over = self.ends == len(rows) - 1
        died, won = over & (outcome == "died"), over & (outcome == "won")
        return Decisions(rows[self.begins], rows[self.ends], self.actions, died, won)


def _skill_columns(
    played: PlayedSkill, skill: Skill, agent: Agent, rows: StateRows, choice: Choice, outcome: Outcome
) -> Columns:
    """Return the columns of one skill, from its choices in every row, (ticks + 1,) each."""
    of, count, begins = skill.name, len(rows), np.flatnonzero(choice.decides)
    ends = np.append(begins[1:], count)[: len(begins)]
    ended = Spans(begins, ends, choice.actions[begins]).ended(rows, outcome)
    terms = skill.reward.evaluate(ended.decisions(rows, outcome))
    columns: Columns = {
        f"{of}/version": np.full(count, played.version, np.int32),
        f"{of}/decides": choice.decides,
        f"{of}/action": choice.actions.astype(np.int16),
        f"{of}/random": choice.random,
        f"{of}/observation": fixed_lists(skill.observation(rows, agent.scenario)),
        f"{of}/reward": at_rows(terms.sum(axis=1), ended.begins, count),
    }
    if played.valued:
        columns[f"{of}/values"] = fixed_lists(
            FusedNetworks([cast(FrozenNetwork, agent.networks[skill.name])]).q_values(0, rows)
        )
    for index, term in enumerate(skill.reward.names):
        columns[f"{of}/term/{term}"] = at_rows(terms[:, index], ended.begins, count)
    return columns


def at_rows(values: Floats, places: Integers, count: int) -> pa.Array:
    """Return `count` numbers of which those at `places` (n,) have `values` (n,), the others none."""
    whole, missing = np.zeros(count, np.float32), np.ones(count, np.bool_)
    whole[places], missing[places] = values, False
    return pa.array(whole, pa.float32(), mask=missing)


def fixed_lists(values: Floats) -> pa.Array:
    """Return the rows of (rows, size) as lists of that size."""
    flat = pa.array(np.ascontiguousarray(values, np.float32).reshape(-1), pa.float32())
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
