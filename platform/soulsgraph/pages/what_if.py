"""The last decision of a lost fight that mattered: with another action there the agent lives on.

The fight is played again from its own seed, in a lane for each decision and each other action; in its lane that action
is taken in place of the recorded one, and after it the agent decides as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from soulsgraph.recordings.files import Recording
from soulsgraph.recordings.format import Header
from soulsgraph.runs.plan import scenario_digest
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.combat.loop import Actions, Combat
from soulsgraph_envs.combat.rollout import Flags, Integers
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.game import LaneIndices
from soulsgraph_envs.core.scenario import load_scenario, started_at
from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agents.agent import Agent

#: Game time by which the agent must live longer, how far an attempt is followed, and how far back they go.
LONGER_S, _FOLLOWED_S, _BACK_S = 2.0, 10.0, 30.0
#: Ticks whose decisions are tried at once.
_BLOCK = 40


class PivotalDecision(NamedTuple):
    """A decision that mattered: the row in which it began, what was chosen, and how another action would end."""

    row: int
    skill: str
    chosen: str
    other: str
    outcome: str


@dataclass(frozen=True)
class Search:
    """What was found, and a sentence about it."""

    note: str
    found: PivotalDecision | None = None


class _Attempt(NamedTuple):
    row: int
    skill: int
    action: int


class _OtherAction:
    """A controller that takes the other action of each lane's attempt; lane 0 plays the fight as it was."""

    def __init__(self, attempts: Sequence[_Attempt]) -> None:
        self._rows, self._skills, self._actions = np.array([(-1, 0, 0), *attempts], np.int64).T

    def begin(self, lanes: LaneIndices, seeds: Seeds) -> None:
        """Do nothing: attempts are of the lanes."""

    def act(self, combat: Combat, actions: Actions) -> None:
        """Write the other action where its moment has come."""
        lanes = np.flatnonzero(combat.ticks == self._rows)
        lanes = lanes[combat.due[lanes, self._skills[lanes]]]
        actions[lanes, self._skills[lanes]] = self._actions[lanes]


def last_decision(recording: Recording, run: RunFolder | None) -> Search:
    """Look for the latest decision for which another action lives on at least `LONGER_S` longer.

    `run` holds the networks that fought; their digests are compared.

    Raises:
        SoulsGraphError: if the run's library is damaged.
    """
    header = recording.header
    if reason := _not_to_search(recording, run):
        return Search(reason)
    assert run is not None
    try:
        agent = _agent(header, run)
    except _OtherNetworksError as error:
        return Search(str(error))
    most = max(len(recording) - round(_BACK_S / header.tick_s), 0)
    for first in range(len(recording) - _BLOCK, most - _BLOCK, -_BLOCK):
        attempts = _attempts(recording, range(max(first, most), first + _BLOCK))
        if not attempts:
            continue
        ends, won = _play(agent, int(header.seed), attempts, len(recording) + round(_FOLLOWED_S / header.tick_s))
        if ends[0] != len(recording):
            return Search("Not looked for: the fight takes another course on this machine, or with these data.")
        longer = (ends[1:] - len(recording)) * header.tick_s
        better = np.flatnonzero(won[1:] | (longer >= LONGER_S - 1e-9))
        if better.size:
            best = max(better, key=lambda index: (attempts[index].row, won[1 + index], longer[index]))
            outcome = _outcome(bool(won[1 + best]), float(longer[best]))
            return Search(_NOTE, _mattered(recording, attempts[best], outcome))
    return Search(f"No single other action in the last {_BACK_S:.0f} s lives {LONGER_S:.0f} s longer.")


_NOTE = (
    f"The latest decision for which another action, with the same seeds, lives at least {LONGER_S:.0f} s longer; "
    "after it the agent decides as ever."
)


def _outcome(won: bool, longer_s: float) -> str:
    if won:
        return "wins"
    return f"lives at least {_FOLLOWED_S:.0f} s longer" if longer_s >= _FOLLOWED_S else f"lives {longer_s:.1f} s longer"


def _not_to_search(recording: Recording, run: RunFolder | None) -> str:
    """Return why there is nothing to look for; empty where there is."""
    header = recording.header
    if not header.simulated:
        return "Not looked for: only a fight in the simulator can be played again with another action."
    if not header.skills:
        return "Not looked for: a person fought, who cannot be asked to decide again."
    if header.result.outcome != "died":
        return "The agent did not die in this fight."
    if run is None:
        return "Not looked for: the agent that fought is not at hand."
    drawn = [skill.name for skill in header.skills if skill.player == "network" and _any_random(recording, skill.name)]
    drawn += [skill.name for skill in header.skills if skill.player == "script"]
    if drawn:
        return f"Not looked for: {', '.join(drawn)} did not always decide by a network."
    if scenario_digest(header.scenario) != header.scenario_digest:
        return "Not looked for: the scenario's data changed since the fight."
    return ""


def _any_random(recording: Recording, skill: str) -> bool:
    return any(recording.table.column(f"{skill}/random").to_pylist())


class _OtherNetworksError(SoulsGraphError):
    """A run does not hold the networks that fought."""


def _agent(header: Header, run: RunFolder) -> Agent:
    """Return the agent that fought.

    Raises:
        _OtherNetworksError: if the run has other networks.
        SoulsGraphError: if one is damaged.
    """
    scenario = started_at(load_scenario(header.scenario), header.start)
    skills = tuple(make_skill(skill.name, header.options) for skill in header.skills)
    networks = {}
    for played, skill in zip(header.skills, skills, strict=True):
        if played.player != "network":
            continue
        known = skill.name in run.plan.skill_graph.skills and played.version in run.library.versions(skill.name)
        artifact = run.library.load(skill.name, played.version) if known else None
        if artifact is None or artifact.card.digest != played.digest:
            raise _OtherNetworksError(f"Not looked for: {run.path.name} has another {played.name} than fought.")
        networks[skill.name] = artifact.network(skill, scenario)
    random = [played.name for played in header.skills if played.player == "random"]
    return Agent(scenario, skills, networks, dict.fromkeys(random, "random"))


def _attempts(recording: Recording, rows: range) -> list[_Attempt]:
    """Return every other action of every decision that begins in some rows."""
    attempts = []
    for number, skill in enumerate(recording.header.skills):
        decides, taken = recording.column(f"{skill.name}/decides"), recording.column(f"{skill.name}/action")
        for row in rows:
            if row >= 0 and decides[row]:
                others = (action for action in range(len(skill.actions)) if action != taken[row])
                attempts += [_Attempt(row, number, action) for action in others]
    return attempts


def _play(agent: Agent, seed: int, attempts: Sequence[_Attempt], most_ticks: int) -> tuple[Integers, Flags]:
    """Play the fight in a lane as it was, and in one for every attempt; return at which tick each ended, and won."""
    game = make_game(len(attempts) + 1)
    seeds = np.full(game.lanes, seed, np.uint64)
    played = agent.rollout(game, _OtherAction(attempts)).play(seeds, most_ticks=most_ticks)
    # Who wins, or whose time is over, lives to the end.
    ends = np.where(played.died, np.rint(played.seconds / game.tick_s).astype(np.int64), most_ticks)
    return ends, played.won


def _mattered(recording: Recording, attempt: _Attempt, outcome: str) -> PivotalDecision:
    skill = recording.header.skills[attempt.skill]
    chosen = int(recording.column(f"{skill.name}/action")[attempt.row])
    return PivotalDecision(attempt.row, skill.name, skill.actions[chosen], skill.actions[attempt.action], outcome)
