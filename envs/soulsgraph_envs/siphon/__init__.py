"""Siphon: a game PC reached over gRPC, the driver's end (`link`) and the server's (`server`)."""
