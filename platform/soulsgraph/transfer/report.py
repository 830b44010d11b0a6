"""The report of a transfer: recommendation and figures, held against shifts whose cause is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from soulsgraph.evaluate import load_artifacts
from soulsgraph.files import api_call, slug, write_json
from soulsgraph.progress import Display, stage_progress
from soulsgraph.run_folder import RunFolder
from soulsgraph.tables import WinRate, write_rows
from soulsgraph.transfer import rule
from soulsgraph.transfer.effects import Effect
from soulsgraph.transfer.measures import Measures, Question, measure, trials_of
from soulsgraph.transfer.rule import Verdict, recommend
from soulsgraph_envs.core.config import Where, read_file
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_policies.agent import STAND_INS

_HEADINGS = ("control", "expected", "found", "right")


@dataclass(frozen=True)
class Control:
    """A shift of the Phase 1 fight, and the recommendations that would be right."""

    shift: str
    scenario: str
    expected: tuple[frozenset[str], ...]


def _control(shift: str, scenario: str, *expected: tuple[str, ...]) -> Control:
    return Control(shift, scenario, tuple(frozenset(skills) for skills in expected))


#: The fight that every control is a shift of.
HOME = "iudex-phase1"
#: The shifts that the rule is held against, decided before any was measured and before the rule was made.
CONTROLS = (
    _control("no shift", "controls-no-shift", ()),
    _control("camera speed", "controls-camera-speed", ("camera",)),
    _control("lock range", "controls-lock-range", ("lock_on",)),
    _control(
        "boss damage and timing",
        "controls-blows",
        ("dodge",),
        ("heal_attack",),
        ("dodge", "heal_attack"),
    ),
    _control("phase 1 to phase 2", "iudex-phase2", ("dodge", "heal_attack")),
)


@dataclass(frozen=True)
class ControlResult:
    """A control and what was measured."""

    control: Control
    report: TransferReport

    @property
    def right(self) -> bool:
        """Whether the recommendation is one of the sets expected."""
        return frozenset(self.report.recommended) in self.control.expected

    def row(self) -> dict[str, Any]:
        """Return the control's row of the table as plain values."""
        return {
            "control": self.control.shift,
            "scenario": self.control.scenario,
            "expected": _alternatives(self.control),
            "found": _named(self.report.recommended),
            "right": self.right,
        }


def run_controls(
    run: RunFolder, question: Question, controls: Sequence[Control] = CONTROLS, display: Display = "auto"
) -> list[ControlResult]:
    """Measure every control from the same evaluation seeds; `question` holds home, episodes and seed.

    Each control's own report and the table of all are written into the run's results.

    Raises:
        SoulsGraphError: as `transfer`.
        WriteError: if the results cannot be written.
    """
    if question.home != HOME:
        raise SoulsGraphError(
            f"`run_controls`: expected versions trained on {HOME}, which the controls change, found {question.home}; "
            f"use a run of {HOME}."
        )
    results = []
    for control in controls:
        asked = replace(question, scenario=control.scenario)
        report = transfer(run, asked, display)
        save_transfer(run, report)
        results.append(ControlResult(control, report))
    rows = [result.row() for result in results]
    write_json(run.path / "results" / "transfer-controls.json", rows)
    write_rows(run.results("transfer-controls"), rows)
    return results


def controls_table(results: Sequence[ControlResult]) -> Table:
    """Return the table for the terminal, right or wrong."""
    shown = [result.row() | {"right": "yes" if result.right else "no"} for result in results]
    right = sum(result.right for result in results)
    title = f"Controls of the recommendation: {right} of {len(results)} right"
    return text_table(title, _HEADINGS, [[str(row[heading]) for heading in _HEADINGS] for row in shown])


def _alternatives(control: Control) -> str:
    return " or ".join(_named(sorted(skills)) for skills in control.expected)


def _named(skills: Sequence[str]) -> str:
    return " + ".join(skills) or "none"


_THRESHOLDS = ("MATERIAL_CHANGE", "CERTAIN_ERRORS", "KNOWN_SHARE", "CHANGED_DECISIONS")
_OWN_TASK = ("skill", "home", "shifted", "random", "idle", "wins random", "wins idle")
_INPUTS = ("skill", "furthest input", "energy", "value bias", "value error")
_VERDICTS = ("skill", "effect kept", "change in errors", "changed animations", "adapt")


