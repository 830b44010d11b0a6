"""Weights & Biases offline and a store of MLflow's on this machine, and servers that are away."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import wandb
from PIL import Image

from fakes.waiting import until
from soulsgraph.tracking.board import Board, make_tracker
from soulsgraph.tracking.contract import TrackedRun
from soulsgraph_envs.core.errors import SoulsGraphError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")]
PLAN = {"preset": "fast", "overrides": {"gamma": 0.98}}
#: Nothing listens there.
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def run(tmp_path, monkeypatch):
    for variable in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_PROJECT", "WANDB_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "first").mkdir()
    yield TrackedRun(tmp_path / "first", "0a1b2c", PLAN, {"preset": "fast"})
    # What it read of the variables holds for a whole process.
    wandb.teardown()


def ours(caplog):
    """Return what soulsgraph itself logged: trackers log as they like."""
    return [record for record in caplog.records if record.name == "soulsgraph"]


def log_everything(run, name, *steps):
    film, page = run.folder / "fight.gif", run.folder / "report.html"
    Image.new("RGB", (8, 6)).save(film)
    page.write_text("<!doctype html>")
    with Board(run, [make_tracker(name)]) as board:
        for step in steps:
            board.log("dodge", step, {"losses/td_loss": 1.0 / step})
        board.log("dodge", steps[-1], {"eval/actions": np.arange(9), "eval/fight": np.zeros((6, 8, 3), np.uint8)})
        board.call(lambda one: one.table("win rates", [{"setting": "both trained", "rate": 0.44}], "| both trained |"))
        board.call(lambda one: one.results({"gamma": 0.98}, {"eval/win_rate/both-trained": 0.44}))
        board.call(lambda one: one.file("eval/fight", film))
        board.call(lambda one: one.file("report", page))


def test_a_run_goes_on_as_one_run_of_mlflow(run, caplog):
    log_everything(run, "mlflow", 1_000, 2_000)
    log_everything(run, "mlflow", 3_000)
    assert not ours(caplog)
    from mlflow import MlflowClient

    client = MlflowClient((run.folder.parent / "mlruns").as_uri())
    (found,) = client.search_runs([client.get_experiment_by_name("soulsgraph").experiment_id])
    number = found.info.run_id
    assert (found.info.run_name, found.info.status, found.data.tags["preset"]) == ("first", "FINISHED", "fast")
    assert found.data.params == {"preset": "fast", "overrides.gamma": "0.98", "gamma": "0.98"}
    history = client.get_metric_history(number, "dodge/losses/td_loss")
    assert [point.step for point in history] == [1_000, 2_000, 3_000]
    assert found.data.metrics["eval/win_rate/both-trained"] == 0.44
    assert found.data.metrics["dodge/eval/actions/p50"] == 4.0
    kept = {file.path for folder in ("", "tables") for file in client.list_artifacts(number, folder or None)}
    assert {"report.html", "tables/win-rates.json", "tables/win-rates.md", "fight.gif", "images"} <= kept


def test_a_run_goes_on_as_one_run_of_wandb(run, caplog, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    log_everything(run, "wandb", 1_000, 2_000)
    log_everything(run, "wandb", 3_000)
    assert not ours(caplog)
    written = sorted(run.folder.glob("wandb/offline-run-*/run-0a1b2c.wandb"))
    assert len(written) == 2
    # W&B's own process writes them, and may be late.
    until(
        lambda: all(b"dodge/losses/td_loss" in file.read_bytes() for file in written), "what was logged in both files"
    )
    media = {file.suffix for file in run.folder.glob("wandb/offline-run-*/files/media/*/*") if file.is_file()}
    assert {".json"} <= media


def two_at_once(run, name, between):
    """Track two trainings that begin one after the other and overlap; call `between` while both are under way."""
    first, second = (replace(run, folder=run.folder / one, identity=one) for one in ("one", "two"))
    for one in (first, second):
        one.folder.mkdir()
    with Board(first, [make_tracker(name)]) as board, Board(second, [make_tracker(name)]) as other:
        board.log("dodge", 1_000, {"value_of_one": 1.0})
        board.flush()
        other.log("dodge", 1_000, {"value_of_two": 2.0})
        between()
    return first, second


def test_a_run_of_the_users_and_two_trainings_are_three_runs_of_wandb(run, caplog, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    mine = wandb.init(project="mine", dir=str(run.folder), settings=wandb.Settings(console="off", silent=True))
    tracked = two_at_once(run, "wandb", lambda: mine.log({"value_of_mine": 3.0}))
    assert wandb.run is mine
    assert dict(mine.config) == {}
    # It is open still.
    mine.log({"value_of_mine": 4.0})
    mine.finish()
    assert not ours(caplog)
    files = {"mine": run.folder, **{one.identity: one.folder for one in tracked}}
    for whose, folder in files.items():
        (written,) = folder.glob("wandb/offline-run-*/run-*.wandb")
        until(lambda file=written, name=whose: f"value_of_{name}".encode() in file.read_bytes(), "its values")
        assert not any(f"value_of_{other}".encode() in written.read_bytes() for other in files if other != whose)


def test_a_run_of_the_users_and_two_trainings_are_three_runs_of_mlflow(run, caplog, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (run.folder / "mlruns").as_uri())
    with mlflow.start_run() as mine:
        two_at_once(run, "mlflow", lambda: mlflow.log_metric("value_of_mine", 3.0))
        assert mlflow.active_run().info.run_id == mine.info.run_id
    assert not ours(caplog)
    client = mlflow.MlflowClient()
    everywhere = [one.experiment_id for one in client.search_experiments()]
    runs = {frozenset(one.data.metrics): one.info.status for one in client.search_runs(everywhere)}
    names = ("value_of_mine", "dodge/value_of_one", "dodge/value_of_two")
    assert runs == {frozenset([name]): "FINISHED" for name in names}


def test_trainings_that_begin_at_once_share_one_experiment_of_mlflow(run, caplog):
    folders = [run.folder / str(number) for number in range(6)]
    for folder in folders:
        folder.mkdir()
    boards = [Board(replace(run, folder=folder, identity=folder.name), [make_tracker("mlflow")]) for folder in folders]
    for board in boards:
        board.close()
    assert not ours(caplog)
    from mlflow import MlflowClient

    client = MlflowClient((run.folder / "mlruns").as_uri())
    experiments = [one.experiment_id for one in client.search_experiments() if one.name == "soulsgraph"]
    assert (len(experiments), len(client.search_runs(experiments))) == (1, 6)


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("mlflow", {"MLFLOW_TRACKING_URI": NOWHERE, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}),
        ("wandb", {"WANDB_MODE": "online", "WANDB_BASE_URL": NOWHERE, "WANDB_API_KEY": 40 * "a"}),
    ],
)
def test_a_server_that_is_away_is_reported_and_stops_nothing(name, variables, run, caplog, monkeypatch):
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    with caplog.at_level(logging.WARNING, "soulsgraph"):
        log_everything(run, name, 1_000)
        # The tracker's thread, for which nobody waits any more, says why.
        until(lambda: ours(caplog), "the report")
    assert len(ours(caplog)) == 1


def test_tracking_online_without_a_login_is_refused(run, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(run.folder))
    monkeypatch.setenv("NETRC", str(run.folder / "netrc"))
    with pytest.raises(SoulsGraphError, match="WANDB_MODE"):
        make_tracker("wandb")
