"""The PC's end of a game's stream: connect, send what the spool holds, take what the head says, and connect again."""

from __future__ import annotations

import random
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from soulsgraph_clusters.fleet.protocol import fleet_pb2 as wire
from soulsgraph_clusters.fleet.protocol.messages import parse_message
from soulsgraph_clusters.fleet.protocol.settings import METHOD, MOST_MESSAGE_BYTES, SERVICE, FleetError
from soulsgraph_clusters.fleet.protocol.tokens import read_token_file, token_metadata
from soulsgraph_clusters.fleet.store import Spool
from soulsgraph_envs.core.access import NO_PROXY, split_address

PLAY = f"/{SERVICE}/{METHOD}"
#: Called to learn whether a server answers: that it has no such method is an answer, too.
_HEALTH = "/grpc.health.v1.Health/Check"
#: Waits between two streams: doubled after each that the head refused, up to the second. Where nobody answers, gRPC has
#: waited between its own attempts, and a cable that is back must not find the PC asleep.
BACK_OFF_S = 0.1, 2.0
#: A head that does not answer by then is not there.
CONNECT_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.1
_OPTIONS = [
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MOST_MESSAGE_BYTES),
    # A cut cable is noticed after so long; the connection would stand for many minutes otherwise.
    ("grpc.keepalive_time_ms", 2000),
    ("grpc.keepalive_timeout_ms", 3000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


@dataclass(frozen=True)
class Head:
    """Where a fleet's head is, and how a PC proves itself there."""

    address: str
    token_file: Path
    credentials: Any = None
    #: The file of the CA in the credentials, for who looks why no head answers.
    ca: Path | None = None

    @property
    def token(self) -> str:
        """The PC's token as its file has it now; raises FleetError if it cannot be used."""
        return read_token_file(self.token_file)

    def channel(self) -> Any:
        """Open a channel, with TLS where there are credentials."""
        options = _OPTIONS + NO_PROXY
        if self.credentials is None:
            return grpc.insecure_channel(self.address, options)
        return grpc.secure_channel(self.address, self.credentials, options)


#: How long one step of the way to a head may take while somebody looks why it does not answer.
_STEP_WITHIN_S = 5.0
#: What OpenSSL's codes of a certificate mean for people: the chain's end, names and addresses, dates.
_UNPROVEN = {
    **dict.fromkeys((18, 19, 20, 21, 7), "its certificate is another than `ca`; copy the head's head.pem here"),
    **dict.fromkeys((62, 64), "its certificate is not made out to this address; name the head as its certificate does"),
    9: "its certificate is not valid yet; correct this PC's clock or the head's",
    10: "its certificate expired; make it anew on the head, or correct this PC's clock",
}


def why_silent(head: Head) -> str:
    """Return in one line why a head does not answer, as far as this machine can see: name, network or certificate.

    gRPC says the same of a wrong CA, a wrong name and an old certificate.
    """
    (host, port), why = split_address(head.address), "it answers, and takes no stream; see its log"
    try:
        with socket.create_connection((host, port), _STEP_WITHIN_S) as connection:
            if head.ca is not None:
                context = ssl.create_default_context(cafile=head.ca)
                context.set_alpn_protocols(["h2"])
                context.wrap_socket(connection, server_hostname=host).close()
    except ConnectionRefusedError:
        return f"no head answers at {head.address}; it listens while a stage is trained"
    except ssl.SSLCertVerificationError as error:
        why = _UNPROVEN.get(error.verify_code, f"its certificate does not hold: {error.verify_message}")
    except (ssl.SSLError, ConnectionError):
        why = "what listens there does not speak TLS; name the head's port, or set up its certificate"
    except (socket.gaierror, UnicodeError) as error:
        found = getattr(error, "strerror", None) or error
        why = f"its name is not known on this PC ({found}); correct `head`, or the name server"
    except OSError as error:
        why = f"{error.strerror or 'no answer'}: the address may be another, or a firewall closed"
    return f"no head answers at {head.address}: {why}"


def describe(error: Any) -> str:
    """Return why a call failed, in one line without a full stop: Windows ends its own texts with line breaks."""
    return " ".join(str(error.details() or error.code()).split()).rstrip(".")


class Stream:
    """Keep one game connected in a thread of its own; `take` gets every message, `report` what people should know.

    Chunks wait in the spool until the head has acknowledged them: after each connection all of them are sent again.
    """

    def __init__(
        self, head: Head, hello: wire.Hello, spool: Spool, take: Callable[[bytes], None], report: Callable[[str], None]
    ) -> None:
        self._head, self._hello, self._spool = head, hello, spool
        self._take, self._report = take, report
        self._unsent: deque[tuple[str, int]] = deque()
        #: How the game does, until it was sent: a game that says nothing is to be seen as silent.
        self._health: wire.Health | None = None
        self._more = threading.Condition()
        self._stopping = threading.Event()
        self._call: Any = None
        self._answered = False
        self._reported = ""
        #: Whether the head answers now.
        self.connected = False
        self._thread = threading.Thread(target=self._run, name="fleet stream", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def send(self, boot: str, sequence: int) -> None:
        """Send a chunk of the spool."""
        with self._more:
            self._unsent.append((boot, sequence))
            self._more.notify()

    def tell(self, health: wire.Health) -> None:
        """Send how the game does."""
        with self._more:
            self._health = health
            self._more.notify()

    def stop(self) -> None:
        """End the stream and its thread."""
        self._stopping.set()
        with self._more:
            self._more.notify()
        if self._call is not None:
            self._call.cancel()
        self._thread.join()

    def _run(self) -> None:
        wait_s, longest_s = BACK_OFF_S
        while not self._stopping.is_set():
            found = self._connect()
            if self.connected or not self._answered:
                wait_s = BACK_OFF_S[0]
            self.connected = False
            if self._stopping.is_set():
                return
            if found:
                self._say(found)
            # Many PCs that lost the same head do not come back in one moment.
            self._stopping.wait(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(2 * wait_s, longest_s)

    def _connect(self) -> str:
        """Connect and serve the stream to its end; return why it ended."""
        self._answered = False
        channel = self._head.channel()
        try:
            self._await_answer(channel)
            self._answered = True
            play = channel.stream_stream(PLAY, wire.FromGame.SerializeToString)
            over = threading.Event()
            call = self._call = play(self._messages(over), metadata=token_metadata(self._head.token))
            try:
                return self._receive(call)
            finally:
                over.set()
                call.cancel()
        except FleetError as error:
            return str(error)
        except grpc.FutureTimeoutError:
            # A name server may take long, and nobody waits for it who wants to end.
            threading.Thread(target=self._say_why_silent, daemon=True).start()
            return ""
        except grpc.RpcError as error:
            return describe(error)
        finally:
            channel.close()

    def _say_why_silent(self) -> None:
        line = why_silent(self._head)
        if not (self.connected or self._stopping.is_set()):
            self._say(line)

    def _await_answer(self, channel: Any) -> None:
        """Wait until a server answers; raises grpc.FutureTimeoutError if none does."""
        # Not `channel_ready_future`: its thread raises where the channel is closed while it looks at it.
        asked = channel.unary_unary(_HEALTH).future(b"", wait_for_ready=True)
        until_s = time.monotonic() + CONNECT_WITHIN_S
        try:
            while not asked.done():
                if self._stopping.is_set() or time.monotonic() >= until_s:
                    raise grpc.FutureTimeoutError
                with suppress(grpc.FutureTimeoutError):
                    asked.exception(_LOOK_EVERY_S)
        finally:
            asked.cancel()

    def _receive(self, call: Any) -> str:
        stopped = False
        for data in call:
            message = parse_message(wire.ToGame, data, "head")
            for answer in message.acknowledged:
                self._spool.acknowledge(answer.boot, answer.sequences)
            kind = message.WhichOneof("message")
            if kind == "stop":
                stopped = True
            elif kind == "task":
                self.connected, stopped = True, False
                if self._reported:
                    # What was reported last is over.
                    self._say("the head answers")
                self._reported = ""
            if kind in ("task", "weights", "stop"):
                self._take(data)
        return "" if stopped else "the head ended the stream"

    def _messages(self, over: threading.Event) -> Iterator[wire.FromGame]:
        with self._more:
            self._unsent = deque(self._spool.pending())
        yield wire.FromGame(hello=self._hello)
        while not over.is_set():
            with self._more:
                self._more.wait_for(lambda: self._unsent or self._health or over.is_set(), _LOOK_EVERY_S)
                if over.is_set():
                    return  # What waits is the next connection's.
                unsent, self._unsent = self._unsent, deque()
                health, self._health = self._health, None
            for boot, sequence in unsent:
                if (chunk := self._spool.read(boot, sequence)) is not None:
                    yield wire.FromGame(chunk=chunk)
            if health is not None:
                yield wire.FromGame(health=health)

    def _say(self, line: str) -> None:
        if line != self._reported:
            self._reported = line
            self._report(line)
