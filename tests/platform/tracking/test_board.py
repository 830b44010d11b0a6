"""One board: what it passes on and when, that no tracker stops or slows a run, and where trackers come from."""

import logging
from pathlib import Path

import numpy as np
import pytest

from fakes.trackers import KeptCalls, RaisingTracker, SilentTracker
from fakes.waiting import until
from soulsgraph.tracking import board as boards
from soulsgraph.tracking.board import Board, identity_of, make_tracker, make_trackers
from soulsgraph.tracking.contract import TrackedRun
from soulsgraph.tracking.tensorboard_tracker import TensorBoardTracker
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.files import WriteError


def described(folder: Path, identity: str = "0a1b2c") -> TrackedRun:
    plan = {"preset": "fast", "seed": 0, "overrides": {"gamma": 0.98}}
    return TrackedRun(folder, identity, plan, {"preset": "fast"})


def test_what_is_logged_at_a_step_is_passed_on_after_a_checkpoint(tmp_path):
    kept = KeptCalls()
    with Board(described(tmp_path), [kept]) as board:
        board.log("dodge", 1_000, {"losses/td_loss": 0.5})
        assert kept.logged == []
        board.flush()
        assert kept.logged == [("dodge", 1_000, {"losses/td_loss": 0.5})]
        board.log("dodge", 2_000, {"losses/td_loss": 0.25})
    assert [step for _, step, _ in kept.logged] == [1_000, 2_000]
    assert kept.ended == [True]


def test_what_a_stopped_run_logged_after_its_checkpoint_is_dropped(tmp_path):
    kept = KeptCalls()
    board = Board(described(tmp_path), [kept])
    board.log("dodge", 1_000, {"losses/td_loss": 0.5})
    board.__exit__(KeyboardInterrupt)
    assert (kept.logged, kept.ended) == ([], [False])


@pytest.mark.parametrize("error", [ConnectionError, SystemExit, KeyboardInterrupt])
def test_a_tracker_that_raises_or_exits_is_reported_once_and_called_no_more(tmp_path, caplog, error):
    raising, kept = RaisingTracker(error("the server is away\nand this is more about it")), KeptCalls()
    with caplog.at_level(logging.WARNING), Board(described(tmp_path), [raising, kept]) as board:
        for step in range(5):
            board.log("dodge", step, {"losses/td_loss": 0.5})
            board.flush()
    assert (raising.calls, len(kept.logged)) == (1, 5)
    # Its thread, for which nobody waits any more, says why.
    until(lambda: caplog.records, "the report")
    (record,) = caplog.records
    assert "RaisingTracker" in record.message
    assert "the server is away" in record.message
    assert "and this is more" not in record.message


def test_a_server_that_never_answers_holds_up_neither_the_run_nor_its_end(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(boards, "MOST_WAITING", 10)
    silent, kept = SilentTracker(), KeptCalls()
    with Board(described(tmp_path), [silent, kept]) as board:
        for step in range(50):
            board.log("dodge", step, {"losses/td_loss": 0.5})
            board.flush()
    assert len(kept.logged) == 50
    assert "found it 10 calls behind" in caplog.text
    silent.answers.set()


@pytest.mark.parametrize("most_waiting", [1, 10])
def test_an_answer_that_is_late_and_a_queue_that_is_full_are_waited_for_within_a_bound(
    tmp_path, caplog, monkeypatch, most_waiting
):
    monkeypatch.setattr(boards, "MOST_WAITING", most_waiting)
    silent = SilentTracker()
    tracker = boards.BackgroundTracker(silent)
    tracker.post(lambda tracker: tracker.begin(described(tmp_path)))
    until(lambda: silent.begun, "a tracker at its first call")
    tracker.post(lambda tracker: tracker.end(True))
    tracker.close(within_s=0.05)
    assert "0.05 s" in caplog.text
    silent.answers.set()


def test_a_remote_tracker_gets_everything_in_order(tmp_path):
    kept = KeptCalls(local=False)
    with Board(described(tmp_path), [kept]) as board:
        for step in range(100):
            board.log("dodge", step, {"losses/td_loss": 0.5})
    assert [step for _, step, _ in kept.logged] == [*range(100)]
    until(lambda: kept.ended == [True], "its end")


def test_the_identity_stays_the_run_folders(tmp_path):
    (tmp_path / "other").mkdir()
    assert identity_of(tmp_path) == identity_of(tmp_path) != identity_of(tmp_path / "other")


def test_trackers_are_named_or_passed(monkeypatch):
    own = KeptCalls()
    first, second = make_trackers(("tensorboard", own, "tensorboard"))
    assert isinstance(first, TensorBoardTracker)
    assert second is own
    with pytest.raises(UnknownNameError, match="wanbd"):
        make_tracker("wanbd")
    monkeypatch.setattr(boards, "find_spec", lambda name: None)
    with pytest.raises(SoulsGraphError, match=r"soulsgraph\[wandb\]"):
        make_tracker("wandb")


def _read_events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder / "tensorboard")).Reload()


def test_tensorboard_shows_each_skill_over_its_own_steps(tmp_path):
    with Board(described(tmp_path), [TensorBoardTracker()]) as board:
        board.log("camera", 20_000, {"charts/episodic_return": 1.0})
        board.log("dodge", 1_000, {"charts/episodic_return": 0.5, "rewards/alive": 0.25})
        board.log("dodge", 2_000, {"charts/episodic_return": 0.75, "rewards/alive": 0.5})
        board.log("dodge", 2_000, {"eval/actions": np.arange(9), "eval/fight": np.zeros((4, 6, 3), np.uint8)})
        board.call(lambda one: one.table("win rates", [{"setting": "both trained", "rate": 0.44}], "| both trained |"))
        options = {"preset": "fast", "lr": 3e-4, "lanes": None}
        board.call(lambda one: one.results(options, {"eval/win_rate/both": 0.44}))
    events = _read_events(tmp_path)
    returns = events.Scalars("dodge/charts/episodic_return")
    assert [(event.step, event.value) for event in returns] == [(1_000, 0.5), (2_000, 0.75)]
    assert [event.step for event in events.Scalars("camera/charts/episodic_return")] == [20_000]
    assert "dodge/rewards/alive" in events.Tags()["scalars"]
    assert events.Histograms("dodge/eval/actions")[0].histogram_value.num == 9
    assert (events.Images("dodge/eval/fight")[0].height, events.Images("dodge/eval/fight")[0].width) == (4, 6)
    assert b"both trained" in events.Tensors("win rates/text_summary")[0].tensor_proto.string_val[0]
    assert events.SummaryMetadata("_hparams_/experiment").plugin_data.plugin_name == "hparams"
    assert events.Scalars("eval/win_rate/both")[0].value == pytest.approx(0.44)


def test_a_writer_of_the_users_and_two_trainings_write_events_apart(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    with (
        SummaryWriter(str(tmp_path / "mine" / "tensorboard")) as mine,
        Board(described(tmp_path / "one"), [TensorBoardTracker()]) as one,
        Board(described(tmp_path / "two"), [TensorBoardTracker()]) as two,
    ):
        one.log("dodge", 1_000, {"one": 1.0})
        two.log("dodge", 1_000, {"two": 2.0})
        mine.add_scalar("dodge/mine", 3.0)
    for name in ("mine", "one", "two"):
        assert _read_events(tmp_path / name).Tags()["scalars"] == [f"dodge/{name}"]


def test_events_that_cannot_be_written_stop_the_run(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="file"):
        Board(described(tmp_path / "file"), [TensorBoardTracker()])
