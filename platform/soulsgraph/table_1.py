"""The rows of the paper's Table 1, as settings that can be evaluated."""

from __future__ import annotations

from dataclasses import dataclass

from soulsgraph_envs.skills import END_TO_END


@dataclass(frozen=True)
class Row:
    """One setting: where it is evaluated, what was trained for it, which skills are replaced by random."""

    label: str
    part: str
    scenario: str
    paper_percent: float
    start: str = "mid"
    randomize: tuple[str, ...] = ()
    #: The scenario whose skill versions play; another one than `scenario` is zero-shot transfer.
    trained_on: str = "iudex-phase1"
    skill: str = "heal_attack"
    #: Skills that must have been adapted to `trained_on` for the row to mean what it says.
    adapted: tuple[str, ...] = ()


_PHASE_1, _PHASE_2 = "iudex-phase1", "iudex-phase2"

TABLE_1 = (
    Row("heal-attack random, dodge random", "a", _PHASE_1, 0.0, randomize=("heal_attack", "dodge")),
    Row("heal-attack random, dodge trained", "a", _PHASE_1, 4.0, randomize=("heal_attack",)),
    Row("heal-attack trained, dodge random", "a", _PHASE_1, 16.0, randomize=("dodge",)),
    Row("heal-attack trained, dodge trained", "a", _PHASE_1, 44.0),
    Row("single end-to-end agent", "a", _PHASE_1, 0.0, skill=END_TO_END),
    Row("zero-shot, mid-range start", "b", _PHASE_2, 33.3),
    Row("zero-shot, long-range start", "b", _PHASE_2, 12.5, start="long"),
    Row("dodge and heal-attack fine-tuned", "b", _PHASE_2, 52.0, trained_on=_PHASE_2, adapted=("dodge", "heal_attack")),
)
