"""Boss data fitted to recorded fights of one's own game, and how wrong the simulator is beside them."""
