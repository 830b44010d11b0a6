"""Learn and compose the skills: graph, Q-networks, replay, learner, library."""
