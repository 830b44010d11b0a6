"""Code for SoulsGym and SoulsAI works unchanged; written here from their public interface."""

import logging
import sys
from importlib import import_module
from types import ModuleType

import gymnasium
import numpy as np
import pytest
import torch

import soulsgraph_envs.compat.soulsgym
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


def test_every_name_is_found_where_its_users_import_it(theirs):
    found = {path: import_module(path) for path in NAMES}
    for path, module in found.items():
        assert [name for name in NAMES[path] if not hasattr(module, name)] == []
        assert module is import_module(f"soulsgraph_envs.{path}")
    # A submodule is an attribute of its package, and a state is one class under both generations' paths.
    assert theirs.envs.darksouls3.iudex.IudexEnv is theirs.IudexEnv
    assert found["soulsgym.core.game_state"].GameState is found["soulsgym.envs.game_state"].GameState
    with pytest.raises(ModuleNotFoundError, match="memory_manipulator"):
        import_module("soulsgym.core.memory_manipulator")
    # Installing again changes nothing.
    before = {name: sys.modules[name] for name in imported()}
    soulsgraph_envs.compat.soulsgym.install()
    assert before == {name: sys.modules[name] for name in imported()}


@pytest.mark.parametrize("name", ["soulsgym", "soulsgym.core.static"])
def test_another_soulsgym_that_is_imported_is_left_alone(monkeypatch, name):
    foreign = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, foreign)
    with pytest.raises(SoulsGraphError, match=name):
        soulsgraph_envs.compat.soulsgym.install()
    assert imported() == [name]
    assert sys.modules[name] is foreign


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


def test_what_a_step_returns_is_of_the_types_that_become_tensors(theirs):
    env = gymnasium.make("SoulsGymIudex-v0")
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(torch.tensor([19]).numpy()[0])
    assert [type(value) for value in (reward, terminated, truncated)] == [float, bool, bool]
    mask = torch.as_tensor(info["action_mask"])
    assert (mask.dtype, mask.shape) == (torch.bool, (20,))
