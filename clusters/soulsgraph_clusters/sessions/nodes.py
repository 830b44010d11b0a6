"""One probe that every node of a cluster answers before work is placed there: it runs our code, and sees the folder."""

from __future__ import annotations

import hashlib
import logging
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import ActorUnavailableError, GetTimeoutError, OutOfMemoryError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from soulsgraph_clusters.sessions.head import ClusterAwayError, ClusterError
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import write_text

PACKAGES = ("soulsgraph", "soulsgraph_clusters", "soulsgraph_policies", "soulsgraph_envs")
_SUFFIXES = (".py", ".toml")
#: Seconds in which each node answers; a busy machine starts a worker within half a minute.
ANSWERED_WITHIN_S = 60.0
#: A file system of a network may show what another machine wrote some seconds later.
SEEN_WITHIN_S = 10.0
_WORD_FILE = ".probe"

_logger = logging.getLogger("soulsgraph")


def code_digest() -> str:
    """Return one digest of our packages as this Python would run them; empty where one is not installed."""
    digest = hashlib.blake2b(digest_size=8)
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            return ""
        folder = Path(spec.origin).parent
        for file in sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES):
            # Windows may have ends of lines of its own.
            content = file.read_bytes().replace(b"\r\n", b"\n")
            digest.update(f"{package}/{file.relative_to(folder).as_posix()} {len(content)} ".encode() + content)
    return digest.hexdigest()


@dataclass(frozen=True)
class Probe:
    """What a node is asked: whether it runs our code, and reads a random word in the folder that it is to write."""

    code: str
    folder: Path | None = None
    word: str = ""

    def problem(self, within_s: float = SEEN_WITHIN_S) -> str:
        """Return what is wrong with the node of this process, empty if nothing."""
        if (found := code_digest()) != self.code:
            return "other code" if found else "no soulsgraph"
        until_s = time.monotonic() + within_s
        while self.folder is not None:
            with suppress(OSError):
                if (self.folder / _WORD_FILE).read_text(encoding="ascii", errors="replace") == self.word:
                    break
            if time.monotonic() > until_s:
                return "not that folder"
            time.sleep(0.2)
        return ""


def check_nodes(examined: set[str], probe: Probe | None = None) -> None:
    """Check that every node that offers a processor answers a probe, by default of our code alone, as this machine.

    Nodes in `examined` are not asked, those that were found good join them. One that does not answer in time is
    reported and left alone.

    Raises:
        ClusterError: naming each node and what is wrong with it.
    """
    probe = probe or Probe(code_digest())
    names = {
        node["NodeID"]: f"node {node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("CPU", 0.0) >= 1.0 and node["NodeID"] not in examined
    }
    # By value: a node that lacks our packages could not even read the question.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        task = ray.remote(num_cpus=0, max_retries=0)(Probe.problem)
        asked = {
            task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(probe): node
            for node in names
        }
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    ready, late = ray.wait([*asked], num_returns=len(asked), timeout=ANSWERED_WITHIN_S) if asked else ([], [])
    for call in late:
        ray.cancel(call, force=True)
    problems = dict[str, str]()
    for call in ready:
        with suppress(RayError):
            problems[asked[call]] = ray.get(call)
    examined.update(node for node, problem in problems.items() if not problem)
    if silent := ", ".join(name for node, name in names.items() if node not in problems):
        _logger.warning("%s: no answer within %g s whether soulsgraph runs there", silent, ANSWERED_WITHIN_S)
    if wrong := ", ".join(f"{problem} on {names[node]}" for node, problem in problems.items() if problem):
        sees, mount = ("", "") if probe.folder is None else (f" and see {probe.folder}", ", let it mount the folder")
        raise ClusterError(
            f"cluster: expected nodes that run the code of this machine{sees}, found {wrong}; install the same there "
            f"and start its Ray again{mount}, or take the node out of the cluster."
        )


@contextmanager
def probed(folder: Path) -> Iterator[Probe]:
    """Check that every node of the cluster runs our code and sees a folder; yield what a later node is asked by.

    Raises:
        ClusterError: as `check_nodes`.
        WriteError: if the folder cannot be written.
    """
    probe = Probe(code_digest(), folder.resolve(), secrets.token_hex(16))
    write_text(file := folder / _WORD_FILE, probe.word)
    try:
        check_nodes(set(), probe)
        yield probe
    finally:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def answer_of(call: ray.ObjectRef) -> Any:
    """Wait for a call's answer; raises the SoulsGraphError that it raised, and RayError if its process died."""
    try:
        return ray.get(call)
    except RayTaskError as error:
        if isinstance(error.cause, SoulsGraphError):
            raise error.cause from error
        raise


def describe_loss(error: RayError) -> str:
    """Return in plain words why a process did not answer; Ray's own text is of ids and sockets."""
    if isinstance(error, OutOfMemoryError):
        return "its machine ran out of memory"
    silent = isinstance(error, (ActorUnavailableError, GetTimeoutError))
    return "it does not answer" if silent else "its process or machine was lost"


def check_own_node() -> None:
    """Check that the Ray node of this process lives.

    Raises:
        ClusterAwayError: if it ended.
    """
    own = ray.get_runtime_context().get_node_id()
    if any(node["NodeID"] == own and not node["Alive"] for node in ray.nodes()):
        raise ClusterAwayError(
            "Ray: expected this machine's node alive, found that it ended; where it is a cluster's, start its Ray "
            "again, and resume the run."
        )
