"""The process-memory driver: readers, address maps and the link that reads and writes a running game."""
