"""A game that runs by its own clock, whatever link reaches it."""
