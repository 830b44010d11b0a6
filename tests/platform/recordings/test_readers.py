"""Other tools read the same numbers: pandas, polars, DuckDB, Ray Data; RLlib's behavioural cloning learns from them."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import gymnasium
import numpy as np
import pandas as pd
import pytest

from soulsgraph.recordings.export import export_rllib, read_episodes
from soulsgraph.recordings.files import Recording, read_header, read_recording, recording_files
from soulsgraph.recordings.format import columns
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.runs.evaluate import Setting, evaluation_seeds
from soulsgraph.zoo import open_run

SKILL = "dodge"


@pytest.fixture(scope="module")
def recordings(fights: Path) -> list[Recording]:
    return [read_recording(path) for path in recording_files(fights)]


def wins(recordings: list[Recording]) -> list[tuple[str, int]]:
    """Return the rows of every fight that was won."""
    return [(one.header.fight, len(one) + 1) for one in recordings if one.header.result.outcome == "won"]


def observations(recordings: list[Recording]) -> np.ndarray:
    return np.vstack([one.column(f"{SKILL}/observation") for one in recordings])


def test_pandas_reads_a_folder_of_fights(fights: Path, recordings: list[Recording]) -> None:
    frame = pd.read_parquet(fights)
    np.testing.assert_array_equal(np.stack(frame[f"{SKILL}/observation"].to_numpy()), observations(recordings))
    won = frame[frame["outcome"] == "won"].groupby("fight").size()
    assert list(won.items()) == wins(recordings)


def test_polars_reads_a_folder_of_fights(fights: Path, recordings: list[Recording]) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.read_parquet(fights / "*.parquet")
    np.testing.assert_array_equal(np.stack(frame[f"{SKILL}/observation"].to_list()), observations(recordings))
    won = frame.filter(polars.col("outcome") == "won").group_by("fight").len().sort("fight")
    assert won.rows() == wins(recordings)
    assert frame["hit_areas"].list.len().sum() > 0


#: In a process of its own: DuckDB lists what is left of it as a process ends that has many other libraries.
_DUCKDB = """
import json, sys, duckdb
print(json.dumps([duckdb.sql(query).fetchall() for query in sys.argv[1:]]))
"""


def test_duckdb_reads_a_folder_of_fights(fights: Path, recordings: list[Recording]) -> None:
    if find_spec("duckdb") is None:
        pytest.skip("DuckDB is not installed")
    found = f"from '{fights}/*.parquet'"
    queries = (
        f"select fight, count(*) {found} where outcome = 'won' group by fight order by fight",
        f'select "{SKILL}/observation" {found} order by fight, tick',
    )
    done = subprocess.run([sys.executable, "-c", _DUCKDB, *queries], capture_output=True, check=True, timeout=300)
    won, rows = json.loads(done.stdout)
    assert [tuple(row) for row in won] == wins(recordings)
    np.testing.assert_array_equal(np.array([row[0] for row in rows], np.float32), observations(recordings))


def test_fights_of_other_columns_lie_where_no_tool_that_reads_a_folder_drops_any(fights: Path, tmp_path: Path) -> None:
    run = open_run(Path("iudex-phase1-best-0"))
    kinds = {
        "agent": Fighter.of_run(run, Setting("iudex-phase1", "iudex-phase1")),
        "random": Fighter.of_run(run, Setting("iudex-phase1", "iudex-phase1", ablated=("dodge",))),
        "oracle": Fighter.oracle("iudex-phase1"),
    }
    seeds = evaluation_seeds(3, 1)
    for first, fighter in kinds.items():
        record(fighter, seeds, tmp_path / first)
        for second, other in kinds.items():
            if first != second:
                record(other, seeds, tmp_path / first)
        frame = pd.read_parquet(tmp_path / first)
        (file,) = (tmp_path / first).glob("*.parquet")
        assert [*frame.columns] == [column.name for column in columns(read_header(file))]
        assert {*frame["fight"]} == {file.stem}
        assert len(recording_files(tmp_path / first)) == len(kinds)
    # What is there of the same kind is no hindrance, whatever was drawn.
    record(Fighter.oracle("iudex-phase1", random=0.1, delay=1), seeds, tmp_path / "oracle")


@pytest.fixture(scope="module")
def session() -> Iterator[None]:
    """A Ray session of this process; the number of its processors is only what it counts."""
    import ray

    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=150 * 2**20, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_data_reads_a_folder_of_fights(session: None, fights: Path, recordings: list[Recording]) -> None:
    import ray

    dataset = ray.data.read_parquet(str(fights))
    assert dataset.count() == sum(len(one) + 1 for one in recordings)
    rows = dataset.select_columns(["fight", "tick", f"{SKILL}/observation"]).take_all()
    rows.sort(key=lambda row: (row["fight"], row["tick"]))
    np.testing.assert_array_equal(np.stack([row[f"{SKILL}/observation"] for row in rows]), observations(recordings))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_rllibs_behavioural_cloning_reads_an_export(session: None, fights: Path, tmp_path: Path) -> None:
    from ray.rllib.algorithms.bc import BCConfig

    path = tmp_path / f"{SKILL}.parquet"
    count = export_rllib(fights, SKILL, path)
    played, _ = read_episodes(fights, SKILL)
    config = (
        BCConfig()
        .environment(
            observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (len(played.observation),), np.float32),
            action_space=gymnasium.spaces.Discrete(len(played.actions)),
        )
        .env_runners(num_env_runners=0)
        .learners(num_learners=0)
        .offline_data(
            input_=[str(path)], map_batches_kwargs={"concurrency": 1, "num_cpus": 1}, dataset_num_iters_per_learner=10
        )
        .training(train_batch_size_per_learner=256, lr=1e-3)
        .debugging(log_level="ERROR", seed=1)
    )
    algorithm = config.build_algo()
    try:
        losses = [algorithm.train()["learners"]["default_policy"]["policy_loss"] for _ in range(3)]
    finally:
        algorithm.stop()
        # Its iterator over the data must end before the session does.
        del algorithm
        gc.collect()
    assert count > 256
    assert np.isfinite(losses).all()
    # Better than guessing.
    assert losses[-1] < 0.8 * np.log(len(played.actions))
