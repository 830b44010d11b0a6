"""EldenGym's `eldengym.client.elden_client`."""

from soulsgraph_envs.compat.eldengym.client import *  # noqa: F403
