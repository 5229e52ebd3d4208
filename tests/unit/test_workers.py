"""Processes side by side: what becomes of them when one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from semspec.workers import workers

STARTS = """
import os, time
from semspec.workers import workers
if __name__ == "__main__":
    with workers(1) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 600).result()
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


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_worker_ends_with_who_started_it(tmp_path, how):
    """Killed without a chance to end it; or by Ctrl-C, which the terminal gives to all: the worker says nothing."""
    script = tmp_path / "starts.py"
    script.write_text(STARTS)
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert parent.stdout is not None and parent.stderr is not None
    worker = int(parent.stdout.readline())
    if how is signal.SIGKILL:
        parent.kill()
    else:
        os.killpg(parent.pid, how)
    parent.wait(20)
    assert gone(worker), "it would sleep for ten minutes"
    assert parent.stderr.read().count("Traceback") <= (how is signal.SIGINT), "the parent's own at most"
