"""Whether every node of a cluster runs the files of ours that run here, and sees the folder that they write to.

First which files of our packages Python would run: here, on a node, or in what a job brought along. A node may lack our
packages, so these functions are sent to it whole, and use nothing of ours.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import re
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from soulsgraph_clusters.sessions.head import ClusterAwayError, ClusterError
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import write_text

T = TypeVar("T")

_logger = logging.getLogger("soulsgraph")
PACKAGES = ("soulsgraph", "soulsgraph_clusters", "soulsgraph_policies", "soulsgraph_envs")
_DISTRIBUTION = "soulsgraph"
#: The extras that training needs.
_TRAINING = ("train", "data")
_SUFFIXES = (".py", ".toml")
#: Distributions of others whose version may change a result, in its last bits at least.
_DECIDING = ("numpy", "numba", "llvmlite", "torch", "ray", "gymnasium")
#: Folders below an uploaded one that are searched for a copy: deeper ones are environments and their like.
_MOST_LEVELS = 4


class Installation(TypedDict):
    """What one Python would run: its version, each package's folder, digests by file, what is not installed.

    `versions` are those on which results depend: of Python, and of distributions by name.
    """

    python: str
    version: str
    folders: dict[str, str]
    files: dict[str, str]
    missing: list[str]
    versions: dict[str, str]


def find_source(needed: Sequence[str] = ()) -> Installation:
    """Return what this Python would run, and which of the distributions that are needed it lacks."""
    folders = package_folders()
    files = {name: digest for folder in folders.values() for name, digest in file_digests(Path(folder)).items()}
    return Installation(
        python=sys.executable,
        version=_version_of(_DISTRIBUTION) or "unknown",
        folders=folders,
        files=files,
        missing=[name for name in needed if not _version_of(name)],
        versions={"Python": platform.python_version()} | {name: _version_of(name) for name in _DECIDING},
    )


def package_folders() -> dict[str, str]:
    """Return the folder of each of our packages that Python finds; none is imported."""
    specs = {name: find_spec(name) for name in PACKAGES}
    return {name: os.path.dirname(spec.origin) for name, spec in specs.items() if spec and spec.origin}


def file_digests(folder: Path) -> dict[str, str]:
    """Return the digest of each file of a package by its path, package included; ends of lines do not count."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES and path.is_file())
    return {f"{folder.name}/{path.relative_to(folder).as_posix()}": _digest(path) for path in files}


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes().replace(b"\r\n", b"\n"), digest_size=8).hexdigest()


def _version_of(distribution: str) -> str:
    """Return a distribution's version, empty where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def needed_distributions() -> tuple[str, ...]:
    """Return the names of the distributions that training with ours needs; none where it is not installed."""
    try:
        lines = requires(_DISTRIBUTION) or []
    except PackageNotFoundError:
        return ()
    names = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        extra, name = re.search(r"extra == ['\"](.+?)['\"]", marker), re.match(r"[\w.-]+", requirement)
        if name and name[0] != _DISTRIBUTION and (extra is None or extra[1] in _TRAINING):
            names.append(name[0])
    return tuple(names)


def differing(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """Return the names of the files that are not the same in both, or in one only."""
    return sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))


def copies_below(folder: Path) -> Iterator[Path]:
    """Yield the folders named as one of our packages, and packages, at most some levels below a folder."""
    for place, folders, _ in os.walk(folder):
        at = Path(place)
        yield from (at / name for name in sorted(folders) if name in PACKAGES and (at / name / "__init__.py").is_file())
        deep = len(at.relative_to(folder).parts) >= _MOST_LEVELS - 1
        folders[:] = [] if deep else [name for name in folders if name not in PACKAGES and not name.startswith(".")]


#: Seconds in which each node describes its packages; a busy machine starts a worker within half a minute.
EXAMINED_WITHIN_S = 60.0


def check_nodes(examined: set[str]) -> None:
    """Check that every node of a cluster has our packages, the same files as here.

    Nodes that are in `examined` are not asked, those that were found good join them. One that does not answer in time
    is reported and left alone.

    Raises:
        ClusterError: naming each node, what it has and the remedy.
    """
    nodes = {node["NodeID"]: _name_of(node) for node in ray.nodes() if node["Alive"]}
    new = {node: name for node, name in nodes.items() if node not in examined}
    here = find_source()
    answers = _ask(new, "which soulsgraph is there", find_source, needed_distributions())
    problems = {node: _problem(here, there) for node, there in answers.items()}
    examined.update(node for node, problem in problems.items() if not problem)
    for node, there in answers.items():
        if others := _other_versions(here, there):
            _logger.warning(
                "%s: %s; results may differ: install the versions of this machine there", nodes[node], others
            )
    if found := [f"{problem} on {nodes[node]}" for node, problem in problems.items() if problem]:
        raise ClusterError(
            f"soulsgraph: expected the files that run here ({here['version']} of {here['folders']['soulsgraph']}) on "
            f"every node of the cluster, found {'; '.join(found)}: install the same there and start its Ray again, or "
            "take it out of the cluster."
        )


#: A file system of a network may show what another machine wrote some seconds later.
_SEEN_WITHIN_S = 10.0
_MARK_FILE = ".mark"


@dataclass(frozen=True)
class Mark:
    """A random word that the driver wrote into a folder: a node that reads it there has the same folder."""

    folder: Path
    word: str

    @property
    def file(self) -> Path:
        """Where it is written."""
        return self.folder / _MARK_FILE

    def problem(self, within_s: float = _SEEN_WITHIN_S) -> str:
        """Return what this machine finds in the folder's place, empty if it is the same one."""
        until_s = time.monotonic() + within_s
        while found := self._found():
            if time.monotonic() > until_s:
                return found
            time.sleep(0.2)
        return ""

    def _found(self) -> str:
        try:
            same = self.file.read_text(encoding="ascii", errors="replace") == self.word
        except OSError as error:
            return f"another folder at {self.folder}" if self.folder.is_dir() else f"no such folder ({error.strerror})"
        return "" if same else f"another folder at {self.folder}"


