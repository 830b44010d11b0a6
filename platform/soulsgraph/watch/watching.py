"""Watch an agent fight: who plays, one fight recorded tick by tick, drawn with each skill's mind, shown or written.

A mind is what the skill observed, its Q-values, its action and its player.
"""

from __future__ import annotations

import shutil
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from io import BytesIO
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from PIL import Image

from soulsgraph.runs import lineage
from soulsgraph.runs.evaluate import Setting, checkpoint_files, evaluation_seeds, load_checkpoint, make_agent, source_of
from soulsgraph.runs.plan import Stage
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.combat.rollout import Flags, Floats, Integers, Outcome, outcome_of
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.extras import pip_install
from soulsgraph_envs.core.files import temporary_folder, whole_file
from soulsgraph_envs.core.game import Picture
from soulsgraph_envs.core.scenario import load_scenario, started_at
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import Raw, StateRows
from soulsgraph_envs.games.keys import Inputs
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.render import palette
from soulsgraph_envs.render.canvas import Canvas, fitted, text_width
from soulsgraph_envs.render.palette import Colour
from soulsgraph_envs.render.pictures import PictureWindow, import_pygame
from soulsgraph_envs.simulator.render import render
from soulsgraph_envs.simulator.scene import Scene, between
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
            if name not in (order := run.plan.skill_graph.order):
                raise UnknownNameError(f"skill of {run.path.name}", name, order)
            if version not in (known := run.library.versions(name)):
                expected = f"one of {', '.join(f'v{number}' for number in known)}" if known else "a trained one"
                what = f"{run.path.name}: version of {name}"
                raise LibraryError(what, expected, f"v{version}", "choose a version it has")
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
                agent = agent.playing({skill.name: artifact.network(skill, agent.scenario)})
                players[skill.name] = f"v{version}"
        chosen = ",".join(f"{name}=v{version}" for name, version in self._versions.items())
        name = f"{run.path.name}@{chosen}" if chosen else run.path.name
        return WatchedAgent(name, agent, players | dict.fromkeys(agent.replaced, "random"))

    def _training(self, stage: Stage) -> WatchedAgent:
        run, plan = self.run, self.run.plan
        chain = (*plan.skill_graph.upstream(stage.skill), stage.skill)
        skills = {name: make_skill(name, plan.options) for name in plan.skill_graph.order if name in chain}
        plan.check_fight(self._scenario or stage.scenario)
        scenario = started_at(load_scenario(self._scenario or stage.scenario), self._start)
        if self._start is None:
            scenario = training_scenario(scenario, skills[stage.skill])
        networks: dict[str, FrozenNetwork] = {}
        players: dict[str, str] = {}
        for name, version in lineage.frozen_versions(run, stage).items():
            loaded = run.library.load(name, version)
            networks[name], players[name] = loaded.network(skills[name], scenario), f"v{version}"
        newest = _newest(run, stage)
        learned = {} if newest is None else load_checkpoint(newest[1])
        for part in stage.parts:
            skill = skills[part.skill]
            parent = None if part.parent is None else run.library.load(part.skill, part.parent)
            if newest is not None:
                # A version that is continued goes on with the observations that it has.
                clip = parent.card.observation_clip if parent else plan.hyperparameters(part).observation_clip
                networks[part.skill] = FrozenNetwork.of(skill, scenario, learned[part.skill], clip)
                players[part.skill] = f"in training, step {newest[0]:,}"
            elif parent is not None:
                networks[part.skill], players[part.skill] = parent.network(skill, scenario), f"v{part.parent}"
        random = [name for name in skills if name not in networks or name in self._randomize]
        trained = {name: network for name, network in networks.items() if name not in random}
        agent = Agent(scenario, (*skills.values(),), trained, dict.fromkeys(random, "random"))
        return WatchedAgent(run.path.name, agent, players | dict.fromkeys(random, "random"))


def _newest(run: RunFolder, stage: Stage) -> tuple[int, Path] | None:
    """Return the step and file of a stage's newest checkpoint; a training process may be writing the next one."""
    return max(checkpoint_files(run.curve(lineage.stage_key(run, stage))).items(), default=None)


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


