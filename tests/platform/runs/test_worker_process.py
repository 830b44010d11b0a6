"""The process beside training: it answers in order, survives nobody, and its loss loses no work."""

import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial

import psutil
import pytest

from fakes.runs import pretend_training
from fakes.waiting import until
from soulsgraph.runs.evaluate import CurveEvaluator
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup
from soulsgraph.runs.workers import WorkerLostError, WorkerProcess


def test_it_answers_in_order_raises_what_was_raised_and_a_killed_one_is_noticed():
    with WorkerProcess() as worker:
        assert not worker.answered
        for module in ("soulsgraph.runs.evaluate", "torch", "ray"):
            worker.submit(eval, f"{module!r} in __import__('sys').modules")
        assert [worker.result() for _ in range(3)] == [True, False, False]
        worker.submit(divmod, 7, 2)
        worker.submit(divmod, 1, 0)
        worker.submit(os.getpid)
        assert worker.result() == (3, 1)
        with pytest.raises(ZeroDivisionError):
            worker.result()
        until(lambda: worker.answered, "the third answer")
        pid = worker.result()
        assert pid != os.getpid()
        os.kill(pid, signal.SIGKILL)
        worker.submit(os.getpid)
        with pytest.raises(WorkerLostError):
            worker.result()
        assert not psutil.pid_exists(pid)
        # The next call starts another, and what nobody waits for reaches nobody else.
        worker.submit(os.getpid)
        worker.forget()
        worker.submit(os.getpid)
        assert psutil.pid_exists(last := worker.result())
        assert last != pid
    assert not psutil.pid_exists(last)


def test_an_interrupt_from_the_keyboard_is_not_its_own_and_it_ends_with_the_process_that_started_it():
    code = (
        "import os, signal, time; from soulsgraph.runs.workers import WorkerProcess;"
        "signal.signal(signal.SIGINT, lambda *_: None); worker = WorkerProcess(); worker.start();"
        "os.killpg(0, signal.SIGINT);"  # as a terminal does: while the worker loads
        "worker.submit(os.getpid); print(worker.result(), flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as owner:
        pid = int(owner.stdout.readline())
        owner.kill()
    until(lambda: not psutil.pid_exists(pid), "the end of the worker")


def test_where_no_process_can_be_started_the_call_is_lost(monkeypatch):
    with WorkerProcess() as worker, monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", raise_no_memory)
        worker.submit(divmod, 7, 2)
        assert worker.answered
        with pytest.raises(WorkerLostError):
            worker.result()
        assert not worker.answered


def raise_no_memory(*_, **__):
    raise OSError(errno.ENOMEM, "no memory")


def test_a_curve_is_the_same_with_a_worker_without_one_and_with_one_that_dies(tmp_path):
    run = RunFolder.create(tmp_path / "run", Plan(scale=0.01))
    stage = run.plan.stage("camera")
    pretend_training(run, [replace(stage, budget=budget) for budget in (1, 2, 3)])
    checkpoints = {1_000 * version: run.library.load("camera", version).weights for version in (1, 2, 3)}
    agent, points = StageSetup(run, stage).agent, []
    with WorkerProcess() as worker:
        for beside, killed in ((None, False), (worker, False), (worker, True)):
            evaluator = CurveEvaluator(tmp_path, agent, clip=10.0, worker=beside)
            for step, weights in checkpoints.items():
                evaluator.add(step, {"camera": weights})
            if killed:
                worker._process.kill()
            points.append(evaluator.finish())
    assert points[0] == points[1] == points[2]
    assert [point.step for point in points[0]] == [1_000, 2_000, 3_000]


def test_it_prepares_itself_first_and_nobody_asks_how_that_ended(tmp_path):
    file = tmp_path / "ready"
    with WorkerProcess() as worker:
        worker.start(partial(file.write_text, "prepared"))
        worker.submit(file.read_text)
        assert worker.result() == "prepared"
        assert not worker.answered
    with WorkerProcess() as worker:
        worker.start(partial(divmod, 1, 0))
        worker.submit(divmod, 7, 2)
        assert worker.result() == (3, 1)
