"""Run sampling and learning on Ray, on one machine or on a cluster of game PCs."""
