"""Train the agents of the zoo anew and put them into the package, play them again, and compare them (`make zoo`).

    python benchmarks/zoo_agents.py build [NAME ...]                    # into the package; the same command goes on
    python benchmarks/zoo_agents.py verify --out docs/results/zoo
    python benchmarks/zoo_agents.py compare [RUN|NAME ...] --out docs/results/zoo

`verify` is `soulsgraph check` of every agent, as a page. `compare` plays agents greedily in the zoo's scenarios
and in shifts of the first: a star marks what an agent was trained on, a plus what it adapted to, where the adapted
versions play.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from soulsgraph.runs.lineage import branch, cards_of, own_stages
from soulsgraph.runs.plan import Plan, scenario_digest
from soulsgraph.runs.progress import Supervisor
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.studies import run_study
from soulsgraph.runs.study_folder import StudyFile, StudyFolder, Tables, Unit
from soulsgraph.runs.train import train_unit
from soulsgraph.zoo import AGENTS, agent_names, open_run
from soulsgraph.zoo import card as cards
from soulsgraph_envs.core.config import digest_of, to_json, to_table
from soulsgraph_envs.core.files import whole_folder, write_json, write_text

#: Training seeds of the zoo, fixed before anything was trained; all of them are shown.
SEEDS = (0, 1, 2)
_SCENARIOS, _PRESETS = ("iudex-phase1", "iudex-phase2", "vordt"), ("paper", "best")
#: What every kind of agent is trained on, and how.
_KINDS: Mapping[str, Mapping[str, Any]] = {
    **{f"{where}-{how}": {"scenario": where, "preset": how} for where in _SCENARIOS for how in _PRESETS},
    "iudex-phase1-end-to-end": {"scenario": "iudex-phase1", "preset": "paper", "graph": "end-to-end"},
    "five-skills-best": {"scenario": "five-skills", "preset": "best"},
    **{f"{where}-best": {"scenario": where, "preset": "whole"} for where in ("iudex-full", "vordt-whole", "margit")},
}
#: Every agent by name: its kind and training seed.
PLANNED = {f"{kind}-{seed}": (kind, seed) for kind in _KINDS for seed in SEEDS}


def plan_of(name: str) -> Plan:
    """Return the plan by which an agent is trained."""
    kind, seed = PLANNED[name]
    return Plan(**_KINDS[kind], seed=seed)


@dataclass(frozen=True)
class ZooBuild:
    """How agents are trained: at one commit, for an evaluation of some episodes, and where they are put."""

    origin: cards.TrainingOrigin
    agents: str = str(AGENTS)
    episodes: int = cards.EPISODES
    scale: float = 1.0


class ZooFolder(StudyFolder[ZooBuild]):
    """Agents that are built, each in a run folder of its name."""

    kind, plan_file, holds = "zoo build", "zoo.json", StudyFile[ZooBuild]
    #: Those that are asked for.
    names: Sequence[str] = tuple(PLANNED)

    @staticmethod
    def fights(plan: ZooBuild) -> dict[str, str]:
        """Return the digests of the fights that agents are trained in."""
        scenarios = dict.fromkeys(plan_of(name).scenario for name in PLANNED)
        return {name: scenario_digest(name) for name in scenarios}

    def check_memory(self) -> None:
        """Refuse a plan that needs more memory than this machine may spare; raises DataError."""
        for name in self.names:
            plan_of(name).check_memory()

    @property
    def units(self) -> tuple[Unit, ...]:
        """The agents that are asked for, known again by all that they are trained by."""
        digests = {name: digest_of(to_table(cards.Digests.of(plan_of(name)))) for name in self.names}
        return tuple(Unit(name, build, (name,), digest) for name, digest in digests.items())

    def check_commit(self) -> None:
        """Refuse to train agents with others of another commit; raises SystemExit."""
        if self.left and (commit := self.plan.origin.commit) != source_commit():
            raise SystemExit(f"{self.path}: begun by commit {commit}; go on with that one, or remove the folder.")


def make_card(name: str, run: RunFolder, origin: cards.TrainingOrigin, episodes: int) -> cards.AgentCard:
    """Evaluate a trained run on the zoo's own seeds, and return its card.

    Raises:
        SoulsGraphError: if a skill is missing or damaged.
    """
    plan = run.plan
    lineage = tuple(
        cards.Ancestor(
            skill=card.skill,
            version=card.version,
            digest=card.digest,
            scenario=card.training.scenario,
            seed=card.training.seed,
            budget=card.training.budget,
            upstream=tuple(f"{above.skill} v{above.version}" for above in card.upstream),
        )
        for card in cards_of(run)
    )
    return cards.AgentCard(
        format=cards.FORMAT,
        format_version=cards.FORMAT_VERSION,
        name=name,
        scenario=plan.scenario,
        preset=plan.preset,
        graph=plan.graph,
        seed=plan.seed,
        budget=sum(part.budget for part in lineage),
        reached=cards.play_again(run, cards.ZOO_SEED, episodes),
        origin=origin,
        digests=cards.Digests.of(plan),
        lineage=lineage,
    )


def build(folder: ZooFolder, name: str, supervisor: Supervisor) -> Tables:
    """Train an agent, from where an earlier call stopped, evaluate it, and put it in the place of an older one."""
    path, build = folder.path / name, folder.plan
    plan = replace(plan_of(name), scale=build.scale)
    run = RunFolder.of_plan(path, plan)
    with run.locked():
        train_unit(run, own_stages(run), supervisor)
    card = make_card(name, run, build.origin, build.episodes)
    with whole_folder(Path(build.agents) / name, replace=True) as temporary:
        temporary.rmdir()
        branch(run, temporary, plan.scenario)
        write_json(temporary / cards.CARD, to_table(card))
        write_text(temporary / cards.PAGE, card_page(card))
    return {}


def card_page(card: cards.AgentCard) -> str:
    """Return a card as Markdown, below a header in YAML as model hubs read it: every value as JSON, which YAML has."""
    return render(_template("card"), {"json": to_json}, card=card)


def save_verified(folder: Path, verified: Sequence[cards.Verification]) -> None:
    """Write `verify.json` and the page `verify.md`."""
    origin = cards.TrainingOrigin.now()
    write_json(folder / "verify.json", {**to_table(origin), "agents": [one.to_dict() for one in verified]})
    held = sum(one.holds and not one.changed for one in verified)
    table = markdown_table(cards.VERIFIED_HEADINGS, [one.cells for one in verified])
    page = render(_template("verify"), held=held, agents=len(verified), origin=origin, table=table)
    write_text(folder / "verify.md", page)


def _template(page: str) -> Path:
    return Path(__file__).with_name(f"zoo_{page}.md.jinja")


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


def compare_agents(agents: Sequence[Path], episodes: int) -> list[ScenarioScores]:
    """Play agents, by name or run folder, greedily in every scenario, all on the same evaluation episodes."""
    runs, found = [open_run(path) for path in agents], []
    for run in runs:
        home, sources = run.plan.scenario, {where: source_of(run, where) for where in SCENARIOS}
        rates = {where: evaluate(run, Setting(where, by), episodes).wins for where, by in sources.items()}
        adapted = tuple(where for where, by in sources.items() if by == where != home)
        found.append(ScenarioScores(run_name(run.path), home, rates, adapted))
    return found


def save_standings(folder: Path, found: Sequence[ScenarioScores], episodes: int) -> None:
    """Write `comparison.json`, the page `comparison.md` and the picture `comparison.png`."""
    origin = describe_origin()
    said = {**origin, "seed": EVALUATION_SEED, "episodes": episodes}
    write_json(folder / "comparison.json", {**said, "agents": [one.to_dict() for one in found]})
    save_figure(draw_standings(found), folder / "comparison.png")
    page = render(
        _template("comparison"),
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


def main() -> None:
    """Build, verify or compare, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("build", "verify", "compare"))
    parser.add_argument("agents", nargs="*", help="all of the zoo, if none is named")
    parser.add_argument("--runs", type=Path, default=Path("runs/zoo"), help="build: folder of the agents' runs")
    parser.add_argument("--episodes", type=int, default=400, help="compare: fights of an agent in each scenario")
    parser.add_argument("--out", type=Path, help="verify, compare: folder of the page")
    asked = parser.parse_args()
    if asked.what == "build":
        if (asked.runs / ZooFolder.plan_file).exists():
            folder = ZooFolder.open(asked.runs)
        else:
            folder = ZooFolder.create(asked.runs, ZooBuild(cards.TrainingOrigin.now()))
        folder.names = asked.agents or folder.names
        folder.check_commit()
        run_study(folder, Console())
        print(cards.agents_table([cards.read_card(AGENTS / name) for name in folder.names]))
    elif asked.what == "verify":
        verified = [cards.verify_agent(name) for name in asked.agents or agent_names()]
        print(markdown_table(cards.VERIFIED_HEADINGS, [one.cells for one in verified]))
        if asked.out:
            save_verified(asked.out, verified)
    else:
        found = compare_agents([Path(name) for name in asked.agents or agent_names()], asked.episodes)
        print(markdown_table(COMPARISON_HEADINGS, [one.cells for one in found]))
        if asked.out:
            save_standings(asked.out, found, asked.episodes)


if __name__ == "__main__":
    main()
