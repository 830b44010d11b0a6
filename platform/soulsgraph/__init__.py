"""Plan, train, evaluate and adapt agents made of skills."""
