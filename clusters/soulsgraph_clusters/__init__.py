"""Run sampling and learning on Ray, on one machine or on a cluster of game PCs."""

import os

# First: Ray can't be imported by a user without a home before it.
import soulsgraph_envs  # noqa: F401

# Otherwise some of the processes that this one starts die before they begin: gRPC restarts its poller in the copy that
# Python makes of the process, which then finds its files closed (https://github.com/grpc/grpc/issues/43055). No copy of
# ours uses gRPC. It is read when gRPC is first used, here or in Ray.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
