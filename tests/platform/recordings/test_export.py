"""Exports: one skill's decisions as RLlib and Minari read them."""

import gymnasium
import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fakes.recordings import read_all
from soulsgraph.recordings.export import export_minari, export_rllib, read_episodes
from soulsgraph.recordings.files import RecordingError
from soulsgraph.recordings.format import make_header
from soulsgraph.recordings.recording import Fighter, FightWriter, record
from soulsgraph.runs.evaluate import Setting, evaluation_seeds
from soulsgraph.zoo import open_agent
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import WriteError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import RAW_SIZE

SKILL = "heal_attack"


def test_rllibs_columns_are_the_decisions_in_order(fights, tmp_path):
    path = tmp_path / "out" / f"{SKILL}.parquet"
    count = export_rllib(fights, SKILL, path)
    frame = pq.read_table(path).to_pandas()
    assert len(frame) == count
    assert list(frame) == ["eps_id", "t", "obs", "new_obs", "actions", "rewards", "terminateds", "truncateds"]
    recordings = read_all(fights)
    assert count == sum(len(one.decisions(SKILL)[0]) for one in recordings)
    for recording in recordings:
        own = frame[frame["eps_id"] == recording.header.fight]
        assert own["t"].tolist() == [*range(len(own))]
        observed, following = np.stack(own["obs"]), np.stack(own["new_obs"])
        assert observed.dtype == np.float32
        assert_array_equal(observed[1:], following[:-1])
        assert own["terminateds"].tolist() == [False] * (len(own) - 1) + [True]
        assert not own["truncateds"].any()
        reward = recording.column(f"{SKILL}/reward")
        assert_allclose(own["rewards"].sum(), np.nansum(reward), rtol=1e-5)


def test_minari_reads_the_same_decisions(fights, tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    assert export_minari(fights, SKILL, tmp_path, "heal-v3") == 4
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset = minari.load_dataset("heal-v3")
    assert isinstance(dataset.action_space, gymnasium.spaces.Discrete)
    assert "BOSS_PROGRESS" in dataset.storage.metadata["description"]
    env = dataset.recover_environment().unwrapped
    assert (env.spec.id, env.rollout.combat.scenario.name) == ("soulsgraph/HealAttack-v0", "iudex-phase1")
    assert env.observation_space == dataset.observation_space
    assert env.spec.max_episode_steps == dataset.env_spec.max_episode_steps == env.rollout.skill.horizon
    episodes = read_episodes(fights, SKILL)
    found = {episode.id: episode for episode in dataset.iterate_episodes()}
    for number, episode in enumerate(episodes):
        own, columns = found[number], episode.columns
        assert_array_equal(own.observations, np.vstack([columns["obs"], columns["new_obs"][-1:]]))
        assert_array_equal(own.actions, columns["actions"])
        assert_array_equal(own.rewards.astype(np.float32), columns["rewards"])
        assert_array_equal(own.terminations, columns["terminateds"])
    with pytest.raises(WriteError, match="heal-v3"):
        export_minari(fights, SKILL, tmp_path, "heal-v3")
    with pytest.raises(SoulsGraphError, match="heal"):
        export_minari(fights, SKILL, tmp_path, "../heal")
    assert [path.name for path in tmp_path.iterdir()] == ["heal-v3"]


def test_minaris_space_has_bounds_for_other_observations_too(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    agent = Fighter.of_run(open_agent("iudex-phase1-best-0"), Setting("iudex-phase1", "iudex-phase1"))
    record(agent, evaluation_seeds(3, 1), tmp_path / "fights")
    export_minari(tmp_path / "fights", SKILL, tmp_path / "datasets", "heal-v0")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    assert minari.load_dataset("heal-v0").observation_space.is_bounded()


def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(fights, tmp_path):
    out = tmp_path / "out.parquet"
    with pytest.raises(RecordingError, match="parry"):
        export_rllib(fights, "parry", out)
    who = {"source": "person", "driver": "simulator", "player": "somebody"}
    header = make_header(load_scenario("iudex-phase1"), fight="person", scenario="iudex-phase1", **who)
    writer = FightWriter(tmp_path / "person", header)
    writer.add(np.zeros(RAW_SIZE), 0)
    writer.finish(np.zeros(RAW_SIZE), "cut")
    with pytest.raises(RecordingError, match="person"):
        export_rllib(tmp_path / "person", SKILL, out)
    assert not out.exists()
    out.write_text("mine")
    with pytest.raises(RecordingError, match=out.name):
        export_rllib(fights, SKILL, out)
    assert out.read_text() == "mine"
