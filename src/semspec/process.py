"""Running a command so that its output is seen live and nothing of it survives a cancellation.

The command gets a process group of its own and, when we have a terminal, a terminal for its output, so that
its progress bars work. Also what a command of ours does to itself as it starts. Knows nothing of DVC or Prefect.
"""

from __future__ import annotations

import atexit
import codecs
import contextlib
import gc
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

GRACE_S = 3.0  # between SIGTERM and SIGKILL; with what a server needs to notice, a cancelled run is gone within 5 s
PARENT = "SEMSPEC_PARENT"  # in a command's environment: the process without which it must not go on
RUN = "SEMSPEC_RUN"  # in the environment of all that a run starts, Prefect's server too: its process
BOOKKEEPING_S = 5.0  # for Prefect to record a cancellation

cancelled: list[threading.Timer] = []  # not empty once Ctrl-C or SIGTERM ended a command that someone watched
ending = threading.Event()  # this process was cancelled
_running: set[subprocess.Popen[bytes]] = set()  # the groups of this process, in whatever thread


def _wait_for_group(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait until the group is empty (`ProcessLookupError`) or the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        process.poll()  # a dead leader stays a member until it is waited for
        os.killpg(process.pid, 0)
        time.sleep(0.05)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End every process of a group leader's group: SIGTERM, and SIGKILL for what is left after `GRACE_S`."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        _wait_for_group(process, GRACE_S)
        os.killpg(process.pid, signal.SIGKILL)
        _wait_for_group(process, 1.0)
    process.wait()


def end_groups() -> None:
    """End all groups that this process runs, in whatever thread: an exception reaches only the one it is raised in.

    For good: a thread that would try again what was ended starts nothing.
    """
    ending.set()
    for process in list(_running):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    for process in list(_running):
        end_group(process)


def end_with_parent() -> None:
    """Let this process end when the one that asked for that by `PARENT` is gone, killed without a chance to end us."""
    asked = os.environ.pop(PARENT, "")  # ours, not our children's

    def watch() -> None:
        import psutil

        while psutil.pid_exists(int(asked)):
            time.sleep(0.5)
        end_groups()
        os._exit(1)

    if asked.isdecimal():
        threading.Thread(target=watch, daemon=True).start()


def unburden() -> None:
    """Let the garbage collector leave the imports of PyTorch and transformers alone: it walks through a million objects
    many times as they come, and once more before the process ends. Together a fifth of a short command."""
    gc.set_threshold(100_000, 50, 50)
    atexit.register(gc.freeze)


def end_orphans(command: str, mark: str) -> None:
    """End what a killed run (`RUN`) has left: processes with this word in their command and our value of `mark`."""
    import psutil

    for process in psutil.process_iter(["cmdline", "environ"]):
        variables = process.info["environ"] or {}
        run, mine = variables.get(RUN, ""), variables.get(mark) == os.environ.get(mark)
        if mine and command in (process.info["cmdline"] or []) and run.isdecimal() and not psutil.pid_exists(int(run)):
            with contextlib.suppress(psutil.Error):
                process.terminate()


def interrupted(error: BaseException) -> bool:
    """Was it Ctrl-C? A library in whose midst it came may have made another error of it."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, KeyboardInterrupt) or "KeyboardInterrupt" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def leave(says: str = "cancelled; the same command goes on where it stopped", code: int = 130) -> None:
    """End this process with all below it, Prefect's own server too, and say so. Finished stages are kept by DVC."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.terminate()
    print(says, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextlib.contextmanager
def cancellable(live: bool) -> Iterator[None]:
    """After a cancellation in here all groups are ended, and a `live` process ends within `BOOKKEEPING_S`."""
    try:
        yield
    except Exception:
        raise
    except BaseException:
        end_groups()
        if live:  # Ctrl-C ends Prefect's own server with us, and Prefect would try to reach it for a minute
            cancelled.append(threading.Timer(BOOKKEEPING_S, leave))
            cancelled[-1].daemon = True
            cancelled[-1].start()
        raise


def _output() -> tuple[int, int]:
    """(read end, write end) of the command's output: a terminal like ours, or a pipe."""
    if not sys.stderr.isatty():
        return os.pipe()
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    with contextlib.suppress(OSError, AttributeError):
        import fcntl
        import termios

        size = fcntl.ioctl(sys.stderr.fileno(), termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
    return ours, theirs


def _pieces(read_end: int, process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Pieces of output as they come, each a line ("...\\n"), or part of a progress bar ("\\r...").

    Ends with the process, even if something it left behind keeps the output open.
    """
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    pending, at_line_start = "", True
    while True:
        ended = process.poll() is not None  # asked first: what it wrote before it ended is still read
        ready, _, _ = select.select([read_end], [], [], 0.5)
        if not ready and not ended:
            continue
        try:
            chunk = os.read(read_end, 65536) if ready else b""
        except OSError:  # a terminal whose other side is closed
            chunk = b""
        pending += decode(chunk, final=not chunk)
        while pending:
            cut = min((i for i in (pending.find("\n"), pending.find("\r", 1)) if i >= 0), default=-1)
            if cut >= 0:
                cut += pending[cut] == "\n"
            elif not chunk or pending[0] == "\r" or not at_line_start:
                cut = len(pending)  # part of a bar: show it now; a line may still grow
            else:
                break
            piece, pending = pending[:cut], pending[cut:]
            at_line_start = piece.endswith("\n")
            yield piece
        if not chunk:
            return


def run_group(
    command: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    keep: Callable[[str], bool] = lambda line: True,
    log: Callable[[str], None] | None = None,
    live: bool = True,
    bar: Callable[[str], None] | None = None,
) -> int:
    """Run `command`, show its output, return its exit code.

    keep: called with every full line; False hides the line.
    log: gets every kept line that is no part of a progress bar, without its newline.
    live: copy the output to our stderr as it comes.
    bar: gets every state of a progress bar.
    Any exception raised while it runs (Ctrl-C, a cancelled flow) ends the command's whole process group.
    """
    if ending.is_set():
        raise InterruptedError("cancelled")
    read_end, write_end = _output()
    try:
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=write_end, stderr=write_end,
            start_new_session=True,
        )  # fmt: skip
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    _running.add(process)
    try:
        for piece in _pieces(read_end, process):
            line = piece.endswith("\n") and not piece.startswith("\r")
            if line and not keep(piece):
                continue
            if live:
                sys.stderr.write(piece)
                sys.stderr.flush()
            if line and log is not None and piece.strip():
                log(piece.rstrip())
            if bar is not None and not line and piece.strip():
                bar(piece.strip())
        return process.wait()
    except BaseException:
        end_group(process)
        raise
    finally:
        _running.discard(process)
        os.close(read_end)
