"""Scripted and probing play does not change: results, recordings and calibrations name it by its seeds alone.

`golden_play.npz` holds moments of fights, which are compared with a tolerance: another processor's sine differs in its
last bits. Run this file as a program to write it again, after a change that is meant to change how scripts play.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fakes.games import LossyGame
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.probe import BlowDoubt, Focus, Probe
from soulsgraph_envs.combat.rollout import Rollout
from soulsgraph_envs.combat.scripted import DelayedScript, ScriptedPlay, Uniform, references
from soulsgraph_envs.core.errors import GameError, UnknownNameError
from soulsgraph_envs.core.scenario import load_boss, load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import Raw
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES, make_skill

_GOLDEN = Path(__file__).with_name("golden_play.npz")
_LANES, _TICKS, _EVERY = 12, 300, 15
_ANGLES = [Raw.PLAYER_ANGLE, Raw.BOSS_ANGLE]
#: Everywhere in the arena, looking anywhere.
_SCATTERED = replace(load_scenario("iudex-phase1"), start="scattered")


def focus() -> Focus:
    """Return a focus that leaves something open of everything."""
    boss = load_boss("iudex-phase1")
    doubts = {
        move.id: [
            BlowDoubt(
                (0.9 * window.reach_m, 1.1 * window.reach_m),
                (0.8, 1.2),
                (0.9 * window.time_s[1], window.time_s[1]),
                {"reach": 0.3, "arc": 0.4, "end": 0.7, "blow": 0.2},
            )
            for window in move.windows
        ]
        for move in boss.moves
    }
    return Focus(boss, doubts, {3.0: 0.5, 9.0: 0.5}, orbits=0.3, behind=0.5, fights=9)


def _late(_: object) -> ScriptedPlay:
    scripts = references(SKILL_NAMES, _SCATTERED)
    return ScriptedPlay({**scripts, "dodge": DelayedScript(scripts["dodge"], 2)})


def _random(_: object) -> ScriptedPlay:
    return ScriptedPlay({name: Uniform(make_skill(name), _LANES, place) for place, name in enumerate(SKILL_NAMES)})


_PLAYS = {
    "references": (_SCATTERED, SKILL_NAMES, lambda fought: ScriptedPlay(references(SKILL_NAMES, fought))),
    "references, late": (_SCATTERED, SKILL_NAMES, _late),
    "end to end": (_SCATTERED, (END_TO_END,), lambda fought: ScriptedPlay(references((END_TO_END,), fought))),
    "random": (load_scenario("vordt"), SKILL_NAMES, _random),
    "probe": (load_scenario("iudex-full"), SKILL_NAMES, lambda fought: ScriptedPlay(Probe(fought).scripts)),
    "probe with a focus": (_SCATTERED, SKILL_NAMES, lambda fought: ScriptedPlay(Probe(fought, focus()).scripts)),
}


def moments(name: str) -> np.ndarray:
    """Return raw values of every 15th tick (ticks, lanes, 25); fights that ended stand still."""
    scenario, skills, controller = _PLAYS[name]
    combat = Combat(Simulator(_LANES), [make_skill(skill) for skill in skills], scenario, Horizon(skills[0], 10**9))
    rollout, kept, active = Rollout(combat, controller(scenario)), [], np.ones(_LANES, np.bool_)
    rollout.begin(np.arange(_LANES), derive_seeds(np.arange(_LANES), 3))
    for tick in range(_TICKS):
        rollout.tick(active)
        active &= ~combat.ended
        if tick % _EVERY == 0:
            kept.append(combat.raw.copy())
    return np.array(kept)


@pytest.mark.parametrize("name", _PLAYS)
def test_play_is_what_it_was(name: str) -> None:
    with np.load(_GOLDEN) as golden:
        difference = moments(name) - golden[name]
    difference[:, :, _ANGLES] = np.remainder(difference[:, :, _ANGLES] + np.pi, 2 * np.pi) - np.pi
    np.testing.assert_allclose(difference, 0.0, atol=1e-3)


def test_an_oracle_needs_a_game_that_tells_its_future_and_a_reference_a_skill_that_has_one() -> None:
    combat = Combat(LossyGame(Simulator(1), {}), [make_skill("dodge")], _SCATTERED, Horizon("dodge", 10))
    combat.begin(np.arange(1), np.zeros(1, np.uint64))
    combat.due[:] = True
    with pytest.raises(GameError, match="simulator"):
        ScriptedPlay(references(["dodge"], _SCATTERED)).act(combat, np.zeros((1, 1), np.int64))
    with pytest.raises(UnknownNameError, match="doge"):
        references(["doge"], _SCATTERED)


if __name__ == "__main__":
    np.savez_compressed(_GOLDEN, **{name: moments(name).round(4) for name in _PLAYS})
