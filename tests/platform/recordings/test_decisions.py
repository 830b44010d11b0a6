"""Decisions read back from controls: the inverse of the composition, and what people press beside it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph.recordings.cloning import read_back
from soulsgraph_envs.combat.loop import Combat, Horizon
from soulsgraph_envs.combat.rollout import Rollout
from soulsgraph_envs.combat.scripted import OracleDodge, OracleFight, ScriptedPlay, engaging
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.core.state import STATE_SIZE, Column, Control
from soulsgraph_envs.simulator import Simulator
from soulsgraph_envs.skills import SKILL_NAMES, make_skill

SKILLS = [make_skill(name) for name in SKILL_NAMES]
CAMERA, LOCK_ON, MOVEMENT, DODGE, HEAL_ATTACK = range(5)


def rows(ticks, flasks=3.0):
    found = np.zeros((ticks, STATE_SIZE), np.float32)
    found[:, Column.FLASKS] = flasks
    return found


def read(*ticks, flasks=3.0):
    """The decisions in ticks of the given controls, by skill."""
    return read_back(np.array([int(controls) for controls in ticks], np.uint32), rows(len(ticks), flasks), SKILLS)


class Log:
    """Keeps the controls of every tick of one lane, and which decisions began in it."""

    def __init__(self, controller):
        self._controller = controller
        self.controls, self.rows, self.truth = [], [], [set() for _ in SKILLS]

    def begin(self, lanes, seeds):
        self._controller.begin(lanes, seeds)

    def act(self, combat, actions):
        self._controller.act(combat, actions)
        self.rows.append(combat.rows[0].copy())
        for skill in np.flatnonzero(combat.due[0]):
            self.truth[skill].add((len(self.rows) - 1, int(actions[0, skill])))


def fight(controller, seed, ticks):
    """Fight once; return what began when, the controls and State rows."""
    log = Log(controller)
    combat = Combat(Simulator(1), SKILLS, load_scenario("iudex-phase1"), Horizon("camera", ticks))
    rollout = Rollout(combat, log)
    rollout.after_tick = lambda: log.controls.append(int(combat.controls[0]))
    rollout.play(derive_seeds(np.array([seed], np.uint64), 0))
    return log.truth, np.array(log.controls, np.uint32), np.array(log.rows)


def pairs(found):
    return set(zip(found.begins.tolist(), found.actions.tolist(), strict=True))


def test_a_scripted_fights_controls_return_its_decisions(keep_result):
    """Print what is returned of each skill with `-s`; `--keep-results` keeps it for the page."""
    # Seeds 0 to 19; there is no chance in it but the fights' own.
    made, returned, false = (dict.fromkeys(SKILL_NAMES, 0) for _ in range(3))
    for seed in range(20):
        scripts = {**engaging(), "dodge": OracleDodge(), "heal_attack": OracleFight()}
        truth, controls, states = fight(ScriptedPlay(scripts), seed, 3000)
        found = read_back(controls, states, SKILLS)
        for name, true in zip(SKILL_NAMES, truth, strict=True):
            made[name] += len(true)
            returned[name] += len(true & pairs(found[name]))
            false[name] += len(pairs(found[name]) - true)
    shares = {name: returned[name] / made[name] for name in SKILL_NAMES}
    together = sum(returned.values()) / sum(made.values())
    print(*(f"{name}: {share:.1%} of {made[name]} decisions" for name, share in shares.items()), sep="\n")
    print(f"together: {together:.1%}")
    keep_result("cloning/read_back.json", {"made": made, "returned": returned, "false": false})
    assert together >= 0.99
    assert sum(false.values()) <= 0.01 * sum(made.values())
    assert min(shares.values()) >= 0.95


class Drawn:
    """Draws every decision; the dodge skill idles if it must not roll."""

    def __init__(self, rolls):
        self._rolls = rolls

    def begin(self, lanes, seeds):
        self._random = np.random.default_rng(int(seeds[0]))

    def act(self, combat, actions):
        for index, skill in enumerate(SKILLS):
            drawn = int(self._random.integers(len(skill.actions)))
            actions[0, index] = 1 if index == DODGE and not self._rolls else drawn


@given(st.integers(0, 2**32), st.booleans())
def test_whatever_is_decided_is_returned_but_for_what_another_skill_takes(seed, rolls):
    truth, controls, states = fight(Drawn(rolls), seed, 60)
    found = read_back(controls, states, SKILLS)
    first = [min(true)[0] if true else len(controls) for true in truth]
    for index in (CAMERA, LOCK_ON, MOVEMENT, DODGE, HEAL_ATTACK)[: 4 if rolls else 5]:
        # Before a skill's clock begins it sends nothing, which looks like the action that does nothing.
        since = {(tick, action) for tick, action in pairs(found[SKILLS[index].name]) if tick >= first[index]}
        assert since == truth[index], SKILLS[index].name
        assert found[SKILLS[index].name].ambiguous == 0
    taken = found["heal_attack"]
    rolled = np.flatnonzero(controls & Control.ROLL)
    assert not set(rolled) & set(taken.begins.tolist())
    assert taken.ambiguous <= len(rolled)


def test_a_decision_lasts_as_long_as_its_action():
    found = read(Control.ROLL, 0, 0, 0, 0, 0)["dodge"]
    assert (found.begins.tolist(), found.ends.tolist(), found.actions.tolist()) == ([0, 5], [5, 6], [0, 1])
    found = read(Control.USE_ITEM, 0, 0, 0, 0, 0)["heal_attack"]
    assert (found.begins.tolist(), found.ends.tolist()) == ([0, 3, 4, 5], [3, 4, 5, 6])
    assert found.actions.tolist() == [1, 2, 2, 2]
    assert read(Control.USE_ITEM, 0, 0, 0, 0, 0, flasks=0.0)["heal_attack"].ends.tolist() == [5, 6]


@pytest.mark.parametrize(
    ("controls", "skill"),
    [
        (Control.CAMERA_LEFT | Control.CAMERA_UP, "camera"),
        (Control.FORWARD | Control.BACK, "movement"),
        (Control.ROLL | Control.LIGHT_ATTACK, "heal_attack"),
        (Control.ROLL, "heal_attack"),
        (Control.LIGHT_ATTACK | Control.USE_ITEM, "heal_attack"),
    ],
)
def test_what_no_single_action_sends_is_ambiguous(controls, skill):
    found = read(0, controls, 0)[skill]
    assert (found.begins.tolist(), found.ambiguous) == ([0, 2], 1)


def test_a_person_who_acts_again_too_soon_makes_the_decision_before_ambiguous():
    found = read(Control.ROLL, 0, Control.ROLL, 0, 0, 0, 0, 0)["dodge"]
    assert (found.begins.tolist(), found.actions.tolist(), found.ambiguous) == ([2, 7], [0, 1], 1)


def test_controls_of_no_skill_are_left_out():
    found = read(Control.HEAVY_ATTACK | Control.JUMP | Control.FORWARD)
    assert all(one.ambiguous == 0 for one in found.values())
    assert pairs(found["movement"]) == {(0, 0)}


def test_a_single_skill_of_merged_actions_returns_its_own():
    skill = make_skill("end_to_end")
    names = [action.name for action in skill.actions]
    controls = np.array([int(Control.FORWARD | Control.ROLL), 0, 0, 0, 0, int(Control.FORWARD)], np.uint32)
    # Forward is held as long as the roll lasts.
    controls[1:5] = int(Control.FORWARD)
    found = read_back(controls, rows(6), [skill])["end_to_end"]
    assert [names[action] for action in found.actions] == ["dodge_forward", "forward"]
    assert (found.begins.tolist(), found.ambiguous) == ([0, 5], 0)
