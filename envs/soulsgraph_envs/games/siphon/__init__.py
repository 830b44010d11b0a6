"""A game's values, keys and pictures over gRPC."""
