"""Check the recommendation on shifts whose cause is known, and show the whole table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.table import Table

from soulsgraph.files import write_json
from soulsgraph.progress import Display
from soulsgraph.reports.parquet import write_rows
from soulsgraph.run_folder import RunFolder
from soulsgraph.transfer.measures import Question
from soulsgraph.transfer.report import TransferReport, save_transfer, text_table, transfer
from soulsgraph_envs.errors import SoulsGraphError

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
