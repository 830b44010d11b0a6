"""Siphon's messages and stubs (package `siphon_service`), as pysiphon generated them from the public proto."""

from __future__ import annotations

from typing import Any

from soulsgraph_envs.errors import GameError

try:
    import grpc
    from pysiphon import SiphonClient
    from pysiphon.generated import siphon_service_pb2, siphon_service_pb2_grpc
except ImportError as error:
    raise GameError(
        f"Siphon: expected the packages grpcio and pysiphon, found {error}; install them with: "
        "pip install 'soulsgraph[siphon]'."
    ) from error

#: Names of the 17 calls and their messages; generated code, which type checkers cannot see into.
messages: Any = siphon_service_pb2
service: Any = siphon_service_pb2_grpc

_METHODS = messages.DESCRIPTOR.services_by_name["SiphonService"].methods
#: The message that each call takes, and the one that it answers with; of a stream, one of many.
REQUESTS: dict[str, Any] = {each.name: getattr(messages, each.input_type.name) for each in _METHODS}
ANSWERS: dict[str, Any] = {each.name: getattr(messages, each.output_type.name) for each in _METHODS}

#: Both ends take frames of any window; 100 MiB is what Siphon's own client and server allow.
MESSAGE_LIMITS = [
    ("grpc.max_receive_message_length", 100 * 1024 * 1024),
    ("grpc.max_send_message_length", 100 * 1024 * 1024),
]
#: What our server says of itself; Siphon's own says something else.
SERVER_NAME = "soulsgraph serve-siphon"

__all__ = ["ANSWERS", "MESSAGE_LIMITS", "REQUESTS", "SERVER_NAME", "SiphonClient", "grpc", "messages", "service"]
