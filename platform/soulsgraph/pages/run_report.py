"""A page about a run, or two beside each other: win rates, curves, the skill graph, lineage, settings, a fight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from soulsgraph.pages.report import Report, Section
from soulsgraph.recordings.format import run_name
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import HEADINGS, Table, frame_of, read_rows
from soulsgraph.runs.evaluate import EVALUATION_SEED, allowed_rows, table_inputs
from soulsgraph.runs.lineage import cards_of, own_stages
from soulsgraph.runs.plan import Plan, Stage, differing
from soulsgraph.runs.progress import Interruption
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.table import saved_table
from soulsgraph.tracking.metrics import FIGHT
from soulsgraph.zoo.card import CARD, read_card
from soulsgraph_envs.core.config import to_table
from soulsgraph_envs.core.errors import SoulsGraphError, reading
from soulsgraph_envs.core.files import temporary_folder, whole_file, write_text
from soulsgraph_policies.agents.library import SkillCard

if TYPE_CHECKING:
    import pandas as pd

    from soulsgraph.runs.train import Workplace

#: A video of a page is at most this large; a longer fight is cut until it fits.
_MOST_VIDEO_BYTES = 6_000_000
#: Seconds of the video.
_VIDEO_S = 60.0


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
        if saved := saved_table(self.run):
            return [*saved[0].rows]
        return [read_card(self.run.path).win_rate] if self._has(self.run.path / CARD) else []

    def _has(self, path: Path) -> bool:
        with reading(self.run.path):
            return path.is_file()

    def _rows(self, name: str) -> list[dict[str, Any]]:
        path = self.run.results(name)
        return read_rows(path) if self._has(path) else []

    @cached_property
    def note(self) -> str:
        """What is to be said of the win rates: that other versions play by now, or in other fights; else nothing."""
        _, kept = saved_table(self.run) or (None, {})
        if kept and differing(table_inputs(self.run, kept["episodes"], kept["seed"]), kept):
            return "Other versions play by now than were evaluated, or the fights changed: evaluate them anew."
        return ""

    @property
    def curves(self) -> dict[str, pd.DataFrame]:
        """The learning curve of each skill, its stages one after another; none where the folder keeps none."""
        rows = frame_of(self._rows("curves"))
        curves = {}
        for skill, own in rows.groupby("skill", sort=False) if len(rows) else ():
            ends = own.groupby("stage", sort=False)["step"].max()
            steps = own["step"] + own["stage"].map(ends.cumsum() - ends)
            curves[skill] = own.assign(step=steps, mean=own["return"]).sort_values("step")
        return curves

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
        return frozenset(row["seed"] for row in self._rows("episodes"))

    @property
    def headline(self) -> str:
        """Who fought what, how often it won, and after how many decisions."""
        plan, count, whole = self.run.plan, len(self.run.plan.skill_graph.order), self.whole
        who = f"{count} skills" if count > 1 else "One skill"
        planned = f"(preset {plan.preset}, seed {plan.seed})"
        if whole is None:
            return f"{who} in {plan.scenario} {planned}, {self.decisions:,} decisions so far; not evaluated yet."
        low, high = whole.interval
        rate = f"won {whole.wins:,} of {whole.episodes:,} fights ({whole.percent:.1f} %, 95 % interval"
        rate += f" {100 * low:.1f}-{100 * high:.1f} %)" + f" with \u201c{whole.setting}\u201d" * bool(whole.setting)
        return f"{who} in {plan.scenario} {rate}, after {self.decisions:,} decisions {planned}."

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
    """A fight's kind of file, as mp4, and its content."""

    kind: str
    content: bytes


def write_run_report(path: Path, runs: Sequence[RunFolder], video: Video | None = None) -> None:
    """Write the page of one run or of two beside each other, with a fight of theirs.

    Raises:
        SoulsGraphError: if a run's library or results are damaged.
        WriteError: if the place cannot be written.
    """
    reported = [ReportedRun(run) for run in runs]
    title = " beside ".join(one.name for one in reported)
    write_text(path, Report(title, [*_sections(reported, video)]).to_html())


