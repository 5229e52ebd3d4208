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
from multiprocessing import active_children, get_context
from typing import Any

from semspec.process import PARENT, end_with_parent, unburden

_counted: Any = None  # in a worker: the number that `count` adds to


class Workers(ProcessPoolExecutor):
    """An executor of `n` processes, started afresh (spawned), at once."""

    def __init__(self, n: int) -> None:
        context = get_context("spawn")
        self._counted = context.Value("q", 0)
        obeys = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN  # which a shell gives to what runs behind it
        super().__init__(n, context, _begin, (os.getpid(), self._counted, obeys))
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # they inherit it: Ctrl-C is ours to explain
        try:
            for _ in range(n):
                self.submit(os.getpid)
        finally:
            signal.signal(signal.SIGINT, before)

    @property
    def counted(self) -> int:
        """What the workers have counted so far, together."""
        return int(self._counted.value)


def count(n: int = 1) -> None:
    """In a worker: tell whoever waits that so much more is done."""
    with _counted.get_lock():
        _counted.value += n


def _begin(parent: int, counted: Any, obeys: bool) -> None:
    global _counted
    _counted = counted
    if obeys:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ[PARENT] = str(parent)
    end_with_parent()
    unburden()
    import torch

    torch.set_num_threads(1)


@contextmanager
def workers(n: int) -> Iterator[Workers]:
    """`n` workers. An error in the body, or of a worker, ends them all at once; a killed one is said in one line."""
    pool = Workers(n)
    try:
        yield pool
    except BaseException as e:
        for worker in active_children():
            worker.terminate()
        if isinstance(e, BrokenProcessPool):
            raise SystemExit("error: a worker process was killed, perhaps for its memory; run it again") from None
        raise
    finally:
        pool.shutdown(cancel_futures=True)
