import numpy as np
import pytest

from fakes.realtime import FakeLink, FakeTime
from soulsgraph_envs.compat.soulsgym import IudexEnv, IudexEnvDemo, IudexImgEnv, VordtEnv
from soulsgraph_envs.compat.soulsgym.fight import DATA, NOTHING, GameStateError, ResetError
from soulsgraph_envs.compat.soulsgym.worlds import LiveWorld
from soulsgraph_envs.games.link import GameSettings

SCENARIO = str(DATA / "scenarios" / "iudex-full.toml")


def running(refills, time=None, made=FakeLink, **options):
    """Return a game on a clock that the test controls, and a world over it."""
    time = time or FakeTime()
    link = made(time, scenario=SCENARIO, **options)
    return link, LiveWorld(link, GameSettings(), refills, clock=time.clock)


def test_a_running_game_is_fought_as_the_simulator_is():
    link, world = running(refills=True)
    env = IudexEnv(world=world)
    shown, info = env.reset(seed=0)
    assert (shown["lock_on"], shown["phase"], shown["boss_hp"][0]) == (1, 1, 1037)
    assert shown["player_pose"][:2] == pytest.approx([132.176, 575.064], abs=0.6)
    rng = np.random.default_rng(0)
    lost = 0.0
    for _ in range(300):
        shown, _, terminated, _, info = env.step(rng.choice(info["allowed_actions"]))
        assert env.observation_space.contains(shown)
        lost = max(lost, 454.0 - float(shown["player_hp"][0]))
        if terminated:
            break
    assert lost > 0
    env.close()
    assert link.closed
    assert not link.keys.down


def test_levels_are_counted_here_while_the_game_is_made_whole():
    link, world = running(refills=True)
    env = IudexEnv(world=world)
    env.reset(seed=0)
    link.write({"player_hp": 400.0, "boss_hp": 1000.0})
    env.step(NOTHING)
    link.write({"player_hp": 400.0, "boss_hp": 1000.0})
    shown = env.step(NOTHING)[0]
    assert (shown["player_hp"][0], shown["boss_hp"][0]) == (454 - 2 * 54, 1037 - 2 * 37)
    assert (link.read()["player_hp"], link.read()["boss_hp"]) == (454, 1037)


def test_the_demo_shows_the_games_own_levels_and_both_phases_and_begins_anew_by_a_reload():
    link, world = running(refills=False)
    env = IudexEnvDemo(world=world)
    phases = [env.reset(seed=0)[0]["phase"]]
    link.write({"boss_hp": 500.0})
    phases += [env.step(NOTHING)[0]["phase"] for _ in range(60)]
    assert phases == [1] + [2] * 60
    assert (link.read()["boss_hp"], link.world.loads) == (500, 0)
    shown, _ = env.reset()
    assert (link.world.loads, shown["phase"], shown["boss_hp"][0]) == (1, 1, 1037)
    link.write({"player_hp": 1.0})
    assert env.step(NOTHING)[2]


def test_the_game_stands_still_while_the_agent_thinks():
    time = FakeTime()
    link, world = running(refills=True, time=time)
    env = IudexEnv(world=world)
    env.reset(seed=0)
    for thinking_s in (0.0, 0.03, 5.0):
        before = link.world.frames
        time.pass_by(thinking_s)
        env.step(NOTHING)
        assert link.world.frames - before == pytest.approx(6, abs=1)
    env.close()
    assert link.world.speed == 1


def test_a_game_that_goes_away_ends_the_step_as_an_error_and_can_be_begun_again():
    link, world = running(refills=True)
    env = IudexEnv(world=world)
    env.reset(seed=0)
    link.unfocused = True
    with pytest.raises(GameStateError, match="window"):
        env.step(NOTHING)
    assert not link.keys.down
    env.reset()
    env.step(NOTHING)


def test_a_window_that_cannot_be_photographed_ends_the_step_as_an_error():
    link, world = running(refills=True)
    env = IudexImgEnv(world=world)
    env.reset(seed=0)
    link.blind = True
    with pytest.raises(GameStateError, match=r"picture.*reset"):
        env.step(0)
    assert not link.keys.down
    with pytest.raises(ResetError, match="picture"):
        env.reset()
    link.blind = False
    env.reset()
    env.step(0)


def test_a_game_without_what_agents_are_shown_is_refused_by_its_reason():
    # A rage that cannot be kept up.
    with pytest.raises(ResetError, match="phase 2"):
        VordtEnv(phase=2, world=running(refills=True)[1]).reset()
