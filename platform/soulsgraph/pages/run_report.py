"""A page about a run, or two beside each other: win rates, curves, the skill graph, lineage, settings, a fight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from soulsgraph.pages import Html, data_uri, page, section, table, tag
from soulsgraph.pages.curves import Curve, draw_curve, legend
from soulsgraph.recordings.format import run_name
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.evaluate import EVALUATION_SEED, allowed_rows, table_inputs
from soulsgraph.runs.lineage import cards_of, own_stages, scenarios_of
from soulsgraph.runs.plan import Plan, Stage, differing
from soulsgraph.runs.progress import Interruption
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.tracking.metrics import FIGHT
from soulsgraph.zoo.card import CARD, read_card
from soulsgraph_envs.core.config import Where, read_file, to_table
from soulsgraph_envs.core.errors import SoulsGraphError, reading, shown
from soulsgraph_envs.core.files import temporary_folder, whole_file, write_text
from soulsgraph_policies.agents.library import SkillCard
from soulsgraph_policies.agents.projects import SkillGraph

if TYPE_CHECKING:
    from soulsgraph.runs.train import Workplace

#: A page is at most this large, and its video this much of it; a longer fight is cut until it fits.
MOST_BYTES, _MOST_VIDEO_BYTES = 10_000_000, 6_000_000
#: Seconds of the video, and the moment of it that is seen before it is played.
_VIDEO_S, _POSTER_S = 60.0, 5.0
#: Width and height of a skill in the drawn graph, the gaps between columns and rows, and the margin, in pixels.
_WIDE, _HIGH, _GAP, _ROW, _EDGE = 150, 54, 60, 24, 10
_RATES = ("setting", "wins", "win rate", "95 % interval", "paper")


class ReportedRun:
    """A run as a page shows it; `name` is its folder's.

    Raises:
        SoulsGraphError: if its library or its results are damaged.
    """

    def __init__(self, run: RunFolder) -> None:
        self.run, self.name = run, run_name(run.path)
        self.cards: list[SkillCard] = cards_of(run)

    @cached_property
    def rates(self) -> list[WinRate]:
        """Win rates as they were evaluated last, of an agent of the zoo those of its card; none where neither is."""
        path = self.run.results("table")
        if self._has(path):
            names = ("setting", "wins", "episodes", "paper_percent")
            rows = _checked(read_rows(path), names, path, ("wins", "episodes"))
            return [WinRate(**{name: row[name] for name in names}) for row in rows]
        return [read_card(self.run.path).win_rate] if self._has(self.run.path / CARD) else []

    def _has(self, path: Path) -> bool:
        with reading(self.run.path):
            return path.is_file()

    @cached_property
    def note(self) -> str:
        """What is to be said of the win rates: that other versions play by now, or in other fights; else nothing."""
        path = self.run.path / "results" / "table.json"
        if not self._has(path) or not self.rates:
            return ""
        saved = read_file(Where(path, remedy="remove the file"))
        kept = saved.get("inputs", {})
        if differing(table_inputs(self.run, kept.get("episodes", 0), kept.get("seed", 0)), kept):
            return "Other versions play by now than were evaluated, or the fights changed: evaluate them anew."
        return ""

    @cached_property
    def curves(self) -> list[dict[str, Any]]:
        """Points of the learning curves, in order of stage and step; none where the folder keeps none."""
        path = self.run.results("curves")
        names = ("stage", "skill", "step", "return")
        return _checked(read_rows(path), names, path, names[2:]) if self._has(path) else []

    @cached_property
    def settings(self) -> dict[str, str]:
        """Everything the run was planned with, as text by name: the plan, what its stages learn by, the rewards."""
        return _settings_of(self.run.plan, own_stages(self.run))

    @cached_property
    def preset_settings(self) -> dict[str, str]:
        """The settings of the run's preset and graph, with nothing else chosen."""
        # In the run's own fight, which can be the only one whose player knows the controls of its graph.
        plan = Plan(preset=self.run.plan.preset, graph=self.run.plan.graph, scenario=self.run.plan.scenario)
        return _settings_of(plan, plan.stages()) | {"scenario": Plan.scenario}

    @property
    def decisions(self) -> int:
        """How many decisions were learned from, over all versions."""
        return sum(card.training.steps for card in self.cards)

    @property
    def whole(self) -> WinRate | None:
        """The evaluated row in which every skill plays as trained; none where nothing was evaluated."""
        if len(self.rates) < 2:
            return next(iter(self.rates), None)
        labels = [row.label for row in allowed_rows(self.run) if not row.ablated]
        return next((row for row in self.rates if row.setting in labels), self.rates[0])

    @cached_property
    def fought(self) -> frozenset[int]:
        """The seeds of the evaluated fights; none where nothing was evaluated."""
        path = self.run.results("episodes")
        return frozenset(row["seed"] for row in read_rows(path)) if self._has(path) else frozenset()

    @property
    def versions(self) -> dict[str, str]:
        """A note for every skill: its newest version, or that it has none."""
        latest = {card.skill: card for card in self.cards}
        return {
            skill: f"v{latest[skill].version}, {_learned(latest[skill])} decisions"
            if skill in latest
            else "not trained yet"
            for skill in self.run.plan.skill_graph.order
        }


