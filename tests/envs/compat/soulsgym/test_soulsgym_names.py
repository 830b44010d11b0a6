"""Code for SoulsGym and SoulsAI works unchanged; written here from their public interface."""

import copy
import json
import logging
import random
import sys
from importlib import import_module
from types import ModuleType

import gymnasium
import numpy as np
import pytest
import torch

import soulsgraph_envs.compat.soulsgym
from soulsgraph_envs.compat.soulsgym.fight import GameState
from soulsgraph_envs.core.errors import SoulsGraphError

TABLES = (
    *("keybindings", "keymap", "actions", "coordinates", "player_animations", "critical_player_animations"),
    *("boss_animations", "player_stats", "bonfires", "address_bases", "address_offsets", "address_base_patterns"),
)
NAMES = {
    "soulsgym": ("available_envs", "set_log_level"),
    "soulsgym.core": (),
    "soulsgym.core.game_state": ("GameState",),
    "soulsgym.core.static": TABLES,
    "soulsgym.games": (),
    "soulsgym.games.game": ("StaticGameData",),
    "soulsgym.envs": (),
    "soulsgym.envs.game_state": ("GameState",),
    "soulsgym.envs.soulsenv": ("SoulsEnv", "SoulsEnvDemo"),
    "soulsgym.envs.darksouls3": (),
    "soulsgym.envs.darksouls3.iudex": ("IudexEnv", "IudexImgEnv", "IudexEnvDemo", "IudexState"),
    "soulsgym.envs.darksouls3.vordt": ("VordtEnv", "VordtState"),
    "soulsgym.exception": ("SoulsGymException", "GameStateError", "ResetNeeded", "InvalidPlayerStateError"),
    "soulsgym.wrappers": ("zero_based",),
}
#: Numbers of animations that SoulsAI takes for one: the player's, then Iudex's.
ALIKE = (
    ({*range(5)}, {17, 18, 19, *range(23, 27)}, {27, 28}, {39, 40}, {41, 42}, {*range(43, 50)}),
    ({19, 20, 21, 22, 24, 25, 26, 27},),
)
ARENA_LOW, ARENA_SIZE = np.array([110.0, 540.0, -73.0]), np.array([80.0, 100.0, 18.0])


def imported(name="soulsgym"):
    """Return the imported modules named `soulsgym` or below it."""
    return [found for found in sys.modules if found.partition(".")[0] == name]


@pytest.fixture
def theirs():
    """Return the module that `import soulsgym` finds once ours is installed."""
    soulsgraph_envs.compat.soulsgym.install()
    yield import_module("soulsgym")
    for name in imported():
        del sys.modules[name]


@pytest.mark.parametrize("module", NAMES)
def test_every_name_is_found_where_its_users_import_it(theirs, module):
    found = import_module(module)
    assert [name for name in NAMES[module] if not hasattr(found, name)] == []
    assert found is import_module(f"soulsgraph_envs.{module}")


def test_a_submodule_is_an_attribute_of_its_package(theirs):
    assert theirs.envs.darksouls3.iudex.IudexEnv is theirs.IudexEnv
    assert theirs.core.static is import_module("soulsgym.core.static")
    assert not hasattr(theirs.core, "memory_manipulator")


def test_a_state_is_one_class_under_both_generations_paths(theirs):
    paths = ("soulsgym.core.game_state", "soulsgym.envs.game_state", "soulsgraph_envs.compat.soulsgym")
    assert {import_module(path).GameState for path in paths} == {GameState}


def test_installing_again_changes_nothing(theirs):
    before = {name: sys.modules[name] for name in imported()}
    soulsgraph_envs.compat.soulsgym.install()
    assert before == {name: sys.modules[name] for name in imported()}


@pytest.mark.parametrize("name", ["soulsgym", "soulsgym.core.static"])
def test_another_soulsgym_that_is_imported_is_left_alone(monkeypatch, name):
    foreign = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, foreign)
    with pytest.raises(SoulsGraphError, match=rf"found {name} of .* before the first import of soulsgym"):
        soulsgraph_envs.compat.soulsgym.install()
    assert imported() == [name]
    assert sys.modules[name] is foreign


