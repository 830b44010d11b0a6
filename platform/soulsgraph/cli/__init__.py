"""The command line: thin commands over the library."""

from soulsgraph.cli.main import main

__all__ = ["main"]
