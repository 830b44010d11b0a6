"""SoulsGym's `games`: what is known of a game without running it."""
