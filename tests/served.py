"""A real server on a free port, in a thread, over the tiny random models: for tests of the API."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from project import make_project

from semspec.serving import bundle, command

BASE = ("decide.rule=ratio", "decide.threshold=null", "serve.port=0")


def settings(root: Path, *overrides: str):
    return make_project(root, *BASE, *overrides)


class HashProbe:
    """A predictor without a memory: some number in (0, 1) for each step, the same for the same states."""

    layers = (0, 1)

    def predict(self, hidden: np.ndarray, logprob: np.ndarray) -> np.ndarray:
        return 0.001 + 0.998 * (np.abs(hidden.sum((1, 2))) * 97 % 1)


def slow_down(server: command.Server, seconds: float) -> None:
    """Every pass of the target takes at least so long."""
    server.desk.decoder.target.model.register_forward_pre_hook(lambda *_: time.sleep(seconds))


@contextmanager
def serving(
    chosen: Any, method: str = "semantic", api_key: str | None = None, probes: dict[str, Any] | None = None
) -> Iterator[command.Server]:
    """The server, started; stopped in the end as a signal would."""
    server, sock = command.make_server(
        bundle.Served(
            "tiny", chosen, {role: HashProbe() for role in ("draft", "target")} if probes is None else probes
        ),
        method,
        api_key,
    )
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([sock])))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.02)
        yield server
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()
