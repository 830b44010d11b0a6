"""A fleet of game PCs that play for a head: the protocol of both ends, actors of games, the gateway, the learner."""
