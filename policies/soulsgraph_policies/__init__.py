"""Learn and compose the skills: graph, Q-networks, replay, learner, library."""

# First: Ray can't be imported by a user without a home before it.
import soulsgraph_envs  # noqa: F401