@dataclass(frozen=True)
class TransferReport:
    """The question, the versions that played (digests by skill), the measures and the verdicts of the rule."""

    question: Question
    versions: Mapping[str, str]
    measures: Measures
    verdicts: Mapping[str, Verdict]

    @property
    def recommended(self) -> tuple[str, ...]:
        """The skills to adapt, in training order."""
        return tuple(name for name, verdict in self.verdicts.items() if verdict.adapt)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return {
            **asdict(self.question),
            "versions": dict(self.versions),
            "recommended": list(self.recommended),
            "skills": {name: self._skill(name) for name in self.verdicts},
            "win_rates": [_win_row(wins.domain, wins.skill, wins.stand_in, wins) for wins in self.measures.wins],
            "thresholds": {name.lower(): getattr(rule, name) for name in _THRESHOLDS},
        }

    def to_rich(self) -> tuple[Table, Table, Table]:
        """Return tables for the terminal, one row a skill: own task and wins; inputs and values; the verdicts."""
        asked = self.question
        title = f"Transfer, {asked.home} -> {asked.scenario}, {asked.episodes} episodes a trial: own task, wins"
        own = text_table(title, _OWN_TASK, [self._own_task(name) for name in self.verdicts])
        seen = text_table("Inputs and values", _INPUTS, [self._inputs(name) for name in self.verdicts])
        found = text_table("What its actions do, what it sees", _VERDICTS, [self._verdict(n) for n in self.verdicts])
        return own, seen, found

    def _skill(self, name: str) -> dict[str, Any]:
        return {
            **asdict(self.measures.figures[name]),
            "verdict": asdict(self.verdicts[name]),
            "effect": asdict(self.measures.evidence[name].effect),
            "cues": [asdict(cue) | {"column": cue.column.name.lower()} for cue in self.measures.evidence[name].cues],
        }

    def _verdict(self, skill: str) -> tuple[str, ...]:
        verdict, effect = self.verdicts[skill], self.measures.evidence[skill].effect
        return (
            skill,
            f"{100 * effect.kept:.0f} %",
            f"{effect.change_errors:+.1f}",
            f"{100 * verdict.changed_decisions:.0f} %",
            "yes" if verdict.adapt else "no",
        )

    def _own_task(self, skill: str) -> tuple[str, ...]:
        figures = self.measures.figures[skill]
        wins = {(w.domain, w.stand_in): w.wins for w in self.measures.wins if w.skill == skill}
        return (
            skill,
            f"{figures.home.trained:.3g}",
            f"{figures.shifted.trained:.3g}",
            f"{figures.home.replaced['random']:.3g}",
            f"{figures.home.replaced['idle']:.3g}",
            *(f"{wins['home', name]}, {wins['shifted', name]}" for name in STAND_INS),
        )

    def _inputs(self, skill: str) -> tuple[str, ...]:
        figures = self.measures.figures[skill]
        column, distance = max(figures.input_distances.items(), key=lambda item: item[1])
        return (
            skill,
            f"{distance:.2f} {column}",
            f"{figures.input_energy:.2f}",
            f"{figures.home.value_bias:+.2f}, {figures.shifted.value_bias:+.2f}",
            f"{figures.home.value_error:.2f}, {figures.shifted.value_error:.2f}",
        )

    def lines(self) -> list[str]:
        """Return the recommendation and the reason for each skill."""
        chosen = ", ".join(self.recommended) or "no skill"
        whole = [wins for wins in self.measures.wins if wins.skill == "none"]
        rates = " -> ".join(f"{wins.wins}/{wins.episodes}" for wins in whole)
        reasons = [f"  {name}: {verdict.reason}" for name, verdict in self.verdicts.items()]
        return [f"whole agent, wins: {rates}", f"adapt: {chosen}", *reasons]


