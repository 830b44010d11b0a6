"""The report of a transfer: recommendation and figures, held against shifts whose cause is known."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.table import Table

from soulsgraph.results.files import api_call
from soulsgraph.results.tables import text_table, write_rows
from soulsgraph.runs.evaluate import load_artifacts, was_trained_on
from soulsgraph.runs.identity import Key, fight_label, in_words
from soulsgraph.runs.lineage import expect_present
from soulsgraph.runs.plan import scenario_digest
from soulsgraph.runs.progress import Display, stage_progress
from soulsgraph.runs.real_time import OnFinished
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.transfer import rule
from soulsgraph.transfer.measures import Laboratory, Question, evidence_of, figures_of, trials_of
from soulsgraph.transfer.rule import Evidence, SkillVerdict, recommend
from soulsgraph_envs.core.config import Where, read_file
from soulsgraph_envs.core.errors import SoulsGraphError, shown
from soulsgraph_envs.core.files import write_json
from soulsgraph_policies.agents.agent import STAND_INS


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
            f"`run_controls`: expected versions trained on {HOME}, which the controls change, found {question.home}; "
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
    write_json(run.path / "results" / "transfer-controls.json", rows)
    write_rows(run.results("transfer-controls"), rows)
    return rows


def controls_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table for the terminal, right or wrong."""
    words = {True: "yes", False: "no", None: "-"}
    shown = [
        {name: row[name] for name in ("control", "expected", "found")} | {"right": words[row["right"]]} for row in rows
    ]
    counted = [row["right"] for row in rows if row["right"] is not None]
    return cells_table(f"Controls of the recommendation: {sum(counted)} of {len(counted)} right", shown)


def _answers(expected: Sequence[Sequence[str]]) -> str:
    return " or ".join(map(_named, expected))


def _named(skills: Sequence[str]) -> str:
    return " + ".join(skills) or "none"


_logger = logging.getLogger("soulsgraph")
_THRESHOLDS = ("MATERIAL_CHANGE", "CERTAIN_ERRORS", "KNOWN_SHARE", "CHANGED_DECISIONS")
_DOMAINS = ("home", "shifted")


@dataclass(frozen=True)
class TransferReport:
    """The question, the versions that played (digests by skill), and what was measured, by skill in training order.

    `win_rates` are those of the whole agent in both domains, with each skill replaced, and with none.
    """

    question: Question
    versions: Mapping[str, str]
    figures: Mapping[str, Mapping[str, Any]]
    evidence: Mapping[str, Evidence]
    win_rates: Sequence[Mapping[str, Any]]
    #: Digests of both fights.
    fights: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def verdicts(self) -> dict[str, SkillVerdict]:
        """What the rule says of each skill."""
        return recommend(self.evidence)

    @property
    def recommended(self) -> tuple[str, ...]:
        """The skills to adapt, in training order."""
        return tuple(name for name, verdict in self.verdicts.items() if verdict.adapt)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return {
            **asdict(self.question),
            "versions": dict(self.versions),
            "fights": dict(self.fights),
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
        return [f"whole agent, wins: {rates}", f"adapt: {chosen}", *reasons]


def _thresholds() -> dict[str, float]:
    return {name.lower(): getattr(rule, name) for name in _THRESHOLDS}


def cells_table(title: str, rows: Sequence[Mapping[str, str]]) -> Table:
    """Return a plain table for the terminal of rows that hold their cells by heading."""
    return text_table(title, [*rows[0]], [[*row.values()] for row in rows])


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
    expect_present(run, [question.home])
    versions, fights = versions_of(run, question.home), _fights(question.home, question.scenario)
    if question.home != run.plan.scenario and not was_trained_on(run, question.home):
        raise SoulsGraphError(
            f"`home`: expected a scenario that skills of {run.path} were trained on, found {question.home!r}; "
            f"see {api_call('check_library', run=run.path)}."
        )
    home, shifted = (Laboratory(run, question, domain, on_played) for domain in (question.home, question.scenario))
    order = run.plan.skill_graph.order
    return TransferReport(
        question,
        versions,
        figures={skill: figures_of(skill, home, shifted) for skill in order},
        evidence={skill: evidence_of(skill, home, shifted) for skill in order},
        win_rates=[*home.win_rates("home"), *shifted.win_rates("shifted")],
        fights=fights,
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
    write_rows(run.results(name), [_skill_row(values) for _, values in skills])
    write_rows(run.results(f"{name}-win-rates"), report.win_rates)
    write_rows(run.results(f"{name}-inputs"), [row for skill, values in skills for row in _input_rows(skill, values)])
    write_rows(
        run.results(f"{name}-animations"), [{"skill": skill} | c for skill, values in skills for c in values["cues"]]
    )
    path = run.path / "results" / f"{name}.json"
    write_json(path, found)
    return path


def saved_recommendation(run: RunFolder, home: str, scenario: str) -> tuple[str, ...] | None:
    """Return the recommendation of a saved transfer of the versions now in play between these fights, None without one.

    Raises:
        SoulsGraphError: if the file is unreadable.
    """
    path = run.path / "results" / f"{transfer_name(run, home, scenario)}.json"
    if not path.exists():
        return None
    where = Where(path, remedy=f"measure anew: {api_call('save_transfer', run=run.path, scenario=scenario)}")
    values = read_file(where)
    found = Key(values if isinstance(values, dict) else {})
    key = Key({"versions": versions_of(run, home), "fights": _fights(home, scenario), "thresholds": _thresholds()})
    if key.differing(found):
        return None
    if missing := in_words(key.unknown(found)):
        _logger.warning("%s: an earlier version did not record its %s; it is measured anew", path, missing)
        return None
    recommended, order = found.values.get("recommended"), run.plan.skill_graph.order
    if not isinstance(recommended, list) or any(skill not in order for skill in recommended):
        raise where.at("recommended").error(f"a list of {', '.join(order)}", shown(recommended))
    return tuple(recommended)


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
