"""Real games: opened by name, played in real time through process memory or Siphon, examined."""
