"""A game's process memory: address maps, readers, the memory link."""
