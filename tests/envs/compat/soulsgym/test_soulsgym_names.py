"""Code for SoulsGym, SoulsAI and EldenGym works unchanged; written here from their public interface."""

import sys
from importlib import import_module
from types import ModuleType

import pytest

import soulsgraph_envs.compat.soulsgym
from soulsgraph_envs import eldengym

TABLES = (
    *("keybindings", "keymap", "actions", "coordinates", "player_animations", "critical_player_animations"),
    *("boss_animations", "player_stats", "bonfires"),
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


def imported(name="soulsgym"):
    """Return the imported modules named so or below it."""
    return [found for found in sys.modules if found.partition(".")[0] == name]


@pytest.fixture
def theirs():
    """Return the module that `import soulsgym` finds once ours is installed."""
    soulsgraph_envs.compat.soulsgym.install()
    yield import_module("soulsgym")
    forget("soulsgym")


def forget(project):
    """Let the project's name mean its own package again."""
    for name in imported(project):
        del sys.modules[name]


def test_every_name_is_found_where_its_users_import_it(theirs):
    found = {path: import_module(path) for path in NAMES}
    for path, module in found.items():
        ours = import_module(f"soulsgraph_envs.{path}")
        assert [name for name in NAMES[path] if getattr(module, name) is not getattr(ours, name)] == []
    # A submodule is an attribute of its package, and a state is one class under both generations' paths.
    assert theirs.envs.darksouls3.iudex.IudexEnv is theirs.IudexEnv
    assert found["soulsgym.core.game_state"].GameState is found["soulsgym.envs.game_state"].GameState
    with pytest.raises(ModuleNotFoundError, match="memory_manipulator"):
        import_module("soulsgym.core.memory_manipulator")
    # Installing again changes nothing.
    before = {name: sys.modules[name] for name in imported()}
    soulsgraph_envs.compat.soulsgym.install()
    assert before == {name: sys.modules[name] for name in imported()}


@pytest.mark.filterwarnings("ignore::soulsgraph_envs.compat.eldengym.env.SimulatedGameWarning")
def test_eldengym_is_found_under_its_own_name_too():
    eldengym.install()
    try:
        theirs = import_module("eldengym")
        assert theirs.make("Margit-v0", driver="simulator").unwrapped.client.get_attribute("HeroHp")["value"] > 0
        assert import_module("eldengym.wrappers").SDFObsWrapper is eldengym.SDFObsWrapper
    finally:
        forget("eldengym")


@pytest.mark.parametrize("project", ["soulsgym", "eldengym"])
def test_another_package_that_is_imported_is_left_alone(monkeypatch, project):
    foreign = ModuleType(project)
    monkeypatch.setitem(sys.modules, project, foreign)
    import_module(f"soulsgraph_envs.compat.{project}").install()
    assert sys.modules[project] is foreign
