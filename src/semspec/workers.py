"""Several processes of this Python side by side, for work in which one more thread gains nothing: models so small
that Python is most of their time.

A worker computes with one thread, so what it finds does not depend on how many there are, and it ends with the process
that started it. Knows nothing of what is computed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context

from semspec.process import PARENT, end_with_parent, unburden


def _begin(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C is ours to explain
    os.environ[PARENT] = str(parent)
    end_with_parent()
    unburden()
    import torch

    torch.set_num_threads(1)


@contextmanager
def workers(n: int) -> Iterator[ProcessPoolExecutor]:
    """An executor of `n` processes, started afresh (spawned). When one is killed the command ends with one line."""
    try:
        with ProcessPoolExecutor(n, get_context("spawn"), _begin, (os.getpid(),)) as pool:
            yield pool
    except BrokenProcessPool:
        raise SystemExit("error: a worker process was killed, perhaps for its memory; run the same again") from None
