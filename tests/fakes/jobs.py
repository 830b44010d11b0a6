"""Jobs of a cluster without a cluster: a job server in memory, whose jobs end when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ray.dashboard.modules.job.pydantic_models import JobDetails, JobType
from ray.job_submission import JobStatus

from soulsgraph_clusters.sessions.head import ClusterAwayError
from soulsgraph_clusters.sessions.jobs import JobServer


class JobsInMemory(JobServer):
    """What JobServer asks a cluster for; each job runs until `end` is called, and prints `log`.

    While `away` it answers nothing.
    """

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:8265")
        self.jobs: dict[str, JobDetails] = {}
        self.log, self.away = "", False

    def end(self, name: str, status: str, code: int | None = None, message: str | None = None) -> None:
        """End a job by Ray's status and the exit code of its command."""
        details = {"status": JobStatus(status), "driver_exit_code": code, "message": message}
        self.jobs[name] = self.jobs[name].model_copy(update=details)

    def lose_head(self) -> None:
        """Forget every job, as the successor of a lost head does."""
        self.jobs.clear()

    def submit(
        self, name: str, words: Sequence[str], metadata: Mapping[str, str], environment: Mapping[str, str]
    ) -> None:
        """Take a job, which runs at once."""
        self._answer()
        assert name not in self.jobs, "each submission has a name of its own"
        self.jobs[name] = JobDetails(
            type=JobType.SUBMISSION,
            submission_id=name,
            status=JobStatus.RUNNING,
            entrypoint=" ".join(words),
            metadata=dict(metadata),
            runtime_env={"env_vars": dict(environment)},
        )

    def find(self, name: str) -> JobDetails | None:
        """Return a job."""
        self._answer()
        return self.jobs.get(name)

    def unfinished(self) -> list[JobDetails]:
        """Return the jobs that run."""
        self._answer()
        return [job for job in self.jobs.values() if job.status == "RUNNING"]

    def stop(self, name: str) -> None:
        """Stop a job, which ends at once."""
        self._answer()
        self.end(name, "STOPPED")

    async def lines(self, name: str, write: Callable[[str], None]) -> None:
        """Write `log`."""
        self._answer()
        write(self.log)

    def _answer(self) -> None:
        if self.away:
            raise ClusterAwayError(f"{self.address}: expected an answer, found that the test lets none come.")
