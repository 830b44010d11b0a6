"""A simulator fitted to recorded fights, and how far it is from them."""
