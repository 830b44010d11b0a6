"""Record fights as they are fought: of a run's skills, an agent of the zoo or the oracle; simulated or in games.

A `FightRecorder` adds tick after tick to a `FightWriter`, and the whole file appears when the fight is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import isfinite
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
    MEASURED,
    READINGS,
    SEEN,
    SIMULATOR,
    Header,
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
from soulsgraph_envs.games.live_game import LiveGame
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.games.readings import boss_animation_as_read
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.simulator.scene import AnimationWords, Scene
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
OnWritten = Callable[[Path], object]


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
        fields: dict[str, Any] = {"player": self.name, "skills": self.played, "project": self.project}
        fields |= {"source": source, "driver": SIMULATOR, "options": self.options}
        if game is not None:
            # The name of a file of your own, not where it lies.
            fields |= {"driver": game.driver, "map": Path(game.map).name, "speed": game.speed}
        return make_header(self.agent.scenario, scenario=self.scenario, **fields)

    def fight(self, seed: int, source: Origins = "simulator") -> str:
        """Return the name of its fight from a seed: another for every other way in which it can be asked to fight."""
        start = self.agent.scenario.start
        named: list[str] = [start] if start != load_scenario(self.scenario).start else []
        if replaced := sorted(name for name, by in self.agent.replaced.items() if by == "random"):
            named.append(f"no-{'-'.join(replaced)}")
        ways = [_short(one) for one in named]
        # Half of what they take of each of the other two.
        longest = _LONGEST - (len("-".join(ways)) + 2) // 2 if ways else _LONGEST
        share = repr(self.random).removesuffix(".0") if self.random else ""
        numbers = {"random": share, "delay": self.delay, "after": self.after}
        ways = [_short(self.name, longest), _short(self.scenario, longest), *ways]
        ways += [f"{name}{number}" for name, number in numbers.items() if number]
        ways += ["games"] if source == "game" else []
        # A file that begins with a dash is an option to every other program, and one with a dot is hidden.
        return "-".join([*ways, f"{seed:016x}"]).lstrip("-.")


def _short(name: str, longest: int = _SHORT) -> str:
    """Return a name as a part of a file's name; a long one by its first letters and a digest."""
    text = slug(name)
    return text if len(text) <= longest else f"{text[: longest - 9]}-{sha256(name.encode()).hexdigest()[:8]}"


def _played(skill: Skill, agent: Agent, version: int = -1, digest: str = "") -> PlayedSkill:
    if (replaced := agent.replaced.get(skill.name)) is None:
        return PlayedSkill.of(skill, "network", version, digest)
    return PlayedSkill.of(skill, "random" if replaced == "random" else "script")


def record(fighter: Fighter, seeds: Seeds, folder: Path, on_written: OnWritten = lambda _: None) -> int:
    """Play one fight a seed in the simulator, and write each as a file of a folder as it ends.

    Fights that are there already are not played; return how many those are.

    Raises:
        RecordingError: if a file of that name holds another fight; nothing is played then.
        WriteError: if the place cannot be written.
    """
    left = _not_written(fighter, seeds, folder, "simulator")
    recorder = FightRecorder(fighter, folder, fighter.header("simulator"), on_written)
    if len(left):
        recorder.rollout(make_game()).play(left)
    return len(seeds) - len(left)


