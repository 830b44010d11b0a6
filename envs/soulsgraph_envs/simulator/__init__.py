"""An embedded simulator of a fight against a Souls boss: data in TOML, compiled scalar code."""

from soulsgraph_envs.simulator.driver import Simulator

__all__ = ["Simulator"]
