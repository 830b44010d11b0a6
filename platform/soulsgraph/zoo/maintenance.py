"""Build the zoo's agents, verify their cards, and compare them in scenarios that they were not trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from rich.console import Console

from soulsgraph.recordings.format import run_name
from soulsgraph.results.figures import INK, save_figure, styled
from soulsgraph.results.origin import describe_origin, source_commit
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import markdown_table, render
from soulsgraph.runs.evaluate import EVALUATION_SEED, Setting, evaluate, source_of
from soulsgraph.runs.lineage import branch, finished_versions
from soulsgraph.runs.progress import Display
from soulsgraph.runs.run_folder import RunFolder, RunFolderError
from soulsgraph.runs.train import Workplace, train_stages
from soulsgraph.runs.workers import WorkerProcess
from soulsgraph.zoo import AGENTS, open_agent, open_run, plan_of
from soulsgraph.zoo import card as cards
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.core.config import Where, load, to_table
from soulsgraph_envs.core.files import whole_folder, write_json, write_text

_ORIGIN = "origin.json"


@dataclass(frozen=True)
class AgentBuilder:
    """Where agents are made: each is trained in a run folder below `runs`, and put into a folder below `agents`."""

    runs: Path
    agents: Path
    session: Session
    worker: WorkerProcess
    console: Console
    display: Display
    episodes: int = cards.EPISODES
    #: Of every stage's budget; agents of the package are trained with the whole of it.
    scale: float = 1.0

    def build(self, name: str) -> cards.AgentCard:
        """Train an agent, from where an earlier call stopped, evaluate it, and put it in the place of an older one.

        Raises:
            RunFolderError: if an unfinished run was created with another commit, or the folder holds another run.
            Interruption: if a stop was asked for; the next call resumes.
            WriteError: if a folder cannot be written.
        """
        run = self._run(name)
        with run.locked():
            origin = _origin(run)
            with Workplace(run, self.session, self.display, worker=self.worker) as workplace:
                train_stages(workplace, run.plan.stages(), self.console)
            card = cards.make_card(name, run, origin, self.episodes)
            self._publish(run, card)
        return card

    def _run(self, name: str) -> RunFolder:
        path, plan = self.runs / name, replace(plan_of(name), scale=self.scale)
        if not (path / RunFolder.plan_file).exists():
            return RunFolder.create(path, plan)
        run = RunFolder.open(path)
        if run.plan != plan:
            raise RunFolderError(path, f"a run by the plan of {name}", "one by another plan", "remove the folder")
        return run

    def _publish(self, run: RunFolder, card: cards.AgentCard) -> None:
        with whole_folder(self.agents / card.name, replace=True) as temporary:
            temporary.rmdir()
            branch(run, temporary, run.plan.scenario)
            write_json(temporary / cards.CARD, to_table(card))
            write_text(temporary / cards.PAGE, cards.card_page(card))


def _origin(run: RunFolder) -> cards.TrainingOrigin:
    """Return what the run is trained with, noted when it was begun."""
    file = run.path / _ORIGIN
    if not file.exists():
        origin = cards.TrainingOrigin.now()
        write_json(file, to_table(origin))
        return origin
    origin = load(cards.TrainingOrigin, Where(file, remedy="remove the folder and build the agent again", saved=True))
    finished = all(finished_versions(run, stage) for stage in run.plan.stages())
    if not finished and origin.commit != source_commit():
        remedy = "go on with that commit, or remove the folder"
        raise RunFolderError(run.path, f"commit {origin.commit}, by which it was begun", str(source_commit()), remedy)
    return origin


#: Points that a rate may be from the card's on the same kind of processor.
MOST_POINTS = 1
VERIFIED_HEADINGS = ("agent", "card", "95 % interval", "played again", "other outcomes", "holds")


@dataclass(frozen=True)
class Verification:
    """An agent's card beside what it reaches now, in the same episodes.

    `same_processor` is whether the card comes from this kind of processor; `changed` names what the agent was
    trained with and this version of the package has otherwise.
    """

    name: str
    card: cards.EvaluationScore
    found: cards.EvaluationScore
    same_processor: bool
    changed: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the rate is within a point of the card's, on another kind of processor within the interval."""
        if self.same_processor:
            # In whole fights: the difference of two rates is rounded.
            return 100 * abs(self.found.wins - self.card.wins) <= MOST_POINTS * self.card.episodes
        return self.card.low <= self.found.rate <= self.card.high

    @property
    def differing(self) -> int:
        """Number of episodes that end otherwise than the card says."""
        return int((self.card.outcomes != self.found.outcomes).sum())

    @property
    def cells(self) -> tuple[str, ...]:
        """The agent's row as text, one cell a heading."""
        card, found = self.card, self.found
        rates = f"{100 * card.rate:.1f} %", f"{100 * card.low:.1f}-{100 * card.high:.1f} %", f"{100 * found.rate:.1f} %"
        verdict = "yes" if self.holds and not self.changed else "**no**"
        changed = f"; changed: {', '.join(self.changed)}" if self.changed else ""
        return (self.name, *rates, f"{self.differing} of {found.episodes}", verdict + changed)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values; rates are ratios."""
        said = {"holds": self.holds, "same_processor": self.same_processor, "changed": list(self.changed)}
        rates = {name: asdict(part) for name, part in (("card", self.card), ("found", self.found))}
        return {"agent": self.name, **said, "differing": self.differing, **rates}


def verify_agent(name: str, episodes: int | None = None) -> Verification:
    """Play the episodes of an agent's card again, by default all of them, else the first.

    Raises:
        UnknownNameError: if there is no agent of that name.
        SoulsGraphError: if it is damaged.
    """
    run = open_agent(name)
    card: cards.AgentCard = cards.read_card(AGENTS / name)
    stated = card.reached if episodes is None else card.reached.first(episodes)
    found = cards.play_again(run, stated.seed, stated.episodes)
    same = cards.TrainingOrigin.now().processor == card.origin.processor
    return Verification(name, stated, found, same, card.digests.differing(cards.Digests.of(run.plan)))


def save_verified(folder: Path, verified: Sequence[Verification]) -> None:
    """Write `verify.json` and the page `verify.md`.

    Raises:
        WriteError: if the place cannot be written.
    """
    origin = cards.TrainingOrigin.now()
    write_json(folder / "verify.json", {**to_table(origin), "agents": [one.to_dict() for one in verified]})
    held = sum(one.holds and not one.changed for one in verified)
    table = markdown_table(VERIFIED_HEADINGS, [one.cells for one in verified])
    page = render(
        Path(__file__).with_name("verify.md.jinja"), held=held, agents=len(verified), origin=origin, table=table
    )
    write_text(folder / "verify.md", page)


#: What agents play, with its heading: what agents of the zoo are trained on, then shifts of the first.
SCENARIOS: Mapping[str, str] = {
    "iudex-phase1": "phase 1",
    "iudex-phase2": "phase 2",
    "vordt": "Vordt",
    "five-skills": "five skills",
    "controls-lock-range": "short lock",
    "controls-blows": "hard blows",
}
COMPARISON_HEADINGS = ("agent", *SCENARIOS.values())
#: Win rates in percent from which on the map's colours are light.
_LIGHT_FROM = 60.0


@dataclass(frozen=True)
class ScenarioScores:
    """What an agent reaches in each scenario; `trained_on` is its own, `adapted_to` are those that it adapted to."""

    name: str
    trained_on: str
    rates: Mapping[str, WinRate]
    adapted_to: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        """The agent's row of the table: its name, then win rates in percent, those of scenarios it learned marked."""
        marks = {self.trained_on: "*", **dict.fromkeys(self.adapted_to, "+")}
        return (self.name, *(f"{100 * rate.rate:.1f}{marks.get(where, '')}" for where, rate in self.rates.items()))

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values; rates and interval ends are ratios."""
        rates = {scenario: rate.to_dict() for scenario, rate in self.rates.items()}
        adapted = {"adapted_to": list(self.adapted_to)} if self.adapted_to else {}
        return {"agent": self.name, "trained_on": self.trained_on, **adapted, "rates": rates}


def compare_agents(
    agents: Sequence[Path], episodes: int, on_played: Callable[[int], None] = lambda count: None
) -> list[ScenarioScores]:
    """Play every agent greedily in every scenario, all on the same evaluation episodes.

    Where an agent adapted to a scenario, the adapted versions play there, as `evaluate` plays them.

    Agents are names of the zoo's, or run folders. `on_played` is called with the number of those that have played.

    Raises:
        UnknownNameError: if there is no agent of a name, but one of a name much like it.
        SoulsGraphError: if one is damaged, misses a skill or cannot play there, or `episodes` is out of range.
    """
    runs, found = [open_run(path) for path in agents], []
    for number, run in enumerate(runs, 1):
        home, sources = run.plan.scenario, {where: source_of(run, where) for where in SCENARIOS}
        rates = {where: evaluate(run, Setting(where, by), episodes).win_rate for where, by in sources.items()}
        adapted = tuple(where for where, by in sources.items() if by == where != home)
        found.append(ScenarioScores(run_name(run.path), home, rates, adapted))
        on_played(number)
    return found


def save_standings(folder: Path, found: Sequence[ScenarioScores], episodes: int) -> None:
    """Write `comparison.json`, the page `comparison.md` and the picture `comparison.png`.

    Raises:
        WriteError: if the place cannot be written.
    """
    origin = describe_origin()
    said = {**origin, "seed": EVALUATION_SEED, "episodes": episodes}
    write_json(folder / "comparison.json", {**said, "agents": [one.to_dict() for one in found]})
    save_figure(draw_standings(found), folder / "comparison.png")
    page = render(
        Path(__file__).with_name("comparison.md.jinja"),
        episodes=episodes,
        seed=EVALUATION_SEED,
        scenarios=SCENARIOS,
        adapted=any(one.adapted_to for one in found),
        commit=origin["commit"] or "unknown",
        table=markdown_table(COMPARISON_HEADINGS, [one.cells for one in found]),
    )
    write_text(folder / "comparison.md", page)


@styled
def draw_standings(found: Sequence[ScenarioScores]) -> Figure:
    """Draw the win rates as a map of colours, a row an agent; scenarios that it learned are framed."""
    figure = Figure(figsize=(9.5, 1.8 + 0.32 * len(found)))
    axes = figure.subplots()
    axes.xaxis.tick_top()
    percent = [[100 * rate.rate for rate in one.rates.values()] for one in found]
    image = axes.imshow(percent, cmap="viridis", vmin=0.0, vmax=100.0, aspect="auto")
    for row, one in enumerate(found):
        for column, (scenario, value) in enumerate(zip(one.rates, percent[row], strict=True)):
            ink = "white" if value < _LIGHT_FROM else INK
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=ink)
            if scenario in (one.trained_on, *one.adapted_to):
                corner = (column - 0.47, row - 0.44)
                axes.add_patch(Rectangle(corner, 0.94, 0.88, fill=False, edgecolor=ink, linewidth=1.6))
    axes.set_xticks(range(len(SCENARIOS)), list(SCENARIOS.values()))
    axes.set_yticks(range(len(found)), [one.name for one in found])
    axes.grid(visible=False)
    figure.colorbar(image, ax=axes, label="win rate in percent")
    return figure
