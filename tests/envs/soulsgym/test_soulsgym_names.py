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

import soulsgraph_envs.soulsgym
from soulsgraph_envs.core.config import Where, load
from soulsgraph_envs.core.errors import DataError, SoulsGraphError, UnknownNameError
from soulsgraph_envs.soulsgym.core.fights import DATA, Fight
from soulsgraph_envs.soulsgym.core.game_state import GameState
from soulsgraph_envs.soulsgym.games.game import StaticGameData

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
    soulsgraph_envs.soulsgym.install()
    yield import_module("soulsgym")
    for name in imported():
        del sys.modules[name]


@pytest.mark.parametrize("module", NAMES)
def test_every_name_is_found_where_its_users_import_it(theirs, module):
    found = import_module(module)
    assert [name for name in NAMES[module] if not hasattr(found, name)] == []
    assert found is import_module(module.replace("soulsgym", "soulsgraph_envs.soulsgym", 1))


def test_a_state_is_one_class_under_both_generations_paths(theirs):
    paths = ("soulsgym.core.game_state", "soulsgym.envs.game_state", "soulsgraph_envs.soulsgym")
    assert {import_module(path).GameState for path in paths} == {GameState}


def test_installing_again_changes_nothing(theirs):
    before = {name: sys.modules[name] for name in imported()}
    soulsgraph_envs.soulsgym.install()
    assert before == {name: sys.modules[name] for name in imported()}


@pytest.mark.parametrize("name", ["soulsgym", "soulsgym.core.static"])
def test_another_soulsgym_that_is_imported_is_left_alone(monkeypatch, name):
    foreign = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, foreign)
    with pytest.raises(SoulsGraphError, match=rf"found {name} of .* before the first import of soulsgym"):
        soulsgraph_envs.soulsgym.install()
    assert imported() == [name]
    assert sys.modules[name] is foreign


def test_what_is_not_offered_is_not_found(theirs):
    with pytest.raises(ModuleNotFoundError, match="memory_manipulator"):
        import_module("soulsgym.core.memory_manipulator")


def test_the_log_level_is_that_of_everything_that_logs(theirs, monkeypatch):
    logger = logging.getLogger("soulsgraph_envs")
    monkeypatch.setattr(logger, "level", logger.level)
    theirs.set_log_level(logging.ERROR)
    assert logging.getLogger("soulsgraph_envs.drivers.realtime.readings").getEffectiveLevel() == logging.ERROR


@pytest.mark.parametrize(("written", "expected"), [("", "no such key"), ("msic = []", "an unknown key")])
def test_a_fight_has_all_of_soulsgyms_kinds_of_animations(tmp_path, written, expected):
    text = (DATA / "fights" / "vordt.toml").read_text(encoding="utf-8")
    path = tmp_path / "vordt.toml"
    path.write_text(text.replace('misc = ["SABreak"]', written), encoding="utf-8")
    with pytest.raises(DataError, match=rf"animations\.(misc|msic): expected .*, found {expected}"):
        load(Fight, Where(path))


def test_the_tables_are_numbered_named_and_measured_as_soulsgyms():
    data = StaticGameData("DarkSoulsIII")
    assert set(vars(data)) == set(TABLES)
    assert [animation["ID"] for animation in data.player_animations.values()] == list(range(50))
    assert data.player_animations["RollingMedium"] == {"timings": [0.69, 0.73, 0.75], "ID": 21}
    assert data.critical_player_animations == {"DeathIdle": [0.0, 0.0, 0.0]}
    assert {boss: len(kinds["all"]) for boss, kinds in data.boss_animations.items()} == {"iudex": 32, "vordt": 27}
    assert data.boss_animations["iudex"]["all"]["SABreak"] == {"ID": 30, "type": "misc"}
    assert data.boss_animations["vordt"]["all"]["WalkFrontBattle"] == {"ID": 14, "type": "movement"}
    assert (data.actions[9], data.actions[19]) == (["forward", "right", "roll"], [])
    assert {data.keymap[key] for key in data.keybindings.values()} == {ord(key) for key in "WSADLHMRQEJKOP "}
    assert data.coordinates["iudex"]["player_init_poses_random"].shape == (11, 4)
    assert data.coordinates["vordt"]["boss_init_pose"].tolist() == [27.0, 2.0, -25.0, 3.1]
    assert data.player_stats["iudex"] == [9, 12, 10, 11, 15, 13, 12, 9, 9, 7]
    assert data.bonfires["Dancer of the Boreal Valley"] == 3002954


