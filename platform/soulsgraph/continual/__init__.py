"""Continual learning over sequences of bosses: what methods remember, transfer and cost, scored by one code."""