#: How long the way that a fighter came is shown.
_WAY_TICKS = 4


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

    def scene_at(self, tick: float) -> Scene:
        """Return the scene at a tick or between two, with the ways that both came; the last one after the end."""
        before = min(int(tick), len(self) - 1)
        scene = self.scenes[before]
        if before + 1 < len(self) and tick > before:
            scene = between(scene, self.scenes[before + 1], tick - before, self.tick_s)
        raws = [one.raw for one in self.scenes[max(before - _WAY_TICKS, 0) : before + 1]]
        player, boss = ([(raw[x], raw[x + 1]) for raw in raws] for x in (Raw.PLAYER_X, Raw.BOSS_X))
        return replace(scene, ways=(tuple(player), tuple(boss)))

    @cached_property
    def line_sizes(self) -> tuple[int, int]:
        """The height of a line below the fight and of its letters with which every skill has room."""
        skills = [mind.skill for mind in self.minds]
        columns, wide = _columns(FIGHT_SIZE[1] / len(skills) - 8)
        for high, font in LINES[:-1]:
            known = [[text_width(one.name.replace("_", " "), font) for one in skill.actions] for skill in skills]
            seen = [[text_width(name, font) for name, _ in observed_lines(skill.observation.names)] for skill in skills]
            # A value of what was observed may have a line of its own, one of an action is beside its name.
            rows = [
                len(first) + 1 + len(names) + sum(one > wide - _VALUE for one in names)
                for first, names in zip(known, seen, strict=True)
            ]
            cut = max(chain(*known)) > wide - _VALUE or max(chain(*seen)) > wide
            if not cut and max(rows) <= columns * ((_MINDS - _FIRST) // high):
                return high, font
        return LINES[-1]

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
    taken = np.array(latest)
    # Before the first decision the number is -1, as before the first tick.
    numbers = np.vstack([np.full((1, taken.shape[1]), -1), np.where(taken < 0, -1, decisions)])
    minds = []
    for index, skill in enumerate(agent.skills):
        seen = np.ascontiguousarray(np.array(rows)[:, index])
        values = None
        if skill.name not in agent.replaced:
            values = FusedNetworks([cast(FrozenNetwork, agent.networks[skill.name])]).q_values(0, seen)
        observed, begun = skill.observation(seen, agent.scenario), np.diff(numbers[:, index]) != 0
        minds.append(Mind(skill, watched.players[skill.name], observed, values, taken[:, index], begun))
    outcome = outcome_of(combat.died[0], combat.won[0], combat.truncated[0])
    return Fight(watched.name, number, int(seeds[0]), game.tick_s, tuple(scenes), tuple(minds), outcome)


#: Height and width of a fight, of what is written above it, and of the skills below it.
FIGHT_SIZE = (360, 640)
_TITLE, _MINDS = 24, 336
#: Height and width of a fight with its skills.
SIZE = (_TITLE + FIGHT_SIZE[0] + _MINDS, FIGHT_SIZE[1])

_CHOSEN: Colour = (74, 112, 190)
_BAR: Colour = (58, 62, 78)
#: Of a skill's bars the worst action's is this long, the best one's whole.
_LEAST_BAR = 0.04
_BEST_WIDTH = 126
#: Heights of a line and of its letters, the best first: the first is taken in which every skill has room.
LINES = ((16, 12), (14, 11), (12, 10))
#: What most values take of a line, the gap before one, and where a skill's lines begin below the fight.
_VALUE, _SPACE, _FIRST = 36, 6, 36
#: Between two columns of one skill.
_GAP = 14
_OUTCOMES = {"won": palette.WON, "died": palette.LOST, "time over": palette.FAINT}


def draw(fights: Sequence[Fight], tick: float, only_fight: bool = False) -> Picture:
    """Draw a tick of fights beside each other, or what lies between two; one that has ended stays as it ended.

    Returns:
        (720, 640 a fight, 3) uint8; (360, 640 a fight, 3) with `only_fight`.
    """
    pictures = [render(fight.scene_at(tick), FIGHT_SIZE, legend=fight is fights[0]) for fight in fights]
    if not only_fight:
        pictures = [_tile(fight, int(tick), picture) for fight, picture in zip(fights, pictures, strict=True)]
    return np.hstack(pictures)


def _tile(fight: Fight, tick: int, shown: Picture) -> Picture:
    tick = min(tick, len(fight) - 1)
    canvas = Canvas.blank(SIZE, palette.PANEL)
    canvas.text((8, 4), fitted(fight.name, 13, 380), 13, palette.TEXT)
    seconds = f"{(tick + 1) * fight.tick_s:.1f} s"
    ended = tick == len(fight) - 1 and fight.outcome != "cut"
    words = f"{fight.outcome} after {seconds}" if ended else seconds
    colour = _OUTCOMES[fight.outcome] if ended else palette.TEXT
    canvas.text((canvas.width - 8, 4), words, 13, colour, "right")
    shares = FIGHT_SIZE[1] / len(fight.minds)
    top = _TITLE + FIGHT_SIZE[0]
    for index, mind in enumerate(fight.minds):
        _draw_mind(canvas, mind, tick, (index * shares + 4, top + 4), (shares - 8, *fight.line_sizes))
        canvas.rectangle((round((index + 1) * shares) - 1, top, round((index + 1) * shares), SIZE[0]), palette.EMPTY)
    picture = canvas.picture()
    picture[_TITLE : _TITLE + FIGHT_SIZE[0]] = shown
    return picture


def _columns(width: float) -> tuple[int, float]:
    """Return how many columns a skill has, and how wide the lines in each are."""
    columns = max(int(width // _BEST_WIDTH), 1)
    return columns, width / columns - (4 if columns == 1 else _GAP)


def _draw_mind(
    canvas: Canvas, mind: Mind, tick: int, place: tuple[float, float], sizes: tuple[float, int, int]
) -> None:
    """Draw one skill: its name, who plays it, its actions, what it observed; in several columns where there is room.

    `sizes` are its width, and the height of a line and of its letters. A name that leaves its value no room has it
    on a line of its own.
    """
    (left, top), (width, high, font), random = place, sizes, mind.player == "random"
    canvas.text((left, top), fitted(mind.skill.name, 13, width), 13, palette.TEXT)
    shade = palette.WIND_UP if random else palette.FAINT
    canvas.text((left, top + 16), fitted(mind.player, font, width), font, shade)
    columns, wide = _columns(width)
    x, first = left, top + _FIRST - 4
    y: float = first
    for line in (*_action_lines(mind, tick), None, *_observation_lines(mind, tick)):
        tall = high / 2
        if line is not None:
            # A name may leave its value no room beside it.
            tight = line.words and text_width(line.name, font) + _SPACE + text_width(line.words, font) > wide
            tall = 2 * high if tight else high
        if y + tall > canvas.height and x + 2 * wide < left + width:
            x, y = x + width / columns, first
        if line is not None and y + tall <= canvas.height:
            if line.share >= 0.0:
                box = (x - 2, y + 1, x + wide + 2, y + tall - 1)
                canvas.bar(box, max(line.share, _LEAST_BAR), _CHOSEN if line.chosen else _BAR, palette.EMPTY)
            elif line.chosen:
                canvas.rectangle((x - 2, y + 1, x + wide + 2, y + tall - 1), _CHOSEN)
            canvas.text((x, y - 1), fitted(line.name, font, wide), font, palette.TEXT)
            canvas.text((x + wide, y + tall - high - 1), line.words, font, palette.TEXT, "right")
        y += tall


class Line(NamedTuple):
    """A name, a value in words, the share of a bar behind it (below 0 for none), whether it is the chosen action."""

    name: str
    words: str
    share: float = -1.0
    chosen: bool = False


def _action_lines(mind: Mind, tick: int) -> Iterator[Line]:
    chosen = mind.actions[tick]
    values = None if mind.values is None or chosen < 0 else mind.values[tick]
    low, spread = (0.0, 1.0) if values is None else (float(values.min()), float(np.ptp(values)) or 1.0)
    for index, action in enumerate(mind.skill.actions):
        words = "" if values is None else f"{values[index]:.2f}"
        share = -1.0 if values is None else (float(values[index]) - low) / spread
        yield Line(action.name.replace("_", " "), words, share, bool(index == chosen))


def _observation_lines(mind: Mind, tick: int) -> Iterator[Line]:
    if mind.actions[tick] < 0:
        yield Line("has not decided yet", "")
        return
    observed = mind.observations[tick]
    for name, places in observed_lines(mind.skill.observation.names):
        if len(places) == 1:
            words = f"{observed[places[0]]:.2f}"
        else:  # Indicators of one column: the id that is set.
            found = [number for number, place in enumerate(places) if observed[place] > 0.0]
            words = str(found[0]) if found else "other"
        yield Line(name, words)


@cache
def observed_lines(names: tuple[str, ...]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return every observed column in words and the places of its values: several for a column of indicators."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        column, _, _ = name.partition("=")
        places.setdefault(column.lower().replace("_", " "), []).append(place)
    return tuple((name, tuple(found)) for name, found in places.items())


#: Of files and windows: fights are drawn between ticks too.
PICTURES_PER_S = 30
#: How long the end of a fight stays.
_END_S = 1.5
#: A GIF's colours; of its pictures every fifth is looked at for them; how hard pictures are compressed until then.
_COLOURS, _SAMPLED, _QUICK = 64, 5, 1
_CAPTION = "soulsgraph: space pauses, arrows step, n next fight, esc ends"
_IN_A_FILE = "write a file with `gif` or `mp4`"


def frames(fights: Sequence[Fight], only_fight: bool = False) -> Iterator[Picture]:
    """Yield `PICTURES_PER_S` pictures a second of fights beside each other, the last one again for a moment."""
    a_tick = round(PICTURES_PER_S * fights[0].tick_s)
    for number in range((max(map(len, fights)) - 1) * a_tick + 1):
        picture = draw(fights, number / a_tick, only_fight)
        yield picture
    for _ in range(round(_END_S * PICTURES_PER_S)):
        yield picture


class FightWindow(PictureWindow):
    """A window in which fights are watched at the speed of the game.

    Raises:
        GameError: if pygame is not installed, or there is no display.
    """

    def __init__(self, size: tuple[int, int], pictures_per_s: float = PICTURES_PER_S) -> None:
        super().__init__(_CAPTION, size, pictures_per_s, _IN_A_FILE)
        self._inputs = Inputs(import_pygame())

    def play(self, fights: Sequence[Fight], only_fight: bool = False) -> bool:
        """Show fights beside each other from begin to end; return whether another one is wanted."""
        number, paused = 0, False
        a_tick = round(PICTURES_PER_S * fights[0].tick_s)
        last = max(map(len, fights)) * a_tick + round(_END_S * PICTURES_PER_S)
        while number < last:
            self.draw(draw(fights, number / a_tick, only_fight))
            keys = [key for kind, key in self._inputs.read(self.events) if kind == "press"]
            if self.closing or {"escape", "q"} & set(keys):
                return False
            if "n" in keys:
                return True
            paused ^= keys.count("space") % 2 == 1
            step = keys.count("right") - keys.count("left")
            paused |= step != 0
            # Arrows step from tick to tick.
            number = max(number // a_tick + step, 0) * a_tick if step else number + (not paused)
        return True


def write_png(path: Path, pictures: Iterable[Picture]) -> None:
    """Write the last picture as PNG.

    Raises:
        WriteError: if the place cannot be written.
    """
    (last,) = deque(pictures, maxlen=1)
    with whole_file(path) as temporary:
        Image.fromarray(last).save(temporary, format="PNG", optimize=True)


def write_gif(path: Path, pictures: Iterable[Picture], pictures_per_s: float = PICTURES_PER_S) -> None:
    """Write pictures as a GIF that begins again at its end; a GIF counts hundredths of a second.

    Raises:
        WriteError: if the place cannot be written.
    """
    # All have one palette, so that what stays the same has the same pixels, which then cost nothing. It is known when
    # all pictures are drawn; until then they are kept compressed.
    kept, sample, size = list[bytes](), list[Picture](), (0, 0)
    for number, picture in enumerate(pictures):
        kept.append(zlib.compress(picture.tobytes(), _QUICK))
        size = picture.shape[1::-1]
        if number % _SAMPLED == 0:
            sample.append(picture[::2, ::2])
    colours = Image.fromarray(np.concatenate(sample)).quantize(_COLOURS, Image.Quantize.FASTOCTREE)
    images = (
        Image.frombytes("RGB", size, zlib.decompress(picture)).quantize(palette=colours, dither=Image.Dither.NONE)
        for picture in kept
    )
    ends = [round(100 * number / pictures_per_s) for number in range(len(kept) + 1)]
    lasting = [10 * (last - first) for first, last in pairwise(ends)]
    film = BytesIO()
    next(images).save(film, format="GIF", save_all=True, append_images=images, duration=lasting, loop=0)
    with whole_file(path) as temporary:
        temporary.write_bytes(film.getbuffer())


def write_mp4(path: Path, pictures: Iterable[Picture]) -> None:
    """Write pictures as an MP4 of their own size.

    Raises:
        SoulsGraphError: if imageio-ffmpeg or its program is missing.
        WriteError: if the place cannot be written.
    """
    ffmpeg, pictures = import_ffmpeg(), iter(pictures)
    first = next(pictures)
    height, width = first.shape[:2]
    # Drawn elsewhere: a process that is killed leaves nothing beside the film, where nobody may write again.
    with temporary_folder("soulsgraph-film-") as folder:
        film = folder / "film.mp4"
        writer = ffmpeg.write_frames(
            str(film),
            (width, height),
            fps=PICTURES_PER_S,
            macro_block_size=2,
            ffmpeg_log_level="error",
            output_params=["-f", "mp4", "-movflags", "+faststart"],
        )
        writer.send(None)
        try:
            for picture in chain((first,), pictures):
                writer.send(picture.tobytes())
        finally:
            writer.close()
        with whole_file(path) as temporary:
            shutil.copyfile(film, temporary)


def import_ffmpeg() -> Any:
    """Import imageio-ffmpeg, and find its program.

    Raises:
        SoulsGraphError: if either is missing.
    """
    try:
        import imageio_ffmpeg

        imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        raise SoulsGraphError(
            f"expected imageio-ffmpeg to be installed, found none ({error}); install it: {pip_install('video')}."
        ) from error
    return imageio_ffmpeg


#: What writes a kind of file.
WRITERS: Mapping[str, Callable[[Path, Iterable[Picture]], None]] = {
    "mp4": write_mp4,
    "gif": write_gif,
    "png": write_png,
}
