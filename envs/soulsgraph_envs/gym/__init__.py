"""The skills as Gymnasium environments and as RLlib's multi-agent environment."""
