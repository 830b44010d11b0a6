"""A run: its plan and folder, training, evaluation, adaptation, and what is the same in two of them."""
