"""Measure, without training, how each skill performs in another domain than its own, and report what to adapt.

The recommendation is held against shifts whose cause is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.table import Table
from scipy import stats

from soulsgraph.results.seeds import Rows, SeedsTable, frame_of, share, summary
from soulsgraph.results.statistics import WinRate
from soulsgraph.results.tables import cells_table, write_results, write_rows
from soulsgraph.runs.evaluate import OnFinished, evaluation_seeds, load_artifacts, load_networks, was_trained_on
from soulsgraph.runs.lineage import expect_unchanged, predecessors
from soulsgraph.runs.plan import differing, fight_label, scenario_digest
from soulsgraph.runs.progress import Display, stage_progress
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.transfer import Question, rule
from soulsgraph_envs.combat.loop import Exploration, SeededDraw
from soulsgraph_envs.combat.rollout import Doubles, Episodes, Flags, Integers
from soulsgraph_envs.core.compiling import cached
from soulsgraph_envs.core.config import Where, read_file, validate
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError, shown
from soulsgraph_envs.core.game import LaneIndices
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.core.state import Column
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import make_skill, training_scenario
from soulsgraph_policies.agents.agent import STAND_INS, Agent, StandIn
from soulsgraph_policies.agents.inference import FusedNetworks

#: Share of a skill's decisions that is drawn at random to see what its actions do; the rest keeps it on its course.
EXPLORATION = 0.5
_EXPLORATION_STREAM = 21
#: Rows that the energy distance compares: its work grows with their square.
_MOST_ROWS = 1_000


@dataclass
class Laboratory:
    """Play the trials of a run in one domain, each once; `on_played` is called with 1 after each."""

    run: RunFolder
    question: Question
    domain: str
    on_played: OnFinished = lambda count: None
    _played: dict[tuple[tuple[str, ...], tuple[tuple[str, StandIn], ...], float], Episodes] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        self.scenario = load_scenario(self.domain)
        self.skills = {name: make_skill(name, self.run.plan.options) for name in self.run.plan.skill_graph.order}
        self.networks = load_networks(self.run, self.question.home, [*self.skills.values()], self.scenario)
        self._seeds = evaluation_seeds(self.question.seed, self.question.episodes)

    def play(self, skill: str, stand_ins: Mapping[str, StandIn] | None = None, exploration: float = 0.0) -> Episodes:
        """Play a skill's own task, with stand-ins for it or for skills upstream of it, or exploring."""
        return self._play(self._players(skill), stand_ins or {}, exploration)

    def _play(self, players: tuple[str, ...], replaced: Mapping[str, StandIn], exploration: float) -> Episodes:
        """Play the last one's task with all of these skills."""
        key = (players, tuple(sorted(replaced.items())), exploration)
        if key not in self._played:
            skills = tuple(self.skills[name] for name in players)
            agent = Agent(training_scenario(self.scenario, skills[-1]), skills, self.networks, replaced)
            self._played[key] = play_trial(agent, self._seeds, exploration)
            self.on_played(1)
        return self._played[key]

    def decisions(self, exploring: bool = False) -> int:
        """Return how many decisions of the skills in question all trials so far took, or those that explored alone."""
        trials = ((exploration, played) for (_, _, exploration), played in self._played.items())
        return sum(int(played.lengths.sum()) for exploration, played in trials if exploration or not exploring)

    def experiments(self, skill: str) -> rule.Experiments:
        """Return the decisions in which the skill explored on its own task."""
        return rule.experiments(self.skills[skill], self.networks[skill], self.play(skill, exploration=EXPLORATION))

    def context(self, skill: str) -> list[Column]:
        """Return the columns that the skill or one upstream of it observes."""
        return sorted({column for name in self._players(skill) for column in self.skills[name].observation.columns})

    def inputs(self, skill: str) -> Doubles:
        """Return the skill's observations at its decisions, normalised as in its training, (m, size)."""
        network = self.networks[skill]
        return network.inputs(network.observation(self.play(skill).taken.rows)).astype(np.float64)

    def figures(self, skill: str) -> dict[str, Any]:
        """Measure the skill's own task: mean returns trained and replaced, its values, its inputs.

        `input_shifts` is the mean of each column in deviations from the mean it was trained on.
        """
        return {
            "trained": self._mean_return(skill),
            "replaced": {name: self._mean_return(skill, name) for name in STAND_INS},
            **self.values(skill),
            "input_shifts": self.columns(skill, self.inputs(skill).mean(axis=0)),
        }

    def values(self, skill: str) -> dict[str, float]:
        """Compare the largest Q-value at each decision with the discounted return from there on.

        `value_bias` is the mean over episodes of predicted minus obtained, above 0 the values are too optimistic,
        `value_error` the root mean square over all decisions. After a truncation the rest is estimated by the largest
        Q-value at the end, as in training.
        """
        numbers = self.run.plan.hyperparameters(self.run.plan.stage(skill))
        networks, played = FusedNetworks([self.networks[skill]]), self.play(skill)
        taken = played.taken
        promised = networks.q_values(0, taken.rows).max(axis=1).astype(np.float64)
        beyond = np.where(played.cut, networks.q_values(0, played.rows).max(axis=1), 0.0)
        ticks = taken.ticks if numbers.semi_markov else np.ones(len(taken.ticks))
        discounts = np.asarray(numbers.gamma**ticks, np.float64)
        difference = promised - discounted_returns(taken.episodes, taken.rewards, discounts, beyond)
        biases = np.bincount(taken.episodes, difference, len(played)) / np.maximum(played.lengths, 1)
        return {"value_bias": float(biases.mean()), "value_error": float(np.sqrt(np.mean(difference**2)))}

    def win_rates(self, name: str) -> list[dict[str, Any]]:
        """Return the whole agent's wins with each skill replaced, and with none; `name` is that of the domain."""
        order, rows = self.run.plan.skill_graph.order, []
        replaced: list[dict[str, StandIn]] = [{}, *({skill: stand_in} for skill in order for stand_in in STAND_INS)]
        for stand_ins in replaced:
            # Of a graph with several leaves, the last one does not build on all others.
            won = self._play(order, stand_ins, 0.0).won
            skill, stand_in = next(iter(stand_ins.items()), ("none", "trained"))
            row = {"setting": f"{name}: {skill} {stand_in}", **WinRate.of(won).columns()}
            rows.append(row | {"domain": name, "replaced": skill, "stand_in": stand_in})
        return rows

    def columns(self, skill: str, values: Doubles) -> dict[str, float]:
        """Pair the column names with values, (size,)."""
        names = [name.lower() for name in self.skills[skill].observation.names]
        return dict(zip(names, values.tolist(), strict=True))

    def _mean_return(self, skill: str, stand_in: StandIn | None = None) -> float:
        played = self.play(skill, {skill: stand_in} if stand_in else None)
        return float(played.terms.sum(axis=1, dtype=np.float64).mean())

    def _players(self, skill: str) -> tuple[str, ...]:
        return (*self.run.plan.skill_graph.upstream(skill), skill)


