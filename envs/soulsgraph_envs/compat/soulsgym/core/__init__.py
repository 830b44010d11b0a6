"""SoulsGym's `core`: the state of a fight, and the static tables."""
