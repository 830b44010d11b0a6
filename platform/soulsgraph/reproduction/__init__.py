"""Reproduce the paper: the whole protocol, seed by seed."""
