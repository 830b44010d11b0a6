"""The options of a Siphon server, and the settings that lead clients to it."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from soulsgraph_envs.core.access import family_of, is_loopback
from soulsgraph_envs.core.errors import GameError
from soulsgraph_envs.games.realtime.link import GameSettings


@dataclass(frozen=True)
class ServingOptions:
    """The options of a Siphon server: how it is reached and what its clients may do."""

    address: str = "127.0.0.1:50051"
    """Where it listens; on any address but the loopback it demands a token of every call."""
    token_file: Path | None = None
    """File of the token, made with mode 600 if there is none; with one, every call needs it."""
    certificate: Path | None = None
    """PEM file of a certificate, to encrypt with its key."""
    key: Path | None = None
    """PEM file of the certificate's key."""
    allow_commands: bool = False
    """Let clients run any program on this machine."""
    recordings: Path = Path("recordings")
    """Folder that recordings go below."""
    display: str = ""
    """X display of the game, such as :99; the environment's if not given."""
    window: str = ""
    """Title of the game's window; that of its process if not given."""

    def check(self) -> None:
        """Refuse invalid or unsafe options before a game is started; make the token file if missing.

        Raises:
            GameError: for an address that is invalid, in use, or that others can reach without a token; for a
                certificate without its own key; for a token file that cannot be used.
        """
        # Imported here: it needs an extra, which a command's list of options must not.
        from soulsgraph_envs.games.siphon.calls import read_or_create_token, split_address

        host, port = split_address(self.address)
        if (self.certificate is None) != (self.key is None):
            raise GameError("Siphon server: expected `certificate` and `key` together, found one of them; give both.")
        if not is_loopback(host) and self.token_file is None:
            raise GameError(
                f"Siphon server: expected `token_file` for {self.address}, which others can reach, found none; "
                "give one, or listen on 127.0.0.1 and let clients come through a tunnel."
            )
        self.certificate_pair()
        try:
            socket.create_server((host, port), family=family_of(host)).close()
        # A host that cannot be encoded is a UnicodeError.
        except (OSError, UnicodeError) as error:
            raise self.unusable_address(error) from error
        if self.token_file is not None:
            read_or_create_token(self.token_file)

    def certificate_pair(self) -> tuple[bytes, bytes] | None:
        """Read the key and the certificate, in gRPC's order; None without.

        Raises:
            GameError: if they cannot be read, or do not belong together.
        """
        if self.certificate is None or self.key is None:
            return None
        try:
            # Without a password OpenSSL would ask for that of an encrypted key, which gRPC cannot use.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, password="")
            return self.key.read_bytes(), self.certificate.read_bytes()
        except OSError as error:
            raise GameError(
                f"Siphon server: expected {self.certificate} and its key {self.key}, found {error}; "
                "give a certificate and its own key, both as PEM."
            ) from error

    def unusable_address(self, error: Exception) -> GameError:
        """Return the error of an address that cannot be listened at."""
        return GameError(
            f"Siphon server: expected {self.address} to be free and of this machine, found: {error}; "
            "give another `address`."
        )


DEFAULT_SERVING = ServingOptions()


def settings_of(serving: ServingOptions, address: str, address_map: str, speed: float) -> GameSettings:
    """Return the settings with which clients reach a server that listens at `address`."""
    token_file, certificate = (
        str(path.resolve()) if path else "" for path in (serving.token_file, serving.certificate)
    )
    return GameSettings(
        "siphon", address_map, host=address, speed=speed, token_file=token_file, certificate=certificate
    )