def figures_of(skill: str, home: Laboratory, shifted: Laboratory) -> dict[str, Any]:
    """Measure a skill in both domains, and how far its inputs differ between them: a column, and all together."""
    inputs = home.inputs(skill), shifted.inputs(skill)
    return {
        "home": home.figures(skill),
        "shifted": shifted.figures(skill),
        "input_distances": home.columns(skill, column_distances(*inputs)),
        "input_energy": energy_coefficient(*inputs),
    }


def evidence_of(skill: str, home: Laboratory, shifted: Laboratory) -> rule.Evidence:
    """Return what the rule needs to know of a skill."""
    explored = [laboratory.play(skill, exploration=EXPLORATION).taken for laboratory in (home, shifted)]
    return rule.Evidence(
        effect=rule.compare_effects(home.context(skill), home.experiments(skill), shifted.experiments(skill)),
        cues=rule.compare_cues(home.skills[skill], *explored),
    )


def trials_of(run: RunFolder) -> int:
    """Return how many trials a transfer plays."""
    graph = run.plan.skill_graph
    own = len(graph.order) * (2 + len(STAND_INS))  # trained, exploring, and each stand-in
    others = len(graph.order) - 1
    # The whole agent plays the last skill's task; where that builds on all others, it has played it.
    again = 0 if len(graph.upstream(graph.order[-1])) == others else 1 + len(STAND_INS)
    return 2 * (own + others * len(STAND_INS) + again)


@cached()
def discounted_returns(episodes: Integers, rewards: Doubles, discounts: Doubles, beyond: Doubles) -> Doubles:
    """Return the discounted return from each decision (m,) to the end of its episode.

    Decisions are in order of episode and time; `beyond` (episodes,) is the value after an episode's end.
    """
    out = np.empty(len(rewards))
    for i in range(len(rewards) - 1, -1, -1):
        last = i == len(rewards) - 1 or episodes[i + 1] != episodes[i]
        following = beyond[episodes[i]] if last else out[i + 1]
        out[i] = rewards[i] + discounts[i] * following
    return out


