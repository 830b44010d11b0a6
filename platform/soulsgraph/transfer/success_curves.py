"""How often the whole agent wins while it trains in a domain, from the checkpoints of the domain's stages.

A stage's own learning curve plays that stage's task, in which the skills downstream of it are absent. Here
every checkpoint plays the whole fight: with the versions that the domain's earlier stages made, and for
skills whose stage is still to come with the versions that came into the domain, or uniform chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from soulsgraph.curves import checkpoint_files, load_checkpoint
from soulsgraph.domains import domain_chain, version_in_play
from soulsgraph.evaluation import evaluation_seeds
from soulsgraph.files import api_call, slug
from soulsgraph.run_folder import RunFolder
from soulsgraph.transfer.recovery import SCRATCH, arm_path
from soulsgraph_envs.catalogue import load_scenario
from soulsgraph_envs.games import make_game
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agent import Agent, StandIn
from soulsgraph_policies.artifact import SkillCard
from soulsgraph_policies.inference import FrozenNetwork

Doubles = npt.NDArray[np.float64]
#: Episodes that each checkpoint plays, the same ones for every checkpoint and run.
POINT_EPISODES = 20


@dataclass(frozen=True)
class SuccessCurve:
    """Win rates of the whole agent after a number of steps in a domain: both (points,), from step 0 on."""

    steps: Doubles
    rates: Doubles

    @property
    def area(self) -> float:
        """Mean win rate over the steps (trapezoids), in [0, 1]: the AUC of Continual World."""
        span = float(self.steps[-1] - self.steps[0])
        return float(np.trapezoid(self.rates, self.steps)) / span if span else float(self.rates.mean())


def win_rates(agent: Agent, seed: int, variants: int = 1) -> list[float]:
    """Return the win rate of each of an agent's variants over the same episodes, all in one batch of lanes."""
    rollout = agent.rollout(make_game(lanes=variants * POINT_EPISODES))
    won = rollout.play(np.tile(evaluation_seeds(seed, POINT_EPISODES), variants)).won
    rates: list[float] = won.reshape(variants, POINT_EPISODES).mean(axis=1).tolist()
    return rates


def domain_cards(run: RunFolder, domain: str) -> tuple[SkillCard, ...]:
    """Return the versions that play after a domain and were trained in it, in training order."""
    order, library = run.plan.skill_graph.order, run.library
    cards = (library.card(skill, version_in_play(run, skill, domain)) for skill in order)
    return tuple(card for card in cards if card.training.scenario == domain)


def success_curve(run: RunFolder, domain: str, seed: int) -> SuccessCurve:
    """Play the agent as it enters a domain, at every checkpoint of its stages there, and after each stage.

    Raises:
        LibraryError: if a skill was never trained, or is damaged.
        SoulsGraphError: if a checkpoint is damaged.
    """
    skills = {name: make_skill(name, run.plan.options) for name in run.plan.skill_graph.order}
    scenario = load_scenario(domain)

    def network(skill: str, version: int) -> FrozenNetwork:
        return run.library.load(skill, version).network(skills[skill], scenario)

    before = {skill: network(skill, version) for skill, version in _versions_before(run, domain).items()}
    untrained: dict[str, StandIn] = {name: "random" for name in skills if name not in before}
    agent = Agent(scenario, tuple(skills.values()), before, untrained)
    steps, rates, begun = [0], win_rates(agent, seed), 0
    for card in domain_cards(run, domain):
        clip = card.observation_clip
        stage = {
            step: FrozenNetwork.of(skills[card.skill], scenario, load_checkpoint(path), clip)
            for step, path in _checkpoints(run, card).items()
            if step < card.training.steps
        }
        stage[card.training.steps] = network(card.skill, card.version)
        steps += [begun + step for step in stage]
        rates += win_rates(agent.playing({card.skill: list(stage.values())}), seed, len(stage))
        agent = agent.playing({card.skill: stage[card.training.steps]})
        begun += card.training.steps
    return SuccessCurve(np.array(steps, np.float64), np.array(rates))


def _versions_before(run: RunFolder, domain: str) -> dict[str, int]:
    """Return the versions that came into the domain; none where the run began in it."""
    before = domain_chain(run, domain)[:-1]
    return {skill: version_in_play(run, skill, before[-1]) for skill in run.plan.skill_graph.order} if before else {}


def _checkpoints(run: RunFolder, card: SkillCard) -> dict[int, Path]:
    """Return the checkpoints of the stage that made a version by step; none of one that learned beside others."""
    if card.training.jointly:
        return {}
    if card.parent is None:
        return checkpoint_files(run.path / "curves" / card.skill)
    name = f"{card.skill}@{slug(card.training.scenario)}"
    further = run.path / "curves" / f"{name}-v{card.version}-{card.training.budget}"
    return checkpoint_files(further if further.exists() else run.path / "curves" / name)


@dataclass(frozen=True)
class TrainingTransfer:
    """Success over the steps in one domain beside the same from scratch; None where that was not trained.

    `remedy` is the call that trains it.
    """

    domain: str
    curve: SuccessCurve
    alone: SuccessCurve | None
    remedy: str

    @property
    def forward_transfer(self) -> float | None:
        """Continual World's forward transfer; None without the curve from scratch, or if that is 1 throughout."""
        return None if self.alone is None else training_forward_transfer(self.curve.area, self.alone.area)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        curves = {"": self.curve, "alone_": self.alone}
        areas = {f"{name}area": curve.area if curve else None for name, curve in curves.items()}
        points = {
            f"{name}curve": [curve.steps.tolist(), curve.rates.tolist()] if curve else None
            for name, curve in curves.items()
        }
        missing = self.remedy if self.alone is None else None
        return {"forward_transfer": self.forward_transfer, **areas, "missing": missing, **points}

    def line(self) -> str:
        """Return it as a line for the terminal."""
        begin = f"forward transfer while training in {self.domain} (Continual World): "
        if self.alone is None:
            return f"{begin}missing, for nothing was trained there from scratch; train it with: {self.remedy}"
        value = self.forward_transfer
        shown = "not defined, from scratch won throughout" if value is None else f"{value:+.3f}"
        return f"{begin}{shown}; mean success {self.curve.area:.3f}, from scratch {self.alone.area:.3f}"


def training_transfer(run: RunFolder, domain: str, seed: int) -> TrainingTransfer:
    """Play a domain's curve, and that of the recovery's arm trained from scratch.

    Raises:
        SoulsGraphError: if a checkpoint or an artifact is damaged.
    """
    budget = sum(card.training.budget for card in domain_cards(run, domain))
    path = arm_path(run, domain, budget, SCRATCH)
    scratch = RunFolder.open(path) if (path / "plan.json").exists() else None
    trained = scratch and all(scratch.library.versions(skill) for skill in run.plan.skill_graph.order)
    alone = success_curve(scratch, domain, seed) if scratch and trained else None
    remedy = api_call("recover", run=run.path, scenario=domain, budget=budget)
    return TrainingTransfer(domain, success_curve(run, domain, seed), alone, remedy)


def training_forward_transfer(area: float, area_alone: float) -> float | None:
    """Return FT_i = (AUC_i - AUC_i^b) / (1 - AUC_i^b): what came before helped while domain i was trained.

    `area` is the mean success rate over the steps in the domain, `area_alone` that of training it from
    scratch for the same steps: Wolczyk et al. (2021), "Continual World". 0 is no help, 1 success from the
    first step on; None where training from scratch succeeded throughout.
    """
    return (area - area_alone) / (1.0 - area_alone) if area_alone < 1.0 else None
