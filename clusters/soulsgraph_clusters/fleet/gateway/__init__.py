"""The gateway of a fleet: it serves the games, and keeps what they played in one journal, each chunk once."""
