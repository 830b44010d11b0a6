"""How many pictures to learn from are drawn in a second of CPU time, alone and with the fight.

python benchmarks/pixels.py --json docs/results/pixels/speed.json

States of random play of the end-to-end agent in 32 lanes, drawn lane by lane (one) and 32 at once; "decisions" are
those of the vector environment that observes the pictures, or values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from common import make_parser, report
from soulsgraph_envs.core.state import StateRows
from soulsgraph_envs.gym.skill_env import ObservationKind, SkillVectorEnv
from soulsgraph_envs.render.pixels import PixelTables, Shades
from soulsgraph_envs.skills import END_TO_END

_LANES, _DECISIONS, _CPU_S = 32, 100, 1.0
_SHADES: tuple[Shades, ...] = ("grey", "rgb")
_KINDS: tuple[ObservationKind, ...] = ("values", "pixels", "pixels-rgb")


def played(kind: ObservationKind) -> Iterator[SkillVectorEnv]:
    """Yield an environment after every decision of random play, without an end."""
    env, random = SkillVectorEnv(_LANES, END_TO_END, observation=kind), np.random.default_rng(0)
    env.reset(seed=0)
    while True:
        env.step(random.integers(len(env.rollout.skill.actions), size=_LANES))
        yield env


def drawn(table: PixelTables, states: StateRows, at_once: int) -> int:
    """Draw pictures of States (n, 25), some at once; return n."""
    return sum(len(table.draw(states[first : first + at_once])) for first in range(0, len(states), at_once))


def decided(env: Iterator[SkillVectorEnv]) -> int:
    """Take a decision in every lane; return how many lanes those are."""
    return next(env).num_envs


def rate(act: Callable[[], int], cpu_s: float = _CPU_S) -> float:
    """Return how much is done in a second of CPU time, by what returns how much one call does."""
    act()
    done, begun = 0, time.process_time()
    while time.process_time() - begun < cpu_s:
        done += act()
    return done / (time.process_time() - begun)


def results(rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the medians of interleaved rounds."""
    envs = {kind: played(kind) for kind in _KINDS}
    states = np.concatenate([next(envs["values"]).rollout.combat.rows.copy() for _ in range(_DECISIONS)])
    tables = {shades: PixelTables.of(next(envs["values"]).rollout.combat.scenario, shades) for shades in _SHADES}
    cases: dict[tuple[str, str], Callable[[], int]] = {}
    for shades, table in tables.items():
        cases["frames, one at a time", shades] = partial(drawn, table, states, 1)
        cases["frames, 32 at once", shades] = partial(drawn, table, states, _LANES)
    for kind, env in envs.items():
        cases["decisions", kind] = partial(decided, env)
    measured: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
    for _ in range(rounds):
        for case, act in cases.items():
            measured[case].append(rate(act))
    for (what, how), rates in measured.items():
        yield {"what": what, "how": how, "per_cpu_s": median(rates), "rounds": rates}


def main() -> None:
    """Measure and report."""
    asked = make_parser(__doc__).parse_args()
    report(
        results(asked.rounds), lambda one: f"{one['what']}, {one['how']}: {one['per_cpu_s']:,.0f} a CPU second", asked
    )


if __name__ == "__main__":
    main()
