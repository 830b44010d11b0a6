"""EldenGym's `eldengym.client`."""

from soulsgraph_envs.compat.eldengym.client import *  # noqa: F403
from soulsgraph_envs.eldengym.client import elden_client as elden_client