@contextmanager
def marked(folder: Path) -> Iterator[Mark]:
    """Mark a folder in which other nodes are to write; raises WriteError where that cannot be done."""
    mark = Mark(folder.resolve(), secrets.token_hex(16))
    write_text(mark.file, mark.word)
    try:
        yield mark
    finally:
        with suppress(OSError):
            mark.file.unlink(missing_ok=True)


def nodes_without(mark: Mark) -> list[str]:
    """Return what each other node that offers a processor finds, and its name, where that is not the driver's folder.

    A node that does not answer in time is reported; it looks itself before it works.
    """
    own = ray.get_runtime_context().get_node_id()
    nodes = {
        node["NodeID"]: _name_of(node)
        for node in ray.nodes()
        if node["Alive"] and node["NodeID"] != own and node["Resources"].get("CPU", 0.0) >= 1.0
    }
    answers = _ask(nodes, f"whether {mark.folder} is there", Mark.problem, mark)
    return [f"{problem} on {nodes[node]}" for node, problem in answers.items() if problem]


def other_folder(folder: Path, found: str) -> ClusterError:
    """Return the error for a node that does not read in the driver's folder what the driver wrote; `found` names it."""
    return ClusterError(
        f"{folder}: expected a node that reads in this folder what the driver wrote, found {found}; let the node mount "
        "it under this path as the driver has it, or take it out of the cluster."
    )


def answer_of(call: ray.ObjectRef) -> Any:
    """Wait for a call's answer; raises the SoulsGraphError that it raised, and RayError if its process died."""
    try:
        return ray.get(call)
    except RayTaskError as error:
        if isinstance(error.cause, SoulsGraphError):
            raise error.cause from error
        raise


def this_node() -> str:
    """Return the name and address of the node of this process, as errors name it."""
    return f"node {socket.gethostname()} ({ray.util.get_node_ip_address()})"


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


def _name_of(node: Mapping[str, Any]) -> str:
    return f"node {node['NodeManagerHostname']} ({node['NodeManagerAddress']}:{node['NodeManagerPort']})"


def _ask(nodes: Mapping[str, str], what: str, function: Callable[..., T], *words: Any) -> dict[str, T]:
    """Return each node's answer, all asked at once; one that is lost or too slow has none, which is reported.

    `nodes` are their names by id, `what` is what they are asked for.
    """
    # By value: a node that lacks our packages could not even read the question.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        task = ray.remote(num_cpus=0, max_retries=0)(function)
        asked = {
            node: task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(*words)
            for node in nodes
        }
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    ready, late = ray.wait([*asked.values()], num_returns=len(asked), timeout=EXAMINED_WITHIN_S) if asked else ([], [])
    for reference in late:
        ray.cancel(reference, force=True)
    answers = {}
    for node in (node for node, reference in asked.items() if reference in ready):
        with suppress(RayError):
            answers[node] = ray.get(asked[node])
    if silent := ", ".join(name for node, name in nodes.items() if node not in answers):
        _logger.warning("%s: no answer within %g s %s", silent, EXAMINED_WITHIN_S, what)
    return answers


def _other_versions(here: Installation, there: Installation) -> str:
    """Return the versions in which a node differs from this machine, empty if in none; a missing one is an error."""
    own = here["versions"]
    found = {name: version for name, version in there["versions"].items() if version and version != own.get(name)}
    return ", ".join(
        f"{name} {version} where this machine has {own[name] or 'none'}" for name, version in found.items()
    )


def _problem(here: Installation, there: Installation) -> str:
    """Return what a node lacks or has in another state, empty if nothing."""
    if not there["folders"]:
        return f"none in {there['python']}"
    others = differing(here["files"], there["files"])
    if others and there["version"] != here["version"]:
        return f"{there['version']} of {there['folders'].get('soulsgraph')}"
    if others:
        return f"{len(others)} other files, among them {others[0]},"
    return f"no {', '.join(there['missing'])} in {there['python']}" if there["missing"] else ""
