"""Projects of own skills, as a PC and the head name them to each other: by name and digest, never by a place.

A PC has those that a person there named to its host, or installed; nothing that is received leads to an import.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.settings import FleetError
from soulsgraph_envs.core.errors import shown
from soulsgraph_policies.agents.projects import is_name, loaded_projects, projects_of

#: How the keys of a hello's digests begin that are of projects.
_KEY = "project/"
_DIGEST = re.compile(r"[0-9a-f]{64}(:[0-9a-f]{64})?")
#: A digest is shown by its first digits.
_SHOWN = 16
_REMEDY = "copy the head's project to the PC, name its folder to the host there (`project`), and start the host anew"


def digests_here() -> dict[str, str]:
    """Return the digest of every project that is loaded in this process, by name."""
    return {name: loaded.digest for name, loaded in loaded_projects().items()}


def digests_of(skills: Iterable[str]) -> dict[str, str]:
    """Return the digest of every project that declares some of these skills, by name."""
    return {name: loaded.digest for name, loaded in projects_of(skills).items()}


def in_hello() -> dict[str, str]:
    """Return what a hello says of the projects that are loaded here."""
    return {f"{_KEY}{name}": digest for name, digest in digests_here().items()}


def of_hello(hello: wire.Hello) -> dict[str, str]:
    """Return the digests of the projects that a PC has, by name; what is no name or no digest is left out."""
    said = {key.removeprefix(_KEY): digest for key, digest in hello.digests.items() if key.startswith(_KEY)}
    return {name: digest for name, digest in sorted(said.items()) if is_name(name) and _DIGEST.fullmatch(digest)}


def problem(needed: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Return which needed project is missing or has other code, expected, found and remedy; empty if none."""
    for name, digest in needed.items():
        if there.get(name) != digest:
            code, _, data = digest.partition(":")
            own_code, _, own_data = there.get(name, "").partition(":")
            same = code == own_code
            what, head, own = ("data files", data, own_data) if same else ("code", code, own_code)
            other = f"other {what} ({own[:_SHOWN] or 'none'})" if name in there else "none of that name"
            expected = f"the project {shown(name)} with the head's {what} ({head[:_SHOWN] or 'none'})"
            return f"expected {expected}, found {other}; {_REMEDY}"
    return ""


def require(needed: Mapping[str, str], there: Mapping[str, str], who: str) -> None:
    """Refuse who lacks a project that is needed, or has other code of it.

    Raises:
        FleetError: naming the project, both digests and the remedy.
    """
    if found := problem(needed, there):
        raise FleetError(f"{who}: {found}.")
