"""What becomes of a supervised job: followed, classed by its end, submitted again; what earlier ones left is ended."""

import threading
from dataclasses import replace

import pytest

from fakes.jobs import JobsInMemory
from fakes.waiting import until
from soulsgraph.cli import supervise as command
from soulsgraph.runs.supervision import INTERRUPTED, UNAVAILABLE, AttemptEnd, Jobs, SupervisedCommand, describe_process
from soulsgraph_clusters.sessions.head import ClusterAwayError
from soulsgraph_clusters.sessions.jobs import FOLDER, SUPERVISOR, JobServer
from soulsgraph_clusters.sessions.local_ray import free_port

WORDS, FOLDER_OF_RUN = ("train", "camera"), "/data/first"


@pytest.fixture
def server():
    return JobsInMemory()


@pytest.fixture
def lines():
    return []


@pytest.fixture
def jobs(server, lines, monkeypatch):
    monkeypatch.setattr("soulsgraph.runs.supervision._LOOK_EVERY_S", 0.05)
    return Jobs(server, SupervisedCommand("soulsgraph", WORDS), FOLDER_OF_RUN, lines.append)


class Attempt:
    """An attempt that runs in a thread until its job ends or it is interrupted."""

    def __init__(self, server, jobs, again=False):
        self.ended, self._stopped, known = None, threading.Event(), {} if again else dict(server.jobs)
        self._thread = threading.Thread(target=self._run, args=(jobs,), daemon=True)
        self._thread.start()
        self.name = until(lambda: [name for name in server.jobs if name not in known], "a job")[0]

    def _run(self, jobs):
        self.ended = jobs.run(self._stopped.is_set)

    def interrupt(self):
        self._stopped.set()

    def wait(self):
        self._thread.join()
        return self.ended


@pytest.mark.parametrize(
    ("status", "code", "found", "why"),
    [
        ("SUCCEEDED", 0, 0, ""),
        ("FAILED", 2, 2, "no such skill"),
        ("FAILED", -9, -9, "SIGKILL"),
        ("FAILED", 69, 69, "69"),
        ("FAILED", None, 1, "the runtime environment"),
        ("STOPPED", None, INTERRUPTED, ""),
    ],
)
def test_a_jobs_status_becomes_a_code_and_a_reason(server, jobs, status, code, found, why):
    server.log = "camera: 5 of 9\nerror: no such skill\n\n"
    attempt = Attempt(server, jobs)
    server.end(attempt.name, status, code, "the runtime environment\nand more")
    ended = attempt.wait()
    assert ended.code == found
    assert attempt.name in ended.why
    assert why in ended.why
    assert "and more" not in ended.why


def test_each_submission_has_a_name_of_its_own_and_says_who_supervises_it(server, jobs, lines):
    first = Attempt(server, jobs)
    server.end(first.name, "FAILED", 1)
    first.wait()
    second = Attempt(server, jobs)
    server.end(second.name, "SUCCEEDED", 0)
    second.wait()
    assert first.name != second.name
    assert {job.entrypoint for job in server.jobs.values()} == {"soulsgraph train camera"}
    assert [one.name in line for one, line in zip((first, second), lines, strict=True)] == [True, True]
    assert server.jobs[second.name].metadata[FOLDER] == FOLDER_OF_RUN
    assert server.jobs[second.name].metadata[SUPERVISOR]


def test_a_cluster_that_was_away_for_a_while_costs_no_job(server, jobs):
    attempt = Attempt(server, jobs)
    server.away = True
    ended = attempt.wait()
    assert (ended.code, ended.ran_s) == (UNAVAILABLE, 0.0)
    server.away = False
    again = Attempt(server, jobs, again=True)
    server.end(attempt.name, "SUCCEEDED", 0)
    assert again.wait().code == 0
    assert list(server.jobs) == [attempt.name]


def test_a_job_that_a_new_head_does_not_know_is_lost(server, jobs):
    attempt = Attempt(server, jobs)
    server.lose_head()
    ended = attempt.wait()
    assert ended.code == 1
    assert attempt.name in ended.why
    second = Attempt(server, jobs)
    assert second.name != attempt.name
    second.interrupt()
    assert second.wait().code == INTERRUPTED


def test_an_interrupt_stops_the_job_and_a_head_that_does_not_answer_is_reported(server, jobs, lines):
    attempt = Attempt(server, jobs)
    attempt.interrupt()
    assert attempt.wait().code == INTERRUPTED
    assert server.jobs[attempt.name].status == "STOPPED"
    second = Attempt(server, jobs)
    server.away = True
    assert second.wait().code == UNAVAILABLE
    jobs.close()
    assert second.name in lines[-1]


def test_the_job_of_a_supervisor_that_is_gone_is_ended_first_and_no_other(server, jobs, lines):
    host = describe_process().split()[0]
    gone, elsewhere, lives = f"{host} 1 another-boot/1", f"{host}-2 1 another-boot/1", describe_process()
    left = {"left": (gone, FOLDER_OF_RUN), "other": (gone, "/data/second"), "far": (elsewhere, FOLDER_OF_RUN)}
    for name, (supervisor, folder) in (left | {"lives": (lives, FOLDER_OF_RUN)}).items():
        server.submit(name, WORDS, {SUPERVISOR: supervisor, FOLDER: folder}, {})
    server.submit("by-hand", WORDS, {}, {})
    attempt = Attempt(server, jobs)
    attempt.interrupt()
    attempt.wait()
    stopped = {name for name, job in server.jobs.items() if job.status == "STOPPED"}
    assert stopped == {"left", attempt.name}
    assert "left" in lines[0]


def test_a_dashboard_without_an_answer_is_away():
    with pytest.raises(ClusterAwayError):
        JobServer(f"http://127.0.0.1:{free_port()}").find("any")


def test_a_command_that_ends_soon_by_one_error_time_and_again_is_not_begun_again():
    def tries(*ended):
        ends = command._Ends()
        return [ends.repeated(one) for one in ended].count(True)

    same = AttemptEnd(1, "why", 5.0, "KeyError: 'getpwuid(): uid not found: 12345'")
    assert tries(*[same] * 4) == 0
    assert tries(*[same] * 5) == 1
    assert tries(*[same] * 4, replace(same, last_line="another"), *[same] * 4) == 0
    # It got somewhere, somebody ended it, or nothing is known of why.
    for other in (replace(same, ran_s=90.0), replace(same, code=-9), replace(same, last_line="")):
        assert tries(*[other] * 20) == 0
