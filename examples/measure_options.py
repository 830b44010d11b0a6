"""Measure what options of the learner cost: to draw an update's rows, and to take the update; write microseconds.

python examples/measure_options.py --rounds 5 --out docs/results/options/options

CPU time of one process for heal-attack in 32 lanes, medians over interleaved rounds, with a full replay of preset
`fast`. Priorities are set anew after each update, which counts as drawing. Writes JSON with commit, machine and load,
and the table as Markdown.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from soulsgraph.results.origin import describe_run
from soulsgraph.results.tables import markdown_table
from soulsgraph.runs.progress import silence_advice
from soulsgraph_envs.core.files import write_json, write_text
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.gym.skill_env import upstream_of
from soulsgraph_envs.skills import SkillOptions, make_skill, training_scenario
from soulsgraph_policies.learning.algorithm import SkillDQN
from soulsgraph_policies.learning.env_runners import SkillGraphEnvRunner
from soulsgraph_policies.learning.hyperparameters import PRESETS, preset_with
from soulsgraph_policies.learning.learner import AUTOGRAD

SKILL, BUDGET = "heal_attack", 90_000
#: Updates of one call, as many as a round of 128 decisions owes.
UPDATES = 32
VANILLA, BY_AUTOGRAD = "none of these", "none of these, by autograd"
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    VANILLA: {},
    BY_AUTOGRAD: {},
    "double_q": {"double_q": True},
    "n_step": {"n_step": 3},
    "alpha": {"alpha": 0.6},
    "animations": {"animations": "one_hot"},
}


def stage_of(name: str, capacity: int) -> SkillDQN:
    """Return an algorithm that trains the skill on untrained ones; it plays and learns nothing of its own accord."""
    preset = preset_with(PRESETS["fast"], OPTIONS[name])
    skills = [make_skill(one, preset.skill_options(SkillOptions())) for one in (*upstream_of(SKILL), SKILL)]
    scenario = training_scenario(load_scenario("iudex-phase1"), skills[-1])
    numbers = preset.hyperparameters(BUDGET)
    numbers = replace(numbers, capacity=capacity, num_steps_sampled_before_learning_starts=BUDGET)
    config = SkillDQN.get_default_config()
    config.stage(skills, numbers, preset.steps_per_round, AUTOGRAD if name == BY_AUTOGRAD else None, seed=0)
    config.env_runners(env_runner_cls=SkillGraphEnvRunner, num_envs_per_env_runner=preset.lanes)
    algorithm: SkillDQN = config.environment(env_config={"scenario": scenario}).build_algo()
    return algorithm


class Measured:
    """A stage that has filled its replay, and the microseconds of each round: drawing, updating."""

    def __init__(self, name: str, decisions: int) -> None:
        self.stage = stage_of(name, decisions)
        while self.stage.decisions < decisions:
            self.stage.train()
        self.rounds: list[tuple[float, float]] = []
        self.take_updates()

    def take_updates(self) -> tuple[float, float]:
        """Draw and take the updates of one call; return the microseconds an update of both."""
        training, begun = self.stage.training[SKILL], time.process_time()
        batch = training.draw(UPDATES)
        drawn = time.process_time()
        metrics = self.stage.learner.learning[SKILL].learn(batch, training.decisions)
        updated = time.process_time()
        training.learned(metrics, UPDATES)
        learned = time.process_time()
        return (drawn - begun + learned - updated) * 1e6 / UPDATES, (updated - drawn) * 1e6 / UPDATES

    def measure(self, seconds: float) -> None:
        """Keep a round: the medians of the calls of some seconds, the first left out."""
        self.take_updates()
        end, taken = time.process_time() + seconds, [self.take_updates()]
        while time.process_time() < end:
            taken.append(self.take_updates())
        drawing, updating = zip(*taken, strict=True)
        self.rounds.append((median(drawing), median(updating)))

    def to_dict(self) -> dict[str, Any]:
        """Return medians over rounds, and every round."""
        drawing, updating = (list(one) for one in zip(*self.rounds, strict=True))
        return {
            "sample_us": median(drawing),
            "update_us": median(updating),
            "rounds": {"sample_us": drawing, "update_us": updating},
        }


def main() -> None:
    """Fill replays, measure in turn, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds")
    parser.add_argument("--seconds", type=float, default=0.5, help="CPU seconds of an option in a round")
    parser.add_argument("--decisions", type=int, default=BUDGET // 3, help="transitions that the replay holds")
    parser.add_argument("--out", type=Path, default=Path("options"), help="files to write, less .json and .md")
    asked = parser.parse_args()
    silence_advice()
    origin = describe_run()
    measured = {name: Measured(name, asked.decisions) for name in OPTIONS}
    for _ in range(asked.rounds):
        for one in measured.values():
            one.measure(asked.seconds)
    found = {name: {"options": OPTIONS[name]} | one.to_dict() for name, one in measured.items()}
    settings = {"skill": SKILL, "observes": make_skill(SKILL, SkillOptions()).observation.size, "updates": UPDATES}
    write_json(asked.out.with_suffix(".json"), origin | settings | {"results": found})
    cells = [(name, f"{one['sample_us']:.0f}", f"{one['update_us']:.0f}") for name, one in found.items()]
    table = markdown_table(("option", "sample, us", "update, us"), cells)
    write_text(asked.out.with_suffix(".md"), f"{table}\n")
    print(table)


if __name__ == "__main__":
    main()
