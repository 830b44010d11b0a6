"""SoulsGym's `games`: data of a game that is not running."""
