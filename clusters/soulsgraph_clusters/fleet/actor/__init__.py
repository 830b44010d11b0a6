"""What runs on a game PC: its games, each in a process of its own, and the way to the gateway."""
