"""Hold the recommendation against shifts whose cause is known, and show the whole table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from soulsgraph.files import write_json
from soulsgraph.progress import Display
from soulsgraph.reports.parquet import write_rows
from soulsgraph.run_folder import RunFolder
from soulsgraph.transfer.measures import Question
from soulsgraph.transfer.report import LOCAL_RULE, LOSS_RULE, TransferReport, save_transfer, text_table, transfer
from soulsgraph_envs.errors import SoulsGraphError

_HEADINGS = ("control", "expected", "rule", "found", "right")


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
#: The shifts that the rules are held against, decided before any was measured: together with the first rule
#: (`loss_rule`), and before the second (`local_rule`), which was made knowing the first one's verdicts on them.
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
    """A control and what either rule would adapt."""

    control: Control
    report: TransferReport

    @property
    def right(self) -> dict[str, bool]:
        """Whether each rule names one of the sets expected, by the rule's name."""
        return {rule: frozenset(found) in self.control.expected for rule, found in self.report.by_rule.items()}

    def rows(self) -> list[dict[str, Any]]:
        """Give one row a rule as plain values."""
        return [
            {
                "control": self.control.shift,
                "scenario": self.control.scenario,
                "expected": _alternatives(self.control),
                "rule": rule,
                "found": _named(found),
                "right": self.right[rule],
            }
            for rule, found in self.report.by_rule.items()
        ]


def run_controls(
    run: RunFolder, question: Question, controls: Sequence[Control] = CONTROLS, display: Display = "auto"
) -> list[ControlResult]:
    """Measure every control from the same evaluation seeds; `question` says home, episodes and seed.

    Each control's own report and the table of all are written into the run's results.

    Raises:
        SoulsGraphError: as `transfer`.
        WriteError: if the results cannot be written.
    """
    if question.home != HOME:
        raise SoulsGraphError(
            f"--controls: expected versions trained on {HOME}, which the controls change, found {question.home}; "
            f"use a run of {HOME}."
        )
    results = []
    for control in controls:
        asked = Question(question.home, control.scenario, question.episodes, question.seed)
        report = transfer(run, asked, display)
        save_transfer(run, report)
        results.append(ControlResult(control, report))
    rows = control_rows(results)
    write_json(run.path / "results" / "transfer-controls.json", rows)
    write_rows(run.results("transfer-controls"), rows)
    return results


def control_rows(results: Sequence[ControlResult]) -> list[dict[str, Any]]:
    """Give the whole table as plain values, one row a control and rule."""
    return [row for result in results for row in result.rows()]


def controls_table(results: Sequence[ControlResult]) -> Table:
    """Give the table for the terminal, right or wrong; the rule whose recommendation counts comes first."""
    shown = [row | {"right": _yes(row["right"])} for row in control_rows(results)]
    rows = [[str(row[heading]) for heading in _HEADINGS] for row in shown]
    counts = {rule: sum(result.right[rule] for result in results) for rule in (LOCAL_RULE, LOSS_RULE)}
    right = ", ".join(f"{rule} {count} of {len(results)} right" for rule, count in counts.items())
    return text_table(f"Controls of the recommendation: {right}", _HEADINGS, rows)


def _alternatives(control: Control) -> str:
    return " or ".join(_named(sorted(skills)) for skills in control.expected)


def _named(skills: Sequence[str]) -> str:
    return " + ".join(skills) or "none"


def _yes(right: bool) -> str:
    return "yes" if right else "no"
