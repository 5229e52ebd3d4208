"""`semspec serve`: models, probes and a method behind a port, until a signal ends it.

Loopback by default; any other address needs an API key. At SIGTERM or SIGINT the running answer is finished (within
`serve.grace` seconds), what waits is rejected, and one line says how many of each.
"""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from semspec import decoding
from semspec.bench.command import load_models
from semspec.errors import UserError
from semspec.serving import bundle
from semspec.serving.app import make_app
from semspec.serving.decoder import Decoder
from semspec.serving.desk import Desk
from semspec.serving.metrics import Metrics

LOCAL = ["localhost", "127.0.0.1", "[::1]"]  # a page elsewhere must not reach us by a name of its own
HANG_UP = 5  # seconds after the last answer in which a client may take it


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bind(host: str, port: int) -> socket.socket:
    """The address, taken but not yet open."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        _shareable(sock, True)  # connections of a server that was here before may linger
        sock.bind(address)
        _shareable(sock, False)  # no other may take it while the models load
        return sock
    except OSError as e:
        raise UserError(f"{host} port {port} can't be used: {e.strerror}; choose another with --port") from None


def _shareable(sock: socket.socket, value: bool) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, value)


class Server(uvicorn.Server):
    """uvicorn, with our signals and our words."""

    def __init__(self, app: Any, desk: Desk, url: str, name: str) -> None:
        grace = int(desk.limits.grace) + HANG_UP
        super().__init__(
            uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=grace, ws="none")
        )
        self.desk, self.url, self.name = desk, url, name

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for sock in sockets or []:
            _shareable(sock, True)  # so that its connections, when they linger, don't keep the next server away
        await super().startup(sockets)
        print(f"serving {self.name} at {self.url} (chat page), {self.url}/v1 (OpenAI API)", flush=True)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Like uvicorn's, but a signal that was obeyed is not raised again: the exit code is 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.desk.close()
        await super().shutdown(sockets)
        await self.desk.closed()
        finished, rejected = _count(self.desk.finished, "answer"), _count(self.desk.rejected, "request")
        print(f"stopped: {finished} finished, {rejected} rejected", flush=True)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def make_server(served: bundle.Served, method: str, api_key: str | None = None) -> tuple[Server, socket.socket]:
    """Load the models and take the port; `UserError` when either cannot be."""
    settings = served.settings
    host, port = settings.serve.host, settings.serve.port
    if not _loopback(host) and not api_key:
        raise UserError(f"serve.host is {host}, which others can reach; give an API key (--api-key or SEMSPEC_API_KEY)")
    sock = _bind(host, port)
    try:
        print(f"loading {settings.models.draft} and {settings.models.target}", file=sys.stderr)
        draft, target = load_models(settings, decoding.METHODS)
        assert draft is not None
        decoder = Decoder(settings, draft, target, served.probes, method)
    except BaseException:
        sock.close()
        raise
    desk = Desk(decoder, Metrics())
    app = make_app(desk, served.name, api_key, [*LOCAL, host] if _loopback(host) and not api_key else None)
    shown = f"[{host}]" if ":" in host else host
    return Server(app, desk, f"http://{shown}:{sock.getsockname()[1]}", served.name), sock


def _not_yet(*_: Any) -> None:
    """SIGTERM while the models load."""
    print("stopped: nothing was served yet", flush=True)
    raise SystemExit(0)


def serve(reference: str | None, root: Path, method: str, api_key: str | None, overrides: Sequence[str]) -> int:
    """Serve until a signal; returns the exit code 0."""
    signal.signal(signal.SIGTERM, _not_yet)
    server, sock = make_server(bundle.read(reference, root, overrides, method), method, api_key)
    asyncio.run(server.serve([sock]))
    return 0
