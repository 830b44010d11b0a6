"""A Siphon server for a stand-in or a running game: what a client of that protocol talks to on this machine."""