def text_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a plain table for the terminal, the first column to the left."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for index, heading in enumerate(headings):
        # Folded, not cut: a figure without its end is worse than one on two lines.
        table.add_column(heading, justify="right" if index else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def transfer(run: RunFolder, question: Question, display: Display = "auto") -> TransferReport:
    """Measure and recommend; nothing is written.

    Raises:
        LibraryError: if a skill was never trained, or is damaged.
        SoulsGraphError: for an unknown scenario, or a number out of range.
    """
    done = 0
    versions = versions_of(run, question.home)
    with stage_progress("transfer", trials_of(run), display, unit="trials") as progress:

        def on_played(skill: str) -> None:
            nonlocal done
            done += 1
            progress.update(done)

        measures = measure(run, question, on_played)
    return TransferReport(question, versions, measures, recommend(measures.evidence))


def versions_of(run: RunFolder, home: str) -> dict[str, str]:
    """Return the digests of the versions that play after training on a scenario."""
    artifacts = load_artifacts(run, home, run.plan.skill_graph.order)
    return {name: artifact.card.digest for name, artifact in artifacts.items()}


def save_transfer(run: RunFolder, report: TransferReport) -> Path:
    """Write a report into the run's results and return its JSON file.

    `transfer-<scenario>.json` holds all of it; beside it Parquet files with one row a skill, a win
    rate, an input column and an animation.

    Raises:
        WriteError: if the place cannot be written.
    """
    name = f"transfer-{slug(report.question.scenario)}"
    write_rows(run.results(name), [_skill_row(report, skill) for skill in report.verdicts])
    write_rows(run.results(f"{name}-win-rates"), report.to_dict()["win_rates"])
    write_rows(run.results(f"{name}-inputs"), [row for skill in report.verdicts for row in _input_rows(report, skill)])
    cues = [{"skill": skill} | cue for skill in report.verdicts for cue in report.to_dict()["skills"][skill]["cues"]]
    write_rows(run.results(f"{name}-animations"), cues)
    path = run.path / "results" / f"{name}.json"
    write_json(path, report.to_dict())
    return path


def saved_recommendation(run: RunFolder, home: str, scenario: str) -> tuple[str, ...] | None:
    """Return the recommendation of a saved transfer of the versions now in play, None without one.

    Raises:
        SoulsGraphError: if the file is unreadable.
    """
    path = run.path / "results" / f"transfer-{slug(scenario)}.json"
    if not path.exists():
        return None
    where = Where(path, remedy=f"measure anew: {api_call('save_transfer', run=run.path, scenario=scenario)}")
    values = read_file(where)
    asked = (home, scenario, versions_of(run, home))
    if not isinstance(values, dict) or asked != tuple(values.get(key) for key in ("home", "scenario", "versions")):
        return None
    recommended, order = values.get("recommended"), run.plan.skill_graph.order
    if not isinstance(recommended, list) or any(skill not in order for skill in recommended):
        raise where.at("recommended").error(f"a list of {', '.join(order)}", shown(recommended))
    return tuple(recommended)


def _win_row(domain: str, skill: str, stand_in: str, wins: Any) -> dict[str, Any]:
    rate = WinRate(f"{domain}: {skill} {stand_in}", wins.wins, wins.episodes)
    row = rate.to_dict() | {"domain": domain, "replaced": skill, "stand_in": stand_in}
    return {key: value for key, value in row.items() if key != "paper_percent"}


def _skill_row(report: TransferReport, skill: str) -> dict[str, Any]:
    verdict, figures = report.verdicts[skill], report.measures.figures[skill]
    effect = report.measures.evidence[skill].effect
    row = _plain(verdict) | {f"effect_{key}": value for key, value in _plain(effect).items()}
    for name, domain in (("home", figures.home), ("shifted", figures.shifted)):
        row |= {f"{name}_return": domain.trained, f"{name}_value_bias": domain.value_bias}
        row |= {f"{name}_value_error": domain.value_error}
        row |= {f"{name}_return_{stand_in}": value for stand_in, value in domain.replaced.items()}
    return row | {"input_energy": figures.input_energy}


def _plain(found: Verdict | Effect) -> dict[str, Any]:
    return {key: value for key, value in asdict(found).items() if not isinstance(value, dict)}


def _input_rows(report: TransferReport, skill: str) -> list[dict[str, Any]]:
    figures = report.measures.figures[skill]
    return [
        {
            "skill": skill,
            "column": column,
            "distance": distance,
            "home_shift": figures.home.input_shifts[column],
            "shifted_shift": figures.shifted.input_shifts[column],
        }
        for column, distance in figures.input_distances.items()
    ]
