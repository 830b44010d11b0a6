"""Who plays: the skill graph, trained skills as files, and inference; nothing here loads torch."""
