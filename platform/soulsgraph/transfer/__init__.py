"""Selective adaptation: what a shift does to each skill, what to adapt, what that gains and costs."""
