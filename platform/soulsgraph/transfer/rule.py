"""Which skills to adapt after a shift, by their own decision problems.

Returns fall downstream of every loss, so the rule asks of each skill alone whether what it decides about has
changed. A skill is to be adapted if either

1. the effect of its own actions in equal contexts has changed (`effects`); or
2. the animations that it observes predict something else, or are new to it (`cues`), in a material
   share of its decisions.

What upstream skills do is part of every action's context alike, so it cancels: mechanisms that
a shift leaves alone stay as they are (the sparse mechanism shifts of Scholkopf et al. 2021, "Toward
causal representation learning").

An earlier rule, by lost returns, had failed several controls. This one was made with that knowledge, on other
shifts than the controls: camera speed x0.6 and x1.5, lock range 8 m, damage x1.4 alone, timing x0.85 and x1.15 alone,
no shift with other seeds. Rule and thresholds were fixed before it saw a control.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from soulsgraph.transfer.cues import Cue, Threshold, changed_cues, changed_decisions
from soulsgraph.transfer.effects import Effect

#: Least change of an effect, a tempo or a cost: a move of two seconds that passes 5 % faster ends one
#: control tick earlier, less than that no skill can act on.
MATERIAL_CHANGE = 0.05
#: Least certainty, in standard errors: a false alarm in a thousand for each of five effects and some dozens of cues.
CERTAIN_ERRORS = 3.3
#: Least share of the decisions at home that makes a cue known: training hardly ever saw a rarer one.
KNOWN_SHARE = 0.001
#: Least share of decisions with changed cues that is worth an adaptation budget.
CHANGED_DECISIONS = 0.1

_NAMED_CUES = 3


@dataclass(frozen=True)
class Evidence:
    """The input of the rule for one skill: its actions' effect and its cues, home and shifted."""

    effect: Effect
    cues: tuple[Cue, ...]


@dataclass(frozen=True)
class Verdict:
    """The result of the rule for one skill.

    `effect_changed` is whether its actions' effect changed; `changed_cues` the kind of change of each changed
    cue by name, the most frequent first, and `changed_decisions` the share of decisions that see one.
    """

    skill: str
    effect_changed: bool
    changed_cues: Mapping[str, str]
    changed_decisions: float
    adapt: bool
    reason: str


def recommend(evidence: Mapping[str, Evidence]) -> dict[str, Verdict]:
    """Evaluate every skill by itself."""
    return {skill: _judge(skill, found) for skill, found in evidence.items()}


def _judge(skill: str, found: Evidence) -> Verdict:
    effect = found.effect
    changed = changed_cues(found.cues, Threshold(MATERIAL_CHANGE, CERTAIN_ERRORS, KNOWN_SHARE))
    named = {cue.name: change for cue, change in sorted(changed, key=lambda item: -item[0].share)}
    share = changed_decisions(cue for cue, _ in changed)
    clear = effect.home_errors >= CERTAIN_ERRORS
    other = clear and abs(effect.kept - 1.0) >= MATERIAL_CHANGE and abs(effect.change_errors) >= CERTAIN_ERRORS
    reasons = []
    if other:
        reasons.append(f"its actions do {effect.kept:.0%} of what they did at home")
    if share >= CHANGED_DECISIONS:
        listed = ", ".join(f"{name} {change}" for name, change in list(named.items())[:_NAMED_CUES])
        more = f" and {len(named) - _NAMED_CUES} more" if len(named) > _NAMED_CUES else ""
        reasons.append(f"in {share:.0%} of its decisions it sees changed animations: {listed}{more}")
    unclear = "" if clear else "; what its actions do is too unclear at home to tell a change"
    none = f"its actions do, and its inputs announce, what they did at home{unclear}"
    return Verdict(skill, other, named, share, adapt=bool(reasons), reason="; ".join(reasons) or none)
