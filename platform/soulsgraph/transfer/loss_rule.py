"""Which skills a shift asks to adapt, by lost returns: the first rule, shown beside the one that counts.

The rule and its thresholds were fixed before any control was looked at. It failed several of them,
for returns fall downstream of every loss; `local_rule` replaces its word, not its record.

A skill is judged by the return of its own task, the skills upstream of it as they were trained. Its
*drop* is what it lost from home to the new domain in units of what training gained at home over
uniform chance: 0 is as good as at home, 1 as bad as chance was there.

A drop may only be handed down from upstream: a slower camera makes every later skill worse. So the
drop is split as in mediation analysis (Wright 1934, "The method of path coefficients"; Pearl 2001,
"Direct and indirect effects"): `dependence` of skill k on an upstream skill j is the drop of k at
home when j plays by chance, a drop of j of 1. In training order

    direct(k) = drop(k) - sum over upstream j of dependence(k, j) * min(max(direct(j), 0), 1).

A skill is to be adapted if either

1. its direct drop is material and above 0 beyond doubt; or
2. it lost something beyond doubt, its inputs have moved further than chance play of the affected
   upstream skills moves them at home, and its values promise more than at home beyond doubt: it
   meets situations that it does not know and is wrong about them, whoever else is affected.

What is not named is left alone: the set is the smallest that accounts for the losses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

#: Direct drop worth an adaptation budget. Two trainings that differ in the seed alone are commonly a tenth apart.
MATERIAL_DROP = 0.15
#: Loss that counts as something to regain at all.
LEAST_DROP = 0.05
#: Kolmogorov-Smirnov distance from which a column has moved. Two samples of 200 episodes stay below
#: 1.36 * sqrt(2 / 200) = 0.14 in 95 % even if an episode's decisions were all alike.
MOVED_COLUMN = 0.2
#: Least gain of training over chance at home, in standard errors: below it there is nothing to lose.
LEAST_GAIN_ERRORS = 2.0
#: One-sided confidence of "beyond doubt", by a bootstrap over the paired episodes.
CONFIDENCE = 0.95

_RESAMPLES = 1_000
_BOOTSTRAP_SEED = 0


@dataclass(frozen=True)
class Evidence:
    """What the rule looks at for one skill; returns and biases (n,) are paired by evaluation seed.

    `dependent` holds the home returns when an upstream skill plays by chance. `moved` is each column's
    distance between the domains, `moved_by` the same at home between the trained agent and one with an
    upstream skill by chance.
    """

    home: Doubles
    chance: Doubles
    shifted: Doubles
    dependent: Mapping[str, Doubles]
    moved: Mapping[str, float]
    moved_by: Mapping[str, Mapping[str, float]]
    home_bias: Doubles
    shifted_bias: Doubles


@dataclass(frozen=True)
class Verdict:
    """What the rule found for one skill; `gain` in returns, drops as shares of it, with one-sided lower bounds.

    `optimism` is how much more than at home the values promise beyond what comes, in discounted return at
    a decision, which is no share of an episode's gain; `unexplained` the columns that moved further than
    upstream accounts for; `explained_by` the upstream share of the drop.
    """

    skill: str
    gain: float
    drop: float
    drop_low: float
    direct: float
    direct_low: float
    optimism: float
    optimism_low: float
    adapt: bool
    reason: str
    explained_by: Mapping[str, float] = field(default_factory=dict)
    unexplained: Mapping[str, float] = field(default_factory=dict)


def recommend(evidence: Mapping[str, Evidence]) -> dict[str, Verdict]:
    """Judge every skill; `evidence` comes in training order, every skill after all upstream of it."""
    verdicts: dict[str, Verdict] = {}
    directs: dict[str, Doubles] = {}
    for skill, found in evidence.items():
        affected = [name for name, verdict in verdicts.items() if verdict.adapt]
        verdicts[skill], directs[skill] = _judge(skill, found, directs, affected)
    return verdicts


def _judge(skill: str, found: Evidence, directs: Mapping[str, Doubles], affected: list[str]) -> tuple[Verdict, Doubles]:
    home, chance, shifted = (_resampled(values) for values in (found.home, found.chance, found.shifted))
    gain = home - chance
    error = float(gain[1:].std())
    if gain[0] <= LEAST_GAIN_ERRORS * error:
        reason = "at home it plays no better than chance: there is nothing to transfer, train it first"
        return Verdict(skill, float(gain[0]), *(0.0,) * 6, adapt=False, reason=reason), np.zeros_like(gain)
    scale = np.maximum(gain, gain[0] / 10.0)
    drop = (home - shifted) / scale
    shares = {
        name: (home - _resampled(returns)) / scale * np.clip(directs[name], 0.0, 1.0)
        for name, returns in found.dependent.items()
    }
    direct = drop - sum(shares.values(), np.zeros_like(drop))
    optimism = _resampled(found.shifted_bias) - _resampled(found.home_bias)
    unexplained = _unexplained(found, affected)
    adapt, reason = _decide(drop, direct, optimism, unexplained)
    verdict = Verdict(
        skill=skill,
        gain=float(gain[0]),
        drop=float(drop[0]),
        drop_low=_low(drop),
        direct=float(direct[0]),
        direct_low=_low(direct),
        optimism=float(optimism[0]),
        optimism_low=_low(optimism),
        adapt=adapt,
        reason=reason,
        explained_by={name: float(share[0]) for name, share in shares.items() if abs(share[0]) >= 0.005},
        unexplained=unexplained,
    )
    return verdict, direct


def _decide(drop: Doubles, direct: Doubles, optimism: Doubles, unexplained: Mapping[str, float]) -> tuple[bool, str]:
    if direct[0] >= MATERIAL_DROP and _low(direct) > 0.0:
        return True, f"its own task lost {direct[0]:.0%} of its gain that upstream does not explain"
    if drop[0] < LEAST_DROP or _low(drop) <= 0.0:
        return False, "its own task lost nothing that could be regained"
    if not unexplained:
        return False, "its loss is small or explained by upstream, and its inputs are explained too"
    columns = ", ".join(unexplained)
    if _low(optimism) <= 0.0:
        return False, f"its inputs moved ({columns}), but its values still hold"
    return True, f"its inputs moved ({columns}), its values promise too much, and it lost {drop[0]:.0%}"


def _unexplained(found: Evidence, affected: list[str]) -> dict[str, float]:
    """Give the columns beyond what chance play of the affected upstream skills moves at home."""
    rest = {
        column: distance - max((found.moved_by[name][column] for name in affected if name in found.moved_by), default=0)
        for column, distance in found.moved.items()
    }
    return {column: distance for column, distance in rest.items() if distance >= MOVED_COLUMN}


def _resampled(values: Doubles) -> Doubles:
    """Give the mean (first) and the means of bootstrap samples; the same draws whatever the values are."""
    draws = np.random.default_rng(_BOOTSTRAP_SEED).integers(len(values), size=(_RESAMPLES, len(values)))
    means: Doubles = np.concatenate([[values.mean()], values[draws].mean(axis=1)])
    return means


def _low(samples: Doubles) -> float:
    return float(np.quantile(samples[1:], 1.0 - CONFIDENCE))
