"""Worlds for continual learning: bosses that are generated, sequences of them, and the environment that plays these."""