def test_what_is_not_offered_is_not_found(theirs):
    with pytest.raises(ModuleNotFoundError, match="memory_manipulator"):
        import_module("soulsgym.core.memory_manipulator")


def test_the_log_level_is_that_of_everything_that_logs(theirs, monkeypatch):
    logger = logging.getLogger("soulsgraph_envs")
    monkeypatch.setattr(logger, "level", logger.level)
    theirs.set_log_level(logging.ERROR)
    assert logging.getLogger("soulsgraph_envs.games.readings").getEffectiveLevel() == logging.ERROR


def columns(animations, alike):
    """Return a column for each animation's number, the same one for numbers of equal meaning."""
    kinds = {}
    for number in (animation["ID"] for animation in animations.values()):
        kind = next((index for index, group in enumerate(alike) if number in group), -1 - number)
        kinds.setdefault(kind, []).append(number)
    return {number: column for column, numbers in enumerate(kinds.values()) for number in numbers}


class Flat(gymnasium.ObservationWrapper):
    """Observations as SoulsAI's agents see them: 18 numbers, and both animations as indicators."""

    def __init__(self, env):
        super().__init__(env)
        data = import_module("soulsgym.games.game").StaticGameData("DarkSoulsIII")
        animations = data.player_animations, data.boss_animations["iudex"]["all"]
        self.columns = [columns(table, alike) for table, alike in zip(animations, ALIKE, strict=True)]
        self.sizes = [max(found.values()) + 1 for found in self.columns]
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (18 + sum(self.sizes),), np.float32)

    def observation(self, observation):
        shown = observation
        for name in ("player_hp", "player_sp", "boss_hp", "player_animation_duration", "boss_animation_duration"):
            shown[name] = shown[name].item()
        numbers = [
            shown[f"{who}"] / shown[f"{who.replace('_', '_max_')}"] for who in ("player_hp", "player_sp", "boss_hp")
        ]
        player, boss, camera = shown["player_pose"], shown["boss_pose"], shown["camera_pose"]
        numbers.append(np.linalg.norm(boss[:2] - player[:2]) / 50)
        for pose in (player, boss):
            numbers += [*(pose[:3] - ARENA_LOW) / ARENA_SIZE, np.sin(pose[3]), np.cos(pose[3])]
        heading = np.arctan2(camera[3], camera[4])
        numbers += [
            np.sin(heading),
            np.cos(heading),
            shown["player_animation_duration"],
            shown["boss_animation_duration"],
        ]
        for who, found, size in zip(("player", "boss"), self.columns, self.sizes, strict=True):
            indicators = np.zeros(size)
            if (number := shown[f"{who}_animation"]) in found:
                indicators[found[number]] = 1
            numbers += indicators.tolist()
        return np.array(numbers, np.float32)


def test_soulsais_observation_wrapper_runs(theirs):
    env = Flat(gymnasium.make("SoulsGymIudex-v0", random_player_pose=True, skip_steps=True, game_speed=3.0))
    shown, info = env.reset(seed=1)
    rng = np.random.default_rng(1)
    assert shown.shape == (74,)
    for _ in range(150):
        shown, _, terminated, _, info = env.step(rng.choice(np.flatnonzero(info["action_mask"])))
        assert ((shown[[0, 2]] >= 0) & (shown[[0, 2]] <= 1)).all()
        assert ((shown[4:7] >= 0) & (shown[4:7] <= 1)).all()
        # Every animation of the simulated fight has a number.
        assert (shown[18:49].sum(), shown[49:].sum()) == (1, 1)
        if terminated:
            env.reset()


def test_an_older_replay_of_states_is_written_and_read_back(theirs):
    state_class = import_module("soulsgym.core.game_state").GameState
    known = import_module("soulsgym.core.static").player_animations["DarkSoulsIII"]
    env = gymnasium.make("SoulsGymIudex-v0")
    env.reset(seed=2)
    states = []
    for action in (0, 8, 16, 19) * 5:
        env.step(action)
        states.append(env.unwrapped.game_state)
    read = [state_class.from_dict(values) for values in json.loads(json.dumps([state.as_json() for state in states]))]
    assert len({state.player_animation for state in read}) > 2
    for state, again in zip(states, read, strict=True):
        assert again.player_animation in known
        assert np.array_equal(state.player_pose, again.player_pose)
        assert again.boss_hp / again.boss_max_hp == state.boss_hp / state.boss_max_hp


