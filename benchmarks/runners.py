"""The driver's CPU time of a training with no, one and two remote env runners.

python benchmarks/runners.py --rounds 3
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import common
from bench import describe as describe_rates
from soulsgraph_clusters.sessions.session import connect
from soulsgraph_envs.core.machine import compute_on_one_thread
from soulsgraph_policies.learning.hyperparameters import PRESETS, changed
from speed import interleave, spread
from training import BUDGET, EXPLORATION, contender_of, make_stage

#: Remote runners of one stage.
_RUNNERS = (0, 1, 2)


def bench_runners(skill: str, preset: str, steps: int, rounds: int) -> list[dict[str, Any]]:
    """Measure one skill without remote runners, with one and with two: the driver's CPU time, Ray's threads included.

    `driver_cpu` is what a decision takes of it, in what it takes without remote runners in the same round.
    """
    compute_on_one_thread()
    chosen = PRESETS[preset]
    numbers = changed(chosen.hyperparameters(BUDGET), {"epsilon": EXPLORATION})
    with connect(num_cpus=1 + sum(_RUNNERS)):
        stages = [make_stage(skill, chosen, numbers, runners) for runners in _RUNNERS]
        names = ("no env runner", *(f"{runners} env runner{'s' * (runners > 1)}" for runners in _RUNNERS[1:]))
        contenders = [contender_of(stage, steps, name) for stage, name in zip(stages, names, strict=True)]
        interleave(rounds, contenders)
        for stage in stages:
            stage.stop()
    alone = contenders[0].per_cpu_s
    results = [one.to_dict() | {"skill": skill, "preset": preset, "lanes": chosen.lanes} for one in contenders]
    for one, result in zip(contenders, results, strict=True):
        shares = [without / rate for without, rate in zip(alone, one.per_cpu_s, strict=True)]
        result["driver_cpu"] = spread(shares)
    return results


def describe(result: dict[str, Any]) -> str:
    """Return one result as a line: its rate, and its share of the driver's CPU time without remote runners."""
    share = result["driver_cpu"]
    return (
        f"{describe_rates(result)}; {share['median']:.2f} times the driver's CPU time without "
        f"({share['lowest']:.2f} to {share['highest']:.2f})"
    )


def _all(rounds: int) -> Iterator[dict[str, Any]]:
    for skill, preset in product(("camera", "dodge"), ("fast", "best")):
        yield from bench_runners(skill, preset, 10_000, rounds)


def main() -> None:
    """Measure, print."""
    asked = common.make_parser(__doc__).parse_args()
    common.report(_all(asked.rounds), describe, asked)


if __name__ == "__main__":
    main()
