"""A boss altered in known ways, and fights against it."""

import pytest

from fakes.wandering import wandering_fights
from soulsgraph.calibrate.boss_file import write_tables
from soulsgraph.calibrate.calibration import calibrate
from soulsgraph_envs.core.config import find, read_data
from soulsgraph_envs.core.scenario import load_boss, load_player


@pytest.fixture(scope="session")
def altered(tmp_path_factory):
    """A scenario against a boss that walks, turns, waits and strikes otherwise than the shipped one."""
    folder = tmp_path_factory.mktemp("altered")
    tables = read_data("boss", find("boss", "iudex-phase1"))
    tables["motion"] |= {"walk_m_s": 5.0, "turn_rad_s": 1.8, "back_off_m_s": 1.6}
    tables["aggression"] |= {"wait_s": [0.7, 2.4], "chain_chance": 0.5, "chain_most": 1}
    tables["rear"] |= {"counter_chance": 0.6, "angle_rad": 1.5, "distance_m": 3.4, "turn_s": 1.1}
    tables["damage_spread"] = 0.14
    moves = {move["title"]: move for move in tables["moves"]}
    moves["fast sweep"]["windows"][0] |= {"time_s": [0.7, 0.95], "reach_m": 3.2, "damage": 100.0}
    moves["thrust"] |= {"lunge_m_s": 6.5, "length_s": 2.3, "tracks_s": 0.55}
    write_tables(folder / "boss.toml", tables)
    write_tables(folder / "fight.toml", {"based_on": "iudex-phase1-whole", "name": "altered", "boss": "boss.toml"})
    return folder / "fight.toml"


@pytest.fixture(scope="session")
def fought(altered):
    """Twelve minutes of fights in that scenario."""
    return wandering_fights(altered, 12.0, seed=5)


@pytest.fixture(scope="session")
def found(fought):
    """What is found in them."""
    return calibrate(fought, load_boss("iudex-phase1"), load_player("knight-full"))
