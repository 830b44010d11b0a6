"""The server's question for the token."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

from soulsgraph_envs.siphon.protocol import grpc
from soulsgraph_envs.siphon.security import TOKEN_KEY, bearer


class TokenCheck(grpc.ServerInterceptor):
    """Refuse every call that does not carry the token."""

    def __init__(self, token: str) -> None:
        self._expected = bearer(token).encode()
        self._refuse = grpc.unary_unary_rpc_method_handler(_refuse)

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Let a call through, or answer it UNAUTHENTICATED."""
        given = next((value for key, value in details.invocation_metadata if key == TOKEN_KEY), "")
        return continuation(details) if hmac.compare_digest(given.encode(), self._expected) else self._refuse


def _refuse(request: object, context: Any) -> None:
    context.abort(
        grpc.StatusCode.UNAUTHENTICATED,
        "this server asks for its token: name a copy of its token file as token_file, or come through a tunnel "
        "to a server that listens on 127.0.0.1",
    )