def test_what_a_step_returns_is_of_the_types_that_become_tensors(theirs):
    env = Flat(gymnasium.make("SoulsGymIudex-v0"))
    env.reset(seed=0)
    action = torch.tensor([env.action_space.sample()]).numpy()[0]
    shown, reward, terminated, truncated, info = env.step(action)
    assert [type(value) for value in (reward, terminated, truncated)] == [float, bool, bool]
    assert torch.as_tensor(shown).dtype == torch.float32
    mask = torch.as_tensor(info["action_mask"])
    assert (mask.dtype, mask.shape) == (torch.bool, (20,))


def test_a_demonstration_says_which_phase_it_is_in_and_who_won(theirs):
    env = gymnasium.make("SoulsGymIudexDemo-v0", game_speed=3.0).unwrapped
    assert env.phase == 1
    env.reset(seed=0)
    env.world.game.override(0, boss_hp=560.0)
    while env.phase == 1:
        env.world.game.override(0, player_hp=454.0)
        _, _, terminated, _, info = env.step(19)
        assert not terminated
    assert env.obs["phase"] == 2
    assert info["boss_hp"] > 0
    env.world.game.override(0, boss_hp=0.0)
    _, _, terminated, _, info = env.step(19)
    assert (terminated, info["boss_hp"]) == (True, 0)


class Replay:
    """Samples over several steps, with the actions possible after them, as SoulsAI stores them."""

    def __init__(self):
        self.samples = []

    def add(self, shown, action, reward, after, terminated, info):
        allowed = np.zeros(20, np.bool_)
        allowed[info["allowed_actions"]] = True
        assert np.array_equal(allowed, info["action_mask"])
        self.samples.append((shown, action, np.float32(reward), after, terminated, allowed))

    def batch(self, size):
        shown, action, reward, after, terminated, allowed = zip(*random.sample(self.samples, size), strict=True)
        arrays = (np.array(values) for values in (shown, action, reward, after, terminated, allowed))
        return [torch.as_tensor(array) for array in arrays]


def difference(network, target, batch):
    """Return the mean squared temporal difference to a target network that takes the best allowed action after."""
    shown, action, reward, after, terminated, allowed = batch
    with torch.no_grad():
        best = target(after).masked_fill(~allowed, -torch.inf).max(dim=1).values
        value = reward + 0.99**4 * best.clamp(-2, 2) * ~terminated
    return torch.nn.functional.mse_loss(network(shown)[torch.arange(len(action)), action], value)


def sampled(env, network, replay, steps):
    """Play the best allowed action, or any in every second step; keep samples over four steps."""
    (shown, info), span = env.reset(seed=3), []
    for _ in range(steps):
        with torch.no_grad():
            values = network(torch.as_tensor(shown)).masked_fill(~torch.as_tensor(info["action_mask"]), -torch.inf)
        action = int(values.argmax()) if random.random() > 0.5 else random.choice(info["allowed_actions"])
        after, reward, terminated, _, info = env.step(action)
        span = [*span[-3:], (shown, action, reward)]
        if len(span) == 4:
            total = sum(reward * 0.99**step for step, (*_, reward) in enumerate(span))
            replay.add(*span[0][:2], total, after, terminated, info)
        shown = after
        if terminated:
            (shown, info), span = env.reset(), []


def test_a_dqn_agent_with_masked_actions_learns_from_a_replay_of_several_steps(theirs):
    torch.manual_seed(0)
    random.seed(0)
    env, replay = Flat(gymnasium.make("SoulsGymIudex-v0", random_player_pose=True)), Replay()
    network = torch.nn.Sequential(torch.nn.Linear(74, 32), torch.nn.ReLU(), torch.nn.Linear(32, 20))
    target = copy.deepcopy(network)
    sampled(env, network, replay, 300)
    everything = replay.batch(len(replay.samples))
    before = difference(network, target, everything).item()
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(100):
        optimiser.zero_grad()
        difference(network, target, replay.batch(64)).backward()
        optimiser.step()
    assert difference(network, target, everything).item() < 0.5 * before