def _sections(runs: Sequence[ReportedRun], video: Video | None) -> Iterator[Section]:
    # Imported here: every training has a page, few draw one.
    from soulsgraph.results.figures import draw_curves, draw_graph

    several = len(runs) > 1

    def named(one: ReportedRun) -> str:
        return one.name if several else ""

    yield Section("", [f"**{one.name}**: {one.headline}" if several else one.headline for one in runs])
    missing = [f"**{one.name} has not been evaluated yet.**" for one in runs if not one.rates]
    rates = [Table(named(one), HEADINGS, [row.cells for row in one.rates], one.note) for one in runs]
    # What hinders a comparison of rates that stand beside each other.
    hindering: dict[str, list[Any]] = {
        "The rows are of fights of other seeds: evaluate both with the same seed and number of episodes.": [
            one.fought for one in runs if one.fought
        ],
        "The runs fight in other scenarios: their rates are not of the same task.": [
            one.run.plan.scenario for one in runs
        ],
        "The runs were trained from other seeds: one run of each says little about their settings.": [
            one.run.plan.seed for one in runs
        ],
    }
    warnings = [f"**{words}**" for words, values in hindering.items() if len({*values}) > 1]
    yield Section("Win rates", [*warnings, *missing], rates)
    curves = {one.name: one.curves for one in runs}
    skills = dict.fromkeys(skill for each in curves.values() for skill in each)
    panels = {
        skill.replace("_", " "): {name: each[skill] for name, each in curves.items() if skill in each}
        for skill in skills
    }
    note = "Return of greedy play, the mean over the episodes of a checkpoint and its 95 % interval."
    drawn = {"curves.png": draw_curves(panels, "return")}
    yield Section("Learning curves", [note] if panels else ["No learning curve is kept here."], pictures=drawn)
    yield Section("A fight", pictures={} if video is None else {f"fight.{video.kind}": video.content})
    graphs = {
        f"graph-{place}.png": draw_graph(one.run.plan.skill_graph, one.versions) for place, one in enumerate(runs)
    }
    yield Section("Skill graph", ["An arrow leads from a skill to one that is trained with it frozen."], (), graphs)
    yield Section("Lineage", tables=[Table(named(one), _LINEAGE, [*_lineage(one)]) for one in runs])
    rows = []
    for name in dict.fromkeys(name for one in runs for name in one.settings):
        values = [one.settings.get(name, "-") for one in runs]
        usual = [one.preset_settings.get(name, "-") for one in runs]
        bold = len({*values}) > 1 or values != usual
        rows.append((name, *(f"**{value}**" if bold else value for value in values)))
    rows.sort(key=lambda row: not row[1].startswith("**"))
    headings = ("setting", *(one.name for one in runs)) if several else ("setting", "value")
    note = f"What differs from the preset{' or between the runs' if several else ''} stands first and is bold."
    yield Section("Settings", [note], [Table("", headings, rows)])


def _learned(card: SkillCard) -> str:
    training = card.training
    return f"cloned from {training.cloned:,}" if training.cloned else f"{training.steps:,}"


_LINEAGE = ("version", "scenario", "decisions", "seed", "trained on", "continues", "begun (UTC)", "digest")


def _lineage(one: ReportedRun) -> Iterator[tuple[str, ...]]:
    for card in one.cards:
        training = card.training
        upstream = ", ".join(f"{before.skill} v{before.version}" for before in card.upstream) or "-"
        parent = "-" if card.parent is None else f"v{card.parent}"
        name, begun = f"{card.skill} v{card.version}", training.created[:16].replace("T", " ")
        learned = _learned(card), str(training.seed), upstream, parent
        yield name, training.scenario, *learned, begun, card.digest[:12]


def fight_video(runs: Sequence[RunFolder], gif: bool = False) -> Video:
    """Play the first evaluation fight of runs beside each other and film it.

    It is an MP4 where imageio-ffmpeg is installed, else or if asked for a `gif`, and shorter where it would be too
    large.

    Raises:
        SoulsGraphError: if an agent cannot play.
        WriteError: if there is no place for a temporary file.
    """
    # Imported here: drawing takes a moment that a page without a video need not wait.
    from soulsgraph.watch.watching import WRITERS, AgentSource, frames, import_ffmpeg, play_fights

    sources, seconds, kind = [AgentSource(run) for run in runs], _VIDEO_S, "gif"
    if not gif:
        with suppress(SoulsGraphError):
            import_ffmpeg()
            kind = "mp4"
    with temporary_folder("soulsgraph-video-") as folder:
        while True:
            (fights,) = play_fights(sources, EVALUATION_SEED, 1, round(seconds / 0.1))
            path = Path(folder) / f"fight.{kind}"
            WRITERS[kind](path, frames(fights))
            if path.stat().st_size <= _MOST_VIDEO_BYTES:
                return Video(kind, path.read_bytes())
            seconds /= 2.0


def show_fight(place: Workplace) -> None:
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
        place.console.print(f"trackers: no film of a fight and no page: {error}")
    else:
        for file in (film, page):
            place.board.call(lambda tracker, file=file: tracker.file(FIGHT, file))  # type: ignore[misc]
