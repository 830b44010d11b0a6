"""A fight at a checkpoint: moments of it as one picture, and what the skill that learns valued and chose in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from soulsgraph_envs.core.seeds import Seeds
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.simulator.render import render
from soulsgraph_policies.agents.agent import Agent
from soulsgraph_policies.agents.inference import FrozenNetwork, FusedNetworks

#: Height and width of a moment, and how many stand in a row and below each other.
_SIZE, _ACROSS, _DOWN = (180, 240), 3, 2


@dataclass(frozen=True)
class SampledFight:
    """Moments of a fight in equal distances from begin to end, (height, width, 3).

    `q_values` (ticks, actions) and `actions` (ticks,) are those of the skill, for every tick; actions begin at 0.
    """

    pixels: npt.NDArray[np.uint8]
    q_values: npt.NDArray[np.float32]
    actions: npt.NDArray[np.int64]


def sample_fight(agent: Agent, network: FrozenNetwork, seed: Seeds) -> SampledFight:
    """Play the last skill of an agent greedily by a network, for one fight in the simulator from one seed."""
    game, index = make_game(), len(agent.skills) - 1
    rollout = agent.playing({agent.skills[index].name: network}).rollout(game)
    scenes, rows, actions = [], [], []

    def keep() -> None:
        scenes.append(game.scene(0))
        rows.append(rollout.combat.starts(index)[0].copy())
        actions.append(int(rollout.combat.latest[0, index]))

    rollout.after_tick = keep
    rollout.play(seed)
    moments = np.linspace(0, len(scenes) - 1, _ACROSS * _DOWN).round().astype(int)
    tiles = [render(scenes[moment], _SIZE) for moment in moments]
    pixels = np.vstack([np.hstack(tiles[row * _ACROSS : (row + 1) * _ACROSS]) for row in range(_DOWN)])
    chosen = np.array(actions, np.int64)
    values = FusedNetworks([network]).q_values(0, np.ascontiguousarray(rows))
    return SampledFight(pixels, values, chosen[chosen >= 0])
