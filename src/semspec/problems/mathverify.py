"""math-verify in a process of its own, which ends when a comparison takes too long: the library's own time limit is a
signal, which works in a program's main thread only. Knows nothing of where answers come from.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

WALL = 4.0  # times a comparison's limit on the clock: what ends it where processor time can't be limited
START_TIMEOUT = 120.0  # seconds for the worker's imports
MEMORY = 4 << 30  # bytes of address space that the worker may take


class _Worker:
    """One process that compares answers, started at the first need and again after it had to end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def compare(self, answer: str, gold: str, timeout: float) -> bool:
        """Math-verify's verdict; one caller at a time."""
        with self._lock:
            try:
                if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
                    self._start()
                return self._ask(json.dumps([answer, gold, timeout]), WALL * timeout) == "true"
            except (OSError, ValueError):
                self.stop()
                return False

    def _start(self) -> None:
        path = os.pathsep.join(p for p in sys.path if p)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from semspec.problems.mathverify import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            encoding="utf-8",
        )
        self._owner = os.getpid()
        if not self._ask(None, START_TIMEOUT):
            raise OSError("the grading process does not start")

    def _ask(self, line: str | None, seconds: float) -> str:
        """Send a line, wait for one. After `seconds` the process is killed, and what comes back is empty."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        timer = threading.Timer(seconds, process.kill)
        timer.daemon = True
        timer.start()
        try:
            if line is not None:
                process.stdin.write(line + "\n")
                process.stdin.flush()
            reply = process.stdout.readline().strip()
        finally:
            timer.cancel()
        if not reply:
            self.stop()
        return reply

    def stop(self) -> None:
        """End the process, if it is this program's own and not a fork's copy."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                try:
                    if pipe is not None:
                        pipe.close()
                except OSError:
                    pass  # what was still unsent has nowhere to go


WORKER = _Worker()
atexit.register(WORKER.stop)


def serve() -> None:
    """The worker: a JSON line [answer, gold, seconds] in, `true` or `false` out, until the input ends."""
    import faulthandler
    import logging

    # A watchdog of its own, so that it never outlives a parent that died by much.
    faulthandler.dump_traceback_later(START_TIMEOUT, exit=True)
    _limit("RLIMIT_AS", MEMORY)
    _limit("RLIMIT_CORE", 0)
    logging.disable(logging.CRITICAL)
    import math_verify

    # Units are gone where they are units: its own list has letters such as t and h, which a formula has too. LaTeX
    # alone, as its other reading of a text takes any number in it.
    latex = math_verify.LatexExtractionConfig()
    latex = replace(latex, normalization_config=replace(latex.normalization_config, units=False))
    replies, sys.stdout = sys.stdout, sys.stderr  # a library's print must not be taken for a verdict
    print("ready", file=replies, flush=True)
    faulthandler.cancel_dump_traceback_later()
    for line in sys.stdin:
        answer, gold, timeout = json.loads(line)
        faulthandler.dump_traceback_later(WALL * timeout + 1, exit=True)
        _limit("RLIMIT_CPU", math.ceil(time.process_time() + timeout))
        try:
            parsed = [math_verify.parse(f"${x}$", [latex], parsing_timeout=None) for x in (gold, answer)]
            same = all(parsed) and math_verify.verify(*parsed, timeout_seconds=None)
        except Exception:  # whatever a parser does with a model's text: it is not the gold answer
            same = False
        print(json.dumps(bool(same)), file=replies, flush=True)
        faulthandler.cancel_dump_traceback_later()


def _limit(name: str, most: int) -> None:
    """Have the system end this process past a limit, where the system can."""
    try:
        import resource

        which = getattr(resource, name)
        resource.setrlimit(which, (most, resource.getrlimit(which)[1]))
    except (ImportError, OSError, ValueError):
        pass
