"""A fight played by skills: the loop over a game, rollouts, episodes, scripted play."""
