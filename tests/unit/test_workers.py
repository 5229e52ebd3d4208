"""Processes side by side: what becomes of them when one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from semspec.workers import count, workers

STARTS = """
import os, signal, sys, time
from concurrent.futures import wait
from semspec.workers import count, workers
def work():
    count()
    time.sleep(600)
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run behind a shell, which ignores it
    with workers(2) as pool:
        working = [pool.submit(work) for _ in range(2)]
        while sys.argv[1] == "at work" and pool.counted < 2 and not wait(working, timeout=0.1).done:
            pass
        print("begun", flush=True)
        waiting = pool.submit(os.getpid)
        while not wait([waiting], timeout=0.5).done:
            pass  # without a timeout, a Ctrl-C in the microseconds before Python sleeps is seen in ten minutes
"""


def gone(pid: int, seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.1)
    return False


def test_a_killed_worker_is_one_line():
    with pytest.raises(SystemExit, match="error: a worker process was killed"), workers(1) as pool:
        pool.submit(os._exit, 1).result()


def test_workers_count_together_and_an_error_ends_what_is_still_at_work():
    with pytest.raises(ZeroDivisionError), workers(2) as pool:
        for future in [pool.submit(count, n) for n in (1, 2, 3)]:
            future.result()
        assert pool.counted == 6
        started = time.monotonic()
        pool.submit(time.sleep, 600)
        pool.submit(divmod, 1, 0).result()
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("how", "to_all", "when"),
    [
        (signal.SIGKILL, False, "at work"),
        (signal.SIGTERM, False, "at work"),
        (signal.SIGINT, False, "at work"),
        (signal.SIGINT, True, "at work"),
        (signal.SIGINT, True, "beginning"),
    ],
)
def test_workers_end_with_who_started_them(tmp_path, how, to_all, when):
    """Killed, or told to end alone, or by Ctrl-C, which a terminal gives to all, even as they begin: none is left."""
    script = tmp_path / "starts.py"
    script.write_text(STARTS)
    command, pipe = [sys.executable, str(script), when], subprocess.PIPE
    parent = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    assert parent.stdout is not None and parent.stderr is not None
    assert parent.stdout.readline() == "begun\n"
    started = psutil.Process(parent.pid).children(recursive=True)
    assert len(started) >= 2
    (os.killpg if to_all else os.kill)(parent.pid, how)
    parent.wait(20)
    assert all(gone(process.pid) for process in started), "they would sleep for ten minutes"
    assert parent.stderr.read().count("Traceback") <= (how is signal.SIGINT), "the parent's own at most"
