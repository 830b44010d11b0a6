"""Boss data fitted to recorded fights of your own game, and how wrong the simulator is beside them."""
