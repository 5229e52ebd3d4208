"""Where requests line up: a bounded queue in front of one decode at a time, with time limits and an orderly end.

A job's events arrive in its queue, the last one always `Done` or `Failed`. Whoever loses interest calls `stop`: a
waiting job leaves the queue at once, a running one before its next token. Knows nothing of HTTP but status codes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from semspec.errors import UserError
from semspec.serving.decoder import Ask, Begun, Decoder, Done, Halted, Piece, Reason
from semspec.serving.metrics import Metrics

log = logging.getLogger("semspec.serving")


@dataclass(frozen=True)
class Failed:
    """No answer, or no end of one: an HTTP status and the reason in words."""

    status: int
    message: str


class Refused(Exception):
    """The request was not taken: 429 while the queue is full, 503 during shutdown."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


class Job:
    """One request on its way."""

    def __init__(self, ask: Ask, timeout: float) -> None:
        self.ask = ask
        self.events: asyncio.Queue[Begun | Piece | Done | Failed] = asyncio.Queue()
        self.arrived = time.monotonic()
        self.deadline = self.arrived + timeout
        self.began: float | None = None
        self.lined_up = False
        self.reason: Reason | None = None
        self.task: asyncio.Task[None] | None = None
        self.watcher: asyncio.Task[None] | None = None  # who looks whether the client is still there

    def stop(self, reason: Reason = "gone") -> None:
        """Nobody waits for it any more, or it must not go on; the first reason stays."""
        self.reason = self.reason or reason
        if self.lined_up and self.began is None and self.task is not None:
            self.task.cancel()

    def halt(self) -> Reason | None:
        """Why the decode must stop now, if it must; called from the decode's thread."""
        return self.reason or ("timeout" if time.monotonic() > self.deadline else None)


class Desk:
    """Takes requests in turn; every method is called in the event loop's thread."""

    def __init__(self, decoder: Decoder, metrics: Metrics) -> None:
        self.decoder, self.metrics, self.limits = decoder, metrics, decoder.settings.serve
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="decode")
        self._jobs: set[Job] = set()
        self._recent = 1.0  # seconds of an answer, smoothed
        self.closing = False
        self.finished = self.rejected = 0  # since shutdown began

    @property
    def waiting(self) -> int:
        return sum(job.began is None for job in self._jobs)

    @property
    def running(self) -> int:
        return len(self._jobs) - self.waiting

    def submit(self, ask: Ask) -> Job:
        """Line a request up; `Refused` when that cannot be."""
        if self.closing:
            self.rejected += 1
            raise Refused(503, "the server is shutting down")
        if len(self._jobs) > self.limits.queue:
            raise Refused(429, "the queue is full; try again later", max(1, round(self._recent)))
        job = Job(ask, self.limits.timeout)
        self._jobs.add(job)
        job.task = asyncio.create_task(self._work(job))
        self._count()
        return job

    async def _work(self, job: Job) -> None:
        last = await self._attempt(job)
        self._jobs.discard(job)
        self._count()
        now = time.monotonic()
        if isinstance(last, Done):
            self._recent = 0.7 * self._recent + 0.3 * last.seconds
        if self.closing:
            self.finished += isinstance(last, Done)
            self.rejected += isinstance(last, Failed)
        began = now if job.began is None else job.began
        self.metrics.job(job.ask, last, began - job.arrived, now - job.arrived)
        job.events.put_nowait(last)

    async def _attempt(self, job: Job) -> Done | Failed:
        if job.reason:
            return self._failure(job.reason)
        job.lined_up = True
        try:
            async with asyncio.timeout(self.limits.timeout):
                await self._turn.acquire()
        except TimeoutError:
            return self._failure("timeout")
        except asyncio.CancelledError:
            return self._failure(job.reason or "gone")
        try:
            job.began = time.monotonic()
            self._count()
            return await self._decode(job)
        finally:
            self._turn.release()

    async def _decode(self, job: Job) -> Done | Failed:
        loop = asyncio.get_running_loop()

        begun = threading.Event()

        def emit(event: Begun | Piece) -> None:
            begun.set()
            loop.call_soon_threadsafe(job.events.put_nowait, event)

        try:
            if reason := job.halt():
                return self._failure(reason)
            return await loop.run_in_executor(self._thread, self.decoder.run, job.ask, job.halt, emit)
        except Halted as e:
            return self._failure(e.args[0])
        except UserError as e:
            if not begun.is_set():
                return Failed(400, str(e))
            log.error("a request failed: %s", e)  # an engine's word, such as a server that is gone
            return Failed(502, str(e))
        except Exception:
            log.exception("a request failed")
            return Failed(500, "the server failed to answer; its log says why")

    def _failure(self, reason: Reason) -> Failed:
        if reason == "timeout":
            return Failed(504, f"no answer within {self.limits.timeout:g} s")
        return Failed(503, "the server is shutting down") if reason == "shutdown" else Failed(499, "the client is gone")

    def _count(self) -> None:
        self.metrics.waiting.set(self.waiting)
        self.metrics.running.set(self.running)

    def close(self) -> None:
        """Take nothing more, reject what waits, and give the running answer `serve.grace` seconds."""
        self.closing = True
        for job in list(self._jobs):
            if job.began is None:
                job.stop("shutdown")
            else:
                asyncio.get_running_loop().call_later(self.limits.grace, job.stop, "shutdown")

    async def closed(self) -> None:
        """Wait for the last job."""
        while self._jobs:
            await asyncio.wait([job.task for job in self._jobs if job.task])
        self._thread.shutdown(wait=False)
