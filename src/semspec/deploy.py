"""`semspec deploy`: the flows of flows/ in the UI of a running Prefect server, and the reports in the browser.

Checks what could be missing, shows results/ on loopback so that the links to reports work, and hands over to
flows/deploy.py, which knows what is offered.
"""

from __future__ import annotations

import functools
import http.client
import http.server
import logging
import os
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from semspec import config, pipeline
from semspec.errors import UserError
from semspec.process import PARENT, leave
from semspec.ui import RESULTS_URL, lost

API = "http://127.0.0.1:4200/api"
PATIENCE_S = 20.0  # that a server may be away, as when it is started again
LOOK_S = 2.0  # between two looks at it


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """No line for each file that a browser fetches."""


def show_results(root: Path, port: int) -> str:
    """Serve results/ on loopback in the background; its address. `UserError` when the port is taken."""
    (root / "results").mkdir(exist_ok=True)
    handler = functools.partial(_Quiet, directory=str(root / "results"))
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OverflowError:
        raise UserError(f"port {port} is none; choose one up to 65535 with --port") from None
    except OSError:
        raise UserError(f"port {port} is in use, perhaps by another `semspec deploy`; choose one with --port") from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def answers(api: str) -> bool:
    """Is there a Prefect server?"""
    try:
        with urllib.request.urlopen(f"{api}/health", timeout=10) as answer:
            return bool(answer.read() == b"true")
    except (OSError, ValueError, http.client.HTTPException):
        return False


def announce(api: str, names: Sequence[str]) -> None:
    """Say where the flows are, once they are there."""
    waiting = list(names)
    while waiting:
        try:
            with urllib.request.urlopen(f"{api}/deployments/name/{waiting[0]}/{waiting[0]}", timeout=10):
                waiting.pop(0)
        except (OSError, http.client.HTTPException):
            time.sleep(0.3)
    print(f"{', '.join(names)} are at {api.removesuffix('/api')}/deployments; Ctrl-C ends", flush=True)


def watch(api: str) -> None:
    """End this process with its runs once the server has been away for `PATIENCE_S`.

    Prefect's own parts give up one by one, and what is left of them would neither take a run up nor end one.
    """
    seen = time.monotonic()
    while time.monotonic() - seen < PATIENCE_S:
        time.sleep(LOOK_S)
        if answers(api):
            seen = time.monotonic()
    leave(f"the Prefect server at {api} is gone; start it and `semspec deploy` again, and retry what was at work", 1)


def _no_tracebacks() -> None:
    """Of what Prefect logs, only the lines: a server that is away for a moment fills the terminal otherwise."""
    make = logging.getLogRecordFactory()

    def record(*args: Any, **more: Any) -> logging.LogRecord:
        made = make(*args, **more)
        if made.name.startswith("prefect"):
            made.exc_info = None
        return made

    logging.setLogRecordFactory(record)


def deploy(root: Path, port: int) -> int:
    """Offer the flows until interrupted. `UserError` for what is missing."""
    root = root.resolve()
    pipeline.quiet(root)
    pipeline.check_repository(root)
    config.load(root)
    api = os.environ.setdefault("PREFECT_API_URL", API).rstrip("/")
    if not answers(api):
        raise UserError(
            f"no Prefect server answers at {api}; run `prefect server start` or set PREFECT_API_URL (docs/prefect.md)"
        )
    os.environ[RESULTS_URL] = show_results(root, port)
    flows = pipeline.load_flow(root, "deploy")
    print(f"results/ is at {os.environ[RESULTS_URL]}", flush=True)
    os.environ[PARENT] = str(os.getpid())  # the runs end with us
    ended = lost(root)
    if ended:
        print(f"{ended} that were at work when the last `semspec deploy` ended are marked as Crashed", flush=True)
    _no_tracebacks()
    threading.Thread(target=announce, args=(api, flows.names()), daemon=True).start()
    threading.Thread(target=watch, args=(api,), daemon=True).start()
    flows.serve()
    return 0
