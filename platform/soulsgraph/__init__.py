"""Plan, train, judge and adapt agents made of skills."""