def test_the_addresses_are_those_of_the_address_maps():
    data = StaticGameData("DarkSoulsIII")
    assert data.address_offsets["PlayerHP"] == [0x80, 0x1F90, 0x18, 0xD8]
    assert data.address_offsets["IudexMaxHP"] == [0x0, 0x320, 0x0, 0x1F90, 0x18, 0xE0]
    assert data.address_offsets["VordtMaxHP"] == [0x0, 0x4C8, 0x0, 0x1F90, 0x18, 0xDC]
    assert data.address_bases == {"Cam": 0x4796298, "Iudex": 0x475A7A8, "Vordt": 0x475A7A8}
    assert data.address_base_patterns["GameMan"]["pattern"] == r"\x48\x8B\x05....\x48\x8B\x80\x60\x0C\x00\x00"


def test_a_callers_tables_are_its_own_and_other_games_have_none():
    StaticGameData("DarkSoulsIII").actions[0].append("jump")
    assert StaticGameData("DarkSoulsIII").actions[0] == ["forward"]
    with pytest.raises(UnknownNameError, match="unknown game: expected one of DarkSoulsIII; found 'EldenRing'"):
        StaticGameData("EldenRing")


def test_the_classes_say_what_soulsgyms_say():
    iudex, vordt = soulsgraph_envs.soulsgym.IudexEnv, soulsgraph_envs.soulsgym.VordtEnv
    assert (iudex.ENV_ID, iudex.BONFIRE, iudex.step_size) == ("iudex", "Cemetery of Ash", 0.1)
    assert (iudex.ARENA_LIM_LOW, iudex.ARENA_LIM_HIGH) == ([110, 540, -73, -3.1416], [190, 640, -55, 3.1416])
    assert (iudex.IUDEX_MAX_HP, iudex.HARD_RESET_INTERVAL, iudex.CAM_SETUP_POSE) == (1037, 900, [0.378, 0.926, 0.0])
    assert (vordt.ENV_ID, vordt.BONFIRE, vordt.VORDT_MAX_HP) == ("vordt", "Dancer of the Boreal Valley", 1328)
    assert (vordt.ARENA_LIM_LOW, vordt.ARENA_LIM_HIGH) == ([13, -7, -27, -3.1416], [42, 46, -15, 3.1416])
    assert soulsgraph_envs.soulsgym.SoulsEnv.ENV_ID == ""
    for env in (iudex(), vordt()):
        box = env.observation_space["player_pose"]
        assert np.array_equal(box.low, np.array(env.ARENA_LIM_LOW, np.float32))
        assert np.array_equal(box.high, np.array(env.ARENA_LIM_HIGH, np.float32))


def test_a_state_has_defaults_changes_and_comes_back_from_json():
    state = GameState()
    assert (state.phase, state.boss_max_hp, state.player_animation, state.lock_on) == (1, 1, "NoAnimation", False)
    assert (state.player_pose.shape, state.camera_pose.shape) == ((4,), (6,))
    state.boss_hp, state.player_pose[0] = np.float32(500), 7.0
    assert GameState().player_pose[0] == 0
    again = GameState.from_dict(json.loads(json.dumps(state.as_json())))
    assert again.as_json() == state.as_json()
    assert isinstance(again.player_pose, np.ndarray)
    assert state.as_dict(deepcopy=False)["player_pose"] is state.player_pose
    copied = state.as_dict()
    copied["player_pose"][0] = 8.0
    assert state.player_pose[0] == 7.0


def test_the_state_is_read_as_a_property_and_as_a_method_and_is_a_copy():
    env = soulsgraph_envs.soulsgym.IudexEnv()
    env.reset(seed=0)
    assert env.game_state.as_json() == env.game_state().as_json()
    env.game_state.boss_hp = 0.0
    env.game_state().player_pose[:] = 0.0
    assert env.game_state.boss_hp == 1037
    assert env.obs["player_pose"][0] > 0


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
