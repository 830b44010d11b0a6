"""Invalid actions and seeds: an error that names them, and an environment that continues unchanged."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import gymnasium
import numpy as np
import pytest

from soulsgraph_envs.combat.loop import Actions, Combat
from soulsgraph_envs.compat.eldengym import AttributeEnv, EldenGymEnv
from soulsgraph_envs.compat.eldengym.env import OptionError
from soulsgraph_envs.core.errors import ActionError, ResetNeededError, SeedError, SoulsGraphError
from soulsgraph_envs.gym.rllib import SkillGraphEnv
from soulsgraph_envs.gym.skill_env import SkillEnv, SkillVectorEnv
from soulsgraph_envs.skills import SKILL_NAMES

INTEGERS = [np.dtype(code).type for code in "bBhHiIlLqQ"]
OWN = [lambda: SkillEnv("heal_attack"), lambda: SkillEnv("end_to_end"), SkillGraphEnv, lambda: SkillVectorEnv(3)]
OWN_IDS = ["skill", "end_to_end", "graph", "vector"]
REGISTERED = sorted(
    spec.id for spec in gymnasium.registry.values() if str(spec.entry_point).startswith("soulsgraph_envs.")
)


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no array")


def nonsense(random: np.random.Generator) -> Iterator[Any]:
    """Yield values that are neither an action nor a seed, endlessly."""
    fixed: list[Any] = [-1, -(2**63), -(2**64), -(10**5000), 1.5, 0.0, np.float32(1), np.nan, np.inf, -np.inf, 1j]
    fixed += ["0", "", "noop", b"1", Decimal(1), object(), Unprintable(), print, {}, {0}, {"dodge": 0}, (), [], [0]]
    fixed += [[[0], [0, 1]], np.array([0]), np.array([[0]]), np.zeros(0, int), np.array(0.0), np.array(1, object)]
    fixed += [np.array("0"), np.array([None]), np.datetime64(1, "s"), np.bool_(True), range(1), iter(()), Ellipsis]
    yield from fixed
    kinds = [kind for kind in INTEGERS if np.iinfo(kind).min < 0]
    while True:
        number = -int(random.integers(1, 2**62))
        yield number
        yield -(10 ** int(random.integers(1, 400)))
        yield float(random.normal()) * 10.0 ** int(random.integers(-9, 9))
        yield kinds[number % len(kinds)](-int(random.integers(1, 100)))
        yield random.integers(-5, 5, random.integers(1, 4, random.integers(1, 4)))
        yield "".join(map(chr, random.integers(32, 1000, 5)))
        yield random.normal(size=int(random.integers(0, 40)))


def make(id: str) -> gymnasium.Env[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # EldenGym's announces that its fight is simulated.
        return gymnasium.make(id)


#: One environment of each family is asked a thousand times; the others are asked what every kind of nonsense is.
OFTEN = {"soulsgraph/Skill-v0": 500, "soulsgraph/SoulsGymIudex-v0": 500, "soulsgraph/EldenGym-v0": 500}


@pytest.mark.parametrize("id", REGISTERED)
def test_invalid_actions_and_seeds_leave_every_environment_as_it_was(id: str) -> None:
    disturbed, calm = make(id), make(id)
    valid = [int(action) for action in np.random.default_rng(1).integers(0, disturbed.action_space.n, 6)]
    for env in (disturbed, calm):
        env.reset(seed=11)
        env.step(valid[0])
    # To Gymnasium a bool is an integer.
    beside = [disturbed.action_space.n, 10**7, 10**30, 10**5000, 2**63, np.uint64(2**64 - 1), True, False]
    wrong_actions = itertools.cycle(beside)
    for number, value in enumerate(itertools.islice(nonsense(np.random.default_rng(2)), OFTEN.get(id, 100))):
        with pytest.raises(SoulsGraphError) as refused:
            disturbed.step(next(wrong_actions) if number % 5 == 0 else value)
        assert "\n" not in str(refused.value)
        with pytest.raises(SeedError, match="integer of at least 0"):
            disturbed.reset(seed=value)
    for action in valid[1:]:
        np.testing.assert_equal(disturbed.step(action), calm.step(action))
    np.testing.assert_equal(disturbed.reset(), calm.reset())
    for env in (disturbed, calm):
        env.close()


def test_the_fuzz_test_knows_every_face() -> None:
    faces = ("Skill", "EndToEnd", "EldenGym", *(f"SoulsGym{name}" for name in ("Iudex", "IudexImg", "Vordt")))
    assert {f"soulsgraph/{face}-v0" for face in faces} | {*OFTEN} <= set(REGISTERED)


@pytest.mark.filterwarnings("ignore::soulsgraph_envs.compat.eldengym.env.SimulatedGameWarning")
@pytest.mark.parametrize("make", [AttributeEnv, lambda: EldenGymEnv(action_mode="multi_binary")], ids=["0.6.0", "1.0"])
def test_eldengyms_keys_take_one_bit_each(make: Any) -> None:
    env = make()
    env.reset(seed=0)
    bits = [0] * env.action_space.n
    for wrong in (bits[1:], [*bits, 0], [*bits[1:], 2], [*bits[1:], [0, 1]], [*bits[1:], None], None, 0, 10**30):
        with pytest.raises(OptionError, match="action: expected one of MultiBinary"):
            env.step(wrong)
    assert env.step_count == 0
    env.step(np.array(bits))


@pytest.mark.parametrize(
    "actions",
    [
        *([0, 1, -1], [0, 1, 3], [0, 10**7, 0], [0, 1], [0, 1, 2, 0], [[0, 1, 2]], 0, None, "012", [0, None, 1]),
        *([0.0, 1.0, 2.0], [True, False, True], ["0", "1", "2"], [0, np.nan, 1], [0, [1], 2], [0, 10**30, 1]),
        *(np.array([0, 1, 2**64 - 1], np.uint64), np.zeros((3, 1), int), np.zeros(3, object), np.zeros(0, int)),
    ],
    ids=str,
)
def test_the_vector_face_takes_one_integer_a_lane(actions: Any) -> None:
    env = SkillVectorEnv(3, "heal_attack")
    observations, _ = env.reset(seed=5)
    ticks = env.rollout.combat.ticks.copy()
    with pytest.raises(ActionError, match=r"heal_attack: expected 3 actions of Discrete\(3\), integers from 0 to 2"):
        env.step(actions)
    assert np.array_equal(env.rollout.observations, observations)
    assert np.array_equal(env.rollout.combat.ticks, ticks)


def test_1_000_invalid_actions_and_seeds_leave_the_registered_vector_face_as_it_was() -> None:
    keywords = {"vectorization_mode": "vector_entry_point", "skill": "dodge"}
    disturbed, calm = (gymnasium.make_vec("soulsgraph/Skill-v0", 3, **keywords) for _ in range(2))
    for envs in (disturbed, calm):
        envs.reset(seed=11)
        envs.step(np.array([1, 0, 1]))
    values = itertools.islice(nonsense(np.random.default_rng(2)), 1_000)
    # Three integers may be right for three lanes.
    for value in (value for value in values if not isinstance(value, np.ndarray) or value.shape != (3,)):
        with pytest.raises(SoulsGraphError):
            disturbed.step(value)
        with pytest.raises(SeedError):
            disturbed.reset(seed=value)
    np.testing.assert_equal(disturbed.step(np.array([0, 0, 1])), calm.step(np.array([0, 0, 1])))
    np.testing.assert_equal(disturbed.reset(), calm.reset())


@pytest.mark.parametrize("id", ["soulsgraph/Dodge-v0", "soulsgraph/Continual-v0"])
@pytest.mark.parametrize("count", [0, -1, 1.5, "2", True, None, 10**9])
def test_a_count_of_environments_that_cannot_be_is_refused_by_its_name(id: str, count: Any) -> None:
    with pytest.raises(SoulsGraphError, match="num_envs: expected a whole number from 1 to 100,000, found"):
        gymnasium.make_vec(id, num_envs=count)


@pytest.mark.parametrize("options", [3, "reset_mask", {"reset_maks": np.ones(3, np.bool_)}, {1: 2}])
def test_options_of_a_reset_that_no_vector_face_has_are_refused(options: Any) -> None:
    envs = SkillVectorEnv(3)
    envs.reset(seed=0)
    with pytest.raises(SoulsGraphError, match="reset: expected options"):
        envs.reset(options=options)
    envs.step(np.zeros(3, np.int64))


@pytest.mark.parametrize("options", [3, "task", {1: 2}])
def test_options_of_a_reset_that_are_no_dict_are_refused(options: Any) -> None:
    env = SkillEnv("camera")
    env.reset(seed=0)
    with pytest.raises(SoulsGraphError, match="reset: expected options as a dict or None, found"):
        env.reset(options=options)
    env.step(0)


def test_an_action_error_names_the_lane() -> None:
    env = SkillVectorEnv(3, "dodge")
    env.reset(seed=5)
    with pytest.raises(
        gymnasium.error.InvalidAction, match=r"of Discrete\(2\), integers from 0 to 1, found 7 of environment 2"
    ):
        env.step(np.array([0, 1, 7]))


@pytest.mark.parametrize("kind", [int, *INTEGERS, np.array, lambda a: np.array(a, ">i4")])
def test_every_kind_of_integer_is_an_action(kind: Any) -> None:
    env, other = SkillEnv("heal_attack"), SkillEnv("heal_attack")
    for each in (env, other):
        each.reset(seed=1)
    for action in (2, 0, 1):
        np.testing.assert_equal(env.step(kind(action)), other.step(action))
    vector = SkillVectorEnv(2, "heal_attack")
    vector.reset(seed=1)
    vector.step([kind(0), kind(2)])


class Stray:
    """A controller that plays an action which does not exist."""

    def begin(self, lanes: Any, seeds: Any) -> None:
        """Do nothing."""

    def act(self, combat: Combat, actions: Actions) -> None:
        """Play far beyond the last action of the camera."""
        actions[:, 0] = 10**7


def test_a_controller_cannot_play_what_does_not_exist() -> None:
    with pytest.raises(ActionError, match=r"camera: expected an action of .*, found 10000000 of environment 0"):
        SkillEnv("dodge", controller=Stray()).reset(seed=0)


class TestSkillGraph:
    def begun(self) -> tuple[SkillGraphEnv, dict[str, int]]:
        env = SkillGraphEnv()
        observations, _ = env.reset(seed=3)
        return env, dict.fromkeys(observations, 0)

    @pytest.mark.parametrize("action", [-1, 10**7, 1.5, True, None, "0", [0]])
    def test_an_action_outside_its_space_is_an_error(self, action: Any) -> None:
        env, actions = self.begun()
        name = next(iter(actions))
        with pytest.raises(ActionError, match=f"{name}: expected an action of Discrete"):
            env.step(actions | {name: action})

    def test_no_action_for_a_due_skill_is_an_error(self) -> None:
        env, actions = self.begun()
        name, _ = actions.popitem()
        with pytest.raises(ActionError, match=f"{name}: expected an action .* found none"):
            env.step(actions)

    @pytest.mark.parametrize("name", ["parry", 7, "__all__"])
    def test_an_unknown_agent_is_an_error(self, name: Any) -> None:
        env, actions = self.begun()
        with pytest.raises(ActionError, match=f"expected actions of camera, .*; found one of {name!r}"):
            env.step(actions | {name: 0})

    @pytest.mark.parametrize("actions", [None, 0, [0, 0, 0, 0, 0], "camera"])
    def test_actions_come_in_a_dictionary(self, actions: Any) -> None:
        env, _ = self.begun()
        with pytest.raises(ActionError, match="expected a dictionary of actions by agent"):
            env.step(actions)

    def test_errors_change_nothing_and_actions_that_are_not_due_are_ignored(self) -> None:
        env, actions = self.begun()
        calm, _ = self.begun()
        for _ in range(60):
            for wrong in ({}, actions | {"parry": 0}, dict.fromkeys(actions, 99)):
                with pytest.raises(ActionError):
                    env.step(wrong)
            ignored = {name: "whatever" for name in SKILL_NAMES if name not in actions}
            found = env.step(actions | ignored)
            np.testing.assert_equal(found, calm.step(actions))
            actions = dict.fromkeys(found[0], 0)
        assert len(actions) < len(SKILL_NAMES)


class TestOrder:
    @pytest.mark.parametrize("make", OWN, ids=OWN_IDS)
    def test_a_step_needs_an_open_episode(self, make: Any) -> None:
        env = make()
        action = {name: 0 for name in SKILL_NAMES} if isinstance(env, SkillGraphEnv) else 0
        action = [0, 0, 0] if isinstance(env, SkillVectorEnv) else action
        with pytest.raises(ResetNeededError, match="call reset first"):
            env.step(action)
        env.reset(seed=0)
        env.step(action)
        env.close()
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(action)

    @pytest.mark.parametrize("make", [lambda: SkillEnv("dodge"), SkillGraphEnv], ids=["skill", "graph"])
    def test_an_episode_that_is_over_is_not_stepped(self, make: Any) -> None:
        env = make()
        observation, _ = env.reset(seed=0)
        ended = False
        while not ended:
            actions = dict.fromkeys(observation, 1) if isinstance(env, SkillGraphEnv) else 1
            observation, _, terminated, truncated, _ = env.step(actions)
            ends = (
                (terminated, truncated)
                if isinstance(terminated, bool)
                else (terminated["__all__"], truncated["__all__"])
            )
            ended = any(ends)
        with pytest.raises(ResetNeededError):
            env.step(actions)
        env.reset()


class TestSeeds:
    @pytest.mark.parametrize("make", OWN, ids=OWN_IDS)
    def test_a_seed_of_any_size_repeats_the_episodes_and_differs_from_others(self, make: Any) -> None:
        seeds = [0, 1, 2**63, 2**64 - 1, 2**64, 2**64 + 1, 10**30, 10**400, np.int8(3), np.uint64(2**64 - 2)]
        env = make()
        first = [str(env.reset(seed=seed)[0]) + str(env.reset()[0]) for seed in seeds]
        assert len(set(first)) == len(seeds)
        assert first == [str(env.reset(seed=seed)[0]) + str(env.reset()[0]) for seed in seeds]

    @pytest.mark.parametrize("make", OWN, ids=OWN_IDS)
    @pytest.mark.parametrize(
        "seed", [-1, -(10**30), 1.0, np.nan, True, "1", b"1", {}, Unprintable()], ids=lambda s: type(s).__name__
    )
    def test_anything_else_is_an_error_that_leaves_the_environment_usable(self, make: Any, seed: Any) -> None:
        env, calm = make(), make()
        for each in (env, calm):
            each.reset(seed=4)
        with pytest.raises(SeedError, match="expected an integer of at least 0, or None to draw one"):
            env.reset(seed=seed)
        np.testing.assert_equal(env.reset(), calm.reset())

    @pytest.mark.parametrize("make", OWN, ids=OWN_IDS)
    def test_environments_without_a_seed_differ(self, make: Any) -> None:
        # Starts are drawn with 53 bits a number: equal ones do not happen.
        assert len({str(make().reset()[0]) for _ in range(4)}) == 4

    @pytest.mark.parametrize(
        "seed", [[1, 2], [1, 2, 3, 4], [1, 2, -1], [1, 2, 0.5], np.zeros((3, 1), int), ["1", 2, 3]]
    )
    def test_a_list_of_seeds_has_one_a_lane(self, seed: Any) -> None:
        env, calm = SkillVectorEnv(3), SkillVectorEnv(3)
        for each in (env, calm):
            each.reset(seed=4)
        with pytest.raises(SeedError):
            env.reset(seed=seed)
        np.testing.assert_equal(env.reset(), calm.reset())

    def test_a_lane_whose_seed_is_none_goes_on(self) -> None:
        env, calm = SkillVectorEnv(3), SkillVectorEnv(3)
        for each in (env, calm):
            each.reset(seed=(1, 2, 3))
        partly, on = env.reset(seed=[None, np.int64(7), None])[0], calm.reset()[0]
        assert (partly == on).all(axis=1).tolist() == [True, False, True]
        assert np.array_equal(partly[1], SkillEnv().reset(seed=7)[0])