def _checked(
    rows: Sequence[dict[str, Any]], names: Sequence[str], path: Path, numbers: Sequence[str]
) -> list[dict[str, Any]]:
    """Check that rows have columns of these names, and which of them hold numbers."""
    if rows and not set(names) <= rows[0].keys():
        found = ", ".join(rows[0])
        raise SoulsGraphError(f"{path}: expected the columns {', '.join(names)}, found {found}; remove the file.")
    for row in rows:
        for name in numbers:
            if not isinstance(row[name], int | float):
                raise SoulsGraphError(
                    f"{path}: expected numbers in the column {name}, found {shown(row[name])}; remove the file."
                )
    return list(rows)


def _settings_of(plan: Plan, stages: Sequence[Stage]) -> dict[str, str]:
    found = {name: value for name, value in to_table(plan).items() if name not in ("overrides", "skill_options")}
    learned = {part.skill: to_table(plan.hyperparameters(part)) for stage in stages for part in stage.parts}
    for name, value in next(iter(learned.values())).items():
        values = {f"{name}, {skill}": numbers[name] for skill, numbers in learned.items()}
        found |= {name: value} if all(one == value for one in values.values()) else values
    for name, value in to_table(plan.options).items():
        found |= {f"{name}, {key}": one for key, one in value.items()} if isinstance(value, dict) else {name: value}
    return {name.replace("_", " "): _words(value) for name, value in found.items()}


