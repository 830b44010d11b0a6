"""Fights in the simulator to look at: an agent's, with what each skill thinks, and a person's own in a window."""
