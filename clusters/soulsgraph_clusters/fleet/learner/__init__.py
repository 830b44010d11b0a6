"""The learner's end of a fleet: RLlib algorithms of games in real time, a run's own games, evaluation in a fleet."""