def record_in_games(
    fighter: Fighter, seeds: Seeds, folder: Path, games: Sequence[GameSettings], on_written: OnWritten = lambda _: None
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
            on_written(path)

    def rollout(game: Game, settings: GameSettings) -> Rollout:
        return FightRecorder(fighter, folder, fighter.header("game", settings), written).rollout(game)

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

    def __init__(
        self, fighter: Fighter, folder: Path, template: Header, on_written: OnWritten = lambda _: None
    ) -> None:
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
        self._raw = combat.raw[0].copy()
        self._seen = seen_in(combat.game, self._raw, self._words)
        self._due = combat.due[0].copy()

    def _explored(self, skill: int, lanes: LaneIndices, explored: Flags) -> None:
        self._random[skill] = explored[0] or self._always[skill]

    def _after_tick(self) -> None:
        combat = self._combat
        actions = combat.latest[0]
        choices = np.stack([actions, self._due, self._random & (actions >= 0)])
        self._writer.add(self._raw, int(combat.controls[0]), self._seen, choices)
        if combat.ended[0]:
            seen = seen_in(combat.game, combat.raw[0], self._words)
            path = self._writer.finish(combat.raw[0], outcome_of(combat.died[0], combat.won[0]), seen)
            self._on_written(path)


#: What of a moment is more than raw values, by columns of `SEEN` and `MEASURED`, but for the clock: of a running game
#: the times `elapsed_s` and `game_s` that it is made of.
Seen = Mapping[str, Any]
Columns = dict[str, Any]


def seen_in(game: Game, raw: Doubles, words: AnimationWords) -> Seen:
    """Return what a game of one lane with raw values (25,) shows beside them."""
    if isinstance(game, Simulator):
        return seen_simulated(game)
    names = {"player": words.player, "boss": words.boss}
    seen: Columns = {f"{who}_doing": own.get(int(raw[Raw[f"{who.upper()}_ANIMATION"]])) for who, own in names.items()}
    if isinstance(game, LiveGame):
        read = ((who, game.reading.get(f"{who}_animation")) for who in names)
        seen |= {f"{who}_animation_name": name for who, name in read if isinstance(name, str)}
        if (measured := game.measurement) is not None:
            seen |= {"phase": measured.phase, "elapsed_s": measured.elapsed_s, "game_s": measured.game_s}
            seen |= {"boss_animation_read": measured.boss_animation, "player_hp_unfilled": measured.player_hp}
    return seen


def seen_simulated(game: Simulator) -> Seen:
    """Return what a simulator of one lane shows beside raw values."""
    names, scene = game.animation_names(0), game.scene(0)
    read = boss_animation_as_read({"boss_animation": names.boss, "boss_attack_id": names.boss_attack})
    lost = scene.player_change.points if game.values(0)["refill"] and scene.player_change.age_s == 0.0 else 0.0
    return {
        **seen_of(scene),
        "player_animation_name": names.player,
        "boss_animation_name": names.boss,
        "boss_animation_read": read,
        "player_hp_unfilled": float(scene.raw[Raw.PLAYER_HP]) + lost,
    }


def seen_of(scene: Scene) -> Seen:
    """Return a scene by its columns."""
    seen: Columns = {name: getattr(scene, name) for name in ("phase", "until_hit_s", "invulnerable", "build_up")}
    for who in ("player", "boss"):
        doing, change = getattr(scene, who), getattr(scene, f"{who}_change")
        seen |= {f"{who}_doing": doing.name, f"{who}_change": change.points, f"{who}_change_age_s": change.age_s}
        seen[f"{who}_parts"] = [{"first": first, "last": last} for first, last in doing.parts]
    sector = ("reach_m", "half_arc_rad", "offset_m")
    seen["hit_areas"] = [
        {name: getattr(area.window, name) for name in sector} | {"winding_up": area.winding_up, "open": area.open}
        for area in scene.areas
    ]
    return seen | {"player_moment": scene.player.moment}


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
        self._raws, self._controls = list[Doubles](), list[int]()
        self._seen, self._choices = list[Seen](), list[npt.NDArray[Any]]()

    def add(
        self, raw: RawValues, controls: int, seen: Seen | None = None, choices: npt.NDArray[Any] | None = None
    ) -> None:
        """Add a tick: the raw values (25,) and what was seen as it began, the controls and actions in it.

        `choices` (3, skills) are the actions under way, -1 for none, whether a decision began with this tick, and
        whether the action was drawn at random.
        """
        self._raws.append(np.array(raw, np.float64))
        self._controls.append(int(controls))
        self._seen.append(seen or {})
        if choices is not None:
            self._choices.append(choices)

    def finish(self, raw: RawValues, outcome: Outcome, seen: Seen | None = None) -> Path:
        """Add the moment at which the fight ended, write the file and return its path.

        Raises:
            SoulsGraphError: for a fight without a tick, or one that is there already.
            WriteError: if the place cannot be written.
        """
        if not self._controls:
            raise SoulsGraphError(f"{self._header.fight}: expected a fight of at least one tick, found none.")
        raws = np.vstack([*self._raws, np.array(raw, np.float64)])
        header = replace(self._header, result=_result(self._header, raws, outcome))
        rows, bits = [*self._seen, seen or {}], np.array([*self._controls, 0], np.uint32)
        names = [column.name for column in (*MEASURED, *SEEN)]
        written: Columns = {
            **key_columns(header, np.arange(len(raws))),
            **reading_columns({raw: raws[:, raw] for raw in Raw}),
            **{name: [row.get(name) for row in rows] for name in names},
            **{column.name: (bits & np.uint32(control)) != 0 for control, column in CONTROLS.items()},
        }
        if header.driver == SIMULATOR:
            written["clock_s"] = written["time_s"]
        elif all("elapsed_s" in row for row in rows):
            written["clock_s"] = measured_clock(
                *(np.array([row[name] for row in rows]) for name in ("elapsed_s", "game_s"))
            )
        if self._agent is not None:
            # At the moment of the end nothing is under way and nothing begins.
            none = np.zeros_like(self._choices[-1])
            none[0] = -1
            choices, states = np.array([*self._choices, none]), state_rows(raws)
            for index, (played, skill) in enumerate(zip(header.skills, self._agent.skills, strict=True)):
                written |= _skill_columns(played, skill, self._agent, states, choices[..., index].T, outcome)
        return write_table(self._folder, header, written)


def key_columns(header: Header, ticks: Integers) -> Columns:
    """Return what is the same in all rows, and the time of each, `ticks` (rows,)."""
    rows = len(ticks)
    constant = {name: getattr(header, name) for name in ("fight", "scenario", "source", "player")}
    constant["outcome"] = header.result.outcome
    return {
        **{name: [value] * rows for name, value in constant.items()},
        "tick": ticks.astype(np.int32),
        # If each lasts as long as it should.
        "time_s": np.round(ticks * header.tick_s, 6),
        "last": np.arange(rows) == rows - 1,
    }


def reading_columns(values: Mapping[Raw, Doubles]) -> Columns:
    """Return the columns of raw values, (rows,) each; NaN is a missing value."""
    kinds = {READINGS[raw]: column for raw, column in values.items()}
    return {kind.name: pa.array(column, from_pandas=True).cast(kind.type) for kind, column in kinds.items()}


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


def finished(
    begins: Integers, ends: Integers, actions: Integers, rows: StateRows, outcome: Outcome
) -> tuple[Integers, Integers, Decisions]:
    """Return which decisions of one skill came to an end, in one of the State rows (ticks + 1, 25) of the fight.

    They are the rows in which they begin and end, (n,) each. The row of an end is the next one that can begin a
    decision; it may lie behind the end of the fight.
    """
    last = len(rows) - 1
    # The end of a fight ends what is under way; where it is cut, nobody knows what it would have brought.
    kept = ends <= last if outcome == "cut" else np.ones(len(ends), np.bool_)
    begins, ends, actions = begins[kept], np.minimum(ends, last)[kept], actions[kept]
    died, won = ((ends == last) & (outcome == one) for one in ("died", "won"))
    return begins, ends, Decisions(rows[begins], rows[ends], actions, died, won)


def _skill_columns(
    played: PlayedSkill, skill: Skill, agent: Agent, rows: StateRows, choices: npt.NDArray[Any], outcome: Outcome
) -> Columns:
    """Return the columns of one skill, from its choices in every row, (3, ticks + 1)."""
    of, count, (actions, decides, random) = skill.name, len(rows), choices
    begins = np.flatnonzero(decides)
    ends = np.append(begins[1:], count)[: len(begins)]
    begins, _, ended = finished(begins, ends, actions[begins], rows, outcome)
    terms = skill.reward.evaluate(ended)
    columns: Columns = {
        f"{of}/version": np.full(count, played.version, np.int32),
        f"{of}/decides": decides != 0,
        f"{of}/action": actions.astype(np.int16),
        f"{of}/random": random != 0,
        f"{of}/observation": fixed_lists(skill.observation(rows, agent.scenario)),
    }
    if played.valued:
        network = cast(FrozenNetwork, agent.networks[skill.name])
        columns[f"{of}/values"] = fixed_lists(FusedNetworks([network]).q_values(0, rows))
    rewards = {f"term/{name}": terms[:, place] for place, name in enumerate(skill.reward.names)}
    rewards["reward"] = terms.sum(axis=1)
    return columns | {f"{of}/{name}": at_rows(values, begins, count) for name, values in rewards.items()}


def at_rows(values: Floats, places: Integers, count: int) -> pa.Array:
    """Return `count` numbers of which those at `places` (n,) have `values` (n,), the others none."""
    whole, missing = np.zeros(count, np.float32), np.ones(count, np.bool_)
    whole[places], missing[places] = values, False
    return pa.array(whole, pa.float32(), mask=missing)


def fixed_lists(values: Floats) -> pa.Array:
    """Return the rows of (rows, size) as lists of that size."""
    flat = pa.array(np.ascontiguousarray(values, np.float32).reshape(-1), pa.float32())
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
