"""The world of the fight: state, controls, games, skills as tasks, and Gymnasium faces."""
