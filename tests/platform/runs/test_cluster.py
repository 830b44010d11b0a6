"""Training as jobs of a Ray cluster: a head and two workers that stand in for game PCs."""

import re
from contextlib import contextmanager, suppress
from threading import Event, Thread

import psutil
import pytest

from fakes.clusters import LocalCluster, Program, command_of
from fakes.runs import of_stage
from fakes.waiting import until
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_clusters.fleet.gateway.status import read_status

pytestmark = pytest.mark.slow

#: Ten times its usual budget: a lost game PC has to come back within the stage, on a fast machine too.
CAMERA_BUDGET = 200_000


def env_runners(node: Program) -> int:
    """Count the env runners among a node's processes that have started; Ray names what one does."""
    words = [word for pid in node.pids for word in command_of(pid)[:1]]
    return sum("SkillGraphEnvRunner" in word and "__init__" not in word for word in words)


def newest_step(folder) -> int:
    """Return the step of the newest file or folder named after a step."""
    return max((int(path.stem.removeprefix("step-")) for path in folder.glob("step-*")), default=0)


def process_of(command: list[str]) -> psutil.Process:
    """Return the process of a job's command."""
    [process] = [psutil.Process(pid) for pid in psutil.pids() if command_of(pid)[2:] == command[1:]]
    return process


@contextmanager
def paused(command: list[str]):
    """Suspend the process of a job's command: a fast machine would finish the stage meanwhile."""
    trainer = process_of(command)
    trainer.suspend()
    try:
        yield
    finally:
        trainer.resume()


@contextmanager
def slowed(command: list[str]):
    """Suspend the process of a job's command most of the time, so that Ray's slow restarts fit into the stage."""
    ended, trainer = Event(), process_of(command)

    def slow_down():
        with suppress(psutil.NoSuchProcess):
            while not ended.wait(0.05):
                trainer.suspend()
                ended.wait(0.95)
                trainer.resume()

    thread = Thread(target=slow_down)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def wait_for_log(job: Program, words: str) -> None:
    until(lambda: words in job.logs() or not job.running, f"{words!r} in the log")
    assert words in job.logs(), job.logs()


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster() as cluster:
        yield cluster


def test_each_game_pc_runs_one_env_runner_and_a_stopped_job_goes_on_from_its_checkpoint_to_its_exact_budget(
    cluster, tmp_path
):
    path = tmp_path / "run"
    train = ["soulsgraph", "train", "camera", f"--run={path}"]
    first = [*train, "--env-runners=2", f"--scale={CAMERA_BUDGET / 20_000}"]
    job = cluster.job_submit(first)
    until(lambda: newest_step(of_stage(path / "curves", "camera")) > 0 or not job.running, "a checkpoint")
    # On a slow machine the stage begins with one of them.
    until(lambda: all(map(env_runners, cluster.workers)) or not job.running, "both env runners")
    assert job.running, job.logs()
    assert [env_runners(node) for node in cluster.workers] == [1, 1]
    with slowed(first):
        cluster.kill_worker(0)
        steps_when_lost = newest_step(of_stage(path / "curves", "camera"))
        wait_for_log(job, "was lost, ")
        lost = re.search(r"(env runner \d)[^\n]* was lost, ", job.logs())
    with paused(first):
        returned = cluster.add_worker()
    with slowed(first):
        until(lambda: env_runners(returned) == 1 or not job.running, "an env runner on the new node")
        back = re.compile(rf"{lost[1]}[^\n]* is back, ")
        until(lambda: back.search(job.logs(), lost.end()) or not job.running, "its return in the log")
    with paused(first):
        assert [env_runners(node) for node in (cluster.workers[1], returned)] == [1, 1]
        cluster.stop_job(job)
    job.wait()
    run = RunFolder.open(path)
    assert steps_when_lost < newest_step(of_stage(path / "checkpoints", "camera")) < CAMERA_BUDGET
    assert not run.library.versions("camera")
    resumed = cluster.job_submit(train)
    assert resumed.wait() == 0, resumed.logs()
    card = run.library.load("camera").card
    assert card.training.steps == CAMERA_BUDGET
    assert card.normalizer.count == pytest.approx(CAMERA_BUDGET, abs=1)


def hosts(node: Program) -> list[int]:
    """Return the ids of a node's processes that play a game."""
    return [pid for pid in node.pids if any("ActorPlayer" in word for word in command_of(pid)[:1])]


def test_games_of_game_pcs_train_a_stage_and_another_takes_the_place_of_a_lost_one(cluster, tmp_path):
    games = tmp_path / "games.toml"
    games.write_text('[[games]]\ndriver = "simulator"\nspeed = 10.0\n')
    path, alive = tmp_path / "run", [node for node in cluster.workers if node.running]
    train = ["soulsgraph", "train", "camera", f"--run={path}", f"--games={games}", "--env-runners=2", "--scale=10"]
    job = cluster.job_submit(train)
    for name in ("game-pc-1/1", "game-pc-2/1"):
        wait_for_log(job, f"{name} joined, playing by simulator")
    assert [len(hosts(node)) for node in alive] == [1, 1]
    alive[0].kill()
    wait_for_log(job, "it is started again")
    returned = cluster.add_worker()
    until(lambda: len(hosts(returned)) == 1 or not job.running, "the place taken")
    before = read_status(path / "journal").decisions

    def both_play_on():
        decisions, pcs = read_status(path / "journal").decisions, ("game-pc-1/journaled", "game-pc-2/journaled")
        return all(decisions.get(pc, 0) > before.get(pc, 0) for pc in pcs)

    until(lambda: both_play_on() or not job.running, "play of both")
    assert job.running, job.logs()
    cluster.stop_job(job)
    job.wait()
    until(lambda: not [pid for node in cluster.workers for pid in hosts(node)], "no game left")
