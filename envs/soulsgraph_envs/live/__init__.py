"""Real-time games: read, written and played from outside, through process memory or Siphon."""
