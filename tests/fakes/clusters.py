"""A real Ray cluster on this machine: a head and workers that stand in for game PCs.

Every node is a `ray start --block` of its own with token authentication, its own ports and its own
processes, so a test may kill a worker as a power cut would.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil

from fakes.waiting import PATIENCE_S, until
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_envs.core.errors import SoulsGraphError

_RAY = Path(sys.executable).with_name("ray")
_OBJECT_STORE_BYTES = 100 * 2**20
#: Notice a dead node within seconds; Ray's own defaults take about a minute.
_HEALTH_CHECK = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
}
#: Ray's own limits, for a busy machine; a stopped job needs longer than three seconds to leave a checkpoint.
_PATIENT = {
    "RAY_gcs_server_port_wait_time_s": "120",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_JOB_STOP_WAIT_TIME_S": "120",
}
#: Files in which a node's agents report their ports.
AGENT_PORTS = ("dashboard_agent_listen_port", "metrics_agent_port", "metrics_export_port")
#: Ray ends a node that was not up after 30 s; a busy machine may be quick enough the next time.
_TRIES = 3


@contextmanager
def reported_ports(folder: Path, ports: Mapping[str, int]) -> Iterator[str]:
    """Write the port files of a starting node's agents, in the sessions below `folder`; yield the node's id.

    Ray's raylet ends itself where an agent has not reported within 15 s, a limit that cannot be set. The id goes
    to the node as RAY_OVERRIDE_NODE_ID_FOR_TESTING.
    """
    node_id, over = secrets.token_hex(28), threading.Event()

    def report() -> None:
        while not over.wait(0.05):
            for session in folder.glob("session_2*"):
                for name, port in ports.items():
                    file = session / f"{name}_{node_id}"
                    if not file.exists():
                        whole = file.with_suffix(".new")
                        whole.write_text(str(port), encoding="ascii")
                        whole.replace(file)

    reporter = threading.Thread(target=report)
    reporter.start()
    try:
        yield node_id
    finally:
        over.set()
        reporter.join()


def command_of(pid: int) -> list[str]:
    """Return the command line of a process, empty where it has ended."""
    with suppress(psutil.NoSuchProcess):
        return [*psutil.Process(pid).cmdline()]
    return []


def over(process: psutil.Process) -> bool:
    """Return whether a process has ended, collected or not: whoever inherits it collects it some time."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return True


class Program:
    """A command with its output in a file: a node, or a job whose exit code is 0 if it succeeded.

    It is stopped with everything it started.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self.name, self._log = name, folder / f"{name}.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        """Whether the command itself still runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the command itself."""
        return self._process.pid

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the command and of all it started, those still alive."""
        started = {pid for pid in psutil.pids() if _session_of(pid) == self._process.pid}
        if self.running:  # jobs have sessions of their own
            own = psutil.Process(self._process.pid)
            started |= {own.pid, *(child.pid for child in own.children(recursive=True))}
        return tuple(sorted(started))

    def logs(self) -> str:
        """What it has printed so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the end and return the exit code.

        Raises:
            subprocess.TimeoutExpired: if it takes longer.
        """
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """Kill it and all it started, by process id and without notice, as a power cut would."""
        victims = []
        for pid in self.pids:
            with suppress(psutil.NoSuchProcess):
                victims.append(psutil.Process(pid))
        for victim in victims:
            with suppress(psutil.NoSuchProcess):
                victim.kill()
        psutil.wait_procs(victims, timeout=PATIENCE_S)
        self._process.wait()


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


