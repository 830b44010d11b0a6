"""The stand-in game: the simulator as a separate program with a window, keys and its own memory."""
