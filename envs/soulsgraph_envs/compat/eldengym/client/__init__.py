"""EldenGym's clients by their names there; pysiphon is imported when a client of a server is used."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Import the clients of a Siphon server, `EldenClient` and pysiphon's own `SiphonClient`, when asked for."""
    if name not in ("EldenClient", "SiphonClient"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from soulsgraph_envs.compat.eldengym.client import elden_client

    return getattr(elden_client, name)
