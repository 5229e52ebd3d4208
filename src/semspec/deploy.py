"""`semspec deploy`: the flows of flows/ in the UI of a running Prefect server, and the reports in the browser.

Checks what could be missing, shows results/ on loopback so that the links to reports work, and hands over to
flows/deploy.py, which knows what is offered.
"""

from __future__ import annotations

import functools
import http.client
import http.server
import os
import threading
import urllib.request
from pathlib import Path

from semspec import config, pipeline
from semspec.errors import UserError
from semspec.ui import RESULTS_URL

API = "http://127.0.0.1:4200/api"


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


def check_server(api: str) -> None:
    """`UserError` unless a Prefect server answers there."""
    try:
        with urllib.request.urlopen(f"{api}/health", timeout=10) as answer:
            if answer.read() == b"true":
                return
    except (OSError, ValueError, http.client.HTTPException):
        pass
    raise UserError(
        f"no Prefect server answers at {api}; run `prefect server start` or set PREFECT_API_URL (docs/prefect.md)"
    )


def deploy(root: Path, port: int) -> int:
    """Offer the flows until interrupted. `UserError` for what is missing."""
    root = root.resolve()
    pipeline.quiet(root)
    pipeline.check_repository(root)
    config.load(root)
    api = os.environ.setdefault("PREFECT_API_URL", API).rstrip("/")
    check_server(api)
    os.environ[RESULTS_URL] = show_results(root, port)
    flows = pipeline.load_flow(root, "deploy")
    print(f"{', '.join(flows.names())} are at {api.removesuffix('/api')}/deployments; Ctrl-C ends", flush=True)
    print(f"results/ is at {os.environ[RESULTS_URL]}", flush=True)
    flows.serve()
    return 0
