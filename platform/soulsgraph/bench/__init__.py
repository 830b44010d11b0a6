"""Benchmarks: both sides of every comparison interleaved in one process, CPU time and wall time."""
