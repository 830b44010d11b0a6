"""Plan, train, evaluate and adapt agents made of skills."""

# First: Ray can't be imported by a user without a home before it.
import soulsgraph_envs  # noqa: F401