def play_trial(agent: Agent, seeds: Seeds, exploration: float = 0.0) -> Episodes:
    """Play one episode a seed (n,), each in a lane of its own, exploring in a share of the last skill's decisions."""
    decided: list[tuple[LaneIndices, Flags]] = []
    last, lanes = len(agent.skills) - 1, len(seeds)
    draw = SeededDraw(len(agent.skills), lanes, _EXPLORATION_STREAM)
    exploring = Exploration({last: agent.skills[last]}, lambda: exploration, draw, lambda _, *due: decided.append(due))
    episodes = agent.rollout(make_game(lanes=lanes), exploring).play(seeds, keep_decisions=True)
    by_lane, explored = (np.concatenate(column) for column in zip(*decided, strict=True))
    order = np.argsort(by_lane, kind="stable")
    return replace(episodes, decisions=replace(episodes.taken, explored=explored[order]))


def column_distances(first: npt.ArrayLike, second: npt.ArrayLike) -> Doubles:
    """Return the two-sample Kolmogorov-Smirnov statistic of each column: (n, size), (m, size) -> (size,) in [0, 1]."""
    # The p-value, which is not used, is cheapest so.
    return np.asarray(stats.ks_2samp(first, second, axis=0, method="asymp").statistic)


def energy_coefficient(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return the energy coefficient of inhomogeneity of (n, size) and (m, size), in [0, 1]; 0 if they are equal.

    H = (2 E|X - Y| - E|X - X'| - E|Y - Y'|) / (2 E|X - Y|), Szekely & Rizzo (2013), "Energy
    statistics: a class of statistics based on distances". Of long samples every nth row is compared.
    """
    a, b = _thinned(first), _thinned(second)
    between = 2.0 * _mean_distance(a, b)
    if between == 0.0:
        return 0.0
    return max(0.0, (between - _mean_distance(a, a) - _mean_distance(b, b)) / between)


def _thinned(values: npt.ArrayLike) -> Doubles:
    rows = np.asarray(values, np.float64)
    return rows[:: -(-len(rows) // _MOST_ROWS)]


def _mean_distance(a: Doubles, b: Doubles) -> float:
    return float(np.mean([np.linalg.norm(b - row, axis=1).mean() for row in a]))


@dataclass(frozen=True)
class KnownShift:
    """A shift of the Phase 1 fight, and the recommendations that would be right, each in training order."""

    shift: str
    scenario: str
    expected: tuple[tuple[str, ...], ...]

    def expected_of(self, skills: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Return what would be right of an agent of these skills; none where it lacks one that every answer names."""
        return tuple(answer for answer in self.expected if {*answer} <= {*skills})

    def counted(self, found: Sequence[str]) -> tuple[str, ...]:
        """Return what of a recommendation counts: where nothing shifted every skill, else none of a project's own."""
        named = {skill for control in CONTROLS for answer in control.expected for skill in answer}
        return tuple(skill for skill in found if self.expected == ((),) or skill in named)


#: The fight that every control is a shift of.
HOME = "iudex-phase1"
#: The shifts that the rule is held against, decided before any was measured and before the rule was made.
CONTROLS = (
    KnownShift("no shift", "controls-no-shift", ((),)),
    KnownShift("camera speed", "controls-camera-speed", (("camera",),)),
    KnownShift("lock range", "controls-lock-range", (("lock_on",),)),
    KnownShift("boss damage and timing", "controls-blows", (("dodge",), ("heal_attack",), ("dodge", "heal_attack"))),
    KnownShift("phase 1 to phase 2", "iudex-phase2", (("dodge", "heal_attack"),)),
)


def run_controls(
    run: RunFolder, question: Question, controls: Sequence[KnownShift] = CONTROLS, display: Display = "auto"
) -> list[dict[str, Any]]:
    """Measure every control from the same evaluation seeds; `question` holds home, episodes and seed.

    Each control's own report and the table of all are written into the run's results; its rows are returned. A control
    that is about a skill which the run's graph does not have is neither measured nor right or wrong.

    Raises:
        SoulsGraphError: as `transfer`.
        WriteError: if the results cannot be written.
    """
    if question.home != HOME:
        raise SoulsGraphError(
            f"controls: expected versions trained on {HOME}, which the controls change, found {question.home}; "
            f"use a run of {HOME}."
        )
    rows: list[dict[str, Any]] = []
    for control in controls:
        row = {"control": control.shift, "scenario": control.scenario}
        if not (expected := control.expected_of(run.plan.skill_graph.order)):
            rows.append(row | {"expected": _answers(control.expected), "found": "not asked", "right": None})
            continue
        report = transfer(run, replace(question, scenario=control.scenario), display)
        save_transfer(run, report)
        row |= {"expected": _answers(expected), "found": _named(report.recommended)}
        rows.append(row | {"right": control.counted(report.recommended) in expected})
    write_results(run.path / "results", "transfer-controls", rows, rows)
    return rows


def controls_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table for the terminal, right or wrong."""
    words = {True: "yes", False: "no", None: "-"}
    shown = [
        {name: row[name] for name in ("control", "expected", "found")} | {"right": words[row["right"]]} for row in rows
    ]
    counted = [row["right"] for row in rows if row["right"] is not None]
    return cells_table(f"Controls of the recommendation: {sum(counted)} of {len(counted)} right", shown)


def controls_over_seeds(results: Mapping[int, Rows]) -> SeedsTable:
    """Count, for each control that was asked, the seeds whose recommendation is right, with their share's interval."""
    frame = frame_of(results)
    asked = frame[frame["right"].notna()]
    expected = asked.groupby("control", sort=False)[["expected"]].first()
    return SeedsTable.of(
        "Controls of the recommendation, right or wrong", asked, expected, share(asked, ["control"], "right")
    )


def _answers(expected: Sequence[Sequence[str]]) -> str:
    return " or ".join(map(_named, expected))


def _named(skills: Sequence[str]) -> str:
    return " + ".join(skills) or "none"


_THRESHOLDS = ("MATERIAL_CHANGE", "TYPICAL_CHANGE", "CERTAIN_ERRORS", "KNOWN_SHARE", "CHANGED_DECISIONS")
_DOMAINS = ("home", "shifted")


class Recommendation(NamedTuple):
    """The skills to adapt, and the decisions played in the new fight to find them."""

    skills: tuple[str, ...]
    decisions: int


@dataclass(frozen=True)
class TransferReport:
    """The question, the versions that played (digests by skill), and what was measured, by skill in training order.

    `win_rates` are those of the whole agent in both domains, with each skill replaced, and with none.
    """

    question: Question
    versions: Mapping[str, str]
    figures: Mapping[str, Mapping[str, Any]]
    evidence: Mapping[str, rule.Evidence]
    win_rates: Sequence[Mapping[str, Any]]
    #: Digests of both fights.
    fights: Mapping[str, str] = field(default_factory=dict)
    #: Decisions played in the new fight, and how many of them the recommendation alone needs.
    decisions: int = 0
    rule_decisions: int = 0

    @cached_property
    def verdicts(self) -> dict[str, rule.SkillVerdict]:
        """What the rule says of each skill."""
        return rule.recommend(self.evidence)

    @property
    def recommended(self) -> tuple[str, ...]:
        """The skills to adapt, in training order."""
        return tuple(name for name, verdict in self.verdicts.items() if verdict.adapt)

    @property
    def recommendation(self) -> Recommendation:
        """The skills to adapt, and what it took to find them."""
        return Recommendation(self.recommended, self.decisions)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return {
            **asdict(self.question),
            "versions": dict(self.versions),
            "fights": dict(self.fights),
            "decisions": self.decisions,
            "rule_decisions": self.rule_decisions,
            "recommended": list(self.recommended),
            "skills": {name: self._skill(name) for name in self.verdicts},
            "win_rates": [*self.win_rates],
            "thresholds": _thresholds(),
        }

    def to_rich(self) -> list[Table]:
        """Return tables for the terminal, one row a skill: own task and wins; inputs and values; the verdicts."""
        asked = self.question
        titles = (
            f"Transfer, {asked.home} -> {asked.scenario}, {asked.episodes} episodes a trial: own task, wins",
            "Inputs and values",
            "What its actions do, what it sees",
        )
        rows = zip(*map(self._cells, self.verdicts), strict=True)
        return [cells_table(title, cells) for title, cells in zip(titles, rows, strict=True)]

    def _skill(self, name: str) -> dict[str, Any]:
        evidence = self.evidence[name]
        return {
            **self.figures[name],
            "verdict": asdict(self.verdicts[name]),
            "effect": asdict(evidence.effect),
            "cues": [asdict(cue) | {"column": cue.column.name.lower()} for cue in evidence.cues],
        }

    def _cells(self, skill: str) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """Return a skill's row of each table."""
        figures, verdict, effect = self.figures[skill], self.verdicts[skill], self.evidence[skill].effect
        home, shifted = figures["home"], figures["shifted"]
        wins = {(row["domain"], row["stand_in"]): row["wins"] for row in self.win_rates if row["replaced"] == skill}
        own_task = {
            "skill": skill,
            "home": f"{home['trained']:.3g}",
            "shifted": f"{shifted['trained']:.3g}",
            **{name: f"{home['replaced'][name]:.3g}" for name in STAND_INS},
            **{f"wins {name}": f"{wins['home', name]}, {wins['shifted', name]}" for name in STAND_INS},
        }
        column, distance = max(figures["input_distances"].items(), key=lambda item: item[1])
        inputs = {
            "skill": skill,
            "furthest input": f"{distance:.2f} {column}",
            "energy": f"{figures['input_energy']:.2f}",
            "value bias": f"{home['value_bias']:+.2f}, {shifted['value_bias']:+.2f}",
            "value error": f"{home['value_error']:.2f}, {shifted['value_error']:.2f}",
        }
        found = {
            "skill": skill,
            "effect kept": f"{100 * effect.kept:.0f} %",
            "change in errors": f"{effect.change_errors:+.1f}",
            "changed animations": f"{100 * verdict.changed_decisions:.0f} %",
            "adapt": "yes" if verdict.adapt else "no",
        }
        return own_task, inputs, found

    def lines(self) -> list[str]:
        """Return the recommendation and the reason for each skill."""
        chosen = ", ".join(self.recommended) or "no skill"
        whole = [row for row in self.win_rates if row["replaced"] == "none"]
        rates = " -> ".join(f"{row['wins']}/{row['episodes']}" for row in whole)
        reasons = [f"  {name}: {verdict.reason}" for name, verdict in self.verdicts.items()]
        played = (
            f"{self.decisions:,} decisions in the new fight, {self.rule_decisions:,} of them for the recommendation"
        )
        return [f"whole agent, wins: {rates}", f"adapt: {chosen}", *reasons, f"played: {played}"]


def _thresholds() -> dict[str, float]:
    return {name.lower(): getattr(rule, name) for name in _THRESHOLDS}


def transfer(run: RunFolder, question: Question, display: Display = "auto") -> TransferReport:
    """Measure and recommend; nothing is written.

    Raises:
        LibraryError: if a skill was never trained, or is damaged.
        SoulsGraphError: for an unknown scenario, or a number out of range.
    """
    with stage_progress("transfer", trials_of(run), display, unit="trials") as progress:
        return measure(run, question, progress.advance)


def measure(run: RunFolder, question: Question, on_played: OnFinished = lambda count: None) -> TransferReport:
    """Play every trial in both domains from the same evaluation seeds; `on_played` is called with 1 after each.

    Raises:
        SoulsGraphError: as `transfer`.
    """
    expect_unchanged(run, question.home)
    versions, fights = versions_of(run, question.home), _fights(question.home, question.scenario)
    if question.home != run.plan.scenario and not was_trained_on(run, question.home):
        known = (run.plan.scenario, *predecessors(run))
        raise UnknownNameError(f"scenario that skills of {run.path} were trained on", question.home, known)
    home, shifted = (Laboratory(run, question, domain, on_played) for domain in (question.home, question.scenario))
    order = run.plan.skill_graph.order
    return TransferReport(
        question,
        versions,
        figures={skill: figures_of(skill, home, shifted) for skill in order},
        evidence={skill: evidence_of(skill, home, shifted) for skill in order},
        win_rates=[*home.win_rates("home"), *shifted.win_rates("shifted")],
        fights=fights,
        decisions=shifted.decisions(),
        rule_decisions=shifted.decisions(exploring=True),
    )


def _fights(home: str, scenario: str) -> dict[str, str]:
    return {"home": scenario_digest(home), "scenario": scenario_digest(scenario)}


def transfer_name(run: RunFolder, home: str, scenario: str) -> str:
    """Name the files of a transfer, by its fight, and by its home where that is not the run's own."""
    name = f"transfer-{fight_label(scenario)}"
    return name if home == run.plan.scenario else f"{name}-from-{fight_label(home)}"


def versions_of(run: RunFolder, home: str) -> dict[str, str]:
    """Return the digests of the versions that play after training on a scenario."""
    artifacts = load_artifacts(run, home, run.plan.skill_graph.order)
    return {name: artifact.card.digest for name, artifact in artifacts.items()}


def save_transfer(run: RunFolder, report: TransferReport) -> Path:
    """Write a report into the run's results and return its JSON file.

    `transfer-<scenario>.json` (`transfer_name`) holds all of it; beside it Parquet files with one row a skill, a win
    rate, an input column and an animation.

    Raises:
        WriteError: if the place cannot be written.
    """
    asked, found = report.question, report.to_dict()
    name = transfer_name(run, asked.home, asked.scenario)
    skills = found["skills"].items()
    write_rows(run.results(f"{name}-win-rates"), report.win_rates)
    write_rows(run.results(f"{name}-inputs"), [row for skill, values in skills for row in _input_rows(skill, values)])
    write_rows(
        run.results(f"{name}-animations"), [{"skill": skill} | c for skill, values in skills for c in values["cues"]]
    )
    write_results(run.path / "results", name, [_skill_row(values) for _, values in skills], found)
    return run.path / "results" / f"{name}.json"


def saved_recommendation(run: RunFolder, question: Question) -> Recommendation | None:
    """Return the recommendation of a saved transfer that answers the question for the versions in play; None without.

    Raises:
        SoulsGraphError: if the file is unreadable.
    """
    home, scenario = question.home, question.scenario
    path = run.path / "results" / f"{transfer_name(run, home, scenario)}.json"
    if not path.exists():
        return None
    where = Where(path, remedy="remove the file: it is measured anew then")
    values = read_file(where)
    played = {"versions": versions_of(run, home), "fights": _fights(home, scenario)}
    asked = {"episodes": question.episodes, "seed": question.seed, **played, "thresholds": _thresholds()}
    if differing(asked, values):
        return None
    recommended, order = values.get("recommended"), run.plan.skill_graph.order
    if not isinstance(recommended, list) or any(skill not in order for skill in recommended):
        raise where.at("recommended").error(f"a list of {', '.join(order)}", shown(recommended))
    return Recommendation(tuple(recommended), validate(int, values.get("decisions"), where.at("decisions")))


def recommendations_over_seeds(reports: Mapping[int, TransferReport]) -> SeedsTable:
    """Count, for each skill, the seeds that it is recommended to adapt for."""
    results = {
        seed: [
            {
                "skill": skill,
                "found": "adapt" if verdict.adapt else "keep",
                "adapt": verdict.adapt,
                "effect_kept_percent": 100.0 * report.evidence[skill].effect.kept,
                "changed_decisions_percent": 100.0 * verdict.changed_decisions,
                "input_energy": report.figures[skill]["input_energy"],
                "reason": verdict.reason,
            }
            for skill, verdict in report.verdicts.items()
        ]
        for seed, report in reports.items()
    }
    frame, by, asked = frame_of(results), ["skill"], next(iter(reports.values())).question
    means = ("effect_kept_percent", "changed_decisions_percent", "input_energy")
    parts = (summary(frame, by, name, {"mean": name}) for name in means)
    return SeedsTable.of(f"Recommended, {asked.home} -> {asked.scenario}", frame, share(frame, by, "adapt"), *parts)


def win_rates_over_seeds(reports: Mapping[int, TransferReport]) -> SeedsTable:
    """Return the whole agent's win rates in both domains with each skill replaced, in percent."""
    results = {seed: report.win_rates for seed, report in reports.items()}
    return SeedsTable.of_win_rates("Win rates with each skill replaced", ("domain", "replaced", "stand_in"), results)


def _skill_row(found: Mapping[str, Any]) -> dict[str, Any]:
    row = {name: value for name, value in found["verdict"].items() if name != "changed_cues"}
    row |= {f"effect_{name}": value for name, value in found["effect"].items()}
    for name in _DOMAINS:
        domain = found[name]
        row |= {f"{name}_return": domain["trained"], f"{name}_value_bias": domain["value_bias"]}
        row |= {f"{name}_value_error": domain["value_error"]}
        row |= {f"{name}_return_{stand_in}": value for stand_in, value in domain["replaced"].items()}
    return row | {"input_energy": found["input_energy"]}


def _input_rows(skill: str, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"skill": skill, "column": column, "distance": distance}
        | {f"{name}_shift": found[name]["input_shifts"][column] for name in _DOMAINS}
        for column, distance in found["input_distances"].items()
    ]
