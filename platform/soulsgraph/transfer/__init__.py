"""Selective adaptation as a tool: what a shift does to each skill, what to adapt, what it brings and costs."""
