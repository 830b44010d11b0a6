"""A fleet of game PCs that play for a head: what both ends share; `pc` and `head` hold what one of them runs."""
