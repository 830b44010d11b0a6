"""One controller explores: in training, in recorded fights, and where a transfer is measured."""

import numpy as np
import pytest

from soulsgraph_envs.combat.loop import Combat, Exploration, Horizon, SeededDraw
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds, uniforms
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.skills import SKILL_NAMES, make_skill

STREAM, LANES = 21, 6
SEEDS = derive_seeds(4, np.arange(LANES))


def _begun():
    skills = tuple(make_skill(name) for name in SKILL_NAMES)
    combat = Combat(make_game(lanes=LANES), skills, load_scenario("iudex-phase1"), Horizon(SKILL_NAMES[-1], 10))
    combat.begin(np.arange(LANES), SEEDS)
    return combat


@pytest.mark.parametrize("frugal", [False, True])
def test_a_seeded_draw_depends_on_stream_skill_lane_and_seed_alone(frugal):
    combat, calls = _begun(), []
    draw = SeededDraw(len(combat.skills), LANES, STREAM, frugal)
    skills = {position: combat.skills[position] for position in (1, 3)}
    exploration = Exploration(skills, lambda: 0.5, draw, lambda *due: calls.append(due))
    exploration.begin(np.arange(LANES), SEEDS)
    streams = {skill: derive_seeds(SEEDS, STREAM, skill) for skill in skills}
    for _ in range(40):
        actions, calls[:] = np.full((LANES, len(combat.skills)), -1), []
        due = combat.due.copy()
        exploration.act(combat, actions)
        assert {skill for skill, *_ in calls} == {skill for skill in skills if due[:, skill].any()}
        for skill, lanes, explores in calls:
            assert lanes.tolist() == np.flatnonzero(due[:, skill]).tolist()
            assert (explores == (uniforms(streams[skill], lanes) < 0.5)).all()
            chosen = uniforms(streams[skill], lanes[explores] if frugal else lanes)
            expected = (chosen if frugal else chosen[explores]) * len(combat.skills[skill].actions)
            assert actions[lanes[explores], skill].tolist() == expected.astype(np.int64).tolist()
            actions[lanes[explores], skill] = -1
        assert (actions == -1).all()
        combat.step(np.zeros_like(actions))


def test_a_lane_that_begins_anew_draws_as_it_did_and_moves_no_other():
    draw, lanes = SeededDraw(2, LANES, STREAM), np.arange(LANES)
    draw.begin(lanes, SEEDS)
    first = draw(1, lanes, 0.5)[1]
    draw.begin(lanes[2:3], SEEDS[2:3])
    second = draw(1, lanes, 0.5)[1]
    assert (second == first).tolist() == [lane == 2 for lane in range(LANES)]
