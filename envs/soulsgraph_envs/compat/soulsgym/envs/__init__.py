"""SoulsGym's `envs`: the environments and what they derive from."""