class LocalCluster:
    """Start a head and `workers` nodes with the resource `game_pc`, and stop them all on leaving.

    `address` is what `--address` takes, `dashboard` where jobs are submitted, `environment` what a client needs.
    """

    def __init__(self, workers: int = 2, head_cpus: int = 2) -> None:
        self._folder, self._ports = Path(tempfile.mkdtemp(prefix="soulsgraph-")), set[int]()
        gcs, dashboard = self._port(), self._port()
        self._head = [
            *("--head", f"--port={gcs}", "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}"),
            *(f"--ray-client-server-port={self._port()}", f"--temp-dir={self._folder}", f"--num-cpus={head_cpus}"),
        ]
        self.address, self.dashboard = f"127.0.0.1:{gcs}", f"http://127.0.0.1:{dashboard}"
        self._jobs_address = f"--address={self.dashboard}"
        self._first_workers = workers
        self._programs: list[Program] = []
        self.workers: list[Program] = []
        self.token_file = self._folder / "token"
        self.token_file.touch(mode=0o600)
        self.token_file.write_text(secrets.token_hex(32))

    def _port(self) -> int:
        """Return a free port, each once: Ray refuses a node that names one twice."""
        while (port := free_port()) in self._ports:
            pass
        self._ports.add(port)
        return port

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a client: this process's own, with the cluster's token and no other address."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        return ours | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token_file),
            "RAY_USAGE_STATS_ENABLED": "0",
            # A job finds `python` and `soulsgraph` on the PATH that `ray start` ran with.
            "PATH": f"{_RAY.parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }

    def __enter__(self) -> LocalCluster:
        try:
            self.start_head()
            # One after another: two nodes that start at once on one machine take each other's files.
            for _ in range(self._first_workers):
                self.add_worker()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start_head(self) -> None:
        """Start the head, again after `kill_head` where it was; it knows nothing of workers and jobs then."""
        self._head_node = self._start_node("head", self._head, _HEALTH_CHECK)

    def kill_head(self) -> None:
        """Kill every process of the head at once, as a power cut would."""
        self._head_node.kill()

    def add_worker(self, environment: Mapping[str, str] | None = None, hidden: Path | None = None) -> Program:
        """Join one more node, which offers one `game_pc`, and wait until it has joined.

        Its environment is the client's, changed by `environment`. In the place of a `hidden` folder it sees an empty
        disk of its own, which takes root on Linux; its temporary folders are there.
        """
        command = [f"--address={self.address}", "--num-cpus=1", '--resources={"game_pc": 1}']
        mount = 'mount -t tmpfs -o size=1000m none "$0" && exec "$@"'
        words = () if hidden is None else ("unshare", "-m", "sh", "-c", mount, str(hidden))
        changed = dict(environment or {}) | ({} if hidden is None else {"TMPDIR": str(hidden)})
        self.workers.append(self._start_node(f"worker-{len(self.workers)}", command, changed, words))
        return self.workers[-1]

    def kill_worker(self, index: int) -> None:
        """Kill every process of a worker at once, as a power cut would."""
        self.workers[index].kill()

    def job_submit(self, command: Sequence[str]) -> Program:
        """Run a command as a job of the cluster; its first word is a program on the head's PATH."""
        name = f"job-{len(self._programs)}"
        submit = ["job", "submit", self._jobs_address, f"--submission-id={name}", "--", *command]
        return self._start(name, submit, {"RAY_DEDUP_LOGS": "0"})

    def stop_job(self, job: Program) -> None:
        """Ask a job to stop; `job.wait()` waits until it has."""
        self._start(f"{job.name}-stop", ["job", "stop", "--no-wait", self._jobs_address, job.name], {}).wait()

    def close(self) -> None:
        """Stop jobs, workers and the head by process id and remove their files."""
        for program in reversed(self._programs):
            program.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(
        self, name: str, command: Sequence[str], extra: Mapping[str, str], before: Sequence[str] = ()
    ) -> Program:
        program = Program(name, [*before, str(_RAY), *command], self.environment | dict(extra), self._folder)
        self._programs.append(program)
        return program

    def _start_node(
        self, name: str, command: Sequence[str], extra: Mapping[str, str], before: Sequence[str] = ()
    ) -> Program:
        for _ in range(_TRIES):
            # The agents' default ports are fixed numbers: a second node of one machine needs others.
            ports = {port: self._port() for port in AGENT_PORTS}
            start = _start_words(ports, self._port(), command)
            with reported_ports(self._folder, ports) as node_id:
                own = {**_PATIENT, **extra, "RAY_OVERRIDE_NODE_ID_FOR_TESTING": node_id}
                node = self._start(name, start, own, before)
                until(partial(_started_or_ended, node), "a Ray node to start")
            if node.running:
                return node
            node.kill()
            self._programs.remove(node)
        raise SoulsGraphError(f"expected a Ray node, found {_TRIES} times that it ended: {node.logs()[-500:]!r}")


def _start_words(ports: Mapping[str, int], environment_port: int, command: Sequence[str]) -> list[str]:
    listening, grpc, metrics = ports.values()
    return [
        *("start", "--block", "--disable-usage-stats", f"--object-store-memory={_OBJECT_STORE_BYTES}"),
        *("--node-ip-address=127.0.0.1", "--min-worker-port=0", "--max-worker-port=0"),
        *(f"--runtime-env-agent-port={environment_port}", f"--dashboard-agent-listen-port={listening}"),
        *(f"--dashboard-agent-grpc-port={grpc}", f"--metrics-export-port={metrics}", *command),
    ]


def _started_or_ended(node: Program) -> bool:
    return "Ray runtime started" in node.logs() or not node.running
