"""The learner's end of a fleet: rounds of what its games played, and evaluation by them."""
