"""What comes between a game PC and its head in tests: a proxy, a relay, a cable and a disk, each of which can fail."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from soulsgraph_clusters.fleet.actor.stream import PLAY, Head
from soulsgraph_clusters.fleet.gateway.gateway import SERVER_OPTIONS, handler_of
from soulsgraph_clusters.fleet.protocol.fleet_pb2 import FromGame, ToGame
from soulsgraph_clusters.fleet.protocol.tokens import token_metadata

_PIECE = 65_536
_LOOK_EVERY_S = 0.05
#: Chunks that a relay may send again.
_REMEMBERED = 30


class Proxy:
    """Forward TCP connections to a port of this machine; `delay_s` delays every piece."""

    def __init__(self, target: int, host: str = "127.0.0.1") -> None:
        self._target, self.delay_s = ("127.0.0.1", target), 0.0
        #: Pieces that were held back by the delay.
        self.delayed = 0
        self._over = threading.Event()
        self._server = socket.create_server((host, 0))
        self._server.settimeout(_LOOK_EVERY_S)
        self.address = f"{host}:{self._server.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no further connections; those that there are end with either side."""
        self._over.set()
        self._thread.join()
        self._server.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._server.accept()
            except TimeoutError:
                continue
            threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target, timeout=5.0)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        client.settimeout(None)
        back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
        back.start()
        self._pump(client, server)
        back.join()
        client.close()
        server.close()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_PIECE):
                if self.delay_s:
                    time.sleep(self.delay_s)
                    self.delayed += 1
                sink.sendall(data)
        _shut(source)
        _shut(sink)


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


class Relay:
    """Answer a PC's streams by those of the head, message by message; chunks are sent again and out of order.

    It shows itself to the head by its own token. A PC on this machine dials `address`.
    """

    def __init__(self, head: Head, seed: int = 0) -> None:
        self._head, self._random = head, random.Random(seed)
        #: Whether chunks are sent again, also those of earlier streams, and whether neighbours are swapped.
        self.repeats = self.swaps = False
        #: How often that happened, and how many streams were broken off.
        self.repeated = self.swapped = self.broken = 0
        #: Boot and sequence of every chunk that the head acknowledged.
        self.acknowledged = set[tuple[str, int]]()
        self._sent, self._calls = deque[bytes](maxlen=_REMEMBERED), set[Any]()
        self._server = grpc.server(ThreadPoolExecutor(32), options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers([handler_of(self._play)])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def break_streams(self) -> None:
        """End every stream; the PC connects again."""
        for call in [*self._calls]:
            self.broken += 1
            call.cancel()

    def close(self) -> None:
        """End every stream, and the server."""
        self.break_streams()
        self._server.stop(1.0).wait()

    def _play(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        channel = self._head.channel()
        call = channel.stream_stream(PLAY)(self._sent_on(messages), metadata=token_metadata(self._head.token))
        self._calls.add(call)
        context.add_callback(call.cancel)
        try:
            for data in call:
                message = ToGame.FromString(data)
                for answer in message.acknowledged:
                    self.acknowledged |= {(answer.boot, sequence) for sequence in answer.sequences}
                yield data
        except grpc.RpcError:
            pass  # The stream ends for the PC as it ended here.
        finally:
            self._calls.discard(call)
            channel.close()

    def _sent_on(self, messages: Iterator[bytes]) -> Iterator[bytes]:
        held = b""
        for data in messages:
            if not FromGame.FromString(data).HasField("chunk"):
                yield data
                continue
            self._sent.append(data)
            if self.swaps and not held:
                held = data
                continue
            yield data
            if held:
                self.swapped += 1
                yield held
                held = b""
            if self.repeats:
                self.repeated += 2
                yield data
                yield self._random.choice(self._sent)


class Cable:
    """A network namespace with one cable to this machine, where `address` is its end; needs `Cable.possible()`."""

    def __init__(self) -> None:
        name, block = secrets.token_hex(3), secrets.randbelow(250)
        self._space, self._here, there = f"soulsgraph-{name}", f"sg{name}a", f"sg{name}b"
        # The block for tests of networks, which no machine has an address of.
        self.address, other = f"198.18.{block}.1", f"198.18.{block}.2"
        _ip("netns", "add", self._space)
        _ip("link", "add", self._here, "type", "veth", "peer", "name", there)
        _ip("link", "set", there, "netns", self._space)
        _ip("address", "add", f"{self.address}/30", "dev", self._here)
        self.plug()
        for words in (("address", "add", f"{other}/30", "dev", there), ("link", "set", there, "up")):
            _ip("-netns", self._space, *words)
        _ip("-netns", self._space, "link", "set", "lo", "up")

    @classmethod
    def possible(cls) -> bool:
        """Return whether this user may make network namespaces here."""
        try:
            cls().close()
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    @property
    def before(self) -> Sequence[str]:
        """The words behind which a command runs at the other end."""
        return ("ip", "netns", "exec", self._space)

    def pull(self) -> None:
        """Pull the cable."""
        _ip("link", "set", self._here, "down")

    def plug(self) -> None:
        """Plug the cable in."""
        _ip("link", "set", self._here, "up")

    def close(self) -> None:
        """Remove it; programs at the other end must have ended."""
        _ip("link", "del", self._here)
        _ip("netns", "del", self._space)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Disk:
    """A small disk of its own (tmpfs) at an empty folder; needs `Disk.possible()`."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder, self._filler = folder, folder / "filler"
        folder.mkdir(parents=True, exist_ok=True)
        size = f"size={megabytes}m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", str(folder)], check=True, capture_output=True)

    @classmethod
    def possible(cls, folder: Path) -> bool:
        """Return whether this user may mount a disk; `folder` is used to try."""
        try:
            cls(folder / "tried", 1).close()
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    def fill(self) -> None:
        """Use up its last byte."""
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            while free := shutil.disk_usage(self.folder).free:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, free)

    @property
    def full(self) -> bool:
        """Whether it is full."""
        return shutil.disk_usage(self.folder).free == 0

    def free(self) -> None:
        """Make place again."""
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        """Take it away with what is on it; nobody may use it."""
        subprocess.run(["umount", "-l", str(self.folder)], check=True, capture_output=True)