def _words(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


class Video(NamedTuple):
    """A fight's media type and content, and the PNG that is shown until it is played; a GIF has none."""

    kind: str
    content: bytes
    poster: bytes = b""


def write_run_report(path: Path, runs: Sequence[RunFolder], video: Video | None = None) -> None:
    """Write the page of one run or of two beside each other, with a fight of theirs.

    Raises:
        SoulsGraphError: if a run's library or results are damaged, or the page would be too large.
        WriteError: if the place cannot be written.
    """
    reported = [ReportedRun(run) for run in runs]
    title = " beside ".join(one.name for one in reported)
    parts = [_head(reported), _rates(reported), _curves(reported)]
    parts += [section("A fight", _player(video))] if video else []
    parts += [_graphs(reported), _lineage(reported), _settings(reported)]
    text = page(title, *parts)
    if len(text.encode()) > MOST_BYTES:
        raise SoulsGraphError(
            f"{path}: expected a page of at most {MOST_BYTES:,} bytes, found {len(text.encode()):,}; "
            "write it of one run."
        )
    write_text(path, text)


def _head(runs: Sequence[ReportedRun]) -> Html:
    heads = [tag("div", tag("h1", one.name), tag("p", _headline(one))) for one in runs]
    return tag("header", heads, class_="beside")


def _headline(one: ReportedRun) -> str:
    """Return who fought what, how often it won, and after how many decisions."""
    plan, count = one.run.plan, len(one.run.plan.skill_graph.order)
    who = f"{count} skills" if count > 1 else "One skill"
    planned = f"(preset {plan.preset}, seed {plan.seed})"
    if one.whole is None:
        return f"{who} in {plan.scenario} {planned}, {one.decisions:,} decisions so far; not evaluated yet."
    low, high = one.whole.interval
    won = f"won {one.whole.wins:,} of {one.whole.episodes:,} fights ({one.whole.percent:.1f} %, 95 % interval"
    rate = f"{won} {100 * low:.1f}-{100 * high:.1f} %)"
    setting = f" with \u201c{one.whole.setting}\u201d" if one.whole.setting else ""
    return f"{who} in {plan.scenario} {rate}{setting}, after {one.decisions:,} decisions {planned}."


def _beside(runs: Sequence[ReportedRun], parts: Sequence[Html]) -> Html:
    """Show a part for each run, under its name where there are several."""
    if len(parts) == 1:
        return parts[0]
    named = [tag("div", tag("h3", one.name), part) for one, part in zip(runs, parts, strict=True)]
    return tag("div", named, class_="beside")


def _rates(runs: Sequence[ReportedRun]) -> Html:
    parts = []
    for one in runs:
        note = [tag("p", one.note, class_="faint")] if one.note else []
        missing = tag("p", "This run has not been evaluated yet.", class_="faint")
        parts.append(tag("div", table(_RATES, [row.cells for row in one.rates]), note) if one.rates else missing)
    return section("Win rates", _warnings(runs), _beside(runs, parts))


def _warnings(runs: Sequence[ReportedRun]) -> list[Html]:
    """Return what hinders a comparison of rates that stand beside each other."""
    fights = {one.fought for one in runs if one.fought}
    scenarios, seeds = {one.run.plan.scenario for one in runs}, {one.run.plan.seed for one in runs}
    found = []
    if len(fights) > 1:
        found.append("The rows are of fights of other seeds: evaluate both with the same seed and number of episodes.")
    if len(scenarios) > 1:
        found.append("The runs fight in other scenarios: their rates are not of the same task.")
    if len(seeds) > 1:
        found.append("The runs were trained from other seeds: one run of each says little about their settings.")
    return [tag("p", words, class_="warning") for words in found]


def _curves(runs: Sequence[ReportedRun]) -> Html:
    drawn = {one.name if len(runs) == 1 else f"{number}: {one.name}": one.curves for number, one in enumerate(runs, 1)}
    if not any(drawn.values()):
        return section("Learning curves", tag("p", "No learning curve is kept here.", class_="faint"))
    note = "Return of greedy play, the mean over the episodes of a checkpoint and its 95 % interval."
    skills = list(dict.fromkeys(row["skill"] for rows in drawn.values() for row in rows))
    curves = [draw_curve(skill, [_joined(rows, skill) for rows in drawn.values()]) for skill in skills]
    names = legend(drawn if len(runs) > 1 else ())
    return section("Learning curves", tag("p", note, class_="faint"), names, tag("div", curves, class_="curves"))


def _joined(rows: Sequence[Mapping[str, Any]], skill: str) -> list[Curve]:
    """Return the curves of a skill's stages one after another: points as (decisions, return, low, high)."""
    curves, done = list[Curve](), 0.0
    own = [row for row in rows if row["skill"] == skill]
    for stage in dict.fromkeys(row["stage"] for row in own):
        points = sorted((row for row in own if row["stage"] == stage), key=lambda row: row["step"])
        curves.append([_point(done, row) for row in points])
        done += float(points[-1]["step"])
    return curves


def _point(done: float, row: Mapping[str, Any]) -> tuple[float, float, float, float]:
    mean = float(row["return"])
    low, high = (float(row[end]) if isinstance(row.get(end), int | float) else mean for end in ("low", "high"))
    return done + float(row["step"]), mean, low, high


def _player(video: Video) -> Html:
    source = data_uri(video.kind, video.content)
    if video.kind.startswith("image/"):
        return tag("img", src=source, alt="a fight")
    poster = data_uri("image/png", video.poster)
    return tag("video", src=source, poster=poster, controls=True, loop=True, muted=True, playsinline=True)


def _graphs(runs: Sequence[ReportedRun]) -> Html:
    note = tag("p", "An arrow leads from a skill to one that is trained with it frozen.", class_="faint")
    return section(
        "Skill graph", note, _beside(runs, [_draw_graph(one.run.plan.skill_graph, one.versions) for one in runs])
    )


def _lineage(runs: Sequence[ReportedRun]) -> Html:
    headings = ("version", "scenario", "decisions", "seed", "trained on", "continues", "begun (UTC)", "digest")
    parts: list[Html] = []
    for one in runs:
        scenarios = scenarios_of(one.run)
        # One below the other: the tables are wide.
        parts += [tag("h3", one.name)] if len(runs) > 1 else []
        parts.append(table(headings, [_line(card, scenarios[card.skill, card.version]) for card in one.cards]))
    return section("Lineage", *parts)


def _learned(card: SkillCard) -> str:
    training = card.training
    return f"cloned from {training.cloned:,}" if training.cloned else f"{training.steps:,}"


def _line(card: SkillCard, scenario: str) -> tuple[str, ...]:
    training = card.training
    upstream = ", ".join(f"{one.skill} v{one.version}" for one in card.upstream) or "-"
    parent = "-" if card.parent is None else f"v{card.parent}"
    decisions, digest = _learned(card), card.digest[:12]
    name, begun = f"{card.skill} v{card.version}", training.created[:16].replace("T", " ")
    return (name, scenario, decisions, str(training.seed), upstream, parent, begun, digest)


def _settings(runs: Sequence[ReportedRun]) -> Html:
    """Show what differs from the presets, or between the runs, and everything below it to unfold."""
    names = list(dict.fromkeys(name for one in runs for name in one.settings))
    rows = [(name, *(one.settings.get(name, "-") for one in runs)) for name in names]
    chosen = [row for row in rows if len(set(row[1:])) > 1 or any(_chosen(one, row[0]) for one in runs)]
    differing = [number for number, (_, *values) in enumerate(chosen) if len(set(values)) > 1]
    several = len(runs) > 1
    headings = ("setting", *(one.name if several else "value" for one in runs))
    words = "What differs from the preset" + (" or between the runs, which is marked." if several else ".")
    own = table(headings, chosen, differing) if chosen else tag("p", "Nothing but the preset's.")
    whole = tag("details", tag("summary", "all settings"), table(headings, rows))
    return section("Settings", tag("p", words, class_="faint"), own, whole)


def _chosen(one: ReportedRun, name: str) -> bool:
    return name in one.settings and one.settings[name] != one.preset_settings.get(name, "-")


def fight_video(runs: Sequence[RunFolder], gif: bool = False) -> Video:
    """Play the first evaluation fight of runs beside each other and film it.

    It is an MP4 where imageio-ffmpeg is installed, else or if asked for a `gif`, and shorter where it would be too
    large. Until it is played a moment of it is seen in which something happens.

    Raises:
        SoulsGraphError: if an agent cannot play.
        WriteError: if there is no place for a temporary file.
    """
    # Imported here: drawing takes a moment that a page without a video need not wait.
    from soulsgraph.watch.watching import WRITERS, AgentSource, draw, frames, import_ffmpeg, play_fights, write_png

    sources, seconds = [AgentSource(run) for run in runs], _VIDEO_S
    kind, ending = "image/gif", "gif"
    if not gif:
        with suppress(SoulsGraphError):
            import_ffmpeg()
            kind, ending = "video/mp4", "mp4"
    with temporary_folder("soulsgraph-video-") as folder:
        while True:
            (fights,) = play_fights(sources, EVALUATION_SEED, 1, round(seconds / 0.1))
            path = Path(folder) / f"fight.{ending}"
            WRITERS[ending](path, frames(fights))
            if path.stat().st_size <= _MOST_VIDEO_BYTES:
                poster = Path(folder) / "poster.png"
                write_png(poster, [draw(fights, round(_POSTER_S / fights[0].tick_s))])
                return Video(kind, path.read_bytes(), poster.read_bytes())
            seconds /= 2.0


def show_fight(place: Workplace, console: Console) -> None:
    """Film a fight of what was trained, and write the page about its run, for trackers that show them.

    Where that cannot be done it is said, and the training stands.
    """
    if not (place.board.has_remote or place.fights):
        return
    film, page = place.run.path / "results" / "fight.gif", place.run.path / "results" / "report.html"
    try:
        video = fight_video([place.run], gif=True)
        with whole_file(film) as temporary:
            temporary.write_bytes(video.content)
        write_run_report(page, [place.run], video)
    except Interruption:
        raise
    except SoulsGraphError as error:
        console.print(f"trackers: no film of a fight and no page: {error}")
    else:
        for file in (film, page):
            place.board.call(lambda tracker, file=file: tracker.file(FIGHT, file))  # type: ignore[misc]


def _draw_graph(graph: SkillGraph, notes: Mapping[str, str]) -> Html:
    """Return a graph as SVG, with a note below every skill's name."""
    depths: dict[str, int] = {}
    for skill in graph.order:
        depths[skill] = max((depths[before] + 1 for before, after in graph.edges if after == skill), default=0)
    rows: dict[int, int] = {}
    places: dict[str, tuple[float, float]] = {}
    for skill, depth in depths.items():
        row = rows.get(depth, 0)
        rows[depth] = row + 1
        places[skill] = (_EDGE + depth * (_WIDE + _GAP), _EDGE + row * (_HIGH + _ROW))
    width = (max(depths.values()) + 1) * (_WIDE + _GAP) - _GAP + 2 * _EDGE
    height = max(rows.values()) * (_HIGH + _ROW) - _ROW + 2 * _EDGE
    edges = [_edge(places[before], places[after]) for before, after in graph.edges]
    nodes = [_node(skill, notes.get(skill, ""), place) for skill, place in places.items()]
    box = f"0 0 {width} {height}"
    named = {"role": "img", "aria_label": "skill graph", "class_": "graph"}
    return tag("div", tag("svg", edges, nodes, viewBox=box, width=width, height=height, **named), class_="wide")


def _node(skill: str, note: str, place: tuple[float, float]) -> Html:
    x, y = place
    middle = x + _WIDE / 2
    name = tag("text", skill.replace("_", " "), x=middle, y=y + 24)
    below = tag("text", note, x=middle, y=y + 42, class_="small")
    return tag("g", tag("rect", x=x, y=y, width=_WIDE, height=_HIGH, rx=7), name, below, class_="node")


def _edge(before: tuple[float, float], after: tuple[float, float]) -> Html:
    (x1, y1), (x2, y2) = (before[0] + _WIDE, before[1] + _HIGH / 2), (after[0], after[1] + _HIGH / 2)
    bend = (x1 + x2) / 2
    line = tag("path", d=f"M{x1} {y1} C{bend} {y1} {bend} {y2} {x2 - 7} {y2}", class_="edge")
    tip = tag("path", d=f"M{x2} {y2} l-9 -5 v10 z", class_="arrow")
    return tag("g", line, tip)
